//! What the ledger brings back after restarts, torn writes and foreign files.

use std::cell::Cell;

use holdfast_model::address::Interval;
use holdfast_model::desired::Stamp;
use holdfast_model::ids::AuthorityId;
use holdfast_model::interval_set::IntervalSet;
use holdfast_model::numbers::{AuthorityEpoch, Version};
use holdfast_model::policy::{Action, Body, Peers, Rule, RuleKey, Set, SetKey, Statement, delta};
use holdfast_model::statement::Authority;
use holdfast_wire::encode_changes;
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

use super::*;
use crate::engine::Origin;

thread_local! {
    /// Whether the disk takes bytes and does not keep them: each sync of an open ledger fails.
    pub(crate) static SYNC_FAILS: Cell<bool> = const { Cell::new(false) };
    /// Which sync from now on fails, and no other; 0 for none.
    pub(crate) static SYNC_FAILS_AT: Cell<u32> = const { Cell::new(0) };
    /// Whether every ledger is long enough to be made small.
    pub(crate) static IS_ALWAYS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the disk fails this sync.
pub(super) fn does_sync_fail() -> bool {
    let nth = SYNC_FAILS_AT.get();
    SYNC_FAILS_AT.set(nth.saturating_sub(1));
    SYNC_FAILS.get() || nth == 1
}

#[test]
fn a_snapshot_and_its_deltas_come_back_after_a_restart() {
    let (folder, history) = (tempdir().expect("a folder"), history(6));
    write(&folder, &history);
    let (_, loaded, fault) = open(&folder);
    assert_eq!(fault, None);
    assert_eq!(loaded, Loaded::Found { good: history.last().cloned(), candidate: None });
}

#[test]
fn a_missing_file_a_damaged_one_and_a_foreign_one_are_told_apart_and_nothing_is_loaded() {
    let folder = tempdir().expect("a folder");
    assert_eq!(open(&folder).1, Loaded::Missing);
    write(&folder, &history(2));
    let path = folder.path().join(STANDALONE_FILE);
    let good = fs::read(&path).expect("there");
    let fault_of = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("written");
        let (_, loaded, fault) = open(&folder);
        assert_eq!(loaded, Loaded::Unusable);
        fault.expect("a fault")
    };
    let mut flipped = good.clone();
    flipped[HEADER_BYTES + 40] ^= 1;
    assert_eq!(fault_of(&flipped), Fault::Damaged(HEADER_BYTES));
    assert_eq!(fault_of(b"something else entirely, longer than any header of ours could be"), Fault::Foreign);
    assert_eq!(fault_of(b""), Fault::Foreign);
    fs::write(&path, &good).expect("written");
    // An enrolled host keeps a file of its own; another host's under that name is foreign.
    let other = || Ledger::open(folder.path(), Some(HostId::new(Uuid::from_u128(9))), &|_| true).expect("opens");
    assert_eq!(other().1, Loaded::Missing);
    fs::write(folder.path().join(ENROLLED_FILE), &good).expect("written");
    let (_, loaded, fault) = other();
    assert_eq!((loaded, fault), (Loaded::Unusable, Some(Fault::Foreign)));
}

#[test]
fn a_policy_that_is_not_genuine_is_not_loaded() {
    let folder = tempdir().expect("a folder");
    write(&folder, &history(2));
    let (_, loaded, fault) =
        Ledger::open(folder.path(), None, &|entry| entry.stamp.version == Version::FIRST).expect("opens");
    assert_eq!((loaded, fault), (Loaded::Unusable, Some(Fault::Forged)));
}

