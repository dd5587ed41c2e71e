//! What rendered bytes mean, read by a reader that shares no code with the renderer, against a plain reading of the intent.

mod support;

use std::collections::BTreeMap;

use holdfast_interpreter::{Artifact, Direction, Packet, Verdict};
use holdfast_model::artifact::{assemble, decode, encode, tree_of};
use holdfast_model::digest::Digest;
use holdfast_model::intent::Intent;
use holdfast_render::{Index, render_all};
use proptest::prelude::*;
use support::{judges, naive, worlds};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rendered_bytes_say_what_the_intent_says(intent in worlds::intent(), packets in prop::collection::vec(packet(), 60)) {
        for (id, body) in render_all(&Index::new(&intent)) {
            let host = &intent.hosts[&id];
            let artifact = Artifact::read(&encode(&body)).expect("rendered bytes are canonical");
            for (direction, packet) in &packets {
                let said = artifact.verdict(*direction, packet).verdict;
                let meant = naive::verdict(&intent, host, *direction, packet);
                prop_assert_eq!(said, meant, "{} {:?} {:?}", id, direction, packet);
                let judged = judges::verdict(&intent, id, *direction, packet);
                prop_assert!(judged.is_none_or(|judged| judged == said), "{} {:?} {:?}", id, direction, packet);
                if let Some(number) = number_of(packet) {
                    let services = artifact.services(*direction, packet.local, packet.peer);
                    let inside = services.of(packet.protocol).contains(number);
                    prop_assert_eq!(inside, said == Verdict::Allowed, "{:?} {:?}", packet, services);
                }
            }
        }
    }

    #[test]
    fn rendered_bodies_survive_both_encodings_and_a_tree_grows_by_what_is_new(
        intent in worlds::intent(),
        other in worlds::intent(),
    ) {
        let mut stored: BTreeMap<Digest, Vec<u8>> = BTreeMap::new();
        for body in bodies(&intent).chain(bodies(&other)) {
            let bytes = encode(&body);
            let decoded = decode(&bytes);
            prop_assert_eq!(decoded.as_ref(), Ok(&body));
            let (root, nodes) = tree_of(&body, |digest| stored.contains_key(&digest));
            prop_assert_eq!(root, body.digest());
            prop_assert!(nodes.keys().all(|digest| !stored.contains_key(digest)));
            stored.extend(nodes);
            let assembled = assemble(root, |digest| stored.get(&digest).cloned());
            prop_assert_eq!(assembled.as_ref(), Ok(&body));
            let (_, again) = tree_of(&body, |digest| stored.contains_key(&digest));
            prop_assert!(again.is_empty());
        }
    }

    #[test]
    fn two_readers_agree_on_altered_bytes_and_neither_panics(
        intent in worlds::intent(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..4),
    ) {
        for body in bodies(&intent) {
            let mut bytes = encode(&body);
            for (place, byte, what) in &cuts {
                alter(&mut bytes, place, *byte, *what);
            }
            agree(&bytes)?;
        }
    }

    #[test]
    fn two_readers_agree_on_any_bytes_and_neither_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        agree(&bytes)?;
        if let Some(format) = bytes.first_mut() {
            *format = 1;
        }
        agree(&bytes)?;
    }
}

fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (decoded, read) = (decode(bytes), Artifact::read(bytes));
    prop_assert_eq!(decoded.is_ok(), read.is_ok(), "{:?} {:?} {:02x?}", decoded, read, bytes);
    if let Ok(body) = decoded {
        prop_assert_eq!(encode(&body), bytes);
    }
    Ok(())
}

fn alter(bytes: &mut Vec<u8>, place: &prop::sample::Index, byte: u8, what: u8) {
    if bytes.is_empty() {
        return;
    }
    let at = place.index(bytes.len());
    match what {
        0 => bytes[at] = byte,
        1 => bytes[at] ^= 1 << (byte % 8),
        2 => bytes.insert(at, byte),
        _ => bytes.truncate(at),
    }
}

fn bodies(intent: &Intent) -> impl Iterator<Item = holdfast_model::policy::Body> {
    render_all(&Index::new(intent)).into_values().map(|body| body.as_ref().clone())
}

/// The number by which an exact set of services tells a packet from others of its protocol.
fn number_of(packet: &Packet) -> Option<u16> {
    match packet.protocol {
        1 | 58 => packet.icmp.map(|(kind, code)| u16::from_be_bytes([kind, code])),
        6 | 17 | 132 => packet.port,
        _ => Some(0),
    }
}

fn packet() -> impl Strategy<Value = (Direction, Packet)> {
    prop::sample::select(worlds::packets())
}
