//! What the HTTPS doors say: the types that services and the command line share, and nothing that decides.
//!
//! - The command line reaches this crate, not the services: what it prints is what the API said.
//! - [`audit`] holds the format of the audit log and its verifier, so that a reader proves the log itself instead of believing the door.
//! - Times are text in RFC 3339 and UTC, ids are text with their prefix: what travels is what is shown.

pub mod audit;
pub mod authority;
pub mod brake;
pub mod directive;
pub mod explain;
pub mod history;
mod missing;
pub mod mode;
pub mod object;
pub mod operation;
pub mod plane;
pub mod policy;
pub mod problem;
pub mod rebuild;
pub mod rollout;
pub mod status;
pub mod token;
