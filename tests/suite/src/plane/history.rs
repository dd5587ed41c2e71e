//! The three histories of a plane, compared: Postgres, the event stream, the audit log on disk.
//!
//! - Each has every event once, in one order without a hole, and all three have the same.
//! - The audit log is read from its files, by the verifier of the API's crate and by itself, without asking the service.
//! - Whatever a host said it applied was rendered for it.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_api::audit::Verifier;
use holdfast_bus::{Bus, BusConfig, EventReader, ReadFrom};
use holdfast_identity::tls::mutual;
use holdfast_identity::{Credential, TrustRoots};
use holdfast_lab::netns;
use serde_json::Value;
use tokio::time::timeout;

use super::Plane;

/// How long the copies may take to have what Postgres has, once nothing is in their way.
const EQUAL_TIMEOUT: Duration = Duration::from_secs(45);
/// How long the stream may take to be opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stream that has nothing more is listened to.
const QUIET: Duration = Duration::from_millis(300);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// Where NATS is in the control namespace, as `ops/lib/plane.sh` says.
const NATS_URL: &str = "tls://127.0.0.1:4222";
/// A person's user in the account of events.
const NATS_USER: &str = "holdfast_nats_admin";

/// One event and its place in the order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Placed {
    epoch: u64,
    seq: u64,
    id: String,
}

impl Placed {
    /// From a CloudEvent.
    fn of(event: &Value) -> Self {
        let text = |name: &str| event[name].as_str().unwrap_or_else(|| panic!("no {name}: {event}"));
        let number = |name: &str| text(name).parse().unwrap_or_else(|error| panic!("{name}: {error}: {event}"));
        Self { epoch: number("authorityepoch"), seq: number("sequence"), id: text("id").to_owned() }
    }
}

impl Plane {
    /// Waits until Postgres, the event stream and the audit log have the same events in the same order, each once; how many there are.
    ///
    /// # Panics
    /// When they do not in time, or one of them has what it must not.
    pub fn histories_agree(&self) -> usize {
        let count = self.compared_histories().unwrap_or_else(|said| panic!("{said}"));
        let invented = self.invented();
        assert!(invented.is_empty(), "hosts applied what was never rendered for them: {invented}");
        count
    }

    pub(super) fn compared_histories(&self) -> Result<usize, String> {
        let deadline = Instant::now() + EQUAL_TIMEOUT;
        loop {
            let looked = self.histories().and_then(|[postgres, stream, audit]| {
                same("the event stream", &stream, &postgres)?;
                same("the audit log", &audit, &postgres)?;
                Ok(postgres.len())
            });
            match looked {
                Ok(count) => return Ok(count),
                Err(_) if Instant::now() < deadline => thread::sleep(LOOK),
                Err(said) => return Err(said),
            }
        }
    }

    fn histories(&self) -> Result<[Vec<Placed>; 3], String> {
        // The copies first: what they have then, Postgres has had before.
        let (audit, stream) = (self.audited(), self.streamed()?);
        let unnumbered = "SELECT count(*) FROM events LEFT JOIN event_order USING (event_id) WHERE seq IS NULL";
        let unnumbered = self.database().asked(unnumbered)?;
        if unnumbered.trim() != "0" {
            return Err(format!("{} events have no number", unnumbered.trim()));
        }
        let rows = self.database().asked("SELECT authority_epoch, seq, event_id FROM event_order ORDER BY 1, 2")?;
        let postgres: Vec<Placed> = rows.lines().map(numbered).collect();
        dense(&postgres)?;
        Ok([postgres, stream, audit])
    }

    /// The audit log as it is on disk.
    ///
    /// # Panics
    /// When it is not what a service wrote.
    fn audited(&self) -> Vec<Placed> {
        let folder = self.folder().join("audit");
        let entries = fs::read_dir(&folder).expect("the plane has an audit log").flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
        files.retain(|file| file.file_stem().is_some_and(|stem| stem != "checkpoints"));
        files.sort();
        let texts = files.iter().map(|file| fs::read_to_string(file).expect("it is ours")).collect::<String>();
        let mut verifier = Verifier::new(Vec::new());
        let mut events = Vec::new();
        // A line without its end is being written.
        for line in texts.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            verifier.line(line);
            let entry: Value = serde_json::from_str(line).expect("an entry is JSON");
            events.push(Placed::of(&entry["event"]));
        }
        let report = verifier.finish();
        assert_eq!(report.faults, [], "the audit log");
        events
    }

    /// The event stream from its first message to its last.
    fn streamed(&self) -> Result<Vec<Placed>, String> {
        let config = self.person_of_events();
        let read = netns::within(&self.control(), || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| error.to_string())?.block_on(read_stream(config))
        });
        read.map_err(|error| error.to_string())?
    }

    /// How a person reaches the stream.
    fn person_of_events(&self) -> BusConfig {
        let folder = self.folder().join("keys/nats-admin");
        let credential = Credential::load_named(&folder, NATS_USER).expect("init made it");
        let roots = TrustRoots::load(&folder.join("ca.pem")).expect("init made it");
        let url = NATS_URL.to_owned();
        let tls = Some(mutual(&credential, &roots).expect("they fit"));
        BusConfig { url, name: "history".to_owned(), user: NATS_USER.to_owned(), tls }
    }

    /// Which outcomes name something in force that was not rendered for their host.
    fn invented(&self) -> String {
        self.database().sql(
            "SELECT e.event_id, e.payload FROM events e WHERE e.kind = 'outcome.recorded' AND e.payload->'applied' <> 'null' \
             AND NOT EXISTS (SELECT FROM desired_states d WHERE 'ho_' || d.host_id = e.payload->>'host' \
             AND d.version = (e.payload->'applied'->>'version')::bigint \
             AND encode(d.digest, 'hex') = e.payload->'applied'->>'digest')",
        )
    }
}

