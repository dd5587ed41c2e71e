//! The contract tier: each part against the real server that it speaks to, on loopback.

mod addresses;
mod audit;
mod bad_input;
mod brake;
mod bus;
mod clock;
mod control_plane;
mod dev_services;
mod directives;
mod doors;
mod enrolment;
mod fail_points;
mod first_agent;
mod many;
mod metrics;
mod nats_users;
mod peer;
mod polls;
mod processes;
mod regress;
mod renderer;
mod silence;
mod two_renderers;
mod versions;
