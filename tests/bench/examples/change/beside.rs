//! What is done beside a change, over the same without it: the trial of the brake before it is stored, and a status of its host after its outcome.
//!
//! - Both sides run in turn on the same servers; commits are synced if those of the changes are.
//! - The trial is of a fleet of [`OTHERS`] other hosts, which the change does not touch: it is what each change of one host costs in it.
//! - Of a status it is the statement and its commit that are measured, with what a host of one policy says; verifying its signature is not in it.

use std::time::{Duration, Instant};

use holdfast_bench::paired::{Bound, Compared, Paired, ROUNDS_MIN, Role};
use holdfast_gateway::operators::Trials;
use holdfast_model::ids::HostId;
use holdfast_model::intent::{EnrolledHost, Intent};
use holdfast_model::numbers::Revision;
use serde::Serialize;
use uuid::Uuid;

use crate::product::Product;

/// How many hosts there are beside the one that a change is for.
const OTHERS: u32 = 10_000;
const PLAIN: &str = "without";
const BESIDE: &str = "with";

/// Each with what its ratio is of.
#[derive(Serialize)]
pub(crate) struct Beside {
    /// A change stored after it was tried, over one that is only stored.
    pub(crate) brake: Compared,
    /// An outcome stored with a status that says something new, over one that is stored alone.
    pub(crate) status: Compared,
}

/// Measures so many of each.
///
/// # Panics
/// If the store does not answer: there is nothing to measure then.
pub(crate) async fn measure(product: &mut Product, count: u32) -> Beside {
    let (revision, intent) = product.intent().await;
    let trials = mk_trials(revision, intent);
    // The first makes the index, as a door's first change does; later ones take it over.
    assert!(!trials.is_braked(product.next_edit()), "one peer is moved");
    let mut brake = mk_paired("a change, asked to committed");
    let mut status = mk_paired("an outcome, asked to stored");
    for n in 0..count {
        let round = (n * ROUNDS_MIN / count) as usize;
        brake.push(round, PLAIN, stored(product, None).await);
        brake.push(round, BESIDE, stored(product, Some(&trials)).await);
    }
    for n in 0..count {
        let round = (n * ROUNDS_MIN / count) as usize;
        status.push(round, PLAIN, product.store_outcome(false).await);
        status.push(round, BESIDE, product.store_outcome(true).await);
    }
    Beside { brake: brake.compared(), status: status.compared() }
}

fn mk_paired(what: &str) -> Paired {
    let paired = Paired::new(what, ROUNDS_MIN as usize).side(BESIDE, Role::Product).side(PLAIN, Role::Floor);
    paired.ratio("with over without", BESIDE, PLAIN, Bound::None)
}

async fn stored(product: &mut Product, trials: Option<&Trials>) -> Duration {
    let objects = product.next_edit();
    let begun = Instant::now();
    if let Some(trials) = trials {
        assert!(!trials.is_braked(objects.clone()), "one peer is moved");
    }
    product.apply(objects).await;
    begun.elapsed()
}

/// The fleet with others in it, of another role.
fn mk_trials(revision: Revision, mut intent: Intent) -> Trials {
    let one = intent.hosts.values().next().expect("it is enrolled").clone();
    for n in 1..=OTHERS {
        let host = EnrolledHost {
            id: HostId::new(Uuid::from_u128(n.into())),
            name: format!("other-{n}").parse().expect("a name"),
            labels: [("role".to_owned(), "other".to_owned())].into(),
            addresses: vec![std::net::Ipv4Addr::from_bits(0x0d00_0000 + n).into()],
            ..one.clone()
        };
        intent.hosts.insert(host.id, host);
    }
    Trials::new(revision, intent)
}