#[test]
fn an_unusable_file_is_moved_aside_when_something_good_is_to_be_kept() {
    let (folder, history) = (tempdir().expect("a folder"), history(1));
    fs::write(folder.path().join(STANDALONE_FILE), b"garbage").expect("written");
    let (mut ledger, loaded, _) = open(&folder);
    assert_eq!(loaded, Loaded::Unusable);
    assert_eq!(fs::read(folder.path().join(STANDALONE_FILE)).expect("untouched"), b"garbage");
    keep(&mut ledger, None, &history[0]);
    assert_eq!(fs::read(folder.path().join(format!("{STANDALONE_FILE}{UNUSABLE}"))).expect("aside"), b"garbage");
    assert_eq!(open(&folder).1, Loaded::Found { good: Some(history[0].clone()), candidate: None });
}

#[test]
fn c51_a_file_cut_anywhere_gives_an_earlier_state_or_nothing_and_can_be_continued() {
    let (folder, history) = (tempdir().expect("a folder"), history(4));
    write(&folder, &history);
    let path = folder.path().join(STANDALONE_FILE);
    let whole = fs::read(&path).expect("there");
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).expect("written");
        let (mut ledger, loaded, _) = open(&folder);
        match loaded {
            Loaded::Missing => panic!("the file is there"),
            Loaded::Unusable => assert!(len < HEADER_BYTES, "cut at {len}"),
            Loaded::Found { good, candidate } => {
                assert!(good.iter().chain(&candidate).all(|entry| history.contains(entry)), "cut at {len}");
                let next = &history[3];
                ledger.append(&record(None, next)).expect("appended");
                ledger.settle_good(&confirmed(next)).expect("settled");
                drop(ledger);
                assert_eq!(open(&folder).1, Loaded::Found { good: Some(next.clone()), candidate: None });
            }
        }
    }
}

#[test]
fn an_open_candidate_comes_back_as_one_and_a_failed_one_does_not() {
    let (folder, history) = (tempdir().expect("a folder"), history(3));
    write(&folder, &history[..1]);
    let (mut ledger, ..) = open(&folder);
    ledger.append(&record(Some(&history[0]), &history[1])).expect("appended");
    drop(ledger);
    let (mut ledger, loaded, _) = open(&folder);
    let good = Some(history[0].clone());
    assert_eq!(loaded, Loaded::Found { good: good.clone(), candidate: Some(history[1].clone()) });
    ledger.settle_failed(&confirmed(&history[0])).expect("settled");
    assert!(ledger.settle_failed(&confirmed(&history[0])).is_err(), "settled once");
    assert_eq!(open(&folder).1, Loaded::Found { good, candidate: None });
}

#[test]
fn a_log_that_is_made_small_while_a_candidate_is_open_has_none_and_goes_on() {
    let (folder, history) = (tempdir().expect("a folder"), history(4));
    write(&folder, &history[..1]);
    let (mut ledger, ..) = open(&folder);
    ledger.append(&record(Some(&history[0]), &history[1])).expect("appended");
    ledger.settle_trial(&tried(&history[1], &history[0])).expect("settled");
    // One that is open still: it could not be settled. An echo meanwhile makes the log small.
    ledger.append(&record(Some(&history[1]), &history[2])).expect("appended");
    IS_ALWAYS_LARGE.set(true);
    ledger.settle_confirmed(&confirmed(&history[1])).expect("confirmed");
    IS_ALWAYS_LARGE.set(false);
    assert_eq!(ledger.owes(), (false, false));
    keep(&mut ledger, Some(&history[1]), &history[3]);
    let (_, loaded, fault) = open(&folder);
    assert_eq!((loaded, fault), (Loaded::Found { good: Some(history[3].clone()), candidate: None }, None));
}

