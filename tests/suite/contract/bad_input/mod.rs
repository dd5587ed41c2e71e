//! Malformed input of every kind at every door: each is refused by a rule of its own that names the place, and nothing changes.
//!
//! - The rule is the stable name that the product says; no two inputs of the catalogue have the same, and each is on a page of the documentation.
//! - After each input everything that is kept is what it was, and every service runs.

mod commands;
mod cost;
mod documents;
mod enrolments;
pub(crate) mod frames;
mod requests;
mod settings;
pub(crate) mod world;

use std::path::Path;

use world::World;

/// How many rules the catalogue breaks at least.
const RULES_MIN: usize = 120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_malformed_input_is_refused_by_a_rule_of_its_own_and_changes_nothing() {
    let mut world = World::start().await;
    documents::check(&mut world);
    requests::check(&mut world).await;
    commands::check(&mut world);
    settings::check(&mut world);
    enrolments::check(&mut world).await;
    frames::check(&mut world).await;
    documents::check_one_prefix(&mut world);

    world.assert_right();
    assert!(world.seen().len() >= RULES_MIN, "{} rules: {:?}", world.seen().len(), world.seen());
    let pages = ["api.md", "documents.md", "rules.md", "wire.md"];
    let docs = holdfast_suite::plane::root().join("docs");
    let read = |page: &str| std::fs::read_to_string(Path::new(&docs).join(page)).expect("the page is there");
    let pages: String = pages.map(read).concat();
    let undescribed: Vec<&String> = world.seen().iter().filter(|rule| !pages.contains(&format!("`{rule}`"))).collect();
    assert_eq!(undescribed, Vec::<&String>::new(), "rules that no page describes");
}
