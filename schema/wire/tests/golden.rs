//! The committed bytes of every message: they decode, and encode again to the same bytes.
//!
//! `HOLDFAST_GOLDEN=write cargo nextest run -p holdfast-wire` rewrites them, to be read in the difference. A changed file means another protocol.

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;

use common::{mk_frame, mk_frame_bytes, mk_samples};
use holdfast_wire::decode;

#[test]
fn golden_frames_decode_and_encode_again_to_the_same_bytes() {
    let write = std::env::var("HOLDFAST_GOLDEN").is_ok_and(|value| value == "write");
    for (name, message) in mk_samples() {
        let path = folder().join(format!("{name}.hex"));
        let bytes = mk_frame_bytes(&message);
        if write {
            std::fs::write(&path, hex(&bytes)).expect("the golden folder is writable");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(hex(&bytes), golden, "{name} has other bytes than the committed ones");
        let decoded = decode(&mk_frame(&unhex(&golden))).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(decoded, message, "{name}");
        assert_eq!(hex(&mk_frame_bytes(&decoded)), golden, "{name}");
    }
}

#[test]
fn every_golden_file_has_a_sample() {
    let wanted: BTreeSet<String> = mk_samples().iter().map(|(name, _)| format!("{name}.hex")).collect();
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .expect("the golden folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .collect();
    assert_eq!(found, wanted);
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
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
