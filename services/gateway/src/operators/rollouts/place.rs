//! Who of a fleet is in which stage: both lists are in the order of hosts' ids, and are walked once beside each other.

use std::cmp::Ordering;

use holdfast_model::ids::HostId;

use super::super::fleet::JudgedHost;

/// Each host with its stage; none for one that no stage has, since it enrolled after the rollout began.
pub(super) fn placed<'a>(
    members: impl IntoIterator<Item = &'a (HostId, u32)>,
    hosts: impl IntoIterator<Item = &'a JudgedHost>,
) -> impl Iterator<Item = (&'a JudgedHost, Option<u32>)> {
    beside(members, hosts, |host| host.status.host)
}

/// What a walk of two lists gives, each in the order of ids.
fn beside<'a, H>(
    members: impl IntoIterator<Item = &'a (HostId, u32)>,
    hosts: impl IntoIterator<Item = H>,
    id_of: impl Fn(&H) -> HostId,
) -> impl Iterator<Item = (H, Option<u32>)> {
    let mut members = members.into_iter().peekable();
    hosts.into_iter().map(move |host| {
        let id = id_of(&host);
        // Those before it are hosts no more, or were not asked for.
        while members.next_if(|(member, _)| member.cmp(&id) == Ordering::Less).is_some() {}
        let stage = members.next_if(|(member, _)| *member == id).map(|(_, stage)| *stage);
        (host, stage)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use uuid::Uuid;

    use super::*;

    const HOSTS: u128 = 10_000;

    fn host(n: u128) -> HostId {
        HostId::new(Uuid::from_u128(n))
    }

    #[test]
    fn each_host_has_its_stage_and_one_that_enrolled_meanwhile_has_none() {
        let members = [(host(1), 1), (host(3), 2), (host(4), 1)];
        let placed: Vec<_> = beside(&members, [host(0), host(1), host(2), host(4), host(5)], |host| *host).collect();
        let wanted = [(0, None), (1, Some(1)), (2, None), (4, Some(1)), (5, None)];
        assert_eq!(placed, wanted.map(|(n, stage)| (host(n), stage)));
    }

    #[test]
    fn a_look_walks_each_list_once_however_many_hosts_there_are() {
        let members: Vec<(HostId, u32)> = (0..HOSTS).map(|n| (host(2 * n), 1)).collect();
        let hosts: Vec<HostId> = (0..2 * HOSTS).map(host).collect();
        let steps = Cell::new(0_usize);
        let count = || steps.set(steps.get() + 1);
        let placed = beside(members.iter().inspect(|_| count()), hosts.iter().inspect(|_| count()), |host| **host);
        assert_eq!(placed.filter(|(_, stage)| stage.is_some()).count(), members.len());
        assert_eq!(steps.get(), members.len() + hosts.len());
    }
}
