//! The faults of the stories over the full spans of the catalogue of faults, and on a larger fleet.

use std::time::Duration;

use holdfast_suite::plane::Plane;

use super::super::fleet::nobody_complained_but;
use super::nats::{
    everything_is_proven, is_of_nats, nats_is_away, nats_is_frozen, rubbish_repeats_and_crowds_of_hints_change_nothing,
    streams_are_deleted_while_edits_are_made,
};
use super::network::{
    an_agent_that_comes_and_goes_is_reached_where_it_is_last,
    an_agent_that_is_held_still_keeps_no_edit_from_the_others, is_of_network, the_audit_service_is_killed_under_load,
};
use super::postgres::{
    commits_are_cut, connections_are_ended_between_commit_and_read, is_of_postgres,
    postgres_is_away_and_services_start_without_it, postgres_is_killed_while_edits_are_made,
    the_way_of_a_gateway_to_postgres_is_bad,
};
use super::watch::Watch;

#[test]
fn nats_away_for_a_minute_frozen_for_150_s_and_full_of_rubbish() {
    let plane = Plane::start(&[]);
    let watch = Watch::start(&plane);
    for span in [1, 10, 60] {
        nats_is_away(&plane, &watch, Duration::from_secs(span), 100);
    }
    nats_is_frozen(&plane, &watch, Duration::from_secs(150));
    streams_are_deleted_while_edits_are_made(&plane, &watch, 20);
    rubbish_repeats_and_crowds_of_hints_change_nothing(&plane, &watch, 10_000, 100_000);
    watch.end(&plane);
    everything_is_proven(&plane);
    nobody_complained_but(&plane, is_of_nats);
    plane.wipe();
}

#[test]
fn postgres_killed_20_times_in_1_000_edits_and_bad_for_minutes() {
    let plane = Plane::start(&[]);
    let watch = Watch::start(&plane);
    postgres_is_killed_while_edits_are_made(&plane, &watch, 20, 1_000);
    connections_are_ended_between_commit_and_read(&plane, &watch, 100);
    commits_are_cut(&plane, 100);
    the_way_of_a_gateway_to_postgres_is_bad(&plane, &watch, Duration::from_secs(60));
    postgres_is_away_and_services_start_without_it(&plane, &watch, Duration::from_secs(120));
    watch.end(&plane);
    everything_is_proven(&plane);
    nobody_complained_but(&plane, is_of_postgres);
    plane.wipe();
}

#[test]
fn fifty_agents_of_which_one_stalls_one_that_flaps_100_times_and_an_audit_service_killed_20_times() {
    let plane = Plane::start(&["--hosts", "50"]);
    let watch = Watch::start(&plane);
    an_agent_that_is_held_still_keeps_no_edit_from_the_others(&plane, &watch);
    an_agent_that_comes_and_goes_is_reached_where_it_is_last(&plane, &watch, 100);
    the_audit_service_is_killed_under_load(&plane, &watch, 20);
    watch.end(&plane);
    everything_is_proven(&plane);
    nobody_complained_but(&plane, is_of_network);
    plane.wipe();
}
