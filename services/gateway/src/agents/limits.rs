//! The caps and times of the agents' door.

use std::time::Duration;

use holdfast_session::scheduler::Capacity;
use holdfast_wire::limits::FRAME_BYTES_MAX;

/// Handshakes under way. One holds at most 64 KiB and a millisecond of CPU; further connections wait in the kernel's queue.
pub const HANDSHAKES_MAX: usize = 256;
/// Handshakes under way from one address, so that one source cannot hold all of them.
pub const HANDSHAKES_PER_SOURCE_MAX: usize = 64;
/// Connections at once: twice the largest fleet that one gateway is meant for.
pub const CONNECTIONS_MAX: usize = 20_000;
/// How long the first byte of a connection, an echo, or a goodbye may take.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes waiting for a socket before no further frame is made: enough to keep a link busy, little enough that what waits is fresh.
pub const WRITE_BUFFER_BYTES: usize = 64 * 1024;
/// What one session's write buffer may reach: the soft limit, as much that was written and not given back yet, and one frame; twice that while the
/// buffer grows for it.
pub const WRITE_BUFFER_BYTES_MAX: usize = 2 * (2 * WRITE_BUFFER_BYTES + FRAME_BYTES_MAX + 4);
/// What an idle session keeps of its write buffer: 10,000 of them have 40 MiB.
pub const IDLE_BUFFER_BYTES: usize = 4 * 1024;
/// Bytes read at once: agents send outcomes of some hundred bytes.
pub const READ_BYTES: usize = 4 * 1024;

/// Questions that wait for a batch; more are answered "not now", which is a failed build.
pub const QUESTIONS_MAX: usize = 65_536;
/// Questions in one statement.
pub const BATCH_MAX: usize = 1_000;
/// Statements that open sessions under way at once. With those below they leave a connection of the pool's ten for everything else.
pub const OPENINGS_AT_ONCE_MAX: usize = 4;
/// Statements at once that read what concerns few hosts.
pub const NARROW_READS_AT_ONCE_MAX: usize = 2;
/// Statements at once that read first states and what concerns many.
pub const WIDE_READS_AT_ONCE_MAX: usize = 3;

/// Builds under way at once, 96 of them of the wide lanes: they fill some thirty rows of each statement, which cost little more than one, and when
/// all of them end at once, what they wake runs for some milliseconds before a change of one host has its turn on a processor.
pub const BUILDS: Capacity = match Capacity::of(128) {
    Ok(capacity) => capacity,
    Err(_) => panic!("128 can be shared"),
};
/// So many states that were published together concern few hosts, and are built before those of a wider change: as many as can begin at once.
pub const NARROW_STATES_MAX: usize = BUILDS.host_reserve();
/// How long what the scheduler counts is gathered before metrics show it, and how late a retry may be for that.
pub const COUNTS_GATHER: Duration = Duration::from_millis(50);

/// How far apart writes of facts begin at least: what comes between goes together.
pub const RECORD_GATHER: Duration = Duration::from_millis(3);
/// How long signs of life are gathered when nothing else is to be written.
pub const PRESENCE_GATHER: Duration = Duration::from_millis(250);
/// How often a stopping recorder looks whether the last session has left.
pub const DRAIN_LOOK: Duration = Duration::from_millis(50);
/// Facts in one transaction.
pub const FACTS_BATCH_MAX: usize = 1_000;
/// Facts that wait while the database is away. A session makes at most one outcome and one snapshot per update in flight (64), and 64 faults:
/// this is 1,000 sessions at their worst, or 20,000 with ten facts each.
pub const FACTS_MAX: usize = 200_000;
/// The wait before a failed write is tried again, and its cap.
pub const RECORD_RETRY: Duration = Duration::from_millis(100);
/// See [`RECORD_RETRY`].
pub const RECORD_RETRY_MAX: Duration = Duration::from_secs(5);
/// Different causes of one absence of the database that are told: one that goes through more of them is told already.
pub const ABSENCE_CAUSES_MAX: usize = 4;

/// Bytes of flat bodies that are kept for sharing.
pub const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of tree nodes that are kept, from which bodies are put together.
pub const NODES_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes of deltas that are kept for sharing.
pub const DELTAS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How often what is held is compared with the authority, before jitter of a fifth either way.
pub const COMPARE_INTERVAL: Duration = Duration::from_secs(30);
/// How long a session that is to be opened waits for the lease before its agent is told to come back: a process that begins has it in less.
pub const LEASE_WAIT: Duration = Duration::from_secs(2);
/// The least time between two compares that holes in the numbers of hints make: strangers may number theirs as they like.
pub const HOLE_PAUSE: Duration = Duration::from_secs(1);

/// The longest wait before a compare that failed is tried again.
pub const COMPARE_RETRY: Duration = Duration::from_secs(5);