#[test]
fn what_was_told_as_not_kept_is_not_believed_by_a_start_though_all_of_its_bytes_were_taken() {
    let (folder, history) = (tempdir().expect("a folder"), history(3));
    write(&folder, &history[..1]);
    let (mut ledger, ..) = open(&folder);
    ledger.append(&record(Some(&history[0]), &history[1])).expect("appended");
    let good = Some(history[0].clone());
    let failing = |settles: &mut dyn FnMut() -> Result<(), Cause>| {
        SYNC_FAILS.set(true);
        assert!(settles().is_err());
        SYNC_FAILS.set(false);
    };
    let after = tried(&history[1], &history[0]);
    failing(&mut || ledger.settle_good(&confirmed(&history[1])));
    assert_eq!(open(&folder).1, Loaded::Found { good: good.clone(), candidate: Some(history[1].clone()) });
    failing(&mut || ledger.settle_trial(&after));
    assert_eq!(open(&folder).1, Loaded::Found { good: good.clone(), candidate: Some(history[1].clone()) });
    assert_eq!(open(&folder).0.trial(), Trial::default());
    // Once the disk keeps what it takes, it goes on as if nothing had been.
    ledger.settle_trial(&after).expect("settled");
    failing(&mut || ledger.settle_confirmed(&confirmed(&history[1])));
    assert_eq!(open(&folder).0.trial().fallback, Some(good));
    assert!(!ledger.ensure_kept(&after).expect("kept"), "it is there");
    ledger.settle_confirmed(&confirmed(&history[1])).expect("confirmed");
    failing(&mut || ledger.append(&record(Some(&history[1]), &history[2])));
    assert_eq!(open(&folder).1, Loaded::Found { good: Some(history[1].clone()), candidate: None });
}

#[test]
fn what_cannot_be_cut_off_at_once_is_on_the_slow_tick() {
    let (folder, history) = (tempdir().expect("a folder"), history(2));
    write(&folder, &history[..1]);
    let (mut ledger, ..) = open(&folder);
    ledger.append(&record(Some(&history[0]), &history[1])).expect("appended");
    // As where the disk takes a whole record, keeps it not, and then takes nothing for a while.
    let before = fs::metadata(ledger.file()).expect("there").len();
    ledger.settle_good(&confirmed(&history[1])).expect("settled");
    let open_file = ledger.open.as_mut().expect("open");
    (open_file.len, open_file.dirty, ledger.candidate) = (before, true, true);
    assert_eq!(open(&folder).1, Loaded::Found { good: Some(history[1].clone()), candidate: None });
    SYNC_FAILS.set(true);
    assert!(ledger.ensure_kept(&confirmed(&history[0])).is_err(), "nobody knows what a start would read");
    SYNC_FAILS.set(false);
    ledger.ensure_kept(&confirmed(&history[0])).expect("kept");
    assert_eq!(open(&folder).1, Loaded::Found { good: Some(history[0].clone()), candidate: None });
}

#[test]
fn a_confirmation_of_what_is_on_no_trial_costs_nothing() {
    let (folder, history) = (tempdir().expect("a folder"), history(3));
    write(&folder, &history[..1]);
    let (mut ledger, ..) = open(&folder);
    ledger.append(&record(Some(&history[0]), &history[1])).expect("appended");
    ledger.settle_trial(&tried(&history[1], &history[0])).expect("settled");
    // As agents did that kept an update beside a local policy, and went on with the trial in memory.
    keep(&mut ledger, Some(&history[1]), &history[2]);
    ledger.settle_confirmed(&confirmed(&history[2])).expect("confirmed");
    drop(ledger);
    let (ledger, loaded, fault) = open(&folder);
    assert_eq!((loaded, fault), (Loaded::Found { good: Some(history[2].clone()), candidate: None }, None));
    assert_eq!(ledger.trial(), Trial::default());
}

#[test]
fn a_long_log_is_made_small_and_says_the_same() {
    let folder = tempdir().expect("a folder");
    let (mut ledger, ..) = open(&folder);
    let mut largest = 0;
    let mut last = None;
    for version in 1..=120 {
        let entry = entry_of(version, 4_000);
        keep(&mut ledger, None, &entry);
        largest = largest.max(fs::metadata(ledger.file()).expect("there").len());
        last = Some(entry);
    }
    let small = fs::metadata(ledger.file()).expect("there").len();
    assert!(largest > COMPACT_BYTES_MIN / 2 && small < largest, "{small} of {largest}");
    assert!(largest < 2 * COMPACT_BYTES_MIN, "{largest}");
    assert_eq!(open(&folder).1, Loaded::Found { good: last, candidate: None });
}

