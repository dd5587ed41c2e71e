//! A body in one piece.

use super::codec::{CodecError, Reader, put_intervals, put_len};
use super::nodes::{RULE_BYTES_MIN, mode_byte, put_rule, read_mode, read_rule};
use crate::interval_set::IntervalSet;
use crate::policy::{Body, BodyError, Chain, Set, SetKey};

/// The first byte of a flat body.
pub const FORMAT: u8 = 1;

/// Why bytes are no flat body.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// Another format.
    #[error("policy bytes of format {0}, this build reads format {FORMAT}")]
    Format(u8),
    /// The bytes mean nothing.
    #[error("policy bytes cannot be read")]
    Codec(#[from] CodecError),
    /// The bytes make a body that is not canonical.
    #[error("policy bytes make a body that is not canonical")]
    Body(#[from] BodyError),
}

/// The canonical flat bytes of a body.
#[must_use]
pub fn encode(body: &Body) -> Vec<u8> {
    let mut out = vec![FORMAT, mode_byte(body.mode)];
    for chain in [&body.ingress, &body.egress] {
        out.push(u8::from(chain.isolated));
        put_len(&mut out, chain.rules.len());
        chain.rules.iter().for_each(|rule| put_rule(&mut out, rule));
    }
    put_len(&mut out, body.sets.len());
    for set in &body.sets {
        out.extend_from_slice(set.key.as_bytes());
        put_intervals(&mut out, set.v4.len(), |put| set.v4.for_each(put));
        put_intervals(&mut out, set.v6.len(), |put| set.v6.for_each(put));
    }
    out
}

/// Reads flat bytes; memory stays in proportion to their length.
///
/// # Errors
/// [`DecodeError`] for any bytes that [`encode`] would not have written.
pub fn decode(bytes: &[u8]) -> Result<Body, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        FORMAT => {}
        other => return Err(DecodeError::Format(other)),
    }
    let mode = read_mode(&mut reader)?;
    let ingress = read_chain(&mut reader)?;
    let egress = read_chain(&mut reader)?;
    let count = reader.count(16 + 2)?;
    let sets = (0..count).map(|_| read_set(&mut reader)).collect::<Result<_, _>>()?;
    reader.end()?;
    let body = Body { mode, ingress, egress, sets };
    body.check()?;
    Ok(body)
}

fn read_chain(reader: &mut Reader<'_>) -> Result<Chain, CodecError> {
    let isolated = reader.flag()?;
    let count = reader.count(RULE_BYTES_MIN)?;
    Ok(Chain { isolated, rules: (0..count).map(|_| read_rule(reader)).collect::<Result<_, _>>()? })
}

fn read_set(reader: &mut Reader<'_>) -> Result<Set, CodecError> {
    let key = SetKey::from_bytes(reader.bytes()?);
    let v4 = IntervalSet::from_canonical(&reader.intervals_v4()?).ok_or(CodecError::Canonical)?;
    let v6 = IntervalSet::from_canonical(&reader.intervals_v6()?).ok_or(CodecError::Canonical)?;
    Ok(Set { key, v4, v6 })
}