async fn read_stream(config: BusConfig) -> Result<Vec<Placed>, String> {
    let bus = Bus::connect(config).await.map_err(|error| error.to_string())?;
    let mut link = bus.link();
    let up = timeout(OPEN_TIMEOUT, link.wait_for(|link| link.up)).await;
    if !matches!(up, Ok(Ok(_))) {
        return Err("NATS does not answer".to_owned());
    }
    drop(up);
    let opened = timeout(OPEN_TIMEOUT, EventReader::start(&bus, "history", ReadFrom::Start)).await;
    let opened = opened.map_err(|_elapsed| "the event stream does not answer".to_owned())?;
    let mut reader = opened.map_err(|error| format!("the event stream: {error:?}"))?;
    let mut events = Vec::new();
    // Nothing more for a moment is the end of it: what comes later makes the next look.
    while let Ok(next) = timeout(QUIET, reader.next()).await {
        let incoming = next.map_err(|error| format!("the event stream: {error:?}"))?;
        let event = serde_json::from_slice(&incoming.payload).map_err(|error| format!("no event: {error}"))?;
        events.push(Placed::of(&event));
    }
    Ok(events)
}

fn numbered(row: &str) -> Placed {
    let fields: Vec<&str> = row.split('|').collect();
    let [epoch, seq, id] = fields.as_slice() else { panic!("{row} is no row of three") };
    let number = |text: &str| text.parse().unwrap_or_else(|error| panic!("{row}: {error}"));
    Placed { epoch: number(epoch), seq: number(seq), id: format!("ev_{id}") }
}

/// Whether an order begins with one and has no hole, in each life of the authority.
fn dense(order: &[Placed]) -> Result<(), String> {
    let mut before = (0, 0);
    for placed in order {
        let is_next =
            (placed.epoch, placed.seq) == (before.0, before.1 + 1) || (placed.epoch > before.0 && placed.seq == 1);
        if !is_next {
            return Err(format!("Postgres has {placed:?} behind {before:?}"));
        }
        before = (placed.epoch, placed.seq);
    }
    Ok(())
}

/// Whether a copy has exactly what Postgres has, in its order; else where they part.
fn same(what: &str, copy: &[Placed], postgres: &[Placed]) -> Result<(), String> {
    if copy == postgres {
        return Ok(());
    }
    let at = copy.iter().zip(postgres).take_while(|(one, other)| one == other).count();
    let [copied, had] = [copy, postgres].map(<[Placed]>::len);
    let (one, other) = (copy.get(at), postgres.get(at));
    Err(format!("{what} has {copied} events, Postgres {had}; they part at {at}: {one:?} is not {other:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_history(seqs: &[u64]) -> Vec<Placed> {
        seqs.iter().map(|seq| Placed { epoch: 1, seq: *seq, id: format!("ev_{seq}") }).collect()
    }

    #[test]
    fn an_order_with_a_hole_or_a_double_is_not_dense() {
        assert_eq!(dense(&mk_history(&[1, 2, 3])), Ok(()));
        for wrong in [&[2, 3][..], &[1, 3], &[1, 1, 2], &[2, 1]] {
            assert!(dense(&mk_history(wrong)).is_err(), "{wrong:?}");
        }
        let mut lives = mk_history(&[1, 2, 1, 2]);
        lives[2].epoch = 2;
        lives[3].epoch = 2;
        assert_eq!(dense(&lives), Ok(()));
    }

    #[test]
    fn a_copy_that_lacks_repeats_moves_or_invents_an_event_is_not_the_same() {
        let postgres = mk_history(&[1, 2, 3]);
        assert_eq!(same("it", &mk_history(&[1, 2, 3]), &postgres), Ok(()));
        for wrong in [&[1, 2][..], &[1, 3], &[1, 2, 2, 3], &[1, 3, 2], &[1, 2, 3, 4], &[]] {
            assert!(same("it", &mk_history(wrong), &postgres).is_err(), "{wrong:?}");
        }
        let mut other = mk_history(&[1, 2, 3]);
        other[1].id = "ev_7".to_owned();
        let said = same("it", &other, &postgres).expect_err("another event");
        assert!(said.contains("part at 1") && said.contains("ev_7"), "{said}");
    }
}
