//! Expectations of `estate/1` as single cells.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_model::address::Family;
use holdfast_model::policy::{PortRange, Statement, protocol};

use super::build::{Authored, protocol_number};
use super::file::{AnyOr, Expect, FlowFile, Flows, Matrix, ServiceFile};
use super::{At, Cell, Error, Party, Probe, Services, Want};
use crate::scalar::transport;

/// What "any" covers, and the protocols that a matrix is about unless it says fewer.
const TRANSPORTS: [u8; 3] = [protocol::TCP, protocol::UDP, protocol::SCTP];

/// Every judged cell of a list of expectations.
pub(super) fn of(authored: &Authored, expect: &[Expect]) -> Result<Vec<Cell>, Error> {
    let mut cells = Vec::new();
    for expectation in expect {
        match expectation {
            Expect::List(flows) => list(authored, flows, &mut cells)?,
            Expect::Probe(matrix) => probe(authored, matrix, &mut cells)?,
            Expect::Conn(matrix) => conn(authored, matrix, &mut cells)?,
        }
    }
    Ok(cells)
}

fn list(authored: &Authored, flows: &Flows, cells: &mut Vec<Cell>) -> Result<(), Error> {
    let at = at_of(flows.at.as_deref())?;
    for flow in &flows.flows {
        let (from, to) = (party(authored, &flow.from)?, party(authored, &flow.to)?);
        let want = Want::Packet { probe: probe_of(flow)?, allow: flow.allow };
        cells.push(Cell { from, to, family: family_of(flow.family)?, at, want });
    }
    Ok(())
}

fn probe_of(flow: &FlowFile) -> Result<Probe, Error> {
    let place = || format!("{} to {}", flow.from, flow.to);
    match (transport(&flow.proto), flow.port) {
        (Some(protocol), Some(port)) => Ok(Probe::Port { protocol, port }),
        (None, None) if flow.proto == "icmp" => Ok(Probe::Echo),
        (None, None) => protocol_number(&flow.proto)
            .map(Probe::Protocol)
            .ok_or_else(|| Error::value(place(), format!("`{}` is no protocol", flow.proto))),
        (Some(_), None) | (None, Some(_)) => {
            Err(Error::value(place(), "ports go with tcp, udp and sctp, and only those"))
        }
    }
}

fn probe(authored: &Authored, matrix: &Matrix, cells: &mut Vec<Cell>) -> Result<(), Error> {
    let (Some(word), Some(port)) = (&matrix.proto, matrix.port) else {
        return Err(Error::value("probe", "a probe has `proto` and `port`"));
    };
    let protocol = transport(word).ok_or_else(|| Error::value("probe", format!("`{word}` has no ports")))?;
    let probe = Probe::Port { protocol, port };
    each(authored, matrix, cells, |mark| match mark {
        '1' => Ok(Want::Packet { probe, allow: true }),
        '0' => Ok(Want::Packet { probe, allow: false }),
        other => Err(Error::value("probe", format!("`{other}` is not 0, 1 or -"))),
    })
}

fn conn(authored: &Authored, matrix: &Matrix, cells: &mut Vec<Cell>) -> Result<(), Error> {
    let stated = match &matrix.protos {
        None => TRANSPORTS.to_vec(),
        Some(words) => words
            .iter()
            .map(|word| transport(word).ok_or_else(|| Error::value("conn", format!("`{word}` has no ports"))))
            .collect::<Result<_, _>>()?,
    };
    let mut legend: BTreeMap<char, Arc<Services>> = BTreeMap::new();
    for (mark, meaning) in &matrix.legend {
        let mut chars = mark.chars();
        let (Some(mark), None) = (chars.next(), chars.next()) else {
            return Err(Error::value("legend", format!("`{mark}` is not one character")));
        };
        legend.insert(mark, Arc::new(services_of(meaning, &stated)?));
    }
    each(authored, matrix, cells, |mark| match legend.get(&mark) {
        Some(services) => Ok(Want::Services(Arc::clone(services))),
        None => Err(Error::value("conn", format!("`{mark}` is not in the legend"))),
    })
}

