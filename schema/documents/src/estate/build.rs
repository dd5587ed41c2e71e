//! `estate/1` to intents: the state as written, and the state after each step.
//!
//! Each (policy, subject) becomes one Policy whose isolation is what `enforced` says, apart from its rules. An enforcing selector of no policy
//! becomes a Policy without rules.

use std::collections::BTreeMap;

use holdfast_model::ids::HostId;
use holdfast_model::intent::{
    AddressGroupSpec, DEFAULT_ORDER, DeclaredPort, EnrolledHost, HostSpec, Intent, NamespaceMatch, Object, Peer,
    PeerSpec, Policy, PolicyRule, PortSpec, Service, ServiceSpec, Spec,
};
use holdfast_model::label::{Labels, Requirement, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::{Action, Mode, PortRange, protocol};
use ipnet::IpNet;

use super::file::{AnyOr, Dir, Edit, Enforced, EstateFile, IpSet, PeerFile, Rule, Sel, ServiceFile, Workload};
use super::{AddressList, Beside, Error, Estate, State, cells, identity};
use crate::address_list::{parse_entry, read_address_list};
use crate::scalar::{parse_cidr, transport};

/// What is authored at one moment.
pub(super) struct Authored {
    estate: String,
    /// In the order of the file, which matrices follow.
    pub(super) workloads: Vec<Workload>,
    /// Labels that edits put over those of enrolment.
    relabelled: BTreeMap<String, Labels>,
    groups: BTreeMap<String, Vec<IpNet>>,
    rules: Vec<Rule>,
    enforced: Enforced,
}

/// Builds all states.
pub(super) fn estate(file: EstateFile, beside: &mut Beside<'_>) -> Result<Estate, Error> {
    let mut authored = Authored {
        estate: file.id.clone(),
        workloads: file.workloads,
        relabelled: BTreeMap::new(),
        groups: BTreeMap::new(),
        rules: file.rules,
        enforced: file.enforced,
    };
    let mut address_lists = Vec::new();
    for ipset in &file.ipsets {
        address_lists.push(authored.put_ipset(ipset, beside)?);
    }
    let mut host_names = authored.host_names();
    let mut states = vec![State { intent: authored.intent()?, cells: cells::of(&authored, &file.expect)? }];
    for step in file.steps {
        for edit in step.edits {
            address_lists.extend(authored.edit(edit, beside)?);
        }
        host_names.extend(authored.host_names());
        states.push(State { intent: authored.intent()?, cells: cells::of(&authored, &step.expect)? });
    }
    Ok(Estate { id: file.id, title: file.title, needs: file.needs, host_names, address_lists, states })
}

impl Authored {
    /// The id of a workload that is there.
    pub(super) fn host_id(&self, workload: &str) -> Result<HostId, Error> {
        if self.workloads.iter().any(|there| there.id == workload) {
            return Ok(identity::host_id(&self.estate, workload));
        }
        Err(Error::value(workload, "there is no such workload"))
    }

    fn host_names(&self) -> BTreeMap<HostId, String> {
        let one = |workload: &Workload| (identity::host_id(&self.estate, &workload.id), workload.id.clone());
        self.workloads.iter().map(one).collect()
    }

    fn edit(&mut self, edit: Edit, beside: &mut Beside<'_>) -> Result<Option<AddressList>, Error> {
        match edit {
            Edit::PutRules { policy, rules, enforced } => {
                self.drop_policy(&policy);
                if let Some(rule) = rules.iter().find(|rule| rule.policy != policy) {
                    return Err(Error::value(&rule.id, format!("this rule is not of policy `{policy}`")));
                }
                self.rules.extend(rules);
                let owned = |mut sel: Sel| {
                    sel.policy = Some(policy.clone());
                    sel
                };
                self.enforced.ingress.extend(enforced.ingress.into_iter().map(owned));
                self.enforced.egress.extend(enforced.egress.into_iter().map(owned));
            }
            Edit::DropRules { policy } => self.drop_policy(&policy),
            Edit::SetLabels { workloads, labels } => {
                for workload in workloads {
                    self.host_id(&workload)?;
                    self.relabelled.entry(workload).or_default().extend(labels.clone());
                }
            }
            Edit::PutWorkload { workload } => {
                self.relabelled.remove(&workload.id);
                match self.workloads.iter_mut().find(|there| there.id == workload.id) {
                    Some(there) => *there = workload,
                    None => self.workloads.push(workload),
                }
            }
            Edit::DropWorkload { id } => {
                self.host_id(&id)?;
                self.relabelled.remove(&id);
                self.workloads.retain(|there| there.id != id);
            }
            Edit::PutIpset { ipset } => return self.put_ipset(&ipset, beside).map(Some),
        }
        Ok(None)
    }

    fn drop_policy(&mut self, policy: &str) {
        self.rules.retain(|rule| rule.policy != policy);
        for list in [&mut self.enforced.ingress, &mut self.enforced.egress] {
            list.retain(|sel| sel.policy.as_deref() != Some(policy));
        }
    }

    fn put_ipset(&mut self, ipset: &IpSet, beside: &mut Beside<'_>) -> Result<AddressList, Error> {
        let (entries, nets): (Vec<String>, Vec<IpNet>) = match (&ipset.cidrs, &ipset.file) {
            (Some(cidrs), None) => {
                let read = |text: &String| {
                    parse_entry(text).ok_or_else(|| Error::value(&ipset.id, format!("`{text}` is no prefix")))
                };
                (cidrs.clone(), cidrs.iter().map(read).collect::<Result<_, _>>()?)
            }
            (None, Some(file)) => {
                let text = beside(file).ok_or_else(|| Error::Beside(file.clone()))?;
                let nets = read_address_list(&text).map_err(|error| Error::value(file, error.to_string()))?;
                (text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect(), nets)
            }
            _ => return Err(Error::value(&ipset.id, "an address list has `cidrs` or `file`")),
        };
        self.groups.insert(ipset.id.clone(), nets);
        Ok(AddressList { group: identity::name_for(&ipset.id)?, entries, facts: ipset.facts.clone() })
    }

    /// The whole as intent.
    fn intent(&self) -> Result<Intent, Error> {
        let mut intent = Intent::default();
        for workload in &self.workloads {
            let host = self.host(workload)?;
            let labels = self.relabelled.get(&workload.id).cloned().unwrap_or_default();
            let spec = HostSpec { labels, ports: None, mode: Some(Mode::Enforced) };
            intent.put(object(host.name.clone(), Spec::Host(spec)));
            if intent.hosts.insert(host.id, host).is_some() {
                return Err(Error::value(&workload.id, "two workloads have this id"));
            }
        }
        for (id, nets) in &self.groups {
            let spec = Spec::AddressGroup(AddressGroupSpec { cidrs: nets.clone() });
            intent.put(object(identity::name_for(id)?, spec));
        }
        for ((policy, subject), spec) in self.policies()? {
            let shown = if policy.is_empty() { "enforced" } else { &policy };
            let whole = format!("{policy}\0{:?}", subject.requirements());
            intent.put(object(identity::name_with_digest(shown, &whole)?, Spec::Policy(spec)));
        }
        Ok(intent)
    }

    fn host(&self, workload: &Workload) -> Result<EnrolledHost, Error> {
        let mut addresses = Vec::new();
        for text in &workload.addresses {
            addresses.push(text.parse().map_err(|_| Error::value(&workload.id, format!("`{text}` is no address")))?);
        }
        addresses.sort_unstable();
        let mut ports = Vec::new();
        for port in &workload.ports {
            let Some(name) = &port.name else { continue };
            let protocol = transport(&port.proto)
                .ok_or_else(|| Error::value(&workload.id, format!("`{}` has no ports", port.proto)))?;
            ports.push(DeclaredPort { name: name.clone(), protocol, port: port.port });
        }
        ports.sort_unstable();
        Ok(EnrolledHost {
            id: identity::host_id(&self.estate, &workload.id),
            namespace: Name::default_namespace(),
            name: identity::name_for(&workload.id)?,
            labels: workload.labels.clone(),
            ports,
            addresses,
        })
    }

    fn policies(&self) -> Result<BTreeMap<(String, Selector), Policy>, Error> {
        let mut policies = Policies::default();
        for rule in &self.rules {
            let policy = policies.of(&rule.policy, &rule.subject)?;
            match rule.dir {
                Dir::In => policy.ingress.push(rule_of(rule)?),
                Dir::Out => policy.egress.push(rule_of(rule)?),
            }
        }
        for sel in &self.enforced.ingress {
            policies.of(sel.policy.as_deref().unwrap_or_default(), sel)?.isolate_ingress = true;
        }
        for sel in &self.enforced.egress {
            policies.of(sel.policy.as_deref().unwrap_or_default(), sel)?.isolate_egress = true;
        }
        Ok(policies.0)
    }
}

/// Policies by authored unit and subject.
#[derive(Default)]
struct Policies(BTreeMap<(String, Selector), Policy>);

impl Policies {
    fn of(&mut self, policy: &str, subject: &Sel) -> Result<&mut Policy, Error> {
        let subject = selector(subject)?;
        let empty = Policy { subject: subject.clone(), ..Policy::default() };
        Ok(self.0.entry((policy.to_owned(), subject)).or_insert(empty))
    }
}

fn object(name: Name, spec: Spec) -> Object {
    Object { namespace: Name::default_namespace(), name, spec }
}

/// A selector of the file.
pub(super) fn selector(sel: &Sel) -> Result<Selector, Error> {
    match (sel.all, &sel.labels, &sel.expr) {
        (Some(true), None, None) => return Ok(Selector::everything()),
        (None, labels, expr) if labels.is_some() || expr.is_some() => {}
        _ => return Err(Error::value("selector", "a selector has `all: true`, or `labels` and `expr`")),
    }
    let mut requirements = Vec::new();
    for (key, value) in sel.labels.iter().flatten() {
        requirements.push(Requirement::In { key: key.clone(), values: vec![value.clone()] });
    }
    for expr in sel.expr.iter().flatten() {
        let (key, values) = (expr.key.clone(), expr.values.clone());
        requirements.push(match (expr.op.as_str(), values.is_empty()) {
            ("in", false) => Requirement::In { key, values },
            ("notin", false) => Requirement::NotIn { key, values },
            ("exists", true) => Requirement::Exists { key },
            ("absent", true) => Requirement::DoesNotExist { key },
            (op, _) => return Err(Error::value(key, format!("`{op}` with these values means nothing"))),
        });
    }
    Ok(Selector::new(requirements))
}

fn rule_of(rule: &Rule) -> Result<PolicyRule, Error> {
    let peers = match &rule.peers {
        AnyOr::Word(word) if word == "any" => PeerSpec::Any,
        AnyOr::Word(word) => return Err(Error::value(&rule.id, format!("`{word}` is no list of peers"))),
        AnyOr::List(list) => PeerSpec::Of(list.iter().map(|peer| peer_of(peer, &rule.id)).collect::<Result<_, _>>()?),
    };
    let services = match &rule.services {
        AnyOr::Word(word) if word == "any" => ServiceSpec::Any,
        AnyOr::Word(word) => return Err(Error::value(&rule.id, format!("`{word}` is no list of services"))),
        AnyOr::List(list) => {
            ServiceSpec::Of(list.iter().map(|service| service_of(service, &rule.id)).collect::<Result<_, _>>()?)
        }
    };
    let local = match &rule.dst {
        None => None,
        Some(texts) => Some(texts.iter().map(|text| net(text, &rule.id)).collect::<Result<_, _>>()?),
    };
    Ok(PolicyRule { order: DEFAULT_ORDER, action: Action::Allow, peers, services, local, log: false })
}

fn net(text: &str, place: &str) -> Result<IpNet, Error> {
    parse_cidr(text).ok_or_else(|| Error::value(place, format!("`{text}` is no prefix")))
}

fn peer_of(peer: &PeerFile, place: &str) -> Result<Peer, Error> {
    match (&peer.sel, &peer.cidr, &peer.ipset) {
        (Some(sel), None, None) if peer.except.is_empty() => {
            Ok(Peer::Select { namespaces: NamespaceMatch::Own, labels: selector(sel)? })
        }
        (None, Some(cidr), None) => Ok(Peer::Cidr {
            cidr: net(cidr, place)?,
            except: peer.except.iter().map(|text| net(text, place)).collect::<Result<_, _>>()?,
        }),
        (None, None, Some(ipset)) if peer.except.is_empty() => Ok(Peer::Group(identity::name_for(ipset)?)),
        _ => Err(Error::value(place, "a peer has exactly one of `sel`, `cidr` with `except`, and `ipset`")),
    }
}

fn service_of(service: &ServiceFile, place: &str) -> Result<Service, Error> {
    let Some(protocol) = transport(&service.proto) else {
        if service.port.is_some() || service.end.is_some() || service.name.is_some() {
            return Err(Error::value(place, format!("`{}` has no ports", service.proto)));
        }
        return other_protocol(&service.proto, place);
    };
    match (service.port, service.end, &service.name) {
        (None, None, None) => Ok(Service::Protocol(protocol)),
        (Some(first), end, None) if end.is_none_or(|last| first <= last) => {
            let ports = PortSpec::Range(PortRange { first, last: end.unwrap_or(first) });
            Ok(Service::Ports { protocol, ports })
        }
        (None, None, Some(name)) => Ok(Service::Ports { protocol, ports: PortSpec::Named(name.clone()) }),
        _ => Err(Error::value(place, "a service has nothing, `port` with `end`, or `name`")),
    }
}

fn other_protocol(word: &str, place: &str) -> Result<Service, Error> {
    if word == "icmp" {
        return Ok(Service::Icmp { v4: Vec::new(), v6: Vec::new() });
    }
    protocol_number(word).map(Service::Protocol).ok_or_else(|| Error::value(place, format!("`{word}` is no protocol")))
}

/// The number of a protocol without ports: a number, or one of the words that estates use.
pub(super) fn protocol_number(word: &str) -> Option<u8> {
    match word {
        "ipip" => Some(4),
        "gre" => Some(47),
        "esp" => Some(50),
        "ah" => Some(51),
        "icmpv6" => Some(protocol::ICMPV6),
        _ => word.parse().ok(),
    }
}
