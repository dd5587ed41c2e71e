//! One agent that reads nothing while versions of a large policy come for it one after the other: what the server holds, and what others feel of it.
//!
//! - Both policies are stored and cached before, so that what the server takes more is the one session's.
//! - What it holds is what it says of itself; what its process takes more is the cross-check.
//! - Single changes of other agents before it and beside it, in one run.

use holdfast_bench::Strict;
use holdfast_bench::paired::{Bound, Paired, Role};

use crate::agents::{Crowd, Threads};
use crate::fleet::Fleet;
use crate::serve::Kind;
use crate::server::Server;

/// After so many versions somebody else's host is changed.
const SINGLE_EVERY: usize = 10;
/// Times that both policies go to the agent before it stops: the server's caches and its allocator have then seen them.
const WARM: usize = 6;

/// What came of it.
pub(crate) struct Slow {
    pub(crate) singles: Paired,
    pub(crate) memory: [Strict; 2],
}

/// Measures one server, with so many versions.
pub(crate) async fn measure(fleet: &mut Fleet, mut server: Server, versions: usize) -> Slow {
    let sides = ["while a reader that stopped gets ten versions a change", "while nothing else changes"];
    let mut singles = Paired::new(format!("a change of one host of {}, committed to its answer", fleet.hosts.len()), 1)
        .side(sides[0], Role::Product)
        .side(sides[1], Role::Product)
        .ratio("E22", sides[0], sides[1], Bound::AtMost(1.5));
    let last = fleet.hosts.len() - 1;
    let mut crowd = Crowd::dial(fleet, Kind::Product, server.address(), Threads::Alike);
    crowd.all_answered().await;
    for _ in 0..WARM {
        fleet.change_large(last).await;
        crowd.last_answers(fleet).await;
    }
    for time in crowd.singles(fleet, versions / SINGLE_EVERY).await {
        singles.push(0, sides[1], time);
    }
    let (before, idle) = (server.usage().rss_bytes, server.held_bytes());
    crowd.hold_last(true);
    let (mut held, mut rss) = (0.0_f64, 0.0_f64);
    for nth in 1..=versions {
        fleet.change_large(last).await;
        if nth.is_multiple_of(SINGLE_EVERY) {
            for time in crowd.singles(fleet, 1).await {
                singles.push(0, sides[0], time);
            }
            held = held.max(server.held_bytes() - idle);
            rss = rss.max(server.usage().rss_bytes - before);
        }
    }
    // It stayed the session that it was, and gets the newest once it reads.
    fleet.change_large(last).await;
    crowd.hold_last(false);
    crowd.last_answers(fleet).await;
    crowd.leave().await;
    let bodies = 2.0 * f64::from(u32::try_from(fleet.large_bytes()).expect("some hundred kilobytes"));
    let of = |what: &str, bytes: f64| {
        let what = format!("{what} while {versions} versions come for an agent that reads nothing");
        Strict::of(what, bytes, "bytes").over("E22", "two bodies", bodies, Some(1.0))
    };
    Slow { singles, memory: [of("what sessions hold more", held), of("what the server's process takes more", rss)] }
}