/// Calls back with each judged character of a matrix.
fn each(
    authored: &Authored,
    matrix: &Matrix,
    cells: &mut Vec<Cell>,
    want: impl Fn(char) -> Result<Want, Error>,
) -> Result<(), Error> {
    let at = at_of(matrix.at.as_deref())?;
    let family = family_of(matrix.family)?;
    let parties = |given: &Option<Vec<String>>| -> Result<Vec<Party>, Error> {
        match given {
            Some(texts) => texts.iter().map(|text| party(authored, text)).collect(),
            None => authored.workloads.iter().map(|workload| authored.host_id(&workload.id).map(Party::Host)).collect(),
        }
    };
    let (from, to) = (parties(&matrix.from)?, parties(&matrix.to)?);
    if matrix.rows.len() != from.len() || matrix.rows.iter().any(|row| row.chars().count() != to.len()) {
        return Err(Error::value("rows", "the matrix has not one row per source and one character per destination"));
    }
    for (from, row) in from.iter().zip(&matrix.rows) {
        for (to, mark) in to.iter().zip(row.chars()) {
            if mark != '-' {
                cells.push(Cell { from: from.clone(), to: to.clone(), family, at, want: want(mark)? });
            }
        }
    }
    Ok(())
}

fn services_of(meaning: &AnyOr<ServiceFile>, stated: &[u8]) -> Result<Services, Error> {
    let every_port = PortRange { first: 0, last: u16::MAX };
    let mut ranges: BTreeMap<u8, Vec<PortRange>> = stated.iter().map(|protocol| (*protocol, Vec::new())).collect();
    match meaning {
        AnyOr::Word(word) if word == "none" => {}
        AnyOr::Word(word) if word == "any" => ranges.values_mut().for_each(|list| list.push(every_port)),
        AnyOr::Word(word) => return Err(Error::value("legend", format!("`{word}` is not none or any"))),
        AnyOr::List(list) => {
            for service in list {
                let place =
                    || Error::value("legend", format!("`{}` is not among the protocols of the matrix", service.proto));
                let list = transport(&service.proto).and_then(|number| ranges.get_mut(&number)).ok_or_else(place)?;
                list.push(match (service.port, service.end) {
                    (None, None) => every_port,
                    (Some(first), None) => PortRange::single(first),
                    (Some(first), Some(last)) if first <= last => PortRange { first, last },
                    _ => return Err(Error::value("legend", "a range of ports does not ascend")),
                });
            }
        }
    }
    let joined = |(protocol, list): (u8, Vec<PortRange>)| {
        let list = match Statement::ports(protocol, list) {
            Statement::Ports { ranges, .. } => ranges,
            Statement::Any | Statement::Protocol(_) | Statement::Icmp { .. } => vec![every_port],
        };
        (protocol, list)
    };
    Ok(ranges.into_iter().map(joined).collect())
}

fn at_of(word: Option<&str>) -> Result<At, Error> {
    match word {
        None => Ok(At::BothEnds),
        Some("inbound") => Ok(At::Destination),
        Some(other) => Err(Error::value("at", format!("`{other}` is not inbound"))),
    }
}

fn family_of(number: Option<u8>) -> Result<Option<Family>, Error> {
    match number {
        None => Ok(None),
        Some(4) => Ok(Some(Family::V4)),
        Some(6) => Ok(Some(Family::V6)),
        Some(other) => Err(Error::value("family", format!("{other} is not 4 or 6"))),
    }
}

fn party(authored: &Authored, text: &str) -> Result<Party, Error> {
    let address = |part: &str| -> Result<IpAddr, Error> {
        part.parse().map_err(|_| Error::value(text, format!("`{part}` is no address")))
    };
    if let Some(rest) = text.strip_prefix("ip:") {
        return address(rest).map(Party::Address);
    }
    if let Some(rest) = text.strip_prefix("net:") {
        let (first, last) = rest.split_once('-').ok_or_else(|| Error::value(text, "a span has two ends"))?;
        let (first, last) = (address(first)?, address(last)?);
        if Family::of(first) != Family::of(last) || first > last {
            return Err(Error::value(text, "a span ascends within one family"));
        }
        return Ok(Party::Span(first, last));
    }
    authored.host_id(text).map(Party::Host)
}
