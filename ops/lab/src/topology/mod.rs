//! How a lab is wired: names, management addresses and the routes between namespaces. Pure.
//!
//! - Every host has one link, to the bridge, and its addresses as single addresses; the bridge's namespace routes, so any mix of ranges reaches any other
//!   with its source addresses intact.
//! - What is no host's address is routed to the outside, which answers for all of it.
//! - Management addresses come from a block that holds no address of a host. Only the control plane, the bridge and the outside are spoken to by them.
//! - The bridge has fixed neighbours and no link-local address, so it sends no redirects, whose drops would look like drops of probes; hosts resolve
//!   the bridge like any router.

mod script;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::plan::HostPlan;
use crate::record::{Host, Record};

pub use script::{BRIDGE_SETTINGS, MEMBER_SETTINGS, bridge_script, control_script, host_script, outside_script};

/// Blocks for management addresses, in order of preference. Each is 4,096 addresses at the end of a range for tests or private use.
const BLOCKS_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(198, 19, 240, 0),
    Ipv4Addr::new(100, 127, 240, 0),
    Ipv4Addr::new(10, 255, 240, 0),
    Ipv4Addr::new(172, 31, 240, 0),
];
/// The same for IPv6: unique local prefixes of 112 bits.
const BLOCKS_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd4c, 0x6162, 0x6c61, 0, 0, 0, 0, 0), Ipv6Addr::new(0xfd4c, 0x6162, 0x6c62, 0, 0, 0, 0, 0)];
/// Addresses in a block.
const BLOCK_ADDRESSES: u16 = 4096;
/// The bridge's place in the block.
const BRIDGE_SLOT: u16 = 1;
/// The control plane's place.
const CONTROL_SLOT: u16 = 2;
/// The outside's place.
const OUTSIDE_SLOT: u16 = 3;
/// The first host's place.
const HOST_SLOT: u16 = 16;
/// The most bytes of a host's name that its namespace and folder show; a file name has room for 255.
const LABEL_BYTES_MAX: usize = 40;

/// Why hosts cannot be wired.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// Two hosts have one name.
    #[error("two hosts are called `{name}`")]
    Name {
        /// The name.
        name: String,
    },
    /// Two hosts have one address.
    #[error("the address {address} belongs to two hosts")]
    Shared {
        /// The address.
        address: IpAddr,
    },
    /// No host can have the address.
    #[error("the host `{host}` cannot have the address {address}")]
    Address {
        /// The host.
        host: String,
        /// The address.
        address: IpAddr,
    },
    /// The addresses leave no block for management.
    #[error("the hosts' addresses touch every block that the lab could use for management")]
    Block,
    /// There are too many hosts.
    #[error("a lab holds at most {} hosts", BLOCK_ADDRESSES - HOST_SLOT)]
    Count,
}

/// The two management addresses of one namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Management {
    /// IPv4.
    pub v4: Ipv4Addr,
    /// IPv6.
    pub v6: Ipv6Addr,
}

/// The blocks that a lab's management addresses come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Blocks {
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Blocks {
    fn at(self, slot: u16) -> Management {
        Management {
            v4: Ipv4Addr::from(u32::from(self.v4) + u32::from(slot)),
            v6: Ipv6Addr::from(u128::from(self.v6) + u128::from(slot)),
        }
    }

    /// The bridge's addresses, the next hop of everybody.
    #[must_use]
    pub fn bridge(self) -> Management {
        self.at(BRIDGE_SLOT)
    }

    /// The control plane's addresses.
    #[must_use]
    pub fn control(self) -> Management {
        self.at(CONTROL_SLOT)
    }

    /// The outside's addresses.
    #[must_use]
    pub fn outside(self) -> Management {
        self.at(OUTSIDE_SLOT)
    }

    /// The addresses of the host in this place of the lab's list.
    #[must_use]
    pub fn host(self, index: u16) -> Management {
        self.at(HOST_SLOT + index)
    }

    /// The first pair of blocks without any of these addresses.
    fn free_of(addresses: &BTreeSet<IpAddr>) -> Option<Self> {
        let last_v4 = |first: &Ipv4Addr| Ipv4Addr::from(u32::from(*first) + u32::from(BLOCK_ADDRESSES) - 1);
        let last_v6 = |first: &Ipv6Addr| Ipv6Addr::from(u128::from(*first) + u128::from(u16::MAX));
        let free = |first: IpAddr, last: IpAddr| addresses.range(first..=last).next().is_none();
        Some(Self {
            v4: BLOCKS_V4.into_iter().find(|first| free((*first).into(), last_v4(first).into()))?,
            v6: BLOCKS_V6.into_iter().find(|first| free((*first).into(), last_v6(first).into()))?,
        })
    }
}

