//! Reading a frame takes memory by the bytes that are there, whatever they promise.

mod common;

use allocation_counter::measure;
use common::*;
use holdfast_wire::frame::{Deframer, Frame};
use holdfast_wire::limits::*;
use holdfast_wire::message::Kind;
use holdfast_wire::negotiate::Protocol;
use holdfast_wire::{decode, decode_changes};

/// A number of ten bytes: as a count it promises 2^63 items.
const HUGE: [u8; 10] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
/// The largest number of bytes in memory for one on the wire: an empty list of 24 bytes, or an address of 17, for a byte or five, in a buffer that
/// doubles.
const BYTES_PER_BYTE_MAX: u64 = 64;
/// What an error and the first places of a list take.
const BYTES_BESIDE_MAX: u64 = 8 * 1024;

fn peak_of(kind: u16, payload: Vec<u8>) -> (u64, u64) {
    let len = payload.len() as u64;
    let peaks = Protocol::ALL.map(|protocol| {
        let frame = Frame { protocol: protocol.number(), kind, payload: payload.clone() };
        // What it comes to is other tests' business.
        measure(|| drop(decode(&frame))).bytes_max
    });
    (peaks.into_iter().max().unwrap_or_default(), len)
}

#[track_caller]
fn assert_bounded(what: &str, (peak, len): (u64, u64)) {
    let most = len * BYTES_PER_BYTE_MAX + BYTES_BESIDE_MAX;
    assert!(peak <= most, "{what}: {peak} bytes in memory for {len} on the wire, at most {most}");
}

#[test]
fn a_count_that_promises_more_than_there_is_takes_no_memory_for_it() {
    for kind in Kind::ALL {
        for lead in 0..64 {
            let payload = [&vec![0; lead][..], &HUGE].concat();
            assert_bounded(&format!("{kind} after {lead} zeros"), peak_of(kind.number(), payload));
        }
    }
    // In a message that is whole up to the count, wherever that is.
    for (name, message) in mk_samples(Protocol::NEWEST) {
        let frame = mk_frame(&mk_frame_bytes(&message));
        for at in 0..frame.payload.len() {
            let payload = [&frame.payload[..at], &HUGE].concat();
            assert_bounded(&format!("{name} at {at}"), peak_of(frame.kind, payload));
        }
    }
    let measured = measure(|| drop(decode_changes(&HUGE)));
    assert_bounded("changes", (measured.bytes_max, HUGE.len() as u64));
}

#[test]
fn the_densest_frames_take_memory_in_proportion() {
    for kind in Kind::ALL {
        for byte in [0x00, 0x01, 0x02, 0x7f, 0x80, 0xff] {
            let payload = vec![byte; FRAME_BYTES_MAX - LENGTH_BYTES];
            assert_bounded(&format!("{kind} of {byte:#x}"), peak_of(kind.number(), payload));
        }
    }
}

#[test]
fn a_length_that_promises_the_cap_takes_no_memory_before_the_bytes_come() {
    let length = u32::try_from(FRAME_BYTES_MAX).expect("fits").to_be_bytes();
    let measured = measure(|| {
        let mut deframer = Deframer::new(FRAME_BYTES_MAX);
        deframer.push(&length);
        assert_eq!(deframer.poll_frame(), Ok(None));
    });
    assert!(measured.bytes_max <= BYTES_BESIDE_MAX, "{} bytes for a promise", measured.bytes_max);
    // Fed by the byte it holds what came, and at most as much again.
    let measured = measure(|| {
        let mut deframer = Deframer::new(FRAME_BYTES_MAX);
        deframer.push(&length);
        for _ in 0..100_000 {
            deframer.push(&[0]);
        }
        assert_eq!(deframer.poll_frame(), Ok(None));
    });
    assert!(measured.bytes_max >= 100_000, "the meter counts");
    assert!(measured.bytes_max <= 3 * 100_000 + BYTES_BESIDE_MAX, "{} bytes for 100,000", measured.bytes_max);
}

#[test]
fn a_frame_that_is_passed_over_takes_no_memory_but_for_the_piece_at_hand() {
    let head = [&u32::try_from(FRAME_BYTES_MAX).expect("fits").to_be_bytes()[..], &[0, 3, 0, 13]].concat();
    let piece = vec![0; 1_024];
    let measured = measure(|| {
        let mut deframer = Deframer::new(STATUS_FRAME_BYTES_MAX);
        deframer.push(&head);
        assert!(deframer.poll_frame().is_err());
        deframer.pass_over();
        for _ in 0..1_000 {
            deframer.push(&piece);
            assert_eq!(deframer.poll_frame(), Ok(None));
        }
    });
    assert!(measured.bytes_max <= BYTES_BESIDE_MAX, "{} bytes for a megabyte", measured.bytes_max);
}
