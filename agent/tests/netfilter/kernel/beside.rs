//! Beside the rulesets that Docker writes: every step of ours leaves theirs as it was, to the byte.
//!
//! - With `HOLDFAST_ESTATES` these are Docker's own expected rulesets, all of them; else one like them of each kind.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_agent::engine::{Attempt, Depth, Kernel};
use holdfast_agent::nft::{Netfilter, TableOwner};
use holdfast_agent::plan::layout;
use holdfast_model::policy::{Body, Mode};

use crate::support::bodies::{kept, rich, set};
use crate::support::namespace::Namespace;
use crate::support::{feed, load_nft, output_of};

/// What has Docker's expected rulesets, in the catalogue of estates.
const CATALOGUE: &str = "raw/moby-nft";

/// A ruleset of somebody else.
struct Foreign {
    name: String,
    text: String,
}

/// The files of the catalogue in folders below one of this name, or the given text where there is no catalogue.
fn foreign(folder: &str, own: (&str, &str)) -> Vec<Foreign> {
    let Some(estates) = std::env::var_os("HOLDFAST_ESTATES") else {
        return vec![Foreign { name: own.0.to_owned(), text: own.1.to_owned() }];
    };
    let mut files = Vec::new();
    walk(&PathBuf::from(estates).join(CATALOGUE), &mut files);
    let of_kind = files.iter().filter(|file| file.iter().any(|part| part == folder));
    let found: Vec<Foreign> = of_kind
        .filter(|file| file.extension().is_some_and(|extension| extension == "golden"))
        .map(|file| Foreign {
            name: file.file_stem().unwrap().to_string_lossy().into_owned(),
            text: fs::read_to_string(file).unwrap(),
        })
        .collect();
    assert!(!found.is_empty(), "the catalogue has no {folder}");
    found
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, files) } else { files.push(path) }
    }
}

/// The whole ruleset with all handles, without our table.
pub(super) fn theirs() -> String {
    let listed = output_of("nft", &["-a", "list", "ruleset"]);
    let mut is_ours = false;
    let kept = listed.split_inclusive('\n').filter(|line| {
        if line.starts_with("table ") {
            is_ours = line.starts_with("table inet holdfast {");
        }
        !is_ours
    });
    kept.collect()
}

/// What the old tool tells of one family, without the lines that tell the time.
fn saved(save: &str) -> String {
    output_of(save, &[]).split_inclusive('\n').filter(|line| !line.starts_with('#')).collect()
}

/// Applies, changes and withdraws our table in every way; after each step `look` must tell what it told before.
fn live_beside(name: &str, look: impl Fn() -> String) {
    let before = look();
    assert!(before.len() > 100, "{name}: nothing was loaded");
    let unchanged = |step: &str| assert_eq!(look(), before, "{name}: after {step}");
    let mut kernel = Netfilter::open(TableOwner::Off).unwrap();
    let mut held = layout(&rich(Mode::Visibility), &kept());
    let mut reach = |base: bool, body: &Body| {
        let target = layout(body, &kept());
        let (base, depth) = if base { (Some(&held), Depth::Changed) } else { (None, Depth::Whole) };
        let attempt = kernel.apply(base, &target, depth);
        assert!(matches!(attempt, Attempt::Holds), "{name}: {attempt:?}");
        held = target;
    };
    reach(false, &rich(Mode::Visibility));
    unchanged("the first state");
    reach(true, &rich(Mode::Enforced));
    unchanged("a change of mode");
    let mut other = rich(Mode::Enforced);
    other.sets[0] = set(1, &["10.1.0.0/24", "192.168.0.2/32", "fd49:efd7:54aa::1/128"]);
    other.egress.rules.pop();
    reach(true, &other.canonical());
    unchanged("a delta");
    reach(false, &rich(Mode::Simulation));
    unchanged("a whole state");
    assert!(kernel.remove().unwrap());
    unchanged("the end of our table");
}

#[test]
fn every_nftables_ruleset_of_docker_is_the_same_to_the_byte_through_all_that_we_do() {
    for Foreign { name, text } in foreign("nftabler", ("own", OWN_NFT)) {
        Namespace::new().run(move || {
            // nft 1.0.6 prints this name for the priority of a hook for which it refuses to read it.
            load_nft(&text.replace("priority dstnat", "priority -100"));
            live_beside(&name, theirs);
        });
    }
}

#[test]
fn every_iptables_ruleset_of_docker_is_the_same_to_the_byte_through_all_that_we_do() {
    for Foreign { name, text } in foreign("iptabler", ("own__iptables", OWN_IPTABLES)) {
        Namespace::new().run(move || {
            let (restore, save) = if name.ends_with("__ip6tables") {
                ("ip6tables-nft-restore", "ip6tables-nft-save")
            } else {
                ("iptables-nft-restore", "iptables-nft-save")
            };
            assert!(feed(restore, &[], &text), "{name}");
            live_beside(&name, || theirs() + &saved(save));
        });
    }
}

/// A bridge with a published port, as a container engine writes it.
const OWN_NFT: &str = r#"
table ip engine {
	map into-jumps {
		type ifname : verdict
		elements = { "br-own" : jump into-own }
	}
	chain forward {
		type filter hook forward priority filter; policy accept;
		oifname vmap @into-jumps
	}
	chain output {
		type nat hook output priority dstnat; policy accept;
		fib daddr type local counter jump published
	}
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		fib daddr type local counter jump published
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname != "br-own" ip saddr 192.168.7.0/24 counter masquerade comment "leaving"
	}
	chain published {
		tcp dport 8080 counter dnat to 192.168.7.2:80 comment "web"
	}
	chain into-own {
		ct state established,related counter accept
		ip daddr 192.168.7.2 tcp dport 80 counter accept
		counter drop
	}
}
"#;

/// The same for the old tool.
const OWN_IPTABLES: &str = "\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:ENGINE - [0:0]
-A FORWARD -o br-own -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o br-own -j ENGINE
-A FORWARD -i br-own ! -o br-own -j ACCEPT
-A ENGINE -d 192.168.7.2/32 ! -i br-own -o br-own -p tcp -m tcp --dport 80 -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:ENGINE - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j ENGINE
-A POSTROUTING -s 192.168.7.0/24 ! -o br-own -j MASQUERADE
-A ENGINE ! -i br-own -p tcp -m tcp --dport 8080 -j DNAT --to-destination 192.168.7.2:80
COMMIT
";
