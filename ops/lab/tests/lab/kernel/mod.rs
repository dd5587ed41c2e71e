//! What needs root, `ip`, `nft` and the agent's binary; without them these tests fail.

mod estates;
mod packets;
mod probes;
mod stand;
mod wiring;