/// After so much silence a host that polls is away: as long as a session that says nothing.
pub const POLL_SILENCE: Duration = Duration::from_secs(45);
/// How often it is looked for such.
pub const POLL_SWEEP: Duration = Duration::from_secs(1);
/// How often a host that reads an answer, and asks nothing meanwhile, is said to be there: thrice while that is fresh.
pub const POLL_TELL: Duration = Duration::from_secs(15);
/// When a poll that could not be answered for want of the database looks again.
pub const POLL_READ_RETRY: Duration = Duration::from_secs(1);
/// Bytes of a body that become base64 at once on their way to a host that polls: whole groups of three.
pub const SYNC_PIECE_BYTES: usize = 48 * 1024;
const _: () = assert!(SYNC_PIECE_BYTES.is_multiple_of(3));
/// The slowest link over which a host is not taken for silent while it reads what it was answered: 32 kbit/s.
pub const SYNC_BYTES_PER_SECOND_MIN: u64 = 4 * 1024;
/// Connections of HTTP that one host has at once; one more closes the oldest. The shipped agent has one for a poll, and one for a renewal.
pub const HTTP_PER_HOST_MAX: usize = 4;
/// What may be on its way of an answer of which nothing waits here any more: a kernel's largest buffer (4 MiB), and that of HTTP (some 400 KiB).
pub const SYNC_TAIL_BYTES_MAX: usize = 4 * 1024 * 1024 + 512 * 1024;
/// What is read, and thrown away, of a request that is too large, so that its sender hears the answer: four of the largest.
pub const SYNC_WASTE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How often it is recorded in a session of polls that the same state was sent: once, once more after a failure, and some answers that were lost.
pub const SENDINGS_RECORDED_MAX: usize = 8;
/// Sessions of polls that a host may begin at once; then one per [`OPENING_PAUSE`]. The shipped agent begins none by a poll: it dials first.
pub const OPENINGS_BURST: u32 = 5;
/// See [`OPENINGS_BURST`].
pub const OPENING_PAUSE: Duration = Duration::from_secs(10);
/// Hosts whose last openings are remembered, each for a minute at most; with more than these the door is busy.
pub const OPENINGS_KEPT_MAX: usize = 65_536;

/// Enrolments and renewals that wait for the renderer at once.
pub const REQUESTS_WAITING_MAX: usize = 1_024;
/// Enrolments that ask the database at once. Whoever has no certificate can ask for one: all of them together leave most of the pool's ten connections
/// to what hosts say.
pub const ENROLMENTS_AT_ONCE: usize = 2;
/// How long one waits for that.
pub const ENROLMENT_TURN_WAIT: Duration = Duration::from_secs(3);
/// How long one of them waits.
pub const REQUEST_WAIT: Duration = Duration::from_secs(20);
/// How long after a renewal a host is refused the next one at the same door: less than the five minutes that an agent waits between two tries,
/// and nothing against a certificate's life of 24 h.
pub const RENEWAL_PAUSE: Duration = Duration::from_secs(4 * 60);
/// Hosts whose last renewal is remembered for that long; with more than these the door is busy.
pub const RENEWALS_KEPT_MAX: usize = 65_536;
/// How often the answers are looked for while somebody waits, should a hint be lost.
pub const ANSWERS_INTERVAL: Duration = Duration::from_secs(1);

/// How long a refused agent stays away while the authority cannot be asked, in milliseconds: longer than a database's restart.
pub const AUTHORITY_AWAY_RETRY_MS: u32 = 5_000;
/// Over how long a stopping gateway spreads its agents.
pub const DRAIN_SPREAD: Duration = Duration::from_secs(10);
/// The longest such span: with the grace of each session it is within that of the process.
pub const DRAIN_SPREAD_MAX: Duration = Duration::from_secs(14);
/// Sessions that wait for the authority to open them: what all statements under way may hold, and as many again.
pub const OPENINGS_WAITING_MAX: usize = 2 * OPENINGS_AT_ONCE_MAX * BATCH_MAX;
/// When who finds no room may come back, in milliseconds, and over how much more each is spread: some batches of openings later.
pub const OVERLOADED_RETRY_MS: u64 = 1_000;
/// See [`OVERLOADED_RETRY_MS`].
pub const OVERLOADED_RETRY_SPREAD_MS: u64 = 3_000;

/// How many compares tell sessions of another life of the authority: one that was being opened at the first is there at the second.
pub(super) const LIFE_TOLD: u8 = 2;
/// How long each session that begins anew is waited for before the next, and all of them together at most.
pub(super) const ANEW_EACH_MS: u64 = 10;
/// See [`ANEW_EACH_MS`]: 3,000 sessions at 100 a second, more of them faster.
pub(super) const ANEW_SPREAD_MS: u64 = 30_000;
