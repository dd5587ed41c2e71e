//! Drift: what an agent found in its kernel.

use holdfast_model::drift::{DriftCounts, DriftKind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{DecodeError, EncodeError};
use crate::limits::{DRIFT_FRAME_BYTES_MAX, WRITER_BYTES_MAX};
use crate::message::{DriftReport, Kind, Writer};
use crate::v1::codec::{fits, put, take, within};

const KIND: Kind = Kind::Drift;
const NAME: &str = "name of a writer";

#[derive(Serialize, Deserialize)]
struct WireDrift<'a> {
    kind: u8,
    instance: [u8; 16],
    total: u64,
    age_ms: u64,
    #[serde(borrow)]
    writer: Option<WireWriter<'a>>,
    counts: WireCounts,
}

#[derive(Serialize, Deserialize)]
struct WireWriter<'a> {
    pid: u32,
    name: &'a str,
}

#[derive(Serialize, Deserialize)]
struct WireCounts {
    table: bool,
    chains: u32,
    rules_missing: u32,
    rules_foreign: u32,
    rules_moved: u32,
    sets: u32,
    elements_missing: u32,
    elements_foreign: u32,
}

impl From<DriftCounts> for WireCounts {
    fn from(counts: DriftCounts) -> Self {
        let DriftCounts {
            table,
            chains,
            rules_missing,
            rules_foreign,
            rules_moved,
            sets,
            elements_missing,
            elements_foreign,
        } = counts;
        Self { table, chains, rules_missing, rules_foreign, rules_moved, sets, elements_missing, elements_foreign }
    }
}

impl From<WireCounts> for DriftCounts {
    fn from(wire: WireCounts) -> Self {
        let WireCounts {
            table,
            chains,
            rules_missing,
            rules_foreign,
            rules_moved,
            sets,
            elements_missing,
            elements_foreign,
        } = wire;
        Self { table, chains, rules_missing, rules_foreign, rules_moved, sets, elements_missing, elements_foreign }
    }
}

pub(super) fn encode(report: &DriftReport, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if let Some(writer) = &report.writer {
        fits(KIND, NAME, writer.name.len(), WRITER_BYTES_MAX)?;
    }
    let wire = WireDrift {
        kind: report.kind.number(),
        instance: *report.instance.as_bytes(),
        total: report.total,
        age_ms: report.age_ms,
        writer: report.writer.as_ref().map(|writer| WireWriter { pid: writer.pid, name: &writer.name }),
        counts: report.counts.into(),
    };
    put(out, KIND, DRIFT_FRAME_BYTES_MAX, &wire)
}

pub(super) fn decode(payload: &[u8]) -> Result<DriftReport, DecodeError> {
    let wire: WireDrift<'_> = take(KIND, payload)?;
    let invalid = |field| DecodeError::Value { kind: KIND, field };
    let writer = match wire.writer {
        Some(writer) => {
            within(KIND, NAME, writer.name.len(), WRITER_BYTES_MAX)?;
            if writer.name.contains(char::is_control) {
                return Err(invalid(NAME));
            }
            Some(Writer { pid: writer.pid, name: writer.name.to_owned() })
        }
        None => None,
    };
    if wire.total == 0 {
        return Err(invalid("total"));
    }
    Ok(DriftReport {
        kind: DriftKind::from_number(wire.kind).ok_or(invalid("kind of drift"))?,
        instance: Uuid::from_bytes(wire.instance),
        total: wire.total,
        age_ms: wire.age_ms,
        writer,
        counts: wire.counts.into(),
    })
}
