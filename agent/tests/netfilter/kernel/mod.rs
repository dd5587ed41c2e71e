//! Tests that write into a kernel.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod apply;
