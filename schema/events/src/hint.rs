//! Hints: "look again at X".
//!
//! - A hint carries ids and versions, nothing to act on (A7): whoever gets one reads the database.
//! - Equal hints mean the same, a lost one costs time only.

use holdfast_model::desired::Component;
use holdfast_model::ids::{EventId, HostId};
use holdfast_model::numbers::{LeaseTerm, Version};
use serde::{Deserialize, Serialize};

use crate::secret_free::{require_secret_free, secret_free};
use crate::subject::HINT_PREFIX;

/// The most (host, component, version) in one host hint: at most 84 bytes each, so a hint is below 85 KB where a message may have 1 MiB.
pub const HOST_HINT_ENTRIES_MAX: usize = 1000;

/// Desired states of one render that are newer than before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostHint {
    /// The renderer's lease.
    pub lease_term: LeaseTerm,
    /// The number of this hint under that lease, from 1: a hole tells that one was lost.
    pub n: u64,
    /// How many states are newer by the whole render, in this hint and others: what concerns few hosts goes first. Renderers before this field
    /// said nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// What is newer, at most [`HOST_HINT_ENTRIES_MAX`]; nothing in the first hint of a lease, which says that another leads.
    pub states: Vec<(HostId, Component, Version)>,
}

/// One hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hint {
    /// A request was answered.
    Answer {
        /// The event that made the request.
        request: EventId,
    },
    /// Events wait to be numbered.
    Event,
    /// Desired states are newer.
    Host(HostHint),
    /// Intent changed.
    Intent,
    /// A gateway wrote a request.
    Request,
}

const _: () = {
    require_secret_free::<LeaseTerm>();
    require_secret_free::<HostId>();
    require_secret_free::<Component>();
    require_secret_free::<Version>();
    require_secret_free::<EventId>();
};
secret_free!(HostHint, Hint);

/// Why bytes are no hint.
#[derive(Debug, thiserror::Error)]
pub enum HintError {
    /// The subject is none of a hint.
    #[error("`{0}` is no subject of a hint of Holdfast")]
    Subject(String),
    /// The bytes are not those of a hint on this subject.
    #[error("the bytes on `{subject}` are no such hint")]
    Payload {
        /// The subject.
        subject: &'static str,
        /// What is wrong.
        #[source]
        source: Option<serde_json::Error>,
    },
    /// It names more than a hint may.
    #[error("a host hint names {0} states, at most {HOST_HINT_ENTRIES_MAX} are allowed")]
    TooMany(usize),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    request: EventId,
}

impl Hint {
    /// The subjects of all kinds of hints.
    pub const SUBJECTS: [&'static str; 5] = [
        "holdfast.hint.answer",
        "holdfast.hint.event",
        "holdfast.hint.host",
        "holdfast.hint.intent",
        "holdfast.hint.request",
    ];

