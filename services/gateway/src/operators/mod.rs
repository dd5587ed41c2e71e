//! The operators' door: the HTTPS API.
//!
//! - Every answer that is no success is a typed problem; every list has pages; every body and wait has a bound.
//! - What changes intent commits first and rings after: a hint that is lost costs time, never correctness.
//! - Reads answer from one consistent state each, and see what was committed before they began.
//!
//! It renders nothing that is sent and holds no session; what it asks of one goes out as a directive, which nobody keeps. A plan uses the renderer's pure code and writes nothing.

mod audit;
mod auth;
mod authority;
mod brake;
mod changes;
mod cursor;
mod decommission;
mod directives;
mod door;
mod drift;
mod effective;
mod etag;
mod explain;
mod fleet;
mod gauges;
mod history;
mod hosts;
mod intent;
mod modes;
mod names;
mod objects;
mod operations;
mod plan;
mod plane;
mod rebuild;
mod refuse;
mod report;
mod request;
mod restore;
mod revisions;
mod rollouts;
mod router;
mod scrape;
mod settle;
mod shared;
mod start;
mod status;
mod targets;
mod tokens;
mod wake;

pub use audit::AuditDoor;
pub use plan::Trials;
pub use router::openapi;
pub use start::{AdminTokenError, DoorConfig, create_admin_token, start};
pub use wake::listen;
