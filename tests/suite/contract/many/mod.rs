//! Many gateways and the repair of what they miss: real gateway processes, a real Postgres and NATS, agents that speak by the real machines, and the
//! test in the place of the renderer.
//!
//! - Names begin with the edge case that they show (`C17` is number 17 of the catalogue) or the promise.
//! - How hosts look is watched through the API the whole time: a flicker between two looks of 20 ms is the only one that is not seen.

mod agent;
mod agree;
mod builds;
mod churn;
mod clones;
mod decommission;
mod directed;
mod edges;
mod emptied;
mod few;
mod full;
mod lapsed;
mod operations;
mod outcomes;
mod oversized;
mod promoted;
mod proofs;
mod repair;
mod replicas;
mod restart;
mod scripted;
mod stage;
mod storm;
mod under_load;
mod watch;
mod world;
