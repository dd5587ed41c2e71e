//! How long a policy takes into nftables and onto the disk, beside raw netlink and `nft`: P2's half of a host, P20, P21 and P22.
//!
//! - Product: the agent's `Netfilter`, which edits, reads back and compares; and its `Engine` with a ledger on a real disk.
//! - Floor: one batch over a socket that stays open, and a file of 4 kB written, synced, renamed, its folder synced; nothing is read back.
//! - Peer: `nft -f`, with the product's own text, and with what suits it better (a hash set where the product has intervals).
//! - Every side has a network namespace of its own: nobody's writes make another read again.

mod raw;
mod space;

use std::collections::VecDeque;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use holdfast_agent::engine::{Attempt, Content, Depth, Engine, Kernel as _, Update};
use holdfast_agent::ledger::Ledger;
use holdfast_agent::nft::{Netfilter, TableOwner};
use holdfast_agent::plan::{Kept, Ruleset, layout};
use holdfast_bench::paired::{Bound, Paired, Role};
use holdfast_bench::{Report, Strict, typical};
use holdfast_model::artifact;
use holdfast_model::desired::Stamp;
use holdfast_model::numbers::Version;
use holdfast_model::policy::{Body, delta};
use holdfast_model::statement::OutcomeKind;

use crate::raw::{Raw, save};
use crate::space::Space;

/// Measures the agent's kernel and disk beside raw netlink and `nft -f`. Needs root; everything happens in network namespaces of its own.
#[derive(Debug, Parser)]
struct Cli {
    /// Fewer repetitions, and a large set of 10,000.
    #[arg(long)]
    quick: bool,
    /// How many members the large set has.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2_000..=120_000))]
    members: Option<u32>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    rounds: usize,
    replacements: usize,
    deltas: usize,
    small: u32,
    large: u32,
}

fn main() {
    let cli: Cli = holdfast_runtime::exit::parse_args();
    let full = Size { rounds: 7, replacements: 10, deltas: 20, small: 1_000, large: 100_000 };
    let quick = Size { rounds: 5, replacements: 5, deltas: 10, large: 10_000, ..full };
    let size = if cli.quick { quick } else { full };
    measure(Size { large: cli.members.unwrap_or(size.large), ..size }).print();
}

fn measure(size: Size) -> Report {
    let mut report = Report::begin("kernel");
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir_in(disk()).expect("a folder");
    typical_replaced(&mut report, size);
    typical_durable(&mut report, size, folder.path());
    one_element(&mut report, size);
    one_element_durable(&mut report, size, folder.path());
    large_replaced(&mut report, size);
    report
}

/// Where build output goes: a disk, where `/tmp` may be memory.
fn disk() -> std::path::PathBuf {
    let program = std::env::current_exe().expect("it runs");
    program.parent().expect("a program lies in a folder").to_owned()
}

/// P20: the typical policy replaced by another that shares no rule, no set and no peer with it.
fn typical_replaced(report: &mut Report, size: Size) {
    let bodies = [typical::policy(0, typical::SETS), typical::policy(1, typical::SETS)];
    let rulesets = bodies.each_ref().map(|body| layout(body, &Kept::default()));
    let texts = rulesets.each_ref().map(replacing);
    let mut ours = Ours::new();
    let mut raw = Raw::new();
    let nft = Nft::new();
    let (mut at, mut nft_at) = (0, 0);
    ours.reach(&rulesets[0], Depth::Whole);
    let paired = Paired::new("typical policy replaced whole, in the kernel", size.rounds)
        .side("holdfast-agent", Role::Product)
        .side("one batch, socket kept open", Role::Floor)
        .side("nft -f, same text", Role::Peer)
        .ratio("P20", "holdfast-agent", "one batch, socket kept open", Bound::AtMost(3.0))
        .ratio("P20", "holdfast-agent", "nft -f, same text", Bound::AtMost(0.4));
    let compared = paired.run(
        size.replacements,
        &mut [
            &mut || ours.reach(&rulesets[next(&mut at)], Depth::Whole),
            &mut || raw.replace(typical::SETS, typical::PEERS, typical::RULES),
            &mut || nft.load(&texts[next(&mut nft_at)]),
        ],
    );
    ours.must_hold(&rulesets[at]);
    report.compared.push(compared);
    let lines = |text: &String| text.lines().filter(|line| line.contains(" comment ")).count() as f64;
    report.strict.push(Strict::of("rules in the kernel for 60 of a policy", lines(&texts[0]), "rules"));
}

