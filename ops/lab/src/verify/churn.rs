//! Versions of one address list: what is read, what a change of it is, and what is enforced of it.
//!
//! The checks of a version, one cell each: its facts; that the change from the version before is exactly the difference of the two canonical
//! lists, and makes the one into the other; that the delta of a host's policy carries that change and nothing else; that the artifact lets in the
//! ends of every interval and not their neighbours. Of a version with an invalid line: that it is refused with the line named; that the list
//! before it stays.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdfast_documents::estate::{Churn, ChurnStep};
use holdfast_documents::{AddressListError, read_address_list};
use holdfast_interpreter::{Artifact, Direction, Packet};
use holdfast_model::address::{Address, Interval, merge};
use holdfast_model::artifact::encode;
use holdfast_model::ids::HostId;
use holdfast_model::intent::{
    AddressGroupSpec, DEFAULT_ORDER, EnrolledHost, HostSpec, Intent, Object, Peer, PeerSpec, Policy, PolicyRule,
    ServiceSpec, Spec,
};
use holdfast_model::interval_set::{Edit, IntervalSet};
use holdfast_model::label::Selector;
use holdfast_model::name::Name;
use holdfast_model::policy::delta::{Change, apply, diff};
use holdfast_model::policy::{Action, Body, Mode, protocol};
use holdfast_render::render_host;
use ipnet::IpNet;

use super::list::{FACTS, Sets, wrong_facts};
use super::{MakeIndex, Report, Wrong};

/// The one host that enforces the list.
const HOST: HostId = HostId::new(uuid::Uuid::from_u128(1));

/// A version in force.
struct Good {
    text: String,
    nets: Vec<IpNet>,
    sets: Sets,
    body: Body,
}

/// Judges every version of a list.
#[must_use]
pub fn verify_churn(churn: &Churn, index: MakeIndex<'_>) -> Report {
    let mut judge = Judge { report: Report::new(&churn.id), index, step: 0 };
    let Some(mut good) = judge.version(&churn.first) else { return judge.report };
    judge.facts(&churn.first, churn.first_facts.as_ref());
    judge.enforced(&good);
    for (number, step) in churn.steps.iter().enumerate() {
        judge.step = number + 1;
        if let Some(next) = judge.step(step, &good) {
            good = next;
        }
    }
    judge.report
}

struct Judge<'a> {
    report: Report,
    index: MakeIndex<'a>,
    step: usize,
}

impl Judge<'_> {
    /// Counts one check.
    fn check(&mut self, what: &str, wanted: &str, found: Result<(), String>) {
        let (estate, step) = (self.report.id.clone(), self.step);
        let wrong = found.err().map(|artifact| Wrong {
            estate,
            step,
            from: what.to_owned(),
            wanted: wanted.to_owned(),
            artifact,
            ..Wrong::default()
        });
        self.report.take(wrong.into_iter().collect());
    }

    fn facts(&mut self, text: &str, facts: Option<&holdfast_documents::estate::Facts>) {
        let Some(facts) = facts else { return };
        let mut faults = wrong_facts(&self.report.id, self.step, text, facts).into_iter();
        for _ in 0..FACTS {
            self.report.take(faults.next().into_iter().collect());
        }
    }

    /// Takes a version that must be good.
    fn version(&mut self, text: &str) -> Option<Good> {
        let nets = match read_address_list(text) {
            Ok(nets) => nets,
            Err(error) => {
                self.check("version", "a list", Err(error.to_string()));
                return None;
            }
        };
        let Some(body) = render_host(&(self.index)(&intent_of(&nets)), HOST) else {
            self.check("version", "a body", Err("nothing was rendered".to_owned()));
            return None;
        };
        Some(Good { text: text.to_owned(), sets: Sets::of(&nets), nets, body })
    }

    fn step(&mut self, step: &ChurnStep, good: &Good) -> Option<Good> {
        if let Some(refused) = &step.refused {
            let found = match read_address_list(&step.text) {
                Err(AddressListError::Lines { lines })
                    if lines.first().is_some_and(|(line, _)| *line == refused.line) =>
                {
                    Ok(())
                }
                Err(error) => Err(error.to_string()),
                Ok(_) => Err("the list was taken".to_owned()),
            };
            self.check("refused version", &format!("line {} named", refused.line), found);
            let kept = self.version(&good.text)?;
            let same = if kept.body == good.body { Ok(()) } else { Err("it changed".to_owned()) };
            self.check("list before a refused version", "it stays", same);
            self.facts(&good.text, step.after.as_ref());
            return None;
        }
        let next = self.version(&step.text)?;
        self.facts(&step.text, step.after.as_ref());
        let v4 = minimal(&good.sets.v4, &next.sets.v4);
        let v6 = minimal(&good.sets.v6, &next.sets.v6);
        self.check("change of the list", "exactly the difference", v4.and(v6));
        self.check("delta of the policy", "exactly the difference", carried(good, &next));
        self.enforced(&next);
        Some(next)
    }

    /// Asks the artifact about the ends of every interval and their neighbours.
    fn enforced(&mut self, version: &Good) {
        let found = match Artifact::read(&encode(&version.body)) {
            Err(error) => Err(error.to_string()),
            Ok(artifact) => {
                let (v4, v6) = naive(&version.nets);
                ends(&artifact, &v4, [192, 0, 2, 1].into()).and_then(|()| ends(&artifact, &v6, V6_HOST.into()))
            }
        };
        self.check("artifact", "the ends of every interval pass, their neighbours do not", found);
    }
}

