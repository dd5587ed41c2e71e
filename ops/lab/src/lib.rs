//! The lab: real hosts in network namespaces, with real packets between them.
//!
//! - A lab owns everything that it makes by exact name or process id, and its record on disk says so before it is made: `down` after a crash
//!   leaves nothing behind and never matches by pattern.
//! - Addresses of hosts, of the bridge and of the outside live only in namespaces of the lab, which have no route out. Two labs with the same
//!   addresses stand side by side.
//!
//! It decides nothing about policy: what must be allowed comes in as cells, what is in force is the agents' business.

pub mod agents;
pub mod command;
pub mod documents;
pub mod flow;
pub mod lab;
pub mod netns;
pub mod packets;
pub mod party;
pub mod plan;
pub mod prober;
pub mod publish;
pub mod record;
pub mod replicas;
pub mod topology;
pub mod verify;