/// P2's half of a host: the same by the agent's engine, which accepts, writes down, applies, reads back and settles.
fn typical_durable(report: &mut Report, size: Size, folder: &Path) {
    let bodies = [typical::policy(0, typical::SETS), typical::policy(1, typical::SETS)];
    let contents = bodies.each_ref().map(artifact::encode);
    let mut ours = Durable::new(&folder.join("whole"));
    let mut raw = Raw::new();
    let mut at = 0;
    ours.take(&bodies[0], Content::Whole(contents[0].clone()));
    let paired = Paired::new("typical policy replaced whole, in the kernel and on disk", size.rounds)
        .side("holdfast-agent, engine and ledger", Role::Product)
        .side("one batch and a synced file", Role::Floor)
        .ratio("P2", "holdfast-agent, engine and ledger", "one batch and a synced file", Bound::AtMost(3.0));
    let compared = paired.run(
        size.replacements,
        &mut [
            &mut || {
                let now = next(&mut at);
                ours.take(&bodies[now], Content::Whole(contents[now].clone()))
            },
            &mut || raw.replace(typical::SETS, typical::PEERS, typical::RULES) + save(folder),
        ],
    );
    report.compared.push(compared);
}

/// P21: one address more or less in the middle of a set, whatever its size.
fn one_element(report: &mut Report, size: Size) {
    let sizes = [size.small, size.large];
    let name = |who: &str, at: usize| format!("{who}, {} members", sizes[at]);
    let (product, same, hash, peer) =
        ("holdfast-agent", "one batch, interval set", "one batch, hash set", "nft -f, hash set");
    let mut paired = Paired::new("one element into a set or out of it, in the kernel", size.rounds);
    for (who, role) in [(product, Role::Product), (same, Role::Floor), (hash, Role::Floor), (peer, Role::Peer)] {
        paired = paired.side(name(who, 0), role).side(name(who, 1), role);
    }
    paired = paired
        .ratio("P21", &name(product, 1), &name(product, 0), Bound::AtMost(2.0))
        .ratio("", &name(same, 1), &name(same, 0), Bound::None)
        .ratio("", &name(hash, 1), &name(hash, 0), Bound::None);
    for at in [0, 1] {
        paired = paired.ratio("P21", &name(product, at), &name(peer, at), Bound::AtMost(0.25)).ratio(
            "",
            &name(product, at),
            &name(same, at),
            Bound::None,
        );
    }
    let address = |count| typical::between(0, 0, count / 2);
    let mut ours = sizes.map(|count| OneMore::new(count, address(count)));
    let mut sames = sizes.map(|count| (Raw::with_intervals(count), address(count), false));
    let mut hashes = sizes.map(|count| {
        let mut raw = Raw::new();
        raw.replace(1, count, 1);
        (raw, address(count), false)
    });
    let mut nfts = sizes.map(|count| {
        let nft = Nft::new();
        nft.load(&hash_set(0, count));
        (nft, address(count), false)
    });
    let [ours_small, ours_large] = &mut ours;
    let [same_small, same_large] = &mut sames;
    let [hash_small, hash_large] = &mut hashes;
    let [nft_small, nft_large] = &mut nfts;
    let same_step = |(raw, address, is_in): &mut (Raw, u32, bool)| raw.interval(*address, flipped(is_in));
    let hash_step = |(raw, address, is_in): &mut (Raw, u32, bool)| raw.element(*address, flipped(is_in));
    let nft_step = |(nft, address, is_in): &mut (Nft, u32, bool)| {
        let verb = if flipped(is_in) { "add" } else { "delete" };
        let address = std::net::Ipv4Addr::from_bits(*address);
        nft.load(&format!("{verb} element inet peer members {{ {address} }}\n"))
    };
    let works: &mut [&mut dyn FnMut() -> Duration] = &mut [
        &mut || ours_small.step(),
        &mut || ours_large.step(),
        &mut || same_step(same_small),
        &mut || same_step(same_large),
        &mut || hash_step(hash_small),
        &mut || hash_step(hash_large),
        &mut || nft_step(nft_small),
        &mut || nft_step(nft_large),
    ];
    report.compared.push(paired.run(size.deltas, works));
    ours.iter_mut().for_each(OneMore::must_hold);
}

