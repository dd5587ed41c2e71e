//! The end-to-end tier: real binaries, servers, kernels and packets, as `ops/up` starts them. Needs root.
//!
//! - One plane serves one story: its parts build on each other, and starting a fleet is most of the cost.
//! - Two stories run at once, since each mostly waits: nothing of a story is the machine's, neither a port nor a name nor a figure of all processes. What
//!   needs the machine for itself is in a module `long_NAME`.

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
mod rollouts;
mod secrets;