#[test]
fn nobody_else_reads_the_folder_or_its_files() {
    let outer = tempdir().expect("a folder");
    let folder = outer.path().join("deep/state");
    let (mut ledger, ..) = Ledger::open(&folder, None, &|_| true).expect("opens");
    keep(&mut ledger, None, &history(1)[0]);
    assert_eq!(fs::metadata(&folder).expect("there").mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(ledger.file()).expect("there").mode() & 0o777, 0o600);
}

#[test]
fn a_write_that_failed_half_way_is_cut_off_before_the_next() {
    let (folder, history) = (tempdir().expect("a folder"), history(2));
    let (mut ledger, ..) = open(&folder);
    keep(&mut ledger, None, &history[0]);
    // As after a full disk: half a record is there, and the ledger knows that its last write failed.
    let mut file = OpenOptions::new().append(true).open(ledger.file()).expect("there");
    file.write_all(b"half a record").expect("written");
    ledger.open.as_mut().expect("open").dirty = true;
    keep(&mut ledger, Some(&history[0]), &history[1]);
    assert_eq!(open(&folder).1, Loaded::Found { good: Some(history[1].clone()), candidate: None });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn c51_one_flipped_bit_never_gives_a_state_that_never_was(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let (folder, history) = (tempdir().expect("a folder"), history(3));
        write(&folder, &history);
        let path = folder.path().join(STANDALONE_FILE);
        let mut bytes = fs::read(&path).expect("there");
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&path, &bytes).expect("written");
        prop_assert_eq!(open(&folder).1, Loaded::Unusable);
    }
}

/// In force, and confirmed.
fn confirmed(entry: &Entry) -> After<'_> {
    After { good: Some(entry), fallback: None }
}

/// On trial, with what is gone back to.
fn tried<'a>(entry: &'a Entry, before: &'a Entry) -> After<'a> {
    After { good: Some(entry), fallback: Some(Some(before)) }
}

fn open(folder: &TempDir) -> (Ledger, Loaded, Option<Fault>) {
    Ledger::open(folder.path(), None, &|_| true).expect("opens")
}

/// A first state whole, and then changes of the one before.
fn write(folder: &TempDir, history: &[Entry]) {
    let (mut ledger, ..) = open(folder);
    let mut before = None;
    for entry in history {
        keep(&mut ledger, before, entry);
        before = Some(entry);
    }
}

fn keep(ledger: &mut Ledger, before: Option<&Entry>, entry: &Entry) {
    ledger.append(&record(before, entry)).expect("appended");
    ledger.settle_good(&confirmed(entry)).expect("settled");
}

fn record(before: Option<&Entry>, entry: &Entry) -> Record {
    let content = match before {
        None => RecordContent::Whole(artifact::encode(&entry.body)),
        Some(before) if before.body == entry.body => RecordContent::Same,
        Some(before) => {
            let changes = delta::diff(&before.body, &entry.body).changes;
            RecordContent::Changes(encode_changes(&changes).expect("small"))
        }
    };
    Record { origin: entry.origin, stamp: entry.stamp, content }
}

fn history(len: u32) -> Vec<Entry> {
    (1..=len).map(|version| entry_of(version, version)).collect()
}

