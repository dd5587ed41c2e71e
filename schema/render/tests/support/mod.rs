//! What the tests of the renderer share: small worlds in which everything collides, and a plain reading of intent.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod judges;
pub(crate) mod naive;
pub(crate) mod worlds;

use std::net::IpAddr;

use holdfast_model::ids::HostId;
use holdfast_model::intent::Intent;
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use holdfast_render::Edit;

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(crate) fn net(text: &str) -> ipnet::IpNet {
    text.parse().expect("a prefix")
}

pub(crate) fn host_id(number: u32) -> HostId {
    format!("ho_00000000-0000-0000-0000-{number:012x}").parse().expect("an id")
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The same edit on plain intent.
pub(crate) fn apply_to_intent(intent: &mut Intent, edit: &Edit) {
    match edit.clone() {
        Edit::PutObject(object) => intent.put(object),
        Edit::DeleteObject(key) => {
            intent.objects.remove(&key);
        }
        Edit::PutHost(host) => {
            intent.hosts.insert(host.id, host);
        }
        Edit::RemoveHost(id) => {
            intent.hosts.remove(&id);
        }
    }
}
