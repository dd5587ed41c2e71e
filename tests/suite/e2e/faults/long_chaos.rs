//! Faults upon faults, in an order that a seed decides: 30 hosts, two or three gateways, and everything that the stories have one by one.
//!
//! - Packets and kernels are watched from before the first fault to after the last; after every few rounds all of it converges, and no history lost a line.
//! - `HOLDFAST_CHAOS_SEED` repeats the choices of a run; what the machine makes of them is its own. Each step is told with its time, and kept in a file
//!   of the build folder that is named by the seed.
//! - A complaint of a process is excused only by a fault that was played.

use std::cell::Cell;
use std::time::Duration;

use holdfast_session::random::Random;
use holdfast_suite::complaint::Complaint;
use holdfast_suite::plane::{Plane, wait_for};
use holdfast_suite::steps::Steps;

use super::super::fleet::nobody_complained_but;
use super::nats::everything_is_proven;
use super::postgres::gateway_id;
use super::storm::{GATEWAYS, HOSTS, SMALL, Storm};
use super::watch::{Watch, converges, sessions};

/// The seed where none is given: it draws three gateways.
const SEED: u64 = 3;
/// How many rounds of faults there are, some 20 s each.
const ROUNDS: u64 = 24;
/// After so many rounds everything must converge.
const CALM_EVERY: u64 = 4;
/// How many edits an agent that does not read misses at least.
const MISSED: usize = 10;
/// How many prefixes a wide group has.
const WIDE: u32 = 50_000;
/// What a lone address takes in a body that travels: its number and its prefix (docs/artifact.md).
const ADDRESS_BYTES: u32 = 5;
/// How often that group is another one while somebody reads nothing: more bodies than the sockets on the way take.
const SWAPS: u32 = 24;
/// What a gateway holds beside bodies for all of its sessions: the buffers of those that have just been written to.
const BESIDE_BODIES: f64 = 512.0 * 1024.0;
/// How long all of it may take to converge once nothing is wrong: an agent that found no gateway for a round waits up to 64 s for its next dial, and finds
/// one of the gateways by it.
const HEALS: Duration = Duration::from_secs(180);
/// How many hosts there are.
const FLEET: usize = 30;

#[test]
fn thirty_hosts_behind_two_or_three_gateways_enforce_and_converge_through_a_storm_of_faults() {
    let seed = std::env::var("HOLDFAST_CHAOS_SEED").map_or(SEED, |seed| seed.parse().expect("a seed is a number"));
    let steps = Steps::begin(env!("CARGO_TARGET_TMPDIR"), &format!("chaos-seed-{seed}.log"));
    let mut random = Random::new(seed);
    let gateways = if random.up_to(1) == 0 { 2 } else { 3 };
    steps.tell(&format!("seed {seed}: {gateways} gateways; steps are kept in {}", steps.path().display()));
    let plane = Plane::start(&["--hosts", &FLEET.to_string()]);
    if gateways == GATEWAYS.len() {
        plane.add_third_gateway();
        every_host_finds_the_third_gateway(&plane, &steps);
    }
    // What this provoked is of no fault of the storm.
    let before = plane.complaints();
    let is_of_start = |complaint: &Complaint| {
        let is_of_killed = GATEWAYS.iter().take(2).any(|(_, port)| complaint.is_of_killed_gateway(*port));
        complaint.is_of_slow_statement() || gateways == GATEWAYS.len() && is_of_killed
    };
    assert!(before.iter().all(is_of_start), "{before:#?}");
    let agent = plane.agent_command(SMALL);
    plane.kill_agent(SMALL);
    let disk = plane.small_disk(SMALL);
    plane.start_agents(&agent);
    let watch = Watch::start(&plane);
    let mut storm = Storm {
        plane: &plane,
        watch: &watch,
        disk: &disk,
        steps: &steps,
        agent: agent.clone(),
        gateways,
        random,
        played: Vec::new(),
    };
    for round in 1..=ROUNDS {
        steps.tell(&format!("round {round}"));
        storm.round();
        if round % CALM_EVERY == 0 {
            watch.edit(&plane);
            let took = converges(&plane, HEALS);
            plane.histories_agree();
            steps.tell(&format!("  converged after {took:?}"));
        }
    }
    let played = storm.played;
    one_that_missed_everything_gets_what_is_current(&plane, &watch);
    steps.tell("one that missed everything has what is current");
    plane.kill_agent(SMALL);
    drop(disk);
    plane.start_agents(&agent);
    converges(&plane, HEALS);
    watch.end(&plane);
    wide_changes_for_a_reader_that_stopped_cost_two_bodies(&plane, gateways, &steps);
    everything_is_proven(&plane);
    nobody_complained_but(&plane, |complaint| {
        // A version of fifty thousand prefixes is written for seconds on a machine that does all this.
        before.contains(complaint)
            || complaint.is_of_slow_statement()
            || played.iter().any(|fault| fault.explains(complaint))
    });
    plane.wipe();
    steps.tell("everything is proven");
}

