//! The command line against the real API: its own process, the real door over TLS, a real Postgres. Renderer and agents are stood in for, but what
//! they write is real: bodies, versions, signatures.

mod alerts;
mod answers;
mod audit;
mod brake;
mod commands;
mod conditions;
mod directives;
mod doctor;
mod first_look;
mod follow;
mod golden;
mod groups;
mod held;
mod intent;
mod lists;
mod open;
mod operations;
mod past;
mod plane;
mod rollouts;
mod scoped;
mod unchanged;
mod watch;
