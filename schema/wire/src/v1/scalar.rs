//! The small wire types that several messages share.

use std::fmt;

use holdfast_model::desired::{Component, Stamp};
use holdfast_model::digest::Digest;
use holdfast_model::numbers::{UpdateSeq, Version};
use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::DecodeError;
use crate::limits::NUMBER_MAX;
use crate::message::{Kind, SignatureBytes};

/// A version and a digest.
#[derive(Serialize, Deserialize)]
pub(crate) struct WireStamp {
    version: u64,
    digest: [u8; 32],
}

impl From<Stamp> for WireStamp {
    fn from(stamp: Stamp) -> Self {
        Self { version: stamp.version.raw(), digest: *stamp.digest.as_bytes() }
    }
}

impl WireStamp {
    pub(crate) fn stamp(&self, kind: Kind) -> Result<Stamp, DecodeError> {
        let version = number(kind, "version", self.version)?;
        let version = Version::from_raw(version).ok_or(DecodeError::Value { kind, field: "version" })?;
        Ok(Stamp { version, digest: Digest::from_bytes(self.digest) })
    }
}

/// A number that is stored: any up to the largest.
pub(crate) fn number(kind: Kind, field: &'static str, raw: u64) -> Result<u64, DecodeError> {
    if raw <= NUMBER_MAX { Ok(raw) } else { Err(DecodeError::Value { kind, field }) }
}

pub(crate) fn update_seq(kind: Kind, raw: u64) -> Result<UpdateSeq, DecodeError> {
    number(kind, "number of an update", raw).map(UpdateSeq::from_raw)
}

pub(crate) fn component(kind: Kind, number: u8) -> Result<Component, DecodeError> {
    Component::from_number(number).ok_or(DecodeError::Value { kind, field: "component" })
}

/// Bytes with a length before them, moved as a whole and borrowed when read.
pub(crate) struct Blob<'a>(pub(crate) &'a [u8]);

impl Serialize for Blob<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Blob<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a [u8]>::deserialize(deserializer).map(Blob)
    }
}

/// The 64 bytes of a signature, without a length.
pub(crate) struct WireSignature(pub(crate) SignatureBytes);

impl Serialize for WireSignature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
        tuple.end()
    }
}

impl<'de> Deserialize<'de> for WireSignature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl<'de> Visitor<'de> for Bytes {
            type Value = WireSignature;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 bytes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<WireSignature, A::Error> {
                let mut signature = [0; 64];
                for (at, place) in signature.iter_mut().enumerate() {
                    *place = bytes.next_element()?.ok_or_else(|| serde::de::Error::invalid_length(at, &self))?;
                }
                Ok(WireSignature(signature))
            }
        }

        deserializer.deserialize_tuple(64, Bytes)
    }
}
