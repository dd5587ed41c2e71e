//! Signatures that only who has the number of a key can make: enough to tell genuine from forged, and cheap.

use holdfast_session::agent::Keys;
use holdfast_wire::message::SignatureBytes;

/// The renderer's key.
pub(crate) const RENDERER: u64 = 1;

/// The key of a host.
pub(crate) const fn host_key(host: usize) -> u64 {
    100 + host as u64
}

/// A signature of a statement.
pub(crate) fn sign(key: u64, statement: &[u8]) -> SignatureBytes {
    let mut mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ statement.len() as u64;
    for piece in statement.chunks(8) {
        let mut word = [0; 8];
        word.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
        mixed = (mixed ^ u64::from_le_bytes(word)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29);
    }
    let mut signature = [0; 64];
    for (nth, piece) in (1_u64..).zip(signature.chunks_mut(8)) {
        mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb).wrapping_add(nth);
        piece.copy_from_slice(&mixed.to_le_bytes());
    }
    signature
}

/// What one host's agent has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostKeys(pub(crate) u64);

impl Keys for HostKeys {
    fn is_genuine(&self, statement: &[u8], signature: &SignatureBytes) -> bool {
        sign(RENDERER, statement) == *signature
    }

    fn sign(&self, statement: &[u8]) -> SignatureBytes {
        sign(self.0, statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_or_another_statement_has_another_signature() {
        let signature = sign(1, b"a statement of some length");
        assert_ne!(signature, sign(2, b"a statement of some length"));
        assert_ne!(signature, sign(1, b"a statement of some lengti"));
        assert_ne!(sign(1, b""), sign(1, b"\0"));
        assert!(HostKeys(7).is_genuine(b"x", &sign(RENDERER, b"x")) && !HostKeys(7).is_genuine(b"x", &sign(7, b"x")));
    }
}
