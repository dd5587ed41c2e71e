//! Whose turn it is, at the door: a fleet's change beside single hosts, reads that hang, a reader that stopped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdfast_events::{Directive, DirectiveKind};
use holdfast_model::name::Name;
use holdfast_model::numbers::SessionEpoch;
use holdfast_session::scheduler::{Asker, Ended, Lane, Start, Ticket};

use super::super::clock::Clock;
use super::super::limits::{BUILDS, IDLE_BUFFER_BYTES, WIDE_READS_AT_ONCE_MAX, WRITE_BUFFER_BYTES};
use super::super::mailbox::Mailbox;
use super::super::recorder::Recorder;
use super::super::registry::Registry;
use super::*;

const FLEET: u128 = 1_000;

/// A step is one build that ends and what begins by that.
#[tokio::test]
async fn e25_a_change_of_a_thousand_hosts_and_of_single_ones_do_not_starve_each_other_at_the_door() {
    let mut at = Sessions::new();
    let all: Vec<_> = (0..FLEET).map(|n| (mk_host(n), Component::Policy, mk_version(2))).collect();
    at.registry.hint(&all, 1_000);
    let begun = at.begun();
    assert_eq!(begun.len(), BUILDS.builds_max() - BUILDS.host_reserve(), "all but the reserve");
    assert!(begun.iter().all(|start| start.ticket.lane == Lane::Bulk));
    let mut reached: BTreeSet<HostId> = begun.iter().map(|start| start.ticket.host).collect();
    let (mut single, mut steps) = (0_u64, 0_u64);
    while !at.under_way.is_empty() {
        steps += 1;
        if steps % 5 == 0 {
            // One that is not just being built, wherever it is in the wider change.
            let host = (0..FLEET).map(|n| mk_host((n + u128::from(steps) * 7) % FLEET));
            let host = host.into_iter().find(|host| !at.is_under_way(*host)).expect("not all are under way");
            at.registry.hint(&[(host, Component::Policy, mk_version(2 + steps))], 1);
            let begun = at.begun();
            let [start] = begun.as_slice() else { panic!("step {steps}: {begun:?}") };
            assert_eq!((start.ticket.lane, start.ticket.host), (Lane::Host, host), "at once");
            reached.insert(host);
            single += 1;
        }
        let is_bulk = at.under_way.front().is_some_and(|ticket| ticket.lane == Lane::Bulk);
        at.end_oldest(mk_version(1 + steps));
        let begun = at.begun();
        reached.extend(begun.iter().map(|start| start.ticket.host));
        if is_bulk && reached.len() < 1_000 {
            assert!(
                begun.iter().any(|start| start.ticket.lane == Lane::Bulk),
                "step {steps}: the wider one stands still"
            );
        }
        assert!(steps <= 1_000 + 2 * single, "step {steps} of a thousand builds and {single} more");
    }
    assert_eq!(reached.len(), 1_000);
    assert!(single > 100, "{single}");
}

