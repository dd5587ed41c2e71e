//! What hostile frames cost a real gateway: memory by the cap of a frame, CPU by their size.

use std::time::{Duration, Instant};

use holdfast_identity::tls::client::AgentProtocol;
use holdfast_wire::limits::HELLO_FRAME_BYTES_MAX;
use holdfast_wire::message::{Kind, Liveness, Message};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::frames::{dial, frame, hello, raw};
use super::world::World;

/// Sessions at once: enough that the bound of each shows over what the process does beside.
const SESSIONS: usize = 150;
/// Sessions one after the other whose CPU is measured together: some hundreds of clock ticks of a hundredth of a second would be longer.
const TURNS: usize = 60;
/// What the allocator and the process itself may take beside.
const SLACK_BYTES: usize = 12 << 20;
/// How many times dearer than honest bytes hostile ones of the same size may be.
const CPU_RATIO_MAX: u64 = 3;
/// Ticks that a measurement may be off: a fifth of a second.
const CPU_SLACK_TICKS: u64 = 20;
const DEADLINE: Duration = Duration::from_secs(20);

type Session = TlsStream<TcpStream>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_frames_cost_no_more_memory_than_their_cap_and_no_more_cpu_than_honest_bytes() {
    let mut world = World::start().await;
    check_memory(&world).await;
    check_cpu(&world).await;
    world.plane.assert_runs();
}

async fn open(world: &World) -> Session {
    dial(world, world.agent_tls(AgentProtocol::Session)).await.expect("TLS with the host's certificate")
}

/// Many sessions that each sent these bytes of a first frame, and wait.
async fn sessions(world: &World, bytes: &[u8]) -> Vec<Session> {
    let mut held = Vec::new();
    for _ in 0..SESSIONS {
        let mut session = open(world).await;
        session.write_all(bytes).await.and(session.flush().await).expect("the door takes bytes");
        held.push(session);
    }
    held
}

async fn check_memory(world: &World) {
    // Once all of it, so that what the process keeps for later is there before anything is measured.
    let most =
        [&u32::try_from(HELLO_FRAME_BYTES_MAX).expect("short").to_be_bytes()[..], &vec![0; HELLO_FRAME_BYTES_MAX - 1]]
            .concat();
    let promise = most.get(..5).expect("a length and a byte").to_vec();
    drop(sessions(world, &[]).await);

    let idle = sessions(world, &[]).await;
    let before = resident_bytes(world);
    let promised = sessions(world, &promise).await;
    let promised_cost = settled(world).saturating_sub(before);
    drop(idle);
    // A promise costs what a silent session costs: nothing is kept for bytes that did not come.
    assert!(promised_cost < SESSIONS * (48 << 10) + SLACK_BYTES, "{promised_cost} bytes for {SESSIONS} promises");
    drop(promised);

    let before = resident_bytes(world);
    let full = sessions(world, &most).await;
    let cost = settled(world).saturating_sub(before);
    // The frame, as much again where its buffer grew by doubling, and what a silent session has.
    let cap = SESSIONS * (2 * HELLO_FRAME_BYTES_MAX + (48 << 10)) + SLACK_BYTES;
    assert!(cost < cap, "{cost} bytes for {SESSIONS} frames that are not whole, at most {cap}");
    drop(full);
}

/// The resident bytes when they stay, after the door has read what was sent.
fn settled(world: &World) -> usize {
    let deadline = Instant::now() + DEADLINE;
    let mut last = 0;
    loop {
        let now = resident_bytes(world);
        if now.abs_diff(last) < 64 << 10 {
            return now.max(last);
        }
        assert!(Instant::now() < deadline, "the gateway's memory does not settle");
        last = now;
        std::thread::sleep(Duration::from_millis(200));
    }
}

async fn check_cpu(world: &World) {
    let body = HELLO_FRAME_BYTES_MAX - 8;
    // Honest: a Hello, and then as many signs of life as there is room for.
    let alive = frame(&Message::Liveness(Liveness { counter: 1, status: None }));
    let honest_rest = alive.repeat(body / alive.len());
    let honest = spent(world, &hello(), &honest_rest).await;
    let count = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    let head = [&[1, 1, 5][..], b"0.1.0", &[0; 16]].concat();
    let filled = |head: &[u8], with: &[u8]| {
        let mut payload = [head, &with.repeat(body / with.len())].concat();
        payload.truncate(body);
        raw(1, Kind::Hello.number(), &payload)
    };
    let hostile = [
        ("counts of 2^63 without end", filled(&head, &count)),
        ("numbers that never end", filled(&[], &[0x80])),
        ("a list of as many as there are bytes", filled(&[&head[..], &[0xff, 0xff, 0x03]].concat(), &[0])),
        ("nothing but zeros", filled(&[], &[0])),
        ("noise", filled(&[], &(0..=255_u8).map(|n| n.wrapping_mul(167) ^ 0x5a).collect::<Vec<_>>())),
    ];
    for (what, bytes) in hostile {
        let cost = spent(world, &bytes, &[]).await;
        let most = honest * CPU_RATIO_MAX + CPU_SLACK_TICKS;
        assert!(cost <= most, "{what}: {cost} ticks, honest bytes of the same size {honest}");
    }
}

/// The ticks of CPU that the gateway spends on some sessions, each with first bytes and, after an answer, further ones.
async fn spent(world: &World, first: &[u8], then: &[u8]) -> u64 {
    let before = ticks(world);
    for _ in 0..TURNS {
        let mut session = open(world).await;
        session.write_all(first).await.and(session.flush().await).expect("the door takes bytes");
        let mut answer = [0; 4096];
        let answered = tokio::time::timeout(DEADLINE, session.read(&mut answer)).await.expect("an answer in time");
        assert!(answered.is_ok_and(|count| count > 0), "the gateway answers before it closes");
        if !then.is_empty() {
            session.write_all(then).await.and(session.flush().await).expect("the door takes bytes");
        }
        drop(session.shutdown().await);
        // Until the gateway has closed too, so that all it does for the session is counted.
        let closed = async { while let Ok(1..) = session.read(&mut answer).await {} };
        tokio::time::timeout(DEADLINE, closed).await.expect("closed in time");
    }
    ticks(world) - before
}

fn resident_bytes(world: &World) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.plane.gateway.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has one");
    line.split_whitespace().next().and_then(|kib| kib.parse::<usize>().ok()).expect("a number") << 10
}

/// User and system time of the gateway.
fn ticks(world: &World) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", world.plane.gateway.pid())).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in brackets");
    let numbers = fields.split_whitespace().skip(11).take(2);
    numbers.map(|number| number.parse::<u64>().expect("ticks")).sum()
}
