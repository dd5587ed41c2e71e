//! The renderer service: turns intent into desired states under its lease, numbers and relays events, and holds the keys.
//!
//! - What is rendered when is decided by `holdfast_render::fleet`, purely; [`leader`] reads, commits and announces; nothing is announced that is not
//!   committed.
//! - It holds the signing and issuing keys and listens to nobody but its own admin listener.

pub mod config;
pub mod init;
pub mod leader;
pub mod run;
