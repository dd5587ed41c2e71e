//! What the log holds to on disk: appends, restarts, torn ends and altered files.

use holdfast_api::audit::{Report, Verifier};

use super::*;

fn mk_event(seq: u64) -> String {
    format!(r#"{{"id":"e{seq}","authorityepoch":"1","sequence":"{seq}","data":"{}"}}"#, "x".repeat(100))
}

fn append(log: &mut Log, seqs: std::ops::RangeInclusive<u64>) -> Head {
    let events: Vec<String> = seqs.map(mk_event).collect();
    log.append(events.iter().map(String::as_str)).expect("the disk takes it")
}

fn prove(folder: &Path) -> Report {
    let mut verifier = Verifier::new(vec![]);
    lines(folder, |line| verifier.line(line)).expect("the folder reads");
    verifier.finish()
}

#[test]
fn a_log_goes_on_where_it_stopped_and_rolls_over_segments() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = Log::open_with(folder.path(), 500).expect("opens");
    for first in (1..50).step_by(7) {
        append(&mut log, first..=first + 6);
    }
    let head = log.head();
    drop(log);
    let mut log = Log::open_with(folder.path(), 500).expect("opens again");
    assert_eq!((log.head(), log.place()), (head, Some(Place { authority_epoch: 1, seq: 49 })));
    append(&mut log, 50..=50);
    assert!(segments(folder.path()).expect("lists").len() > 3);
    let report = prove(folder.path());
    assert_eq!((report.faults, report.entries, report.head), (vec![], 50, log.head()));
}

#[test]
fn a_line_torn_at_any_byte_is_cut_off_and_everything_before_stays() {
    let whole = tempfile::tempdir().expect("a folder");
    let head = append(&mut Log::open(whole.path()).expect("opens"), 1..=2);
    let name = segment::file_name(1);
    let bytes = fs::read(whole.path().join(&name)).expect("reads");
    let first_line = bytes.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    for cut in first_line..bytes.len() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(&name), &bytes[..cut]).expect("writes");
        let mut log = Log::open(folder.path()).expect("opens");
        assert_eq!(log.head().n, 1, "cut at {cut}");
        assert_eq!(append(&mut log, 2..=2), head, "cut at {cut}");
        assert_eq!(prove(folder.path()).faults, []);
    }
}

#[test]
fn a_damaged_last_entry_is_named_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    append(&mut Log::open(folder.path()).expect("opens"), 1..=3);
    let path = folder.path().join(segment::file_name(1));
    let text = fs::read_to_string(&path).expect("reads").replace(r#"{"n":3,"#, r#"["n":3,"#);
    fs::write(&path, &text).expect("writes");
    assert!(matches!(Log::open(folder.path()), Err(LogError::Damaged { .. })));
    assert_eq!(fs::read_to_string(&path).expect("reads"), text);
}

#[test]
fn a_file_that_another_hand_replaced_cut_or_took_away_takes_no_entry() {
    type Deed = fn(&Path);
    let deeds: [Deed; 4] = [
        |path| fs::remove_file(path).expect("it is ours"),
        |path| {
            let copy = path.with_extension("copy");
            fs::copy(path, &copy).expect("it is ours");
            fs::rename(copy, path).expect("it is ours");
        },
        |path| fs::write(path, "").expect("it is ours"),
        |path| fs::write(path, [fs::read(path).expect("it is ours"), b"\n".to_vec()].concat()).expect("it is ours"),
    ];
    for deed in deeds {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = Log::open(folder.path()).expect("opens");
        let head = append(&mut log, 1..=3);
        deed(&folder.path().join(segment::file_name(1)));
        let events = [mk_event(4)];
        let refused = log.append(events.iter().map(String::as_str));
        assert!(matches!(refused, Err(LogError::Replaced { .. })), "{refused:?}");
        assert_eq!(log.head(), head);
    }
}

#[test]
fn a_second_writer_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = Log::open(folder.path()).expect("opens");
    assert!(matches!(Log::open(folder.path()), Err(LogError::Locked { .. })));
    drop(first);
    assert!(Log::open(folder.path()).is_ok());
}

#[test]
fn a_batch_with_a_bad_event_is_refused_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = Log::open(folder.path()).expect("opens");
    let head = append(&mut log, 1..=1);
    for bad in ["{", "{}", "{\"authorityepoch\":\"1\",\n\"sequence\":\"3\"}"] {
        assert!(matches!(log.append([mk_event(2).as_str(), bad]), Err(LogError::Event(_))), "{bad}");
    }
    assert_eq!(log.head(), head);
    assert_eq!(prove(folder.path()).entries, 1);
}

#[test]
fn a_reader_follows_the_log_across_segments() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = Log::open_with(folder.path(), 300).expect("opens");
    let mut reader = Reader::new(folder.path());
    let mut seen = 0;
    for seq in 1..=20 {
        append(&mut log, seq..=seq);
        seen += reader.poll_lines().expect("reads").len();
        assert_eq!(seen as u64, seq);
        assert_eq!(reader.poll_lines().expect("reads"), Vec::<String>::new());
    }
    let near = |line: &str| Entry::parse(line).expect("an entry").n <= 15;
    let lines = Reader::near(folder.path(), near).expect("reads").poll_lines().expect("reads");
    assert!((2..=15).contains(&Entry::parse(&lines[0]).expect("an entry").n));
}
