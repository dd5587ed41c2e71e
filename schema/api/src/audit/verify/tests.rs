//! What the verifier finds, and names, in a chain that was tampered with.

use proptest::prelude::*;

use super::*;
use crate::audit::Chain;

fn mk_log(entries: u64) -> Vec<String> {
    let mut chain = Chain::after(Head::ORIGIN);
    let event = |seq| format!(r#"{{"id":"e{seq}","authorityepoch":"1","sequence":"{seq}","data":{{"n":{seq}}}}}"#);
    (1..=entries).map(|seq| chain.append(&event(seq)).expect("an event").to_line()).collect()
}

fn verify(lines: &[String], checkpoints: Vec<Head>) -> Report {
    let mut verifier = Verifier::new(checkpoints);
    lines.iter().for_each(|line| verifier.line(line));
    verifier.finish()
}

fn head_of(lines: &[String]) -> Head {
    let entry = Entry::parse(lines.last().expect("not empty")).expect("an entry");
    Head { n: entry.n, hash: entry.hash }
}

#[test]
fn an_untouched_log_has_no_fault_and_is_proven_up_to_its_checkpoint() {
    let log = mk_log(10);
    let report = verify(&log, vec![head_of(&log[..7])]);
    assert_eq!((report.faults, report.proven, report.entries), (vec![], Some(7), 10));
    assert_eq!(verify(&log, vec![]).proven, None);
}

#[test]
fn a_changed_event_is_named_and_only_it() {
    let mut log = mk_log(10);
    log[3] = log[3].replace(r#""n":4}"#, r#""n":5}"#);
    assert_eq!(verify(&log, vec![]).faults, [Fault { n: 4, kind: FaultKind::Changed }]);
}

#[test]
fn bytes_beside_an_entry_and_an_empty_line_are_named() {
    for beside in ["{} ", " {}", "{}\r"] {
        let mut log = mk_log(4);
        log[2] = beside.replace("{}", &log[2]);
        assert_eq!(verify(&log, vec![]).faults, [Fault { n: 3, kind: FaultKind::Changed }], "{beside:?}");
    }
    let mut log = mk_log(4);
    log.insert(2, String::new());
    assert!(verify(&log, vec![]).faults.iter().any(|fault| matches!(fault.kind, FaultKind::Unreadable { .. })));
}

#[test]
fn a_missing_entry_and_a_missing_tail_are_named() {
    let mut log = mk_log(10);
    let checkpoint = head_of(&log);
    log.remove(4);
    assert_eq!(verify(&log, vec![]).faults, [Fault { n: 6, kind: FaultKind::Missing { from: 5, to: 5 } }]);
    let cut = mk_log(8);
    assert_eq!(verify(&cut, vec![]).faults, []);
    assert_eq!(verify(&cut, vec![checkpoint]).faults, [Fault { n: 10, kind: FaultKind::Cut { end: 8 } }]);
}

#[test]
fn swapped_entries_are_named() {
    let mut log = mk_log(6);
    log.swap(2, 3);
    let faults = verify(&log, vec![]).faults;
    assert!(faults.contains(&Fault { n: 3, kind: FaultKind::Reordered }), "{faults:?}");
}

#[test]
fn an_entry_that_was_replaced_and_hashed_anew_breaks_the_chain_at_the_next() {
    let mut log = mk_log(6);
    let before = head_of(&log[..2]);
    let forged = r#"{"id":"forged","authorityepoch":"1","sequence":"3","data":{}}"#;
    log[2] = Chain::after(before).append(forged).expect("an event").to_line();
    assert_eq!(verify(&log, vec![]).faults, [Fault { n: 4, kind: FaultKind::Broken }]);
}

#[test]
fn a_log_that_was_hashed_anew_from_one_entry_on_fails_only_against_a_checkpoint() {
    let log = mk_log(6);
    let checkpoint = head_of(&log);
    let mut chain = Chain::after(head_of(&log[..2]));
    let event = |seq| format!(r#"{{"id":"forged","authorityepoch":"1","sequence":"{seq}"}}"#);
    let tail = (3..=6).map(|seq| chain.append(&event(seq)).expect("an event").to_line());
    let forged: Vec<String> = log[..2].iter().cloned().chain(tail).collect();
    assert_eq!(verify(&forged, vec![]).faults, []);
    assert_eq!(verify(&forged, vec![checkpoint]).faults, [Fault { n: 6, kind: FaultKind::Rewritten }]);
}

#[test]
fn a_gap_in_the_order_of_the_control_plane_is_named_although_the_chain_holds() {
    let mut chain = Chain::after(Head::ORIGIN);
    let event = |seq: u64| format!(r#"{{"authorityepoch":"1","sequence":"{seq}"}}"#);
    let log: Vec<String> = [1, 2, 4].map(|seq| chain.append(&event(seq)).expect("an event").to_line()).into();
    let place = |seq| Place { authority_epoch: 1, seq };
    let kind = FaultKind::Order { expected: place(3), found: place(4) };
    assert_eq!(verify(&log, vec![]).faults, [Fault { n: 3, kind }]);
}

proptest! {
    #[test]
    fn every_single_change_of_a_byte_is_found(at in 0_usize..4_000, to in 0x20_u8..0x7f) {
        let log = mk_log(12);
        let checkpoint = head_of(&log);
        let mut text = log.join("\n").into_bytes();
        let at = at % text.len();
        prop_assume!(text[at] != to && text[at] != b'\n');
        text[at] = to;
        let text = String::from_utf8(text).expect("ASCII");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        prop_assert!(!verify(&lines, vec![checkpoint]).faults.is_empty());
    }

    #[test]
    fn every_loss_and_every_move_of_a_line_is_found(from in 0_usize..12, to in 0_usize..12) {
        let log = mk_log(12);
        let checkpoint = head_of(&log);
        let mut moved = log.clone();
        let line = moved.remove(from);
        prop_assert!(!verify(&moved, vec![checkpoint]).faults.is_empty());
        moved.insert(to, line);
        prop_assert_eq!(verify(&moved, vec![checkpoint]).faults.is_empty(), from == to);
    }
}
