//! The authority in Postgres: the only crate that names sqlx (A2).
//!
//! - Every change and the events that explain it are one transaction; every transaction runs in a task of its own.
//! - No statement of the session path takes one host: all take arrays.
//! - `rebuild` folds the events and compares every column of every projection with what is stored.
//!
//! It publishes nothing: whoever commits publishes its own hints (`holdfast-bus`).

pub mod artifact;
pub mod authority;
pub mod config;
mod directive;
pub mod drift;
pub mod error;
mod follow;
pub mod intent;
pub mod lease;
pub mod migrate;
pub mod once;
pub mod operation;
pub mod order;
mod outbox;
pub mod plane;
mod pool;
pub mod pulse;
pub mod rebuild;
pub mod render;
pub mod report;
pub mod request;
pub mod rollout;
pub mod server;
pub mod session;
pub mod status;
#[cfg(feature = "testing")]
pub mod testing;
pub mod token;
mod value;

pub use config::{ConfigError, StoreConfig, Tls};
pub use error::{Error, Retry};
pub use pool::{STATEMENT_TIMEOUT, Store};
pub use server::{Servers, Successors, WrongServer};