/// A policy with one rule and so many peers.
fn entry_of(version: u32, peers: u32) -> Entry {
    let key = SetKey::from_bytes([7; 16]);
    let rule = Rule {
        key: RuleKey::from_bytes([1; 16]),
        order: 0,
        action: Action::Allow,
        statement: Statement::Any,
        peers: Peers::Set(key),
        local: None,
        log: false,
    };
    let v4: IntervalSet<u32> = (0..peers).map(|n| Interval::single(version + n * 2)).collect();
    let mut body = Body { sets: vec![Set { key, v4, v6: IntervalSet::empty() }], ..Body::default() };
    body.ingress.rules.push(rule);
    let version = Version::from_raw(u64::from(version)).expect("not zero");
    let authority = Authority { id: AuthorityId::new(Uuid::from_u128(3)), epoch: AuthorityEpoch::from_raw(4) };
    let origin = Some(Origin { authority, signature: std::array::from_fn(|at| u8::try_from(at).unwrap_or(0)) });
    Entry { origin, stamp: Stamp { version, digest: body.digest() }, body }
}

#[test]
fn a_trial_what_is_gone_back_to_and_what_is_shunned_come_back_after_a_restart_and_over_a_log_made_small() {
    let (folder, history) = (tempdir().expect("a folder"), history(4));
    write(&folder, &history[..1]);
    let (mut ledger, ..) = open(&folder);
    let trial = |ledger: &Ledger| ledger.trial();
    assert_eq!(trial(&ledger), Trial::default());
    for step in [1, 2] {
        ledger.append(&record(Some(&history[step - 1]), &history[step])).expect("appended");
        ledger.settle_trial(&tried(&history[step], &history[0])).expect("settled");
    }
    drop(ledger);
    let (mut ledger, loaded, _) = open(&folder);
    assert_eq!(loaded, Loaded::Found { good: Some(history[2].clone()), candidate: None });
    assert_eq!(trial(&ledger).fallback, Some(Some(history[0].clone())), "the first that was not confirmed began it");
    ledger.settle_taken_back(history[2].stamp.digest, &confirmed(&history[0])).expect("taken back");
    drop(ledger);
    let (mut ledger, loaded, _) = open(&folder);
    assert_eq!(loaded, Loaded::Found { good: Some(history[0].clone()), candidate: None });
    let shunned = vec![history[2].stamp.digest];
    assert_eq!(trial(&ledger), Trial { shunned: shunned.clone(), ..Trial::default() });
    ledger.append(&record(None, &history[3])).expect("appended");
    ledger.settle_trial(&tried(&history[3], &history[0])).expect("settled");
    ledger.settle_confirmed(&confirmed(&history[3])).expect("confirmed");
    ledger.open.as_mut().expect("open").len = u64::MAX;
    ledger.make_small(&confirmed(&history[3]));
    drop(ledger);
    let (ledger, loaded, _) = open(&folder);
    assert_eq!(loaded, Loaded::Found { good: Some(history[3].clone()), candidate: None });
    assert_eq!(trial(&ledger), Trial { shunned, ..Trial::default() });
}

#[test]
fn a_trial_that_never_ends_and_updates_that_always_fail_keep_the_log_small_and_it_says_the_same() {
    let (folder, first) = (tempdir().expect("a folder"), entry_of(1, 3));
    let (mut ledger, ..) = open(&folder);
    keep(&mut ledger, None, &first);
    let (mut largest, mut last) = (0, first.clone());
    for version in 2..=200 {
        let entry = entry_of(version, 4_000);
        ledger.append(&record(None, &entry)).expect("appended");
        if version % 3 == 0 {
            ledger.settle_failed(&tried(&last, &first)).expect("settled");
        } else {
            ledger.settle_trial(&tried(&entry, &first)).expect("settled");
            last = entry;
        }
        largest = largest.max(fs::metadata(ledger.file()).expect("there").len());
    }
    assert!(largest < 2 * COMPACT_BYTES_MIN, "{largest}");
    drop(ledger);
    let (mut ledger, loaded, _) = open(&folder);
    assert_eq!(loaded, Loaded::Found { good: Some(last.clone()), candidate: None });
    assert_eq!(ledger.trial().fallback, Some(Some(first.clone())), "what was confirmed last is gone back to");
    // What is taken back again and again is no more.
    for version in 201..=400 {
        let entry = entry_of(version, 4_000);
        ledger.append(&record(None, &entry)).expect("appended");
        ledger.settle_trial(&tried(&entry, &first)).expect("settled");
        ledger.settle_taken_back(entry.stamp.digest, &confirmed(&first)).expect("taken back");
        largest = largest.max(fs::metadata(ledger.file()).expect("there").len());
    }
    assert!(largest < 2 * COMPACT_BYTES_MIN, "{largest}");
    drop(ledger);
    let (ledger, loaded, _) = open(&folder);
    assert_eq!((loaded, ledger.trial().fallback), (Loaded::Found { good: Some(first), candidate: None }, None));
}

