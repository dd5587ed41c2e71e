//! What needs root, `ip` and `nft`; without them these tests fail.

mod packets;
mod probes;
mod stand;
mod wiring;
