//! `holdfast-estate/1`: our own estates, written by hand in YAML beside ordinary documents.
//!
//! One file names the hosts, the files of documents in force, what is expected, and steps. `ops/lab/estates/README.md` is its format.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_model::address::Family;
use holdfast_model::intent::{EnrolledHost, Intent, Kind, Object, ObjectKey};
use holdfast_model::name::Name;
use holdfast_model::policy::{PortRange, Statement, protocol};

use super::{At, Beside, Cell, Error, Estate, Party, Probe, Services, State, Want, identity};
use crate::cursor::{At as Cursor, Nulls};
use crate::fault::{Faults, RuleName, Sink, quote};
use crate::read::{Source, read};
use crate::tree::{Node, Value, parse};
use crate::{limits, scalar};

/// The format of our own estates.
const FORMAT: &str = "holdfast-estate/1";

/// What the documents of an estate are, read so far.
struct Reader<'a, 'b> {
    estate: String,
    hosts: BTreeMap<String, EnrolledHost>,
    beside: &'a mut Beside<'b>,
    sink: Sink,
}

/// Reads one of our own estates; `beside` reads files of its folder.
///
/// # Errors
/// [`Error::Faults`] with all faults of the file or of its documents, [`Error::Beside`].
pub fn read_own(source: &Source, beside: &mut Beside<'_>) -> Result<Estate, Error> {
    let mut sink = Sink::default();
    sink.enter(&source.name, 1);
    let documents = parse(&source.text).unwrap_or_else(|error| {
        sink.put(error.line, "", RuleName::Syntax, error.message);
        Vec::new()
    });
    let node = match documents.as_slice() {
        [node] => Some(node),
        _ => {
            sink.put(0, "", RuleName::DocumentShape, "an estate is one document".to_owned());
            None
        }
    };
    let mut reader = Reader { estate: String::new(), hosts: BTreeMap::new(), beside, sink };
    let estate = match node {
        Some(node) => reader.estate(&Cursor::root(node))?,
        None => None,
    };
    match (reader.sink.into_faults(), estate) {
        (None, Some(estate)) => Ok(estate),
        (Some(faults), _) => Err(Error::Faults(faults)),
        (None, None) => Err(Error::Format(source.name.clone())),
    }
}

impl Reader<'_, '_> {
    fn estate(&mut self, at: &Cursor<'_>) -> Result<Option<Estate>, Error> {
        let Some(mut fields) = at.fields(&mut self.sink, Nulls::Fault) else { return Ok(None) };
        let sink = &mut self.sink;
        let format = fields.need(sink, "format").and_then(|at| Some((at.text(sink)?, at)));
        if let Some((text, at)) = format
            && text != FORMAT
        {
            at.fault(sink, RuleName::ApiVersion, format!("{} is not {FORMAT}", quote(text)));
        }
        let id = fields.need(sink, "id").and_then(|at| at.text(sink)).unwrap_or_default().to_owned();
        let title = fields.take("title").and_then(|at| at.text(sink)).unwrap_or_default().to_owned();
        let needs = fields.take("needs").map(|at| texts(&at, sink)).unwrap_or_default();
        self.estate.clone_from(&id);
        if let Some(hosts_at) = fields.need(sink, "hosts") {
            for item in hosts_at.items(&mut self.sink, limits::LIST_MAX).unwrap_or_default() {
                self.host(&item);
            }
        }
        let hosts = self.hosts.values().map(|host| (host.id, host.clone())).collect();
        let mut intent = Intent { hosts, objects: BTreeMap::new() };
        let documents = fields.need(&mut self.sink, "documents").map(|at| texts(&at, &mut self.sink));
        self.put(&mut intent, &documents.unwrap_or_default())?;
        let cells = fields.take("expect").map(|at| self.expect(&at, &intent)).unwrap_or_default();
        let mut states = vec![State { intent, cells }];
        if let Some(steps_at) = fields.take("steps") {
            for item in steps_at.items(&mut self.sink, limits::LIST_MAX).unwrap_or_default() {
                let base = states.last().map(|state| state.intent.clone()).unwrap_or_default();
                states.push(self.step(&item, base)?);
            }
        }
        fields.end(&mut self.sink);
        let host_names = self.hosts.iter().map(|(name, host)| (host.id, name.clone())).collect();
        Ok(Some(Estate { id, title, needs, host_names, address_lists: Vec::new(), states }))
    }