#[test]
fn a_trial_of_the_first_policy_of_all_is_one_also_in_a_log_that_was_made_small() {
    let (folder, first) = (tempdir().expect("a folder"), entry_of(1, 3));
    let (mut ledger, ..) = open(&folder);
    ledger.append(&record(None, &first)).expect("appended");
    ledger.settle_trial(&After { good: Some(&first), fallback: Some(None) }).expect("settled");
    ledger.open.as_mut().expect("open").len = u64::MAX;
    ledger.make_small(&After { good: Some(&first), fallback: Some(None) });
    drop(ledger);
    let (ledger, loaded, _) = open(&folder);
    assert_eq!(loaded, Loaded::Found { good: Some(first.clone()), candidate: None });
    assert_eq!(ledger.trial().fallback, Some(None));
    // That it was taken back is told apart from a file that says nothing, also in one that was made small since.
    let (mut ledger, nothing) = (ledger, After { good: None, fallback: None });
    ledger.settle_taken_back(first.stamp.digest, &nothing).expect("taken back");
    for _ in 0..2 {
        assert_eq!(open(&folder).1, Loaded::Found { good: None, candidate: None });
        assert!(open(&folder).0.trial().is_opened);
        ledger.append(&record(None, &entry_of(2, 3))).expect("appended");
        ledger.open.as_mut().expect("open").len = 2 * COMPACT_BYTES_MIN;
        ledger.settle_failed(&nothing).expect("settled");
    }
    keep(&mut ledger, None, &entry_of(3, 3));
    assert!(!open(&folder).0.trial().is_opened);
}

#[test]
fn what_was_taken_back_while_the_disk_took_nothing_is_written_before_anything_else() {
    let (folder, history) = (tempdir().expect("a folder"), history(3));
    write(&folder, &history[..1]);
    let (mut ledger, ..) = open(&folder);
    ledger.append(&record(Some(&history[0]), &history[1])).expect("appended");
    ledger.settle_trial(&tried(&history[1], &history[0])).expect("settled");
    // As on a full disk: the file can be read and takes nothing.
    let file = File::open(ledger.file()).expect("there");
    let writable = std::mem::replace(&mut ledger.open.as_mut().expect("open").file, file);
    let digest = history[1].stamp.digest;
    assert!(ledger.settle_taken_back(digest, &confirmed(&history[0])).is_err());
    assert!(ledger.append(&record(Some(&history[0]), &history[2])).is_err(), "it would not be what the disk leads to");
    let during = open(&folder);
    assert_eq!(during.0.trial().fallback, Some(Some(history[0].clone())), "a start meanwhile has it on trial");
    ledger.open.as_mut().expect("open").file = writable;
    // Changes of what was gone back to.
    keep(&mut ledger, Some(&history[0]), &history[2]);
    drop(ledger);
    let (ledger, loaded, fault) = open(&folder);
    assert_eq!((loaded, fault), (Loaded::Found { good: Some(history[2].clone()), candidate: None }, None));
    assert_eq!(ledger.trial(), Trial { shunned: vec![digest], ..Trial::default() });
}

