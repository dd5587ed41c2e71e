//! What the test tiers share: real servers, started for one test and gone after it.
//!
//! - A missing tool fails the test that needs it; nothing is skipped.
//! - Everything a test started ends with the value that stands for it, also when the test panics.

mod ballast;
pub mod complaint;
pub mod containers;
pub mod fail_points;
pub mod nats;
pub mod needles;
pub mod plane;
pub mod ports;
pub mod proxy;
pub mod services;
pub mod steps;
pub mod traffic;
