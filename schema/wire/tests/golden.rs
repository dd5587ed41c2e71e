//! The committed bytes of every message in every protocol: they decode, and encode again to the same bytes.
//!
//! `HOLDFAST_GOLDEN=write cargo nextest run -p holdfast-wire` rewrites those of the protocol that is not frozen yet, to be read in the difference.

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;

use common::{mk_frame, mk_frame_bytes_of, mk_samples};
use holdfast_wire::decode;
use holdfast_wire::negotiate::Protocol;

/// BLAKE3 of the golden files of the protocols that are frozen, names and contents in the order of names: what was said once is said for ever.
const FROZEN: [(Protocol, &str); 2] = [
    (Protocol::V1, "13ce72eb22dcf7ac122a758221d1d71568ddef06b49f7aa7740c3129bf3f8053"),
    (Protocol::V2, "c01f1f744d0f76298e8cbc7ad2c41208742fb42e80f18cdeab2efd2eadc54d75"),
];

#[test]
fn golden_frames_decode_and_encode_again_to_the_same_bytes() {
    let write = std::env::var("HOLDFAST_GOLDEN").is_ok_and(|value| value == "write");
    for protocol in Protocol::ALL {
        for (name, message) in mk_samples(protocol) {
            let path = folder(protocol).join(format!("{name}.hex"));
            let bytes = mk_frame_bytes_of(protocol, &message);
            if write && protocol == Protocol::NEWEST {
                std::fs::create_dir_all(folder(protocol)).expect("the golden folder can be made");
                std::fs::write(&path, hex(&bytes)).expect("the golden folder is writable");
            }
            let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(hex(&bytes), golden, "{name} has other bytes than the committed ones");
            let decoded = decode(&mk_frame(&unhex(&golden))).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(decoded, message, "{name}");
            assert_eq!(hex(&mk_frame_bytes_of(protocol, &decoded)), golden, "{name}");
        }
    }
}

#[test]
fn every_golden_file_has_a_sample() {
    for protocol in Protocol::ALL {
        let wanted: BTreeSet<String> = mk_samples(protocol).iter().map(|(name, _)| format!("{name}.hex")).collect();
        assert_eq!(names(protocol), wanted);
    }
}

#[test]
fn the_protocols_before_the_newest_are_frozen() {
    for (protocol, frozen) in FROZEN {
        let mut hasher = blake3::Hasher::new();
        for name in names(protocol) {
            let bytes = std::fs::read(folder(protocol).join(&name)).expect("it is there");
            hasher.update(name.as_bytes()).update(&[0]).update(&bytes);
        }
        let found = hasher.finalize().to_hex();
        assert_eq!(
            found.as_str(),
            frozen,
            "{protocol:?} is what agents in the field speak: a change is another protocol"
        );
    }
    assert_eq!(FROZEN.len() + 1, Protocol::ALL.len(), "all but the newest are frozen");
}

fn folder(protocol: Protocol) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{}", protocol.number()))
}

fn names(protocol: Protocol) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder(protocol)).expect("the golden folder");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name")).collect()
}

/// Rows of 32 bytes, so that a difference shows where it is.
fn hex(bytes: &[u8]) -> String {
    let row = |row: &[u8]| row.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    bytes.chunks(32).map(row).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).expect("a digit")).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