/// P2's half of a host for a delta: as the engine takes it, with its ledger.
fn one_element_durable(report: &mut Report, size: Size, folder: &Path) {
    let address = typical::between(0, 0, size.small / 2);
    let mut bodies = [0, 1].map(|_| typical::one_set(0, 0..size.small));
    bodies[1].sets[0].v4 = bodies[1].sets[0].v4.including(address);
    let mut ours = Durable::new(&folder.join("delta"));
    let mut raw = Raw::new();
    raw.replace(1, size.small, 1);
    let (mut at, mut is_in) = (0, false);
    ours.take(&bodies[0], Content::Whole(artifact::encode(&bodies[0])));
    let changes = [(1, 0), (0, 1)].map(|(from, to)| {
        let changes = delta::diff(&bodies[from], &bodies[to]).changes;
        holdfast_wire::encode_changes(&changes).expect("one peer is a small delta")
    });
    let paired = Paired::new("one element into a set of 1,000 or out of it, in the kernel and on disk", size.rounds)
        .side("holdfast-agent, engine and ledger", Role::Product)
        .side("one batch and a synced file", Role::Floor)
        .ratio("P2", "holdfast-agent, engine and ledger", "one batch and a synced file", Bound::AtMost(3.0));
    let compared = paired.run(
        size.deltas,
        &mut [
            &mut || {
                let base = ours.stamp;
                let now = next(&mut at);
                ours.take(&bodies[now], Content::Changes { base, changes: changes[now].clone() })
            },
            &mut || raw.element(address, flipped(&mut is_in)) + save(folder),
        ],
    );
    report.compared.push(compared);
}

/// P22: a large set whose members all become others, in one transaction.
fn large_replaced(report: &mut Report, size: Size) {
    let rulesets = [0, 1].map(|generation| layout(&typical::one_set(generation, 0..size.large), &Kept::default()));
    let texts = rulesets.each_ref().map(replacing);
    let hashes = [hash_set(0, size.large), hash_set(1, size.large)];
    let mut ours = Ours::new();
    let mut raw = Raw::new();
    let (same, hash) = (Nft::new(), Nft::new());
    let (mut at, mut same_at, mut hash_at) = (0, 0, 0);
    ours.reach(&rulesets[0], Depth::Whole);
    let paired =
        Paired::new(format!("a set of {} members replaced whole, in the kernel", size.large), size.rounds.min(5))
            .side("holdfast-agent", Role::Product)
            .side("one batch, hash set", Role::Floor)
            .side("nft -f, same text", Role::Peer)
            .side("nft -f, hash set", Role::Peer)
            .ratio("P22", "holdfast-agent", "nft -f, hash set", Bound::AtMost(0.8))
            .ratio("", "holdfast-agent", "nft -f, same text", Bound::None)
            .ratio("", "holdfast-agent", "one batch, hash set", Bound::None);
    let compared = paired.run(
        1,
        &mut [
            &mut || ours.reach(&rulesets[next(&mut at)], Depth::Whole),
            &mut || raw.replace(1, size.large, 1),
            &mut || same.load(&texts[next(&mut same_at)]),
            &mut || hash.load(&hashes[next(&mut hash_at)]),
        ],
    );
    ours.must_hold(&rulesets[at]);
    report.compared.push(compared);
}

/// The other of two, which it is then.
fn next(at: &mut usize) -> usize {
    *at = 1 - *at;
    *at
}

/// The other of two states.
fn flipped(state: &mut bool) -> bool {
    *state = !*state;
    *state
}

/// The agent's kernel in a namespace of its own.
struct Ours {
    space: Space,
    kernel: Netfilter,
    base: Option<Ruleset>,
}

impl Ours {
    fn new() -> Self {
        let space = Space::new();
        let kernel = Netfilter::open(TableOwner::Off).expect("root has a netlink socket");
        Self { space, kernel, base: None }
    }

    fn reach(&mut self, target: &Ruleset, depth: Depth) -> Duration {
        let next = target.clone();
        self.space.enter();
        let begun = Instant::now();
        let attempt = self.kernel.apply(self.base.as_ref(), target, depth);
        let took = begun.elapsed();
        assert!(matches!(attempt, Attempt::Holds), "the kernel takes it: {attempt:?}");
        self.base = Some(next);
        took
    }

