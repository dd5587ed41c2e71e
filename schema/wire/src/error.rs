//! What can be wrong with frames and messages.

use crate::message::Kind;

/// A stream of frames that cannot be followed any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The length field says more than this peer may send now.
    #[error("a frame of {bytes} bytes, at most {bytes_max} are allowed here")]
    TooLong {
        /// What the length field says.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// The length field says less than an envelope has.
    #[error("a frame of {bytes} bytes has no room for its envelope")]
    TooShort {
        /// What the length field says.
        bytes: usize,
    },
}

impl FrameError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "frame-too-long",
            Self::TooShort { .. } => "frame-too-short",
        }
    }
}

/// A frame whose payload is no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The envelope names a protocol that is not spoken here.
    #[error("a frame of protocol {protocol}, which is not spoken here")]
    Protocol {
        /// What the envelope names.
        protocol: u16,
    },
    /// The payload cannot be read.
    #[error("the payload of a {kind} message cannot be read")]
    Payload {
        /// What it claims to be.
        kind: Kind,
        /// Why.
        #[source]
        source: postcard::Error,
    },
    /// Bytes remain after the payload.
    #[error("{bytes} bytes remain after a {kind} message")]
    Trailing {
        /// What it claims to be.
        kind: Kind,
        /// How many.
        bytes: usize,
    },
    /// A field has a value that means nothing.
    #[error("a {kind} message has no valid {field}")]
    Value {
        /// What it claims to be.
        kind: Kind,
        /// Which field.
        field: &'static str,
    },
    /// A field is larger than its cap.
    #[error("a {kind} message has a {field} of {size}, at most {size_max} are allowed")]
    TooLarge {
        /// What it claims to be.
        kind: Kind,
        /// Which field.
        field: &'static str,
        /// Its bytes or entries.
        size: usize,
        /// Its cap.
        size_max: usize,
    },
}

impl DecodeError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Protocol { .. } => "frame-protocol",
            Self::Payload { .. } => "payload-unreadable",
            Self::Trailing { .. } => "payload-trailing",
            Self::Value { .. } => "field-invalid",
            Self::TooLarge { .. } => "field-too-large",
        }
    }
}

/// A message that may not be sent: it would be refused on the other side.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// A field is larger than its cap.
    #[error("a {kind} message with a {field} of {size}, at most {size_max} are allowed")]
    TooLarge {
        /// What it would have been.
        kind: Kind,
        /// Which field.
        field: &'static str,
        /// Its bytes or entries.
        size: usize,
        /// Its cap.
        size_max: usize,
    },
    /// The protocol has no place for it.
    #[error("a {kind} message of this protocol cannot say {field}")]
    Unspeakable {
        /// What it would have been.
        kind: Kind,
        /// What cannot be said.
        field: &'static str,
    },
    /// The encoder gave up.
    #[error("a {kind} message cannot be encoded")]
    Payload {
        /// What it would have been.
        kind: Kind,
        /// Why.
        #[source]
        source: postcard::Error,
    },
}
