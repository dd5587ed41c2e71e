//! The renderer service: turns intent into desired states under its lease, numbers and relays events, and holds the keys.

pub mod core;
pub mod init;
