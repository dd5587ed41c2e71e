//! How an agent and a gateway speak: frames, messages, limits, negotiation.
//!
//! - A frame is a length, an envelope (protocol, kind) and a payload; the length is checked before a byte of the rest is kept.
//! - Payloads are postcard of types that live here and nowhere else (invariant A4); they are converted explicitly from and to the model.
//! - No wire type is recursive, a map, or a list of things without size; a payload with bytes left over is refused.
//! - Nothing is hashed or signed from a re-encoding: signed statements have their own fixed bytes in `holdfast_model::statement`.
//!
//! It does not say who sends what when (`holdfast-session`) and touches no socket. `docs/wire.md` describes every message.

pub mod code;
pub mod echo;
pub mod enrol;
pub mod error;
pub mod frame;
pub mod limits;
pub mod message;
pub mod negotiate;
mod speak;
pub mod sync;
pub mod v1;
pub mod v2;
pub mod v3;

pub use speak::{decode, decode_as, encode, encode_chunk};
pub use v1::changes::{decode_changes, encode_changes};