    fn must_hold(&mut self, target: &Ruleset) {
        assert_eq!(self.kernel.check(target).expect("reads"), None, "what was measured is what the kernel holds");
    }
}

/// The agent's kernel with one set, to which one member comes and goes.
struct OneMore {
    ours: Ours,
    states: VecDeque<Ruleset>,
}

impl OneMore {
    fn new(count: u32, address: u32) -> Self {
        let base = typical::one_set(0, 0..count);
        let mut more = base.clone();
        more.sets[0].v4 = more.sets[0].v4.including(address);
        let states = [base, more].map(|body| layout(&body, &Kept::default()));
        let mut ours = Ours::new();
        ours.reach(&states[0], Depth::Whole);
        Self { ours, states: states.into() }
    }

    fn step(&mut self) -> Duration {
        self.states.rotate_left(1);
        let target = &self.states[0];
        self.ours.reach(target, Depth::Changed)
    }

    fn must_hold(&mut self) {
        self.ours.must_hold(&self.states[0]);
    }
}

/// The agent's engine over kernel and ledger.
struct Durable {
    space: Space,
    engine: Engine<Netfilter, Ledger>,
    version: u64,
    stamp: Stamp,
}

impl Durable {
    fn new(folder: &Path) -> Self {
        let space = Space::new();
        let kernel = Netfilter::open(TableOwner::Off).expect("root has a netlink socket");
        let (ledger, loaded, fault) = Ledger::open(folder, None, &|_| true).expect("a folder of its own");
        assert!(fault.is_none(), "a new ledger has no fault");
        let mut engine = Engine::new(kernel, ledger, Kept::default());
        engine.start(loaded).expect("an empty namespace takes the open table");
        let stamp = Stamp { version: Version::FIRST, digest: Body::default().digest() };
        Self { space, engine, version: 0, stamp }
    }

    fn take(&mut self, body: &Body, content: Content) -> Duration {
        self.version += 1;
        let stamp = Stamp { version: Version::from_raw(self.version).expect("above zero"), digest: body.digest() };
        let update = Update { origin: None, stamp, content };
        self.space.enter();
        let begun = Instant::now();
        let outcome = self.engine.apply(&update);
        let took = begun.elapsed();
        assert_eq!(outcome.kind, OutcomeKind::Applied, "{outcome:?}");
        self.stamp = stamp;
        took
    }
}

/// A namespace for `nft`.
pub(crate) struct Nft(pub(crate) Space);

impl Nft {
    fn new() -> Self {
        Self(Space::new())
    }

    /// Loads a text, from before the program starts until it has ended.
    pub(crate) fn load(&self, text: &str) -> Duration {
        self.0.enter();
        let begun = Instant::now();
        let mut child = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft is installed");
        let mut input = child.stdin.take().expect("a pipe was asked for");
        input.write_all(text.as_bytes()).expect("nft reads");
        drop(input);
        let status = child.wait().expect("nft ends");
        let took = begun.elapsed();
        assert!(status.success(), "nft takes the text");
        took
    }
}

/// A ruleset as text that replaces its table in one transaction.
fn replacing(ruleset: &Ruleset) -> String {
    let text = ruleset.to_string();
    let head = text.lines().next().and_then(|line| line.strip_suffix(" {")).expect("a text begins with its table");
    format!("{head}\ndelete {head}\n{text}")
}

/// One rule over a hash set as text, likewise.
fn hash_set(generation: u32, count: u32) -> String {
    set_text(generation, count, "")
}

/// One rule over a set of so many members as text.
pub(crate) fn set_text(generation: u32, count: u32, flags: &str) -> String {
    let address = |n| std::net::Ipv4Addr::from_bits(typical::peer(generation, 0, n)).to_string();
    let members: Vec<String> = (0..count).map(address).collect();
    format!(
        "table inet peer\ndelete table inet peer\ntable inet peer {{\n\
         set members {{ type ipv4_addr; {flags} elements = {{ {} }} }}\n\
         chain in {{ type filter hook input priority 10; ip saddr @members tcp dport 1000 counter accept;\n }}\n}}\n",
        members.join(", ")
    )
}

#[cfg(test)]
mod tests;
