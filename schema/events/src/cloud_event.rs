//! The published form: CloudEvents 1.0, structured mode, JSON.
//!
//! - Extension attributes have lower-case names, and numbers that may pass 2³¹ are text, as the specification asks.
//! - Reading refuses what writing would not make; `docs/subjects.md` lists the attributes.

use holdfast_model::ids::{AuthorityId, EventId, OperationId};
use holdfast_model::numbers::{AuthorityEpoch, EventSeq};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::actor::Actor;
use crate::codes::CodeError;
use crate::event::{Event, EventError, Kind};
use crate::record::{EVENT_BYTES_MAX, NumberedRecord, Record};

/// The version of the specification.
pub const SPEC_VERSION: &str = "1.0";
/// What comes before the kind in the `type` attribute.
pub const TYPE_PREFIX: &str = "dev.holdfast.";
/// The media type of the whole.
pub const EVENT_CONTENT_TYPE: &str = "application/cloudevents+json";
/// The media type of `data`.
pub const DATA_CONTENT_TYPE: &str = "application/json";

/// Why bytes are no event of ours, or a record does not become one.
#[derive(Debug, thiserror::Error)]
pub enum CloudEventError {
    /// The bytes are not the JSON of such an event.
    #[error("the bytes are no CloudEvent of Holdfast")]
    Json(#[source] serde_json::Error),
    /// An attribute does not have the one value that it may have.
    #[error("the attribute `{0}` of a CloudEvent has a value that Holdfast does not write")]
    Attribute(&'static str),
    /// The kind is not known to this build.
    #[error("the type of a CloudEvent cannot be read")]
    Kind(#[from] CodeError),
    /// The payload cannot be read or written.
    #[error("the data of a CloudEvent is refused")]
    Event(#[from] EventError),
    /// The whole is larger than an event may be.
    #[error("an event of {bytes} bytes is refused, at most {EVENT_BYTES_MAX} are allowed")]
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
}

/// The structured form, attribute by attribute.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloudEvent {
    specversion: String,
    id: EventId,
    source: String,
    #[serde(rename = "type")]
    kind: String,
    subject: String,
    #[serde(with = "time::serde::rfc3339")]
    time: OffsetDateTime,
    datacontenttype: String,
    authorityepoch: String,
    sequence: String,
    lid: String,
    actor: Actor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    causationid: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlationid: Option<OperationId>,
    data: serde_json::Value,
}

const SOURCE_PREFIX: &str = "/authority/";

impl CloudEvent {
    /// Writes a numbered record.
    ///
    /// # Errors
    /// [`CloudEventError::Event`] if its payload is too large.
    pub fn of(numbered: &NumberedRecord) -> Result<Self, CloudEventError> {
        let record = &numbered.record;
        Ok(Self {
            specversion: SPEC_VERSION.to_owned(),
            id: record.id,
            source: format!("{SOURCE_PREFIX}{}", numbered.authority),
            kind: format!("{TYPE_PREFIX}{}", record.event.kind()),
            subject: record.event.aggregate(),
            time: record.time,
            datacontenttype: DATA_CONTENT_TYPE.to_owned(),
            authorityepoch: numbered.authority_epoch.to_string(),
            sequence: numbered.seq.to_string(),
            lid: record.lid.to_string(),
            actor: record.actor,
            causationid: record.causation,
            correlationid: record.correlation,
            data: record.event.data()?,
        })
    }

    /// Reads a record back.
    ///
    /// # Errors
    /// [`CloudEventError`] names what Holdfast would not have written.
    pub fn into_record(self) -> Result<NumberedRecord, CloudEventError> {
        let fault = CloudEventError::Attribute;
        let number = |text: &str, name| {
            let value: u64 = text.parse().map_err(|_| fault(name))?;
            if value.to_string() == text { Ok(value) } else { Err(fault(name)) }
        };
        if self.specversion != SPEC_VERSION {
            return Err(fault("specversion"));
        }
        if self.datacontenttype != DATA_CONTENT_TYPE {
            return Err(fault("datacontenttype"));
        }
        let authority: AuthorityId = {
            let text = self.source.strip_prefix(SOURCE_PREFIX).ok_or(fault("source"))?;
            text.parse().map_err(|_| fault("source"))?
        };
        let kind: Kind = self.kind.strip_prefix(TYPE_PREFIX).ok_or(fault("type"))?.parse()?;
        let event = Event::read(kind, self.data)?;
        if event.aggregate() != self.subject {
            return Err(fault("subject"));
        }
        let lid = i64::try_from(number(&self.lid, "lid")?).map_err(|_| fault("lid"))?;
        Ok(NumberedRecord {
            authority,
            authority_epoch: AuthorityEpoch::from_raw(number(&self.authorityepoch, "authorityepoch")?),
            seq: EventSeq::from_raw(number(&self.sequence, "sequence")?),
            record: Record {
                id: self.id,
                lid,
                time: self.time,
                actor: self.actor,
                causation: self.causationid,
                correlation: self.correlationid,
                event,
            },
        })
    }
}

impl NumberedRecord {
    /// The bytes that are published.
    ///
    /// # Errors
    /// [`CloudEventError::TooLarge`] and [`CloudEventError::Event`]: the event should not have been committed.
    pub fn encode(&self) -> Result<Vec<u8>, CloudEventError> {
        let bytes = serde_json::to_vec(&CloudEvent::of(self)?).map_err(CloudEventError::Json)?;
        if bytes.len() <= EVENT_BYTES_MAX { Ok(bytes) } else { Err(CloudEventError::TooLarge { bytes: bytes.len() }) }
    }

    /// Reads published bytes.
    ///
    /// # Errors
    /// [`CloudEventError`] says what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, CloudEventError> {
        if bytes.len() > EVENT_BYTES_MAX {
            return Err(CloudEventError::TooLarge { bytes: bytes.len() });
        }
        serde_json::from_slice::<CloudEvent>(bytes).map_err(CloudEventError::Json)?.into_record()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::{mk_all, mk_numbered};

    #[test]
    fn every_event_round_trips_through_its_published_bytes() {
        for event in mk_all() {
            let numbered = mk_numbered(event);
            let bytes = numbered.encode().expect("encodes");
            assert!(bytes.len() <= EVENT_BYTES_MAX);
            assert_eq!(NumberedRecord::decode(&bytes).expect("decodes"), numbered);
        }
    }

    #[test]
    fn the_attributes_are_those_of_the_specification() {
        let bytes = mk_numbered(mk_all().remove(0)).encode().expect("encodes");
        let json: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        let object = json.as_object().expect("an object");
        for required in ["specversion", "id", "source", "type"] {
            assert!(object.get(required).is_some_and(serde_json::Value::is_string), "{required}");
        }
        for (name, value) in object {
            assert!(name.chars().all(|c| c.is_ascii_lowercase()) && name.len() <= 20, "{name}");
            assert!(name == "data" || value.is_string(), "{name}");
        }
    }

    #[test]
    fn an_altered_attribute_is_refused() {
        let bytes = mk_numbered(mk_all().remove(0)).encode().expect("encodes");
        let json: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        for (name, value) in [
            ("specversion", "0.3"),
            ("source", "/elsewhere"),
            ("type", "dev.holdfast.nothing"),
            ("subject", "x"),
            ("sequence", "07"),
            ("authorityepoch", "-1"),
            ("datacontenttype", "text/plain"),
            ("unheardof", "1"),
        ] {
            let mut altered = json.clone();
            altered[name] = value.into();
            let bytes = serde_json::to_vec(&altered).expect("JSON");
            assert!(NumberedRecord::decode(&bytes).is_err(), "{name}");
        }
    }
}