    /// The subject on which it travels.
    #[must_use]
    pub const fn subject(&self) -> &'static str {
        match self {
            Self::Answer { .. } => "holdfast.hint.answer",
            Self::Event => "holdfast.hint.event",
            Self::Host(_) => "holdfast.hint.host",
            Self::Intent => "holdfast.hint.intent",
            Self::Request => "holdfast.hint.request",
        }
    }

    /// The bytes that travel; none for a hint that says it all by its subject.
    ///
    /// # Errors
    /// [`HintError::TooMany`].
    pub fn encode(&self) -> Result<Vec<u8>, HintError> {
        let json = match self {
            Self::Answer { request } => serde_json::to_vec(&Answer { request: *request }),
            Self::Host(hint) if hint.states.len() > HOST_HINT_ENTRIES_MAX => {
                return Err(HintError::TooMany(hint.states.len()));
            }
            Self::Host(hint) => serde_json::to_vec(hint),
            Self::Event | Self::Intent | Self::Request => return Ok(Vec::new()),
        };
        json.map_err(|source| HintError::Payload { subject: self.subject(), source: Some(source) })
    }

    /// Reads a hint.
    ///
    /// # Errors
    /// [`HintError`] says why it is none.
    pub fn decode(subject: &str, bytes: &[u8]) -> Result<Self, HintError> {
        let empty = |hint: Self| {
            let subject = hint.subject();
            if bytes.is_empty() { Ok(hint) } else { Err(HintError::Payload { subject, source: None }) }
        };
        match subject.strip_prefix(HINT_PREFIX) {
            Some("answer") => {
                let fault = |source| HintError::Payload { subject: "holdfast.hint.answer", source: Some(source) };
                let Answer { request } = serde_json::from_slice(bytes).map_err(fault)?;
                Ok(Self::Answer { request })
            }
            Some("event") => empty(Self::Event),
            Some("host") => {
                let fault = |source| HintError::Payload { subject: "holdfast.hint.host", source: Some(source) };
                let hint: HostHint = serde_json::from_slice(bytes).map_err(fault)?;
                let len = hint.states.len();
                if len <= HOST_HINT_ENTRIES_MAX { Ok(Self::Host(hint)) } else { Err(HintError::TooMany(len)) }
            }
            Some("intent") => empty(Self::Intent),
            Some("request") => empty(Self::Request),
            Some(_) | None => Err(HintError::Subject(subject.chars().take(128).collect())),
        }
    }

    /// Cuts the newer states of one render into hints, numbered on from `n`.
    #[must_use]
    pub fn of_render(lease_term: LeaseTerm, n: u64, states: &[(HostId, Component, Version)]) -> Vec<HostHint> {
        let of = u64::try_from(states.len()).ok();
        let numbered = states.chunks(HOST_HINT_ENTRIES_MAX).zip(n..);
        numbered.map(|(states, n)| HostHint { lease_term, n, of, states: states.to_vec() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn mk_states(len: u128) -> Vec<(HostId, Component, Version)> {
        let one = |n| {
            let version = Version::from_raw(u64::MAX).expect("not zero");
            (HostId::new(Uuid::from_u128(n)), Component::Credentials, version)
        };
        (0..len).map(one).collect()
    }

    #[test]
    fn every_hint_round_trips_on_its_subject_and_on_no_other() {
        let host = HostHint { lease_term: LeaseTerm::from_raw(3), n: 7, of: Some(9), states: mk_states(2) };
        let request = EventId::new(Uuid::from_u128(5));
        let all = [Hint::Answer { request }, Hint::Event, Hint::Host(host), Hint::Intent, Hint::Request];
        for hint in &all {
            let bytes = hint.encode().expect("encodes");
            assert_eq!(&Hint::decode(hint.subject(), &bytes).expect("decodes"), hint);
            assert!(Hint::decode("holdfast.hint.other", &bytes).is_err());
            assert!(Hint::decode(hint.subject(), b"{\"secret\":1}").is_err());
        }
        assert_eq!(all.map(|hint| hint.subject()), Hint::SUBJECTS);
    }

    #[test]
    fn a_hint_of_a_renderer_that_says_nothing_of_the_whole_render_is_read_and_written_as_it_was() {
        let host = HostId::new(Uuid::from_u128(1));
        let old = format!(r#"{{"lease_term":3,"n":7,"states":[["{host}","policy",2]]}}"#);
        let hint = Hint::decode("holdfast.hint.host", old.as_bytes()).expect("decodes");
        let Hint::Host(read) = &hint else { panic!("{hint:?}") };
        assert_eq!((read.of, read.states.len()), (None, 1));
        assert_eq!(hint.encode().expect("encodes"), old.as_bytes());
        let new = format!(r#"{{"lease_term":3,"n":7,"of":1200,"states":[["{host}","policy",2]]}}"#);
        let hint = Hint::decode("holdfast.hint.host", new.as_bytes()).expect("decodes");
        assert!(matches!(&hint, Hint::Host(read) if read.of == Some(1_200)));
        assert_eq!(hint.encode().expect("encodes"), new.as_bytes());
    }

    #[test]
    fn a_render_is_cut_into_numbered_hints_of_bounded_size() {
        let hints = Hint::of_render(LeaseTerm::from_raw(u64::MAX), u64::MAX - 9, &mk_states(2_001));
        assert_eq!(hints.iter().map(|hint| hint.states.len()).collect::<Vec<_>>(), [1000, 1000, 1]);
        assert_eq!(hints[2].n, u64::MAX - 7);
        assert!(hints.iter().all(|hint| hint.of == Some(2_001)), "the last one of a wide render is not narrow");
        assert!(Hint::Host(hints[0].clone()).encode().expect("encodes").len() < 85_000);
        let over = HostHint { lease_term: LeaseTerm::ZERO, n: 1, of: None, states: mk_states(1_001) };
        let bytes = serde_json::to_vec(&over).expect("JSON");
        assert!(matches!(Hint::Host(over).encode(), Err(HintError::TooMany(1_001))));
        assert!(matches!(Hint::decode("holdfast.hint.host", &bytes), Err(HintError::TooMany(1_001))));
    }
}