#[test]
fn a_ledger_that_was_removed_cut_or_replaced_while_it_was_written_to_is_made_again_and_says_the_same() {
    let (folder, history) = (tempdir().expect("a folder"), history(3));
    write(&folder, &history[..1]);
    let (mut ledger, ..) = open(&folder);
    ledger.append(&record(Some(&history[0]), &history[1])).expect("appended");
    let after = tried(&history[1], &history[0]);
    ledger.settle_trial(&after).expect("settled");
    assert!(!ledger.ensure_kept(&after).expect("kept"), "it is there");
    let path = ledger.file();
    let shorter = || OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(60));
    let replaced = || fs::remove_file(&path).and_then(|()| fs::write(&path, "another's"));
    // Inside, by one bit of the last record, of a payload, of a head and of the header: it is as long as it was.
    let flipped = |from_end: bool, at: usize| {
        let mut bytes = fs::read(&path)?;
        let at = if from_end { bytes.len() - at } else { at };
        bytes[at] ^= 4;
        OpenOptions::new().write(true).open(&path)?.write_all(&bytes)
    };
    let harms: [&dyn Fn() -> io::Result<()>; 7] = [
        &|| fs::remove_file(&path),
        &shorter,
        &replaced,
        &|| flipped(true, 1),
        &|| flipped(false, HEADER_BYTES + 60),
        &|| flipped(false, HEADER_BYTES + 1),
        &|| flipped(false, 9),
    ];
    for harm in harms {
        harm().expect("it is ours");
        assert!(ledger.ensure_kept(&after).expect("made again"));
        assert!(!ledger.ensure_kept(&after).expect("kept"), "it is there");
        let (again, loaded, fault) = open(&folder);
        assert_eq!((loaded, fault), (Loaded::Found { good: Some(history[1].clone()), candidate: None }, None));
        assert_eq!(again.trial().fallback, Some(Some(history[0].clone())));
    }
    keep(&mut ledger, Some(&history[1]), &history[2]);
    assert_eq!(open(&folder).1, Loaded::Found { good: Some(history[2].clone()), candidate: None });
    // Where nothing can be made it is said.
    drop(fs::remove_file(&path));
    fs::create_dir(&path).expect("it is ours");
    fs::write(path.join("in the way"), "").expect("it is ours");
    fs::create_dir(folder.path().join(format!("{STANDALONE_FILE}{NEW}"))).expect("it is ours");
    assert!(ledger.ensure_kept(&confirmed(&history[2])).is_err());
}

#[test]
fn a_ledger_that_nobody_wrote_to_is_read_back_once_and_each_write_by_anybody_is_found() {
    let (folder, history) = (tempdir().expect("a folder"), history(2));
    write(&folder, &history[..1]);
    let (mut ledger, ..) = open(&folder);
    let after = confirmed(&history[0]);
    let is_known = |ledger: &Ledger| ledger.open.as_ref().is_some_and(|open| open.whole_since.is_some());
    assert!(!ledger.ensure_kept(&after).expect("kept") && !is_known(&ledger), "it was written a moment ago");
    // Once the time of its last change is over, nobody can write to it and leave that as it is.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_known(&ledger) {
        assert!(std::time::Instant::now() < deadline, "it stays young");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!ledger.ensure_kept(&after).expect("kept"));
    }
    let mut bytes = fs::read(ledger.file()).expect("it is ours");
    *bytes.last_mut().expect("it is long") ^= 1;
    let path = ledger.file();
    OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(&bytes)).expect("it is ours");
    assert!(ledger.ensure_kept(&after).expect("made again"));
    assert_eq!(open(&folder).1, Loaded::Found { good: Some(history[0].clone()), candidate: None });
    keep(&mut ledger, Some(&history[0]), &history[1]);
    assert!(!ledger.ensure_kept(&confirmed(&history[1])).expect("kept"), "our own write is none of anybody else");
}