/// With the two others gone every host is served by it: none that does not know it, or may not reach it.
fn every_host_finds_the_third_gateway(plane: &Plane, steps: &Steps) {
    let running = |nths: &[usize]| nths.iter().map(|nth| gateway_id(plane, *nth)).collect::<Vec<_>>();
    let are_at = |nths: &[usize]| {
        let (gateways, sessions) = (running(nths), sessions(plane));
        sessions.len() == FLEET && sessions.values().all(|(_, gateway)| gateways.contains(gateway))
    };
    // A host learns the list in a session with a gateway that has it.
    wait_for("every host is at a gateway that runs", HEALS, || are_at(&[1, 2, 3]));
    let recipes = ["gateway-agents-1", "gateway-agents-2"].map(|service| plane.recipe(service));
    recipes.iter().for_each(|recipe| plane.kill(recipe.service()));
    wait_for("every host is at the third gateway", HEALS, || are_at(&[3]));
    steps.tell("every host was at the third gateway");
    for recipe in &recipes {
        plane.start_service(recipe);
        plane.wait_ready(recipe.service(), true);
    }
    converges(plane, HEALS);
}

/// A reader that stopped for many edits, at the end of the storm.
fn one_that_missed_everything_gets_what_is_current(plane: &Plane, watch: &Watch) {
    let still = plane.freeze_agent(HOSTS[1]);
    for _ in 0..MISSED {
        watch.edit(plane);
    }
    drop(still);
    converges(plane, HEALS);
}

/// A reader that stopped while a group of fifty thousand becomes another one again and again: gateways hold two bodies for it, whatever was rendered.
fn wide_changes_for_a_reader_that_stopped_cost_two_bodies(plane: &Plane, gateways: usize, steps: &Steps) {
    let held =
        || GATEWAYS.iter().take(gateways).map(|(name, _)| plane.metric(name, "holdfast_gateway_held_bytes")).sum();
    put_wide_group(plane, 0);
    converges(plane, HEALS);
    // Its other rules are a few kB.
    let body = f64::from(WIDE * ADDRESS_BYTES);
    let most = 2.0_f64.mul_add(body, BESIDE_BODIES);
    let still = plane.freeze_agent(HOSTS[2]);
    let seen = Cell::new(0.0_f64);
    for nth in 1..=SWAPS {
        put_wide_group(plane, nth);
        wait_for("others read what is theirs, and two bodies are held", HEALS, || {
            let now: f64 = held();
            let is_bounded = now <= most;
            if is_bounded {
                seen.set(seen.get().max(now));
            }
            is_bounded
        });
    }
    let (rendered, seen) = (f64::from(SWAPS) * body, seen.get());
    steps.tell(&format!(
        "a reader that stopped for {rendered} bytes of bodies of {body} had {seen} held for it at most"
    ));
    assert!(seen > 0.0, "something waits for it: the sockets on the way do not take {rendered} bytes");
    drop(still);
    converges(plane, HEALS);
}

/// Lets in another fifty thousand addresses, none of which is beside another, on the hosts with caches.
fn put_wide_group(plane: &Plane, nth: u32) {
    let address = |n: u32| std::net::Ipv4Addr::from(0x6440_0000 + 2 * (n * (SWAPS + 1) + nth));
    let cidrs: String = (0..WIDE).map(|n| format!("    {}\n", address(n))).collect();
    let text = format!(
        "apiVersion: holdfast.dev/v1\nkind: AddressGroup\nmetadata: {{name: wide, namespace: booking}}\nspec:\n  cidrs: |\n{cidrs}\
         ---\napiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: wide, namespace: booking}}\nspec:\n  \
         hostSelector: {{matchLabels: {{role: cache}}}}\n  ingress: [{{from: [{{addressGroup: wide}}], services: [{{tcp: 9}}]}}]\n"
    );
    let file = plane.folder().join("wide.yaml");
    std::fs::write(&file, text).expect("the folder is ours");
    let applied = plane.holdfast(&["apply", "-f", file.to_str().expect("a plain path")]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    std::fs::remove_file(&file).expect("it is there");
}
