//! What intent says about one end of a flow, and whether authored peers mean it.

use std::net::IpAddr;

use holdfast_model::address::{Either, interval_of, number_of};
use holdfast_model::intent::{DeclaredPort, Intent, Kind, NamespaceMatch, ObjectKey, Peer, PeerSpec, Spec};
use holdfast_model::label::Labels;
use holdfast_model::name::Name;
use holdfast_model::policy::Mode;
use ipnet::IpNet;

use crate::flow::{End, FlowError, Who};

/// The label that every namespace has with its own name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// One end with all that selectors and named ports read.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) address: IpAddr,
    /// Who it is to selectors; nobody if it is outside.
    pub(crate) known: Option<Known>,
}

/// A host or an endpoint.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) namespace: Name,
    pub(crate) labels: Labels,
    pub(crate) ports: Vec<DeclaredPort>,
    /// How far its policy is enforced, if it is a host; an endpoint has none.
    pub(crate) mode: Option<Mode>,
}

impl Facts {
    pub(crate) fn of(intent: &Intent, end: &End) -> Result<Self, FlowError> {
        let known = match &end.who {
            Who::Outside => None,
            Who::Endpoint(key) => match intent.objects.get(key) {
                Some(Spec::Endpoint(spec)) => Some(Known {
                    namespace: key.namespace.clone(),
                    labels: spec.labels.clone(),
                    ports: spec.ports.clone(),
                    mode: None,
                }),
                _ => return Err(FlowError::Endpoint(key.clone())),
            },
            Who::Host(id) => {
                let host = intent.hosts.get(id).ok_or(FlowError::Host(*id))?;
                let key = ObjectKey { kind: Kind::Host, namespace: host.namespace.clone(), name: host.name.clone() };
                let mut known = Known {
                    namespace: host.namespace.clone(),
                    labels: host.labels.clone(),
                    ports: host.ports.clone(),
                    mode: Some(Mode::default()),
                };
                if let Some(Spec::Host(spec)) = intent.objects.get(&key) {
                    known.labels.extend(spec.labels.clone());
                    known.mode = Some(spec.mode.unwrap_or_default());
                    if let Some(ports) = &spec.ports {
                        known.ports.clone_from(ports);
                    }
                }
                Some(known)
            }
        };
        Ok(Self { address: end.address.to_canonical(), known })
    }

    /// Whether the peers of a rule of a policy in `namespace` mean this end.
    pub(crate) fn is_among(&self, intent: &Intent, namespace: &Name, peers: &PeerSpec) -> bool {
        match peers {
            PeerSpec::Any => true,
            PeerSpec::Of(list) => list.iter().any(|peer| self.is(intent, namespace, peer)),
        }
    }

    fn is(&self, intent: &Intent, namespace: &Name, peer: &Peer) -> bool {
        match peer {
            Peer::Select { namespaces, labels } => self.known.as_ref().is_some_and(|known| {
                let there = match namespaces {
                    NamespaceMatch::Own => known.namespace == *namespace,
                    NamespaceMatch::Select(selector) => selector.matches(&namespace_labels(intent, &known.namespace)),
                };
                there && labels.matches(&known.labels)
            }),
            Peer::Cidr { cidr, except } => self.is_in(*cidr) && !except.iter().any(|net| self.is_in(*net)),
            Peer::Group(name) => {
                let key = ObjectKey { kind: Kind::AddressGroup, namespace: namespace.clone(), name: name.clone() };
                match intent.objects.get(&key) {
                    Some(Spec::AddressGroup(group)) => group.cidrs.iter().any(|net| self.is_in(*net)),
                    // A group that is not there has no members.
                    _ => false,
                }
            }
        }
    }

    /// Whether its address is in a prefix; a prefix of the other family never holds it.
    pub(crate) fn is_in(&self, net: IpNet) -> bool {
        match (interval_of(net), number_of(self.address)) {
            (Either::V4(interval), Either::V4(address)) => interval.contains(address),
            (Either::V6(interval), Either::V6(address)) => interval.contains(address),
            (Either::V4(_), Either::V6(_)) | (Either::V6(_), Either::V4(_)) => false,
        }
    }
}

/// The labels of a namespace: those of its object, if there is one, and its name.
fn namespace_labels(intent: &Intent, namespace: &Name) -> Labels {
    let key = ObjectKey { kind: Kind::Namespace, namespace: namespace.clone(), name: namespace.clone() };
    let mut labels = match intent.objects.get(&key) {
        Some(Spec::Namespace(spec)) => spec.labels.clone(),
        _ => Labels::new(),
    };
    labels.insert(NAMESPACE_NAME_LABEL.to_owned(), namespace.to_string());
    labels
}
