//! The worked example of `docs/artifact.md` read by the independent reader: what the page says about it holds.

use std::net::IpAddr;
use std::path::Path;

use holdfast_interpreter::{Artifact, Direction, Error, Key, Mode, Packet, Spans, Verdict};

#[test]
fn the_example_means_what_the_page_says() {
    let artifact = Artifact::read(&example()).expect("the page's bytes are an artifact");
    assert_eq!(artifact.mode(), Mode::Enforced);
    let tcp = |peer, port| artifact.verdict(Direction::Ingress, &packet("192.0.2.1", peer, 6, Some(port)));

    let decided = tcp("10.0.0.255", 443);
    assert_eq!((decided.verdict, decided.rule), (Verdict::Allowed, Some(Key([0x22; 16]))));
    for (peer, port) in [("10.0.0.255", 442), ("10.0.0.255", 445), ("10.0.1.0", 443)] {
        let decided = tcp(peer, port);
        assert_eq!((decided.verdict, decided.rule), (Verdict::Denied, None), "{peer} {port}");
    }
    assert_eq!(tcp("::ffff:10.0.0.1", 80).verdict, Verdict::Allowed, "a mapped address is its IPv4 address");
    let v6 = packet("fd00::9", "fd00::1", 6, Some(444));
    assert_eq!(artifact.verdict(Direction::Ingress, &v6).verdict, Verdict::Allowed);
}

#[test]
fn the_example_has_the_exact_services_that_the_page_says() {
    let artifact = Artifact::read(&example()).expect("the page's bytes are an artifact");
    let inward = artifact.services(Direction::Ingress, ip("192.0.2.1"), ip("10.0.0.7"));
    assert_eq!(inward.of(6), Spans::of([(80, 80), (443, 444)]));
    assert_eq!((inward.of(17), inward.of(132), inward.others), (Spans::none(), Spans::none(), false));
    let outward = artifact.services(Direction::Egress, ip("192.0.2.1"), ip("198.51.100.1"));
    assert_eq!((outward.of(6), outward.of(1), outward.others), (Spans::all(), Spans::all(), true));
}

#[test]
fn only_an_enforced_body_drops_what_its_rules_deny() {
    let denied = packet("192.0.2.1", "10.0.1.0", 17, Some(53));
    for (byte, passes) in [(0, true), (1, true), (2, false)] {
        let mut bytes = example();
        bytes[1] = byte;
        let artifact = Artifact::read(&bytes).expect("every mode is a mode");
        assert_eq!(artifact.verdict(Direction::Ingress, &denied).verdict, Verdict::Denied);
        assert_eq!(artifact.passes(Direction::Ingress, &denied), passes, "mode {byte}");
    }
}

#[test]
fn every_cut_and_every_longer_spelling_of_the_example_is_refused_by_name() {
    let bytes = example();
    for len in 0..bytes.len() {
        assert!(Artifact::read(&bytes[..len]).is_err(), "cut at {len}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Artifact::read(&longer), Err(Error::Trailing { offset: bytes.len() }));
    assert_eq!(Artifact::read(&[2]), Err(Error::Format(2)));
    assert_eq!(Artifact::read(&[1, 3]), Err(Error::Value { offset: 1, value: 3 }));
    // Both directions open and without rules, and no set, the count of sets spelt in two bytes.
    assert!(Artifact::read(&[1, 0, 0, 0, 0, 0, 0]).is_ok());
    assert_eq!(Artifact::read(&[1, 0, 0, 0, 0, 0, 0x80, 0]), Err(Error::Number { offset: 6 }));
    assert_eq!(Artifact::read(&[1, 0, 0, 0, 0, 0, 1]), Err(Error::Count { offset: 6 }));
    let idle = [&[1, 0, 0, 0, 0, 0, 1][..], &[7; 16], &[0, 0]].concat();
    assert_eq!(Artifact::read(&idle), Err(Error::IdleSet(Key([7; 16]))));
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn packet(local: &str, peer: &str, protocol: u8, port: Option<u16>) -> Packet {
    Packet { local: ip(local), peer: ip(peer), protocol, port, icmp: None }
}

/// The bytes of the page's flat block.
fn example() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/artifact.md");
    let page = std::fs::read_to_string(path).expect("docs/artifact.md is there");
    let (_, rest) = page.split_once("<!-- flat: begin -->\n").expect("the block's begin");
    let (block, _) = rest.split_once("<!-- flat: end -->").expect("the block's end");
    let digits: String = block.lines().filter_map(|line| Some(line.split_once(';')?.0.trim())).collect();
    let pairs = (0..digits.len() / 2).map(|at| &digits[at * 2..at * 2 + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}
