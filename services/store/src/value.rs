//! Between columns and the model's types: every stored value is checked when it is read.

use std::str::FromStr;

use holdfast_events::{SignatureBytes, VerifyingKeyBytes};
use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::numbers::Version;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// A number as a `bigint`.
pub(crate) fn big(number: u64) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| Error::value("bigint", number))
}

/// A number that others are held against: beyond every `bigint` is beyond all that is stored.
pub(crate) fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A `bigint` that is never negative.
pub(crate) fn number(column: &'static str, value: i64) -> Result<u64, Error> {
    u64::try_from(value).map_err(|_| Error::value(column, value))
}

/// A `bigint` that is a version.
pub(crate) fn version(column: &'static str, value: i64) -> Result<Version, Error> {
    Version::from_raw(number(column, value)?).ok_or_else(|| Error::value(column, value))
}

/// A text that has a form.
pub(crate) fn text<T: FromStr>(column: &'static str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|_| Error::value(column, value))
}

fn array<const N: usize>(column: &'static str, bytes: &[u8]) -> Result<[u8; N], Error> {
    bytes.try_into().map_err(|_| Error::value(column, format_args!("{} bytes", bytes.len())))
}

/// A `bytea` that is a digest.
pub(crate) fn digest(column: &'static str, bytes: &[u8]) -> Result<Digest, Error> {
    array(column, bytes).map(Digest::from_bytes)
}

/// A `bytea` that is a signature.
pub(crate) fn signature(column: &'static str, bytes: &[u8]) -> Result<SignatureBytes, Error> {
    array(column, bytes).map(SignatureBytes::from_bytes)
}

/// A `bytea` that is a public key.
pub(crate) fn verifying_key(column: &'static str, bytes: &[u8]) -> Result<VerifyingKeyBytes, Error> {
    array(column, bytes).map(VerifyingKeyBytes::from_bytes)
}

/// A component as a `smallint`.
pub(crate) fn small(component: Component) -> i16 {
    i16::from(component.number())
}

/// A `smallint` that is a component.
pub(crate) fn component(value: i16) -> Result<Component, Error> {
    let number = u8::try_from(value).ok().and_then(Component::from_number);
    number.ok_or_else(|| Error::value("component", value))
}

/// A version and a digest that are there together or not at all.
pub(crate) fn stamp(column: &'static str, raw: Option<i64>, bytes: Option<&[u8]>) -> Result<Option<Stamp>, Error> {
    match (raw, bytes) {
        (Some(raw), Some(bytes)) => Ok(Some(Stamp { version: version(column, raw)?, digest: digest(column, bytes)? })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(Error::value(column, "a version without a digest or the reverse")),
    }
}

/// A value as `jsonb`.
pub(crate) fn to_json<T: Serialize>(column: &'static str, value: &T) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::value(column, error))
}

/// A `jsonb` that has a form.
pub(crate) fn from_json<T: DeserializeOwned>(column: &'static str, value: serde_json::Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|error| Error::value(column, error))
}
