//! Runs against hosts whose rules are written by hand: what counts as evidence and what does not.

use std::collections::BTreeMap;

use holdfast_lab::flow::Flow;
use holdfast_lab::packets::{Cell, Expected, Finding, Fleet, FleetError, Report, Run, Silent, observe_drops};
use holdfast_lab::party::Party;
use holdfast_lab::prober::Outcome;
use holdfast_model::address::Family;
use holdfast_model::policy::Mode;

use super::stand::{Stand, program};

/// What every host accepts while nothing is enforced.
const VISIBLE: &str = "table inet holdfast { chain in { type filter hook input priority 10; }\n}";

/// The protected host's rules: port 443 from anybody, the rest dropped and counted.
const ENFORCED: &str = "
    icmpv6 type { 133, 134, 135, 136 } accept
    ct direction reply accept
    tcp dport 443 accept
    udp dport 53 accept
    sctp dport 2905 accept
    counter drop";

#[test]
fn allowed_and_denied_cells_of_every_kind_agree_with_rules_that_mean_them() {
    let stand = Stand::new();
    let report = run(&stand, ENFORCED, &every_cell(&stand));
    assert_eq!(report.differences, []);
    assert_eq!(report.agree, report.cells);
    // Two address pairs where the protected host is asked by the one with two addresses of the family.
    assert!(report.probes > report.cells);
}

#[test]
fn a_drop_that_our_counters_do_not_show_is_no_evidence() {
    let stand = Stand::new();
    let uncounted = ENFORCED.replace("counter drop", "drop");
    let report = run(&stand, &uncounted, &[mk_cell("x/a", Flow::Tcp(80), Expected::Denied)]);
    assert_eq!(findings(&report), [Finding::NotCounted]);
}

#[test]
fn leaks_blocks_and_refusals_are_differences() {
    let stand = Stand::new();
    let cells = [
        mk_cell("x/a", Flow::Tcp(22), Expected::Allowed),
        mk_cell("x/a", Flow::Tcp(443), Expected::Denied),
        mk_cell("x/a", Flow::Udp(99), Expected::Denied),
    ];
    let rules = ENFORCED.replace("udp dport 53 accept", "udp dport 99 counter reject");
    let report = run(&stand, &rules, &cells);
    let by = [10, 0, 0, 0].into();
    assert_eq!(report.agree, 0);
    assert_eq!(
        findings(&report),
        [
            Finding::Blocked { outcome: Outcome::Dropped },
            Finding::Leaked,
            Finding::NotDropped { outcome: Outcome::Refused { by } }
        ]
    );
}

#[test]
fn a_denied_cell_that_was_dropped_in_visibility_too_proves_nothing() {
    let stand = Stand::new();
    stand.nft("x/b", "table inet other { chain in { type filter hook input priority 0; tcp dport 80 drop; }\n}");
    let report = run(&stand, ENFORCED, &[mk_cell("x/a", Flow::Tcp(80), Expected::Denied)]);
    assert_eq!(findings(&report), [Finding::NotInVisibility { outcome: Outcome::Dropped }]);
}

/// Hosts without agents: the rules of `x/b` are written by hand, the others accept everything.
struct ByHand<'a> {
    stand: &'a Stand,
    enforced: &'a str,
}

impl Fleet for ByHand<'_> {
    fn ensure_mode(&mut self, mode: Mode) -> Result<(), FleetError> {
        for host in &self.stand.lab().record().hosts {
            let rules = match mode {
                Mode::Enforced if host.name == "x/b" => {
                    format!(
                        "table inet holdfast {{ chain in {{ type filter hook input priority 10; {} \n }}\n}}",
                        self.enforced
                    )
                }
                Mode::Visibility | Mode::Simulation | Mode::Enforced => VISIBLE.to_owned(),
            };
            self.stand.nft(&host.name, &format!("table inet holdfast\ndelete table inet holdfast\n{rules}"));
        }
        Ok(())
    }

    fn observe_drops(&mut self) -> Result<BTreeMap<String, u64>, FleetError> {
        let hosts = &self.stand.lab().record().hosts;
        let drops = hosts.iter().map(|host| Ok((host.name.clone(), observe_drops(&host.namespace)?)));
        drops.collect::<Result<_, holdfast_lab::packets::CountersError>>().map_err(|error| FleetError(error.into()))
    }
}

fn run(stand: &Stand, enforced: &str, cells: &[Cell]) -> Report {
    let mut fleet = ByHand { stand, enforced };
    let run = Run { lab: stand.lab(), program: program(), fleet: &mut fleet, progress: &Silent };
    run.verify(cells).unwrap()
}

fn findings(report: &Report) -> Vec<Finding> {
    report.differences.iter().map(|difference| difference.finding.clone()).collect()
}

fn mk_cell(from: &str, flow: Flow, expected: Expected) -> Cell {
    let (from, to) = (from.parse().unwrap(), Party::Host("x/b".to_owned()));
    Cell { from, to, family: Family::V4, flow, expected }
}

/// Everything that the protected host should let through or drop, from every other host and from outside, in both families.
fn every_cell(stand: &Stand) -> Vec<Cell> {
    let allowed = [Flow::Tcp(443), Flow::Udp(53), Flow::Sctp(2905)].map(|flow| (flow, Expected::Allowed));
    let denied = [Flow::Tcp(80), Flow::Udp(443), Flow::Sctp(443), Flow::Icmp, Flow::Protocol(47)]
        .map(|flow| (flow, Expected::Denied));
    let hosts = stand.lab().record().hosts.iter().map(|host| Party::Host(host.name.clone()));
    let outside = ["ip:8.8.8.8", "ip:2001:db8::53"].map(|text| text.parse().unwrap());
    let mut cells = Vec::new();
    for from in hosts.filter(|host| *host != Party::Host("x/b".to_owned())).chain(outside) {
        for family in Family::ALL {
            let speaks =
                from.addresses(stand.lab().record()).unwrap().into_iter().map(Family::of).any(|it| it == family);
            let wanted = allowed.iter().chain(&denied).filter(|_| speaks);
            let to = Party::Host("x/b".to_owned());
            cells.extend(wanted.map(|(flow, expected)| Cell {
                from: from.clone(),
                to: to.clone(),
                family,
                flow: *flow,
                expected: *expected,
            }));
        }
    }
    cells
}
