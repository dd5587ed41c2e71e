//! What belongs to others stays as it is, and what belongs to us stays ours.

use holdfast_agent::engine::{Attempt, Depth, Kernel};
use holdfast_agent::nft::{Netfilter, TableOwner};
use holdfast_agent::plan::{Kept, layout};
use holdfast_model::policy::Mode;

use crate::support::bodies::{kept, rich, set};
use crate::support::namespace::Namespace;
use crate::support::{load_nft, output_of, try_nft};

const OTHERS: &str = "
table ip nat {
  chain post { type nat hook postrouting priority 100; oifname \"eth9\" masquerade; }
}
table inet filter {
  set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }; }
  chain input { type filter hook input priority filter; policy accept; ip saddr @s counter packets 7 bytes 700 accept; }
}
table ip6 holdfast {
  chain c { counter; }
}
";

fn others() -> String {
    ["ip nat", "inet filter", "ip6 holdfast"]
        .map(|table| {
            let words: Vec<&str> = ["-a", "-n", "list", "table"].into_iter().chain(table.split(' ')).collect();
            output_of("nft", &words)
        })
        .concat()
}

fn holds(attempt: Attempt) {
    assert!(matches!(attempt, Attempt::Holds), "{attempt:?}");
}

#[test]
fn foreign_tables_are_the_same_to_the_byte_after_fifty_applies_and_a_down() {
    Namespace::new().run(|| {
        load_nft(OTHERS);
        let before = others();
        let mut kernel = Netfilter::open(TableOwner::Off).unwrap();
        let mut base = layout(&rich(Mode::Enforced), &kept());
        holds(kernel.apply(None, &base, Depth::Whole));
        for n in 0..50 {
            let mut body = rich(if n % 10 == 9 { Mode::Simulation } else { Mode::Enforced });
            body.sets[0] = set(1, &[&format!("10.1.{n}.0/24")]);
            let target = layout(&body, &kept());
            holds(kernel.apply(Some(&base), &target, if n % 3 == 0 { Depth::Whole } else { Depth::Changed }));
            base = target;
        }
        assert_eq!(others(), before);
        assert!(kernel.remove().unwrap());
        assert!(!kernel.remove().unwrap());
        assert_eq!(others(), before);
        assert!(!output_of("nft", &["list", "tables"]).contains("inet holdfast"));
    });
}

#[test]
fn an_owned_table_refuses_other_writers_outlives_its_agent_and_is_taken_over_by_the_next() {
    Namespace::new().run(|| {
        let ruleset = layout(&rich(Mode::Enforced), &Kept::default());
        let mut first = Netfilter::open(TableOwner::On).unwrap();
        assert!(first.is_owned());
        holds(first.apply(None, &ruleset, Depth::Whole));
        assert!(!try_nft("flush chain inet holdfast in"));
        load_nft("flush ruleset");
        assert_eq!(first.check(&ruleset).unwrap(), None);
        drop(first);
        let mut second = Netfilter::open(TableOwner::On).unwrap();
        assert_eq!(second.check(&ruleset).unwrap(), None);
        assert!(!try_nft("flush chain inet holdfast in"));
        let mut body = rich(Mode::Enforced);
        body.sets[0] = set(1, &["10.1.0.0/24"]);
        holds(second.apply(Some(&ruleset), &layout(&body, &Kept::default()), Depth::Changed));
        assert!(second.remove().unwrap());
    });
}

#[test]
fn a_plain_table_becomes_an_owned_one_and_back_in_one_batch() {
    Namespace::new().run(|| {
        let ruleset = layout(&rich(Mode::Enforced), &Kept::default());
        for owner in [TableOwner::Off, TableOwner::On, TableOwner::Off, TableOwner::On] {
            let mut kernel = Netfilter::open(owner).unwrap();
            if kernel.check(&ruleset).unwrap().is_some() {
                holds(kernel.apply(None, &ruleset, Depth::Whole));
            }
            assert_eq!(kernel.is_owned(), owner == TableOwner::On);
            assert_eq!(kernel.check(&ruleset).unwrap(), None);
        }
    });
}

#[test]
fn auto_owns_only_what_the_hosts_nft_can_read_again() {
    Namespace::new().run(|| {
        let can = try_nft_check("table inet probe { flags owner, persist; }");
        assert_eq!(Netfilter::open(TableOwner::Auto).unwrap().is_owned(), can);
    });
}

fn try_nft_check(text: &str) -> bool {
    crate::support::nft_accepts(&["--check", "-f", "-"], text)
}
