//! The store against a real Postgres: each test has a server of its own, and each process its own role.

mod common;
mod decommission;
mod enrol;
mod intent;
mod lives;
mod migrations;
mod once;
mod order;
mod plane;
mod pool;
mod rebuild;
mod render;
mod roles;
mod rollout;
mod servers;
mod session;
