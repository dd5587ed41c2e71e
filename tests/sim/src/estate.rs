//! The fleet on paper: hosts, and edits of the policies that govern them.
//!
//! - Some edits touch one host and some all of a namespace; some change little, some everything, some nothing that is rendered.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::intent::{
    DEFAULT_ORDER, EnrolledHost, HostSpec, Intent, Object, Peer, PeerSpec, Policy, PolicyRule, PortSpec, Service,
    ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Selector};
use holdfast_model::name::Name;
use holdfast_model::numbers::AuthorityEpoch;
use holdfast_model::policy::{Action, Mode, PortRange, protocol};
use holdfast_model::statement::Authority;
use holdfast_render::Edit;
use holdfast_session::random::Random;
use ipnet::{IpNet, Ipv4Net};
use uuid::Uuid;

/// The identity of the nth host.
pub(crate) const fn host_id(host: usize) -> HostId {
    HostId::new(Uuid::from_u128(host as u128 + 1))
}

/// The authority of every schedule.
pub(crate) const fn authority() -> Authority {
    Authority { id: AuthorityId::new(Uuid::from_u128(0xa)), epoch: AuthorityEpoch::from_raw(1) }
}

/// The namespace of the nth host: two of them, by turns.
pub(crate) fn namespace(host: usize) -> Name {
    name(if host.is_multiple_of(2) { "amber" } else { "blue" })
}

fn name(text: &str) -> Name {
    text.parse().unwrap_or_else(|_| Name::default_namespace())
}

/// What operators authored, and how they go on.
#[derive(Debug)]
pub(crate) struct Estate {
    hosts: usize,
    /// The prefixes of each policy, by its name.
    members: BTreeMap<(Name, Name), BTreeSet<u8>>,
    /// What the last edit replaced.
    before: Option<((Name, Name), BTreeSet<u8>)>,
}

impl Estate {
    pub(crate) fn new(hosts: usize) -> Self {
        let mut members = BTreeMap::new();
        for host in 0..hosts {
            members.insert((namespace(host), name(&format!("own-{host}"))), (0..40).map(|n| n * 3).collect());
            members.insert((namespace(host), name("all")), (0..20).map(|n| n * 5).collect());
        }
        Self { hosts, members, before: None }
    }

    /// Everything that is authored now.
    pub(crate) fn intent(&self) -> Intent {
        let mut intent = Intent::default();
        for host in 0..self.hosts {
            let enrolled = EnrolledHost {
                id: host_id(host),
                namespace: namespace(host),
                name: name(&format!("host-{host}")),
                labels: Labels::from([("own".to_owned(), format!("own-{host}"))]),
                ports: vec![],
                addresses: vec![IpAddr::from([10, 0, 0, u8::try_from(host).unwrap_or(0)])],
            };
            let spec = HostSpec { mode: Some(Mode::Enforced), ..HostSpec::default() };
            let (namespace, name) = (enrolled.namespace.clone(), enrolled.name.clone());
            intent.put(Object { namespace, name, spec: Spec::Host(spec) });
            intent.hosts.insert(enrolled.id, enrolled);
        }
        for (namespace, name) in self.members.keys() {
            intent.put(self.object(namespace, name));
        }
        intent
    }

    /// One more edit.
    pub(crate) fn edit(&mut self, random: &mut Random) -> Edit {
        // Two edits that cancel each other out before anybody looked leave a version that rose over an equal digest.
        if random.up_to(3) == 0
            && let Some((key, members)) = self.before.take()
        {
            self.members.insert(key.clone(), members);
            return Edit::PutObject(self.object(&key.0, &key.1));
        }
        let last = u64::try_from(self.members.len().saturating_sub(1)).unwrap_or(0);
        let nth = usize::try_from(random.up_to(last)).unwrap_or(0);
        let Some(key) = self.members.keys().nth(nth).cloned() else { return Edit::RemoveHost(host_id(usize::MAX)) };
        // Mostly a member or two, now and then everything, now and then nothing: every form of update.
        let toggles = match random.up_to(9) {
            0 => 0,
            1 => 60,
            _ => 1 + random.up_to(1),
        };
        self.before = self.members.get(&key).map(|members| (key.clone(), members.clone()));
        if let Some(members) = self.members.get_mut(&key) {
            for _ in 0..toggles {
                let member = u8::try_from(random.up_to(200)).unwrap_or(0);
                if !members.remove(&member) {
                    members.insert(member);
                }
            }
        }
        Edit::PutObject(self.object(&key.0, &key.1))
    }

    /// One prefix of a host's own policy comes or goes.
    #[cfg(test)]
    pub(crate) fn toggle(&mut self, host: usize, member: u8) -> Edit {
        let key = (namespace(host), name(&format!("own-{host}")));
        if let Some(members) = self.members.get_mut(&key)
            && !members.remove(&member)
        {
            members.insert(member);
        }
        Edit::PutObject(self.object(&key.0, &key.1))
    }

    fn object(&self, namespace: &Name, own: &Name) -> Object {
        let members = self.members.get(&(namespace.clone(), own.clone()));
        let prefix = |member: &u8| Ipv4Net::new([192, 0, 2, *member].into(), 32).ok().map(IpNet::V4);
        let peers = members.into_iter().flatten().filter_map(prefix);
        let peers = peers.map(|cidr| Peer::Cidr { cidr, except: vec![] }).collect();
        let is_all = own.to_string() == "all";
        let subject = if is_all {
            Selector::everything()
        } else {
            Selector::equal_to(&Labels::from([("own".to_owned(), own.to_string())]))
        };
        let rule = PolicyRule {
            order: DEFAULT_ORDER,
            action: Action::Allow,
            peers: PeerSpec::Of(peers),
            services: ServiceSpec::Of(vec![Service::Ports {
                protocol: protocol::TCP,
                ports: PortSpec::Range(PortRange::single(if is_all { 443 } else { 5432 })),
            }]),
            local: None,
            log: false,
        };
        let policy = Policy { subject, isolate_ingress: true, ingress: vec![rule], ..Policy::default() };
        Object { namespace: namespace.clone(), name: own.clone(), spec: Spec::Policy(policy) }
    }
}