/// The start of all names of the lab in this folder; the path must be absolute.
#[must_use]
pub fn tag_of(folder: &Path) -> String {
    format!("hf-{}", short_hash(folder.as_os_str().as_encoded_bytes(), 10))
}

/// Gives every host a namespace, a link and management addresses. The same plan in the same folder always gives the same record.
///
/// # Errors
/// See [`Error`].
pub fn assign(folder: &Path, plans: &[HostPlan]) -> Result<Record, Error> {
    let mut names = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    for plan in plans {
        if !names.insert(&plan.name) {
            return Err(Error::Name { name: plan.name.clone() });
        }
        for address in &plan.addresses {
            if !is_assignable(*address) {
                return Err(Error::Address { host: plan.name.clone(), address: *address });
            }
            if !addresses.insert(*address) {
                return Err(Error::Shared { address: *address });
            }
        }
    }
    let blocks = Blocks::free_of(&addresses).ok_or(Error::Block)?;
    let mut record = Record::new(tag_of(folder), blocks);
    for (index, plan) in plans.iter().enumerate() {
        let index = u16::try_from(index).map_err(|_| Error::Count)?;
        if index >= BLOCK_ADDRESSES - HOST_SLOT {
            return Err(Error::Count);
        }
        let management = blocks.host(index);
        let label = label_of(&plan.name);
        record.hosts.push(Host {
            name: plan.name.clone(),
            namespace: format!("{}.{label}", record.tag),
            estate_namespace: plan.estate_namespace.clone(),
            addresses: plan.addresses.clone(),
            management: vec![management.v4.into(), management.v6.into()],
            agent: None,
            state: folder.join("hosts").join(label),
        });
    }
    Ok(record)
}

/// Whether a host can have this address and send from it.
#[must_use]
pub fn is_assignable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !(v4.octets()[0] == 0 || v4.is_loopback() || v4.is_multicast() || v4.is_broadcast()),
        IpAddr::V6(v6) => {
            !(v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
                || v6.to_ipv4_mapped().is_some())
        }
    }
}

/// A host's name as namespaces and folders can bear it, with a hash that keeps like ones apart.
fn label_of(name: &str) -> String {
    let shown: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(LABEL_BYTES_MAX)
        .collect();
    format!("{}-{}", shown.trim_matches('-'), short_hash(name.as_bytes(), 6))
}

fn short_hash(bytes: &[u8], characters: usize) -> String {
    blake3::hash(bytes).to_hex().chars().take(characters).collect()
}

/// A fixed hardware address for a name, locally administered.
fn hardware_address(name: &str) -> String {
    let hash = blake3::hash(name.as_bytes());
    let tail: Vec<String> = hash.as_bytes().iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    format!("02:{}", tail.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_plan(name: &str, addresses: &[&str]) -> HostPlan {
        HostPlan {
            estate_namespace: None,
            name: name.to_owned(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn one_plan_gives_one_record_and_two_folders_share_no_name() {
        let plans = [mk_plan("x/a", &["10.0.0.1", "fd00::1"]), mk_plan("x-a", &["10.0.0.2"])];
        let first = assign(Path::new("/labs/one"), &plans).unwrap();
        assert_eq!(first, assign(Path::new("/labs/one"), &plans).unwrap());
        let second = assign(Path::new("/labs/two"), &plans).unwrap();
        let mut names: Vec<_> = first.namespaces().chain(second.namespaces()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 10);
    }

    #[test]
    fn management_addresses_keep_clear_of_the_hosts() {
        let record = assign(Path::new("/lab"), &[mk_plan("a", &["198.19.255.255", "fd4c:6162:6c61::9"])]).unwrap();
        assert_eq!(
            record.hosts[0].management,
            [IpAddr::from([100, 127, 240, 16]), "fd4c:6162:6c62::10".parse().unwrap()]
        );
    }

    #[test]
    fn what_no_host_can_have_is_refused_with_its_name() {
        let shared = assign(Path::new("/lab"), &[mk_plan("a", &["10.0.0.1"]), mk_plan("b", &["10.0.0.1"])]);
        assert_eq!(shared, Err(Error::Shared { address: [10, 0, 0, 1].into() }));
        let loopback = assign(Path::new("/lab"), &[mk_plan("a", &["127.0.0.1"])]);
        assert_eq!(loopback, Err(Error::Address { host: "a".to_owned(), address: [127, 0, 0, 1].into() }));
        let twice = assign(Path::new("/lab"), &[mk_plan("a", &[]), mk_plan("a", &[])]);
        assert_eq!(twice, Err(Error::Name { name: "a".to_owned() }));
    }

    #[test]
    fn odd_names_become_distinct_plain_labels() {
        let labels: BTreeSet<_> = ["x/a", "x-a", "X/a", "default/web[Deployment]", "ü"].map(label_of).into();
        assert_eq!(labels.len(), 5);
        assert!(labels.iter().all(|label| label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')));
    }
}
