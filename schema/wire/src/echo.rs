//! The echo before TLS: how an agent proves, after a change of its policy, that packets still reach a gateway and come back.
//!
//! - The first bytes of a connection tell it from TLS: a TLS record begins with 0x16, this begins with [`MAGIC`].
//! - A client sends exactly [`ECHO_BYTES`], [`MAGIC`] first, gets exactly them back, and the connection is over. It proves a path, not who answers.

/// What an echo begins with.
pub const MAGIC: [u8; 8] = *b"HFECHO1\n";

/// How many bytes go each way: more than one packet of the smallest usual path carries, so that a lost large packet shows.
pub const ECHO_BYTES: usize = 1_400;

/// The first byte of a TLS record that opens a handshake.
pub const TLS_HANDSHAKE: u8 = 0x16;

const _: () = assert!(MAGIC[0] != TLS_HANDSHAKE && MAGIC.len() < ECHO_BYTES);
