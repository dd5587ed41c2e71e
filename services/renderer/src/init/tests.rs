//! The files of an installation: who gets what, and that a second run changes nothing.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn mk_now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_790_000_000).expect("a time")
}

#[test]
fn a_second_run_changes_nothing_and_a_missing_file_comes_back_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = init(folder.path(), &Names::default(), mk_now()).expect("made");
    assert!(first.written.len() > 30);
    let pin = std::fs::read_to_string(folder.path().join("public/ca.pin")).expect("there");
    assert_eq!(pin.trim_end(), first.ca_pin);

    let second = init(folder.path(), &Names::default(), mk_now()).expect("there");
    assert_eq!((second.written, second.ca_pin.as_str()), (vec![], first.ca_pin.as_str()));

    let lost = folder.path().join("nats/nats.pem");
    std::fs::remove_file(&lost).expect("it was there");
    let third = init(folder.path(), &Names::default(), mk_now()).expect("made again");
    assert_eq!(third.written, [folder.path().join("nats/nats.key.pem"), lost]);
}

#[test]
fn private_keys_are_closed_and_the_keys_of_the_authority_are_the_renderers_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = init(folder.path(), &Names::default(), mk_now()).expect("made");
    for path in &made.written {
        let mode = std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let wanted = if name.ends_with(".key") || name.ends_with(".key.pem") { 0o600 } else { 0o644 };
        assert_eq!(mode, wanted, "{}", path.display());
        if matches!(name, "ca.key.pem" | DESIRED_KEY) {
            assert_eq!(path.parent(), Some(folder.path().join("renderer").as_path()));
        }
    }
}

#[test]
fn each_nats_user_may_do_its_own_part_and_nobody_deletes_a_stream() {
    let text = nats::configuration();
    let line = |user: &str| {
        text.lines().find(|line| line.contains(&format!("\"{user}\""))).expect("the user is there").to_owned()
    };
    assert!(line(RENDERER_EVENTS).contains("holdfast.event.>"));
    for user in [RENDERER, GATEWAY_AGENTS, GATEWAY_OPERATORS, AUDIT] {
        assert!(!line(user).contains("holdfast.event.>"), "{user} may write events");
    }
    assert!(!line(GATEWAY_AGENTS).contains("holdfast.hint.intent"));
    let of = |user: &str, may: &str| {
        let line = line(user);
        let listed = line.split_once(&format!("{may}: {{ allow: [")).expect("it has both").1.to_owned();
        listed.split_once(']').expect("a list").0.contains("holdfast.directive.")
    };
    let directs = |user| (of(user, "publish"), of(user, "subscribe"));
    assert_eq!(directs(GATEWAY_OPERATORS), (true, false), "asks");
    assert_eq!(directs(GATEWAY_AGENTS), (false, true), "obeys");
    for user in [RENDERER, RENDERER_EVENTS, AUDIT] {
        assert_eq!(directs(user), (false, false), "{user}");
    }
    assert!(!text.contains("STREAM.DELETE") && !text.contains("STREAM.PURGE"));
}

#[test]
fn a_name_that_is_none_is_refused_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = Names { nats: vec!["not a name".to_owned()], ..Names::default() };
    let refused = init(folder.path(), &names, mk_now());
    assert!(matches!(refused, Err(Error::Name { name }) if name == "not a name"));
}