/// The host's own IPv6 address: 2001:db8::1.
const V6_HOST: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];

/// The canonical intervals, computed without the sets of the product.
fn naive(nets: &[IpNet]) -> (Vec<Interval<u32>>, Vec<Interval<u128>>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for net in IpNet::aggregate(&nets.to_vec()) {
        match holdfast_model::address::interval_of(net) {
            holdfast_model::address::Either::V4(interval) => v4.push(interval),
            holdfast_model::address::Either::V6(interval) => v6.push(interval),
        }
    }
    (merge(v4), merge(v6))
}

fn ends<A: Address>(artifact: &Artifact, intervals: &[Interval<A>], local: IpAddr) -> Result<(), String> {
    let passes = |address: A| {
        let packet = Packet { local, peer: address.to_ip(), protocol: protocol::TCP, port: Some(443), icmp: None };
        artifact.passes(Direction::Ingress, &packet)
    };
    for interval in intervals {
        for address in [interval.first(), interval.last()] {
            if !passes(address) {
                return Err(format!("{} is denied", address.to_ip()));
            }
        }
        for address in [interval.first().below(), interval.last().above()].into_iter().flatten() {
            if passes(address) {
                return Err(format!("{} passes", address.to_ip()));
            }
        }
    }
    Ok(())
}

/// The difference of two canonical sets, computed plainly.
fn difference<A: Address>(base: &IntervalSet<A>, target: &IntervalSet<A>) -> Edit<A> {
    let (base, target): (BTreeSet<_>, BTreeSet<_>) =
        (base.to_vec().into_iter().collect(), target.to_vec().into_iter().collect());
    Edit { remove: base.difference(&target).copied().collect(), add: target.difference(&base).copied().collect() }
}

fn minimal<A: Address>(base: &IntervalSet<A>, target: &IntervalSet<A>) -> Result<(), String> {
    let edit = base.edit_to(target);
    let wanted = difference(base, target);
    if edit != wanted {
        let (out, into) = (edit.remove.len(), edit.add.len());
        return Err(format!("{out} out and {into} in, not {} and {}", wanted.remove.len(), wanted.add.len()));
    }
    match base.edited(&edit) {
        Ok(edited) if edited == *target => Ok(()),
        Ok(_) => Err("the change does not lead to the next list".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the delta of two bodies is the one set edit, or nothing if the lists mean the same.
fn carried(good: &Good, next: &Good) -> Result<(), String> {
    let delta = diff(&good.body, &next.body);
    let v4_wanted = difference(&good.sets.v4, &next.sets.v4);
    let v6_wanted = difference(&good.sets.v6, &next.sets.v6);
    let exact = match delta.changes.as_slice() {
        [] => v4_wanted.is_none() && v6_wanted.is_none(),
        [Change::EditSet { v4, v6, .. }] => *v4 == v4_wanted && *v6 == v6_wanted,
        _ => false,
    };
    if !exact {
        return Err(format!("{} changes, not one edit of the set by the difference", delta.changes.len()));
    }
    match apply(&good.body, &delta) {
        Ok(body) if body == next.body => Ok(()),
        Ok(_) => Err("the delta leads to another body".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// One enforcing host that lets in the list and nobody else.
fn intent_of(nets: &[IpNet]) -> Intent {
    let mut intent = Intent::default();
    let namespace = Name::default_namespace();
    let rule = PolicyRule {
        order: DEFAULT_ORDER,
        action: Action::Allow,
        peers: PeerSpec::Of(vec![Peer::Group(namespace.clone())]),
        services: ServiceSpec::Any,
        local: None,
        log: false,
    };
    let policy =
        Policy { subject: Selector::everything(), isolate_ingress: true, ingress: vec![rule], ..Policy::default() };
    for spec in [
        Spec::Host(HostSpec { mode: Some(Mode::Enforced), ..HostSpec::default() }),
        Spec::AddressGroup(AddressGroupSpec { cidrs: nets.to_vec() }),
        Spec::Policy(policy),
    ] {
        intent.put(Object { namespace: namespace.clone(), name: namespace.clone(), spec });
    }
    let host = EnrolledHost {
        id: HOST,
        namespace: namespace.clone(),
        name: namespace,
        labels: Default::default(),
        ports: Vec::new(),
        addresses: vec![[192, 0, 2, 1].into(), V6_HOST.into()],
    };
    intent.hosts.insert(HOST, host);
    intent
}