    /// One host: what an enrolment token would have given it.
    fn host(&mut self, at: &Cursor<'_>) {
        let sink = &mut self.sink;
        let Some(mut fields) = at.fields(sink, Nulls::Fault) else { return };
        let name = fields.need(sink, "name").and_then(|at| scalar::name(&at, sink));
        let namespace = fields.take("namespace").map_or(Some(Name::default_namespace()), |at| scalar::name(&at, sink));
        let labels = fields.take("labels").and_then(|at| scalar::labels(&at, sink, Nulls::Fault)).unwrap_or_default();
        let ports = fields.take("ports").and_then(|at| scalar::declared_ports(&at, sink)).unwrap_or_default();
        let list = fields.need(sink, "addresses").and_then(|at| at.items(sink, limits::ENDPOINT_ADDRESSES_MAX));
        let mut addresses: Vec<IpAddr> =
            list.unwrap_or_default().iter().filter_map(|item| scalar::address(item, sink)).collect();
        addresses.sort_unstable();
        fields.end(sink);
        let (Some(name), Some(namespace)) = (name, namespace) else { return };
        let shown = name.to_string();
        let host =
            EnrolledHost { id: identity::host_id(&self.estate, &shown), namespace, name, labels, ports, addresses };
        if self.hosts.insert(shown, host).is_some() {
            at.fault(&mut self.sink, RuleName::DuplicateName, "a host of this name is there already");
        }
    }

    /// Reads files of documents into an intent.
    fn put(&mut self, intent: &mut Intent, files: &[String]) -> Result<(), Error> {
        let mut sources = Vec::new();
        for file in files {
            let text = (self.beside)(file).ok_or_else(|| Error::Beside(file.clone()))?;
            sources.push(Source { name: file.clone(), text });
        }
        let objects: Result<Vec<Object>, Faults> = read(&sources);
        objects?.into_iter().for_each(|object| intent.put(object));
        Ok(())
    }

    fn step(&mut self, at: &Cursor<'_>, mut intent: Intent) -> Result<State, Error> {
        let Some(mut fields) = at.fields(&mut self.sink, Nulls::Fault) else { return Ok(State::default()) };
        let files = fields.take("put").map(|at| texts(&at, &mut self.sink)).unwrap_or_default();
        if let Some(delete_at) = fields.take("delete") {
            for item in delete_at.items(&mut self.sink, limits::LIST_MAX).unwrap_or_default() {
                self.delete(&item, &mut intent);
            }
        }
        self.put(&mut intent, &files)?;
        let cells = fields.take("expect").map(|at| self.expect(&at, &intent)).unwrap_or_default();
        fields.end(&mut self.sink);
        Ok(State { intent, cells })
    }

    /// Takes one object, named as `Kind/namespace/name`, out of force.
    fn delete(&mut self, at: &Cursor<'_>, intent: &mut Intent) {
        let Some(text) = at.text(&mut self.sink) else { return };
        let key = intent.objects.keys().find(|key| key.to_string() == text).cloned();
        if key.and_then(|key| intent.objects.remove(&key)).is_none() {
            at.fault(&mut self.sink, RuleName::Name, format!("{} is not in force", quote(text)));
        }
    }

    fn expect(&mut self, at: &Cursor<'_>, intent: &Intent) -> Vec<Cell> {
        let mut cells = Vec::new();
        for item in at.items(&mut self.sink, limits::LIST_MAX).unwrap_or_default() {
            cells.extend(self.expectation(&item, intent).unwrap_or_default());
        }
        cells
    }

    /// One expectation: every source with every destination.
    fn expectation(&mut self, at: &Cursor<'_>, intent: &Intent) -> Option<Vec<Cell>> {
        let mut fields = at.fields(&mut self.sink, Nulls::Fault)?;
        let from = fields.need(&mut self.sink, "from").map(|at| self.parties(&at, intent)).unwrap_or_default();
        let to = fields.need(&mut self.sink, "to").map(|at| self.parties(&at, intent)).unwrap_or_default();
        let sink = &mut self.sink;
        let family = match fields.take("family").map(|at| (at.integer(sink), at)) {
            None => None,
            Some((Some(4), _)) => Some(Family::V4),
            Some((Some(6), _)) => Some(Family::V6),
            Some((_, at)) => {
                at.fault(sink, RuleName::Type, "a family is 4 or 6");
                return None;
            }
        };
        let allow = fields.take("allow").map(|at| at.boolean(sink));
        let exactly = fields.take("exactly").map(|at| services(&at, sink));
        let mut probes = Vec::new();
        for word in ["tcp", "udp", "sctp", "icmp", "protocol"] {
            if let Some(at) = fields.take(word) {
                probes.extend(probes_of(word, &at, sink));
            }
        }
        fields.end(sink);
        let wants: Vec<Want> = match (allow, exactly, probes.is_empty()) {
            (Some(allow), None, false) => {
                let allow = allow?;
                probes.into_iter().map(|probe| Want::Packet { probe, allow }).collect()
            }
            (None, Some(services), true) => vec![Want::Services(Arc::new(services))],
            _ => {
                at.fault(sink, RuleName::Service, "an expectation has `allow` with services, or `exactly`");
                return None;
            }
        };
        let mut cells = Vec::new();
        for from in &from {
            for to in to.iter().filter(|to| *to != from) {
                let cell = |want: &Want| {
                    let (from, to, want) = (from.clone(), to.clone(), want.clone());
                    Cell { from, to, family, at: At::BothEnds, want }
                };
                cells.extend(wants.iter().map(cell));
            }
        }
        Some(cells)
    }

