//! The audit service: a consumer of the event stream that keeps its own log, apart from the control plane's database.

pub mod log;
