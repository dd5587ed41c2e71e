//! What the HTTPS doors say: the types that services and the command line share, and nothing that decides.
//!
//! - The command line reaches this crate, not the services: what it prints is what the API said.
//! - [`audit`] holds the format of the audit log and its verifier, so that a reader proves the log itself instead of believing the door.

pub mod audit;