#[tokio::test]
async fn reads_of_a_wider_change_that_hang_do_not_hold_up_a_change_of_one_host() {
    let estate = Estate::start().await;
    let mut wide = Vec::new();
    for n in 1..=u128::try_from(WIDE_READS_AT_ONCE_MAX).unwrap() + 1 {
        let mut agent = estate.agent(n).await;
        agent.converge(4).await;
        wide.push(agent);
    }
    let mut one = estate.agent(99).await;
    one.converge(4).await;

    let hosts: Vec<HostId> = wide.iter().map(|agent| agent.host).collect();
    estate.memory.set_silent(&hosts);
    for (nth, agent) in wide.iter().enumerate() {
        let stamp = estate.memory.publish(agent.host, &mk_body(0..7));
        estate.hint_of(agent.host, stamp.version, Some(1_000)).await;
        // Each in a statement of its own, until there are as many as there may be.
        let waiting = (nth + 1).min(WIDE_READS_AT_ONCE_MAX);
        let hang = async {
            while estate.memory.waiting_reads() < waiting {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, hang).await.expect("they hang");
    }
    let stamp = estate.memory.publish(one.host, &mk_body(0..9));
    estate.hint_of(one.host, stamp.version, Some(1)).await;
    one.converge(5).await;
    assert_eq!(one.last().stamp, stamp);
    assert!(wide.iter().all(|agent| agent.taken.len() == 4));

    estate.memory.set_silent(&[]);
    for agent in &mut wide {
        agent.converge(5).await;
    }
    estate.built_until().await;
}

#[tokio::test]
async fn an_operator_asks_for_the_whole_state_of_a_host_once_more() {
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    agent.converge(4).await;
    let resend = |host| Directive { kind: DirectiveKind::ResendSnapshot, host };
    assert!(estate.door.direct(resend(agent.host)));
    agent.converge(8).await;
    assert!(agent.taken.iter().all(|taken| taken.form == "snapshot"));
    assert!(!estate.door.direct(resend(mk_host(2))), "nobody is there");
    estate.built_until().await;
}

#[tokio::test]
async fn a27_every_whole_state_that_is_sent_is_recorded_whatever_it_is_sent_for() {
    let estate = Estate::start().await;
    let host = estate.enrol(1);
    let mut agent = estate.connect(host.clone()).await;
    let sent = |facts: &[Fact]| count(facts, |seen| matches!(seen, Seen::SnapshotSent { .. }));
    agent.converge(4).await;
    estate.facts_until(|facts| sent(facts) == 4).await;
    // What is larger as changes travels whole, and so does what answers a failure.
    let stamp = estate.memory.publish(agent.host, &mk_body(0..3));
    estate.hint(agent.host, stamp.version).await;
    agent.converge(5).await;
    let by_form = |agent: &Agent| agent.taken.iter().filter(|taken| taken.form == "snapshot").count();
    let newer = by_form(&agent);
    agent.fail_next = true;
    let stamp = estate.memory.publish(agent.host, &mk_body(0..4));
    estate.hint(agent.host, stamp.version).await;
    agent.converge(6).await;
    assert_eq!(agent.last().form, "snapshot");
    estate.facts_until(|facts| sent(facts) == newer + 1).await;
    assert!(estate.door.direct(Directive { kind: DirectiveKind::ResendSnapshot, host: agent.host }));
    agent.converge(10).await;
    // And a session that begins again, with what it has.
    drop(agent);
    let mut agent = estate.connect(host).await;
    agent.converge(4).await;
    estate.facts_until(|facts| sent(facts) == newer + 1 + 4 + 4).await;
}

#[tokio::test]
async fn e22_a_thousand_hints_cost_a_reader_that_stopped_what_its_socket_holds_and_others_nothing() {
    let estate = Estate::start().await;
    let mut slow = estate.connect_small(estate.enrol(1)).await;
    let mut other = estate.agent(2).await;
    slow.converge(4).await;
    other.converge(4).await;
    // Two bodies without a member in common: each way between them is a whole snapshot.
    let bodies = [mk_body(0..120_000), mk_body(200_000..320_000)];
    let size = holdfast_model::artifact::encode(&bodies[0]).len();
    bodies.iter().for_each(|body| _ = estate.memory.publish(slow.host, body));
    let before = estate.memory.reads_of(slow.host);

    // Until the kernels of both ends take no more, and it waits with a full buffer.
    for n in (0..2).cycle() {
        let stamp = estate.memory.publish_again(slow.host, bodies[n].digest());
        estate.hint(slow.host, stamp.version).await;
        estate.built_until().await;
        let reads = estate.memory.reads_of(slow.host) - before;
        if estate.door.held_bytes() >= WRITE_BUFFER_BYTES {
            break;
        }
        assert!(reads <= (64 << 20) / size, "{reads} reads of {size} bytes go out to one that does not read");
    }
    let stopped_at = estate.memory.reads_of(slow.host);
    let (mut newest, mut most) = (None, 0);
    for n in 0..1_000_usize {
        let stamp = estate.memory.publish_again(slow.host, bodies[n % 2].digest());
        estate.hint(slow.host, stamp.version).await;
        newest = Some(stamp);
        most = most.max(estate.door.held_bytes());
        if n % 50 == 0 {
            let stamp = estate.memory.publish(other.host, &mk_body(0..u32::try_from(n).unwrap() + 1));
            estate.hint(other.host, stamp.version).await;
            other.converge(5 + n / 50).await;
            assert_eq!(other.last().stamp, stamp);
        }
    }
    // It holds no place that others could have.
    estate.built_until().await;
    // One is being written; one more may have been asked for before the socket took nothing more.
    let reads = estate.memory.reads_of(slow.host) - before;
    let more = estate.memory.reads_of(slow.host) - stopped_at;
    assert!(more <= 2, "{more} reads for a reader that stopped");
    assert_eq!(estate.door.sessions(), 2, "nobody is sent away for being slow");
    // The body that is being written or staged, and the buffer.
    assert!(most >= WRITE_BUFFER_BYTES && most <= 2 * size, "{most} bytes are held, a body has {size}");

    let newest = newest.unwrap();
    slow.until(|agent| agent.last().stamp == newest).await;
    assert!(slow.taken.len() <= 4 + reads + 1, "{} updates, {reads} reads", slow.taken.len());
    let given_back = async {
        while estate.door.held_bytes() > 2 * IDLE_BUFFER_BYTES {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let given_back = tokio::time::timeout(DEADLINE, given_back).await;
    assert!(given_back.is_ok(), "{} bytes are held", estate.door.held_bytes());
}

#[tokio::test]
async fn c35_a_body_that_is_too_large_to_travel_costs_its_component_only_and_is_read_once_however_often_versions_are_compared()
 {
    let small = |session: &mut SessionConfig| session.limits.body_bytes_max = 20_000;
    let (_counting, counted) = counters();
    let estate = Estate::start_as(Hooks::default(), small).await;
    let host = estate.enrol(1);
    estate.memory.publish(host.id, &mk_body(0..9_000));
    assert!(holdfast_model::artifact::encode(&mk_body(0..9_000)).len() > 20_000);
    let mut agent = estate.connect(host).await;
    let mut other = estate.agent(2).await;
    other.converge(4).await;
    agent.converge(3).await;
    estate.built_until().await;
    assert_eq!(agent.policy, Body::default(), "it has the other three");
    let facts = estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 4 + 3).await;
    assert_eq!(count(&facts, |seen| matches!(seen, Seen::Fault { .. })), 0);
    assert_eq!((estate.door.sessions(), estate.memory.reads_of(agent.host)), (2, 1));

    // What another host gets by a compare says that this one was compared too.
    for n in 1..=5 {
        let stamp = estate.memory.publish(other.host, &mk_body(0..u32::try_from(n).unwrap()));
        estate.wakes.send(Wake::Lapsed).await.unwrap();
        other.converge(4 + n).await;
        assert!(other.last().stamp == stamp && estate.memory.compares() >= n, "compare {n}");
        estate.built_until().await;
        assert_eq!((estate.door.sessions(), estate.memory.reads_of(agent.host)), (2, 1), "after compare {n}");
    }
    assert!(counted().contains("holdfast_gateway_bodies_too_large_total{component=\"policy\"} 1\n"), "{}", counted());

    // The next version that fits is read and travels, in the same session.
    let stamp = estate.memory.publish(agent.host, &mk_body(0..100));
    estate.wakes.send(Wake::Lapsed).await.unwrap();
    agent.converge(4).await;
    assert_eq!((agent.last().form, agent.last().stamp), ("snapshot", stamp));
    assert_eq!((estate.door.sessions(), estate.memory.reads_of(agent.host)), (2, 2));
}

/// A registry with a thousand sessions of which there is only a mailbox.
struct Sessions {
    registry: Registry,
    mailboxes: BTreeMap<HostId, Arc<Mailbox>>,
    under_way: VecDeque<Ticket>,
}

impl Sessions {
    /// They have their first states.
    fn new() -> Self {
        let epoch = SessionEpoch::from_raw(1);
        let mut at = Self {
            registry: Registry::new(Clock::start(), 7, Recorder::default()),
            mailboxes: BTreeMap::new(),
            under_way: VecDeque::new(),
        };
        for host in (0..FLEET).map(mk_host) {
            let mailbox = Arc::new(Mailbox::default());
            assert!(at.registry.insert(host, Name::default_namespace(), epoch, Arc::clone(&mailbox)));
            at.mailboxes.insert(host, mailbox);
            for component in Component::ALL {
                assert!(at.registry.want(host, epoch, component, Asker::Session));
            }
        }
        while !at.begun().is_empty() {
            while !at.under_way.is_empty() {
                at.end_oldest(Version::FIRST);
            }
        }
        at
    }

    fn begun(&mut self) -> Vec<Start> {
        let starts: Vec<Start> = self.mailboxes.values().flat_map(|mailbox| mailbox.take().starts).flatten().collect();
        self.under_way.extend(starts.iter().map(|start| start.ticket));
        starts
    }

    fn is_under_way(&self, host: HostId) -> bool {
        self.under_way.iter().any(|ticket| ticket.host == host)
    }

    fn end_oldest(&mut self, version: Version) {
        if let Some(ticket) = self.under_way.pop_front() {
            self.registry.ended(ticket, Ended::Built { version });
        }
    }
}

fn mk_version(n: u64) -> Version {
    Version::from_raw(n).unwrap()
}
