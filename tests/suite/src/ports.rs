//! Ports of loopback that a test hands to a server which binds them later, perhaps several times.
//!
//! - No two tests are handed one port while both run: each is reserved by a name in the kernel that ends with the test's
//!   process, however it ends.
//! - A port lies below the range that the kernel picks the near ends of connections from. Out of that range a port that
//!   was free a moment ago may be the near end of somebody's connection when the server binds it.

use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// The lowest port that is handed out.
const LOWEST: u16 = 12_000;

/// What this process has reserved, and how many it has tried.
static RESERVED: Mutex<(Vec<UnixListener>, u32)> = Mutex::new((Vec::new(), 0));

/// A port that nobody listens on now, and that no other test is handed while this process runs.
///
/// # Panics
///
/// If there is none, or the kernel does not say where its own range begins.
#[must_use]
pub fn free_port() -> u16 {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let (held, tried) = &mut *reserved;
    let ports = LOWEST..lowest_of_the_kernel();
    let found = candidates(&ports, std::process::id(), *tried).find_map(|port| {
        *tried += 1;
        let name = SocketAddr::from_abstract_name(format!("holdfast-test-port-{port}")).expect("a short name");
        let reservation = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind(("127.0.0.1", port)).ok()?;
        Some((port, reservation))
    });
    let (port, reservation) = found.expect("a port of loopback is free");
    held.push(reservation);
    port
}

/// Every port once, from a place that is another one for each process and each try.
fn candidates(ports: &Range<u16>, process: u32, tried: u32) -> impl Iterator<Item = u16> {
    let (start, count) = (ports.start, u32::from(ports.end.saturating_sub(ports.start)));
    let first = process.wrapping_mul(61).wrapping_add(tried);
    (0..count).filter_map(move |step| {
        let offset = first.wrapping_add(step).checked_rem(count)?;
        start.checked_add(u16::try_from(offset).ok()?)
    })
}

fn lowest_of_the_kernel() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("the kernel tells its range");
    let lowest = range.split_whitespace().next().expect("two numbers");
    lowest.parse().expect("a port")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_handed_out_once_and_is_none_that_the_kernel_gives_to_connections() {
        let ports: BTreeSet<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| (LOWEST..lowest_of_the_kernel()).contains(port)), "{ports:?}");
    }

    #[test]
    fn every_port_is_tried_once_wherever_a_process_begins() {
        let tried: Vec<u16> = candidates(&(10..17), 4_000_000_000, 3).collect();
        assert_eq!((tried.len(), tried.iter().collect::<BTreeSet<_>>().len()), (7, 7));
        assert_ne!(candidates(&(10..17), 1, 0).next(), candidates(&(10..17), 2, 0).next());
        assert_eq!(candidates(&(10..10), 1, 0).next(), None);
    }
}
