//! What this host is: its name, its kernel, its addresses; and when the addresses change.
//!
//! - Addresses that lead nowhere outside are left out: loopback and link-local.
//! - The kernel tells of changes; nothing is polled. What cannot be read is empty, not guessed.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use holdfast_wire::limits::{ADDRESSES_MAX, HOSTNAME_BYTES_MAX, KERNEL_BYTES_MAX};
use holdfast_wire::message::Inventory;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};
use tokio::sync::watch;
use uuid::Uuid;

/// `RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_LINK`.
const ADDRESS_GROUPS: u32 = 0x10 | 0x100 | 0x1;
/// A machine that is being configured changes many addresses at once; they are told together.
const QUIET: Duration = Duration::from_millis(200);

/// What the host is now.
pub(crate) fn observe() -> Inventory {
    Inventory {
        hostname: bounded("/proc/sys/kernel/hostname", HOSTNAME_BYTES_MAX),
        kernel: bounded("/proc/sys/kernel/osrelease", KERNEL_BYTES_MAX),
        addresses: addresses(),
    }
}

fn bounded(path: &str, bytes_max: usize) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    holdfast_model::condition::bounded(text.trim(), bytes_max)
}

fn addresses() -> Vec<IpAddr> {
    let interfaces = match getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            tracing::warn!(%error, "own addresses cannot be read");
            return Vec::new();
        }
    };
    let found: BTreeSet<IpAddr> = interfaces
        .filter(|interface| !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK))
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
        })
        .filter(|address| leads_outside(*address))
        .collect();
    found.into_iter().take(ADDRESSES_MAX).collect()
}

fn leads_outside(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_unspecified(),
    }
}

/// Made once per start of the machine.
pub(super) fn boot_id() -> Uuid {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

/// The inventory, and each change of it.
pub(super) fn watch() -> watch::Receiver<Inventory> {
    let (told, changes) = watch::channel(observe());
    let listen = move || {
        let failed = |error: nix::Error| tracing::warn!(%error, "changes of addresses are not heard");
        let group = NetlinkAddr::new(0, ADDRESS_GROUPS);
        let opened = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute);
        let socket = match opened {
            Ok(socket) => socket,
            Err(error) => return failed(error),
        };
        if let Err(error) = bind(socket.as_raw_fd(), &group) {
            return failed(error);
        }
        let mut buffer = vec![0; 64 << 10];
        // A lost notice (ENOBUFS) is a notice too: what it says is read from the kernel anyway.
        while !told.is_closed() {
            match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EINTR) => {}
                Err(error) => return failed(error),
            }
            thread::sleep(QUIET);
            let now = observe();
            told.send_if_modified(|before| {
                let changed = *before != now;
                *before = now;
                changed
            });
        }
    };
    if let Err(error) = thread::Builder::new().name("addresses".to_owned()).spawn(listen) {
        tracing::warn!(%error, "changes of addresses are not heard");
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_lead_outside_are_told() {
        let of = |text: &str| leads_outside(text.parse().expect("an address"));
        assert!(of("192.0.2.1") && of("2001:db8::1") && of("fd00::1"));
        assert!(!of("127.0.0.1") && !of("169.254.1.1") && !of("fe80::1") && !of("::1") && !of("0.0.0.0"));
    }
}
