//! The end-to-end tier: real binaries, servers, kernels and packets, as `ops/up` starts them. Needs root.
//!
//! - One plane serves one story: its parts build on each other, and starting a fleet is most of the cost.

mod compose;
mod dishonest;
mod docker;
mod faults;
mod fleet;
mod packets;
mod points;
mod readme;
mod remains;
mod restored;
mod secrets;