    fn parties(&mut self, at: &Cursor<'_>, intent: &Intent) -> Vec<Party> {
        let one = |item: &Cursor<'_>, reader: &mut Self| reader.party(item, intent);
        match &at.node.value {
            Value::List(_) => {
                let items = at.items(&mut self.sink, limits::LIST_MAX).unwrap_or_default();
                items.iter().filter_map(|item| one(item, self)).collect()
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Fraction | Value::Text(_) | Value::Map(_) => {
                one(at, self).into_iter().collect()
            }
        }
    }

    fn party(&mut self, at: &Cursor<'_>, intent: &Intent) -> Option<Party> {
        let text = at.text(&mut self.sink)?;
        let endpoint = |(namespace, name): (&str, &str)| -> Option<Party> {
            let key = ObjectKey { kind: Kind::Endpoint, namespace: namespace.parse().ok()?, name: name.parse().ok()? };
            intent.objects.contains_key(&key).then_some(Party::Endpoint(key))
        };
        let found = match text.split_once(':') {
            None => self.hosts.get(text).map(|host| Party::Host(host.id)),
            Some(("ip", address)) => address.parse().ok().map(Party::Address),
            Some(("endpoint", name)) => endpoint(name.split_once('/').unwrap_or(("default", name))),
            Some(_) => None,
        };
        if found.is_none() {
            let message = format!("{} is no host, no `endpoint:NAME` and no `ip:ADDRESS`", quote(text));
            at.fault(&mut self.sink, RuleName::Name, message);
        }
        found
    }
}

fn texts(at: &Cursor<'_>, sink: &mut Sink) -> Vec<String> {
    let items = at.items(sink, limits::LIST_MAX).unwrap_or_default();
    items.iter().filter_map(|item| item.text(sink)).map(str::to_owned).collect()
}

/// The packets of one service word: a port or a list of them, `echo`, or a protocol number.
fn probes_of(word: &str, at: &Cursor<'_>, sink: &mut Sink) -> Vec<Probe> {
    let nodes: Vec<Cursor<'_>> = match &at.node.value {
        Value::List(_) => at.items(sink, limits::LIST_MAX).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Fraction | Value::Text(_) | Value::Map(_) => {
            vec![at.clone()]
        }
    };
    let mut probes = Vec::new();
    for at in nodes {
        probes.extend(match scalar::transport(word) {
            Some(protocol) => scalar::port(&at, sink).map(|port| Probe::Port { protocol, port }),
            None if word == "icmp" => echo(&at, sink),
            None => at.integer(sink).and_then(|number| u8::try_from(number).ok()).map(Probe::Protocol),
        });
    }
    probes
}

fn echo(at: &Cursor<'_>, sink: &mut Sink) -> Option<Probe> {
    let word = at.text(sink)?;
    if word == "echo-request" {
        return Some(Probe::Echo);
    }
    at.fault(sink, RuleName::Icmp, format!("{} is not echo-request", quote(word)));
    None
}

/// The exact set of TCP, UDP and SCTP ports, as `{tcp: [443, 8000-8100], udp: any}`; what is not named is nothing.
fn services(at: &Cursor<'_>, sink: &mut Sink) -> Services {
    let mut services: Services =
        [protocol::TCP, protocol::UDP, protocol::SCTP].into_iter().map(|number| (number, Vec::new())).collect();
    let Some(mut fields) = at.fields(sink, Nulls::Fault) else { return services };
    for (word, number) in [("tcp", protocol::TCP), ("udp", protocol::UDP), ("sctp", protocol::SCTP)] {
        let Some(at) = fields.take(word) else { continue };
        let list: Vec<PortRange> = match &at.node.value {
            Value::Text(text) if text == "any" => vec![PortRange { first: 0, last: u16::MAX }],
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Fraction
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_) => {
                let items = at.items(sink, limits::LIST_MAX).unwrap_or_default();
                items.iter().filter_map(|item| range(item, sink)).collect()
            }
        };
        if let Statement::Ports { ranges, .. } = Statement::ports(number, list.clone()) {
            services.insert(number, ranges);
        } else {
            services.insert(number, list);
        }
    }
    fields.end(sink);
    services
}

fn range(at: &Cursor<'_>, sink: &mut Sink) -> Option<PortRange> {
    let Node { value: Value::Text(text), .. } = at.node else { return scalar::port(at, sink).map(PortRange::single) };
    let ends = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let Some((first, last)) = ends else {
        at.fault(sink, RuleName::PortRange, format!("{} is no range of ports", quote(text)));
        return None;
    };
    scalar::port_range(first, last, at, sink)
}
