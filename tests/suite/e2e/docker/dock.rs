//! A host of a plane with a Docker engine and a container on it, and what must be so of the two.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use holdfast_suite::containers::{Engine, Setup};
use holdfast_suite::plane::Plane;
use holdfast_suite::traffic::Place;
use holdfast_suite::traffic::pairs::{Echo, Pair, Speech, refusal};
use serde_json::Value;

use super::{Network, V6, Way};
use crate::packets::{rules_on, table_on};

/// The network that Docker gives to containers by itself, what it is told to give them of IPv6, and one that is made for them.
const DEFAULT_V4: &str = "172.17.0.0/16";
pub(super) const NETWORK_V6: &str = "fd88::/64";
const MADE_V4: &str = "172.30.7.0/24";
const MADE: &str = "yard";

const CONTAINER: &str = "shop";

/// Published to everybody; by policy the peer may ask for it. TCP leads to the container's own process, UDP to a socket of the test's in the container.
const SHOP: u16 = 8080;
/// Published on the host's loopback alone, whatever policy says.
const LOCAL: u16 = 8081;
/// Published, and nobody may ask for it.
const DENIED: u16 = 8082;
/// Published, and the peer may ask for it; it leads to a listener of the test's in the container.
const DESK: u16 = 8083;

/// The ports within the container that these lead to.
const SHOP_INSIDE: u16 = 80;
const DESK_INSIDE: u16 = 81;

/// What containers may ask the peer for, and what not.
const ASKED: u16 = 9090;
const NOT_ASKED: u16 = 9091;

/// A port of the host itself, for which nobody may ask.
const OWN: u16 = 9095;

/// How long what is allowed may take; it comes within milliseconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long what is denied is waited for.
const DENIED_WAIT: Duration = Duration::from_millis(500);

/// What a probe must show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    Passes,
    Denied,
}

impl Wanted {
    const fn patience(self) -> Duration {
        match self {
            Self::Passes => PATIENCE,
            Self::Denied => DENIED_WAIT,
        }
    }

    /// Asserts it of what came.
    fn of<T>(self, came: Option<T>, what: &str) -> Option<T> {
        assert_eq!(came.is_some(), self == Self::Passes, "{what}: {self:?} is wanted");
        came
    }
}

/// One family's addresses.
struct Side {
    dock: Place,
    peer: Place,
    stranger: Place,
    /// Where the container's end is.
    container: Place,
    /// Whether the container has an address of this family.
    is_own: bool,
}

impl Side {
    fn asked(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.dock.address, port)
    }

    /// From somebody to a published port, with both ends held.
    fn inward(&self, speech: Speech, from: &Place, wanted: Wanted) -> Option<Pair> {
        let (port, inside) = match speech {
            Speech::Udp => (SHOP, SHOP_INSIDE),
            Speech::Tcp => (DESK, DESK_INSIDE),
        };
        let pair = Pair::open(speech, from, self.asked(port), (&self.container, inside), wanted.patience());
        wanted.of(pair, &format!("{speech:?} {from} -> {} port {port}", self.dock))
    }

    /// From somebody to a port that leads to the container's own process.
    fn echo(&self, from: &Place, port: u16, wanted: Wanted) -> Option<Echo> {
        let echo = Echo::open(from, self.asked(port), wanted.patience());
        wanted.of(echo, &format!("echo {from} -> {} port {port}", self.dock))
    }

    /// From the container to somebody.
    fn outward(&self, speech: Speech, to: &Place, port: u16, wanted: Wanted) -> Option<Pair> {
        let asked = SocketAddr::new(to.address, port);
        let pair = Pair::open(speech, &self.container, asked, (to, port), wanted.patience());
        wanted.of(pair, &format!("{speech:?} {} -> {to} port {port}", self.container))
    }

    /// From the container to the host itself.
    fn homeward(&self, wanted: Wanted) {
        let pair = Pair::open(Speech::Tcp, &self.container, self.asked(OWN), (&self.dock, OWN), wanted.patience());
        drop(wanted.of(pair, &format!("{} -> {} port {OWN}", self.container, self.dock)));
    }

    /// Past the publication, to the container's own address, which Docker lets everybody do who knows a way.
    fn past(&self, wanted: Wanted) {
        let asked = SocketAddr::new(self.container.address, SHOP_INSIDE);
        let echo = Echo::open(&self.peer, asked, wanted.patience());
        drop(wanted.of(echo, &format!("{} -> {asked}", self.peer)));
    }
}

/// Everything that policy lets the peer and the container do, open.
struct Open {
    pairs: Vec<Pair>,
    echoes: Vec<Echo>,
}

impl Open {
    fn pass(&mut self, wanted: Wanted, what: &str) {
        let both = wanted == Wanted::Passes;
        for pair in &mut self.pairs {
            assert_eq!(pair.passes(wanted.patience()), (both, both), "{what}: {pair:?}");
        }
        for echo in &mut self.echoes {
            assert_eq!(echo.comes_back(wanted.patience()), both, "{what}: {echo:?}");
        }
    }
}

/// The host, its engine and its container.
pub(super) struct Dock<'a> {
    plane: &'a Plane,
    engine: Engine,
    way: Way,
}

/// Our table but for its counters: rules by chain and handle, and everything else.
type Ours = (BTreeSet<(String, u64)>, Vec<Value>);

impl<'a> Dock<'a> {
    /// Starts an engine and a container on a host that enforces.
    pub(super) fn start(plane: &'a Plane, way: Way) -> Self {
        let before = ours(plane, way.host);
        let setup = Setup {
            network: Some(plane.places().host(way.host).namespace),
            arguments: way.arguments.iter().map(|&argument| argument.to_owned()).collect(),
            by_old_iptables: way.by_old_iptables,
        };
        let engine = Engine::start_as(&setup);
        engine.make_small();
        let dock = Self { plane, engine, way };
        let publish = |from: &str, to: u16| ["--publish".to_owned(), format!("{from}:{to}")];
        let ports = [
            publish(&SHOP.to_string(), SHOP_INSIDE),
            ["--publish".to_owned(), format!("{SHOP}:{SHOP_INSIDE}/udp")],
            publish(&format!("127.0.0.1:{LOCAL}"), SHOP_INSIDE),
            publish(&DENIED.to_string(), SHOP_INSIDE),
            publish(&DESK.to_string(), DESK_INSIDE),
        ];
        // It takes no notice of a request to end.
        let run = ["run", "--detach", "--name", CONTAINER, "--restart", "always", "--stop-signal", "KILL"];
        let listen = SHOP_INSIDE.to_string();
        let server = ["/bin/busybox", "nc", "-ll", "-p", &listen, "-e", "/bin/busybox", "cat"];
        let ports: Vec<&str> = ports.as_flattened().iter().map(String::as_str).collect();
        let network: &[&str] = match way.network {
            Network::Default => &[],
            Network::Made => {
                drop(dock.engine.ask(&["network", "create", "--subnet", MADE_V4, MADE]));
                &["--network", MADE]
            }
        };
        drop(dock.engine.ask(&[&run, network, ports.as_slice(), &["holdfast-test/small"], &server].concat()));
        dock.lead_strangers_to_the_containers();
        assert_eq!(ours(plane, way.host), before, "our table after Docker came");
        dock
    }

    const fn network_v4(&self) -> &'static str {
        match self.way.network {
            Network::Default => DEFAULT_V4,
            Network::Made => MADE_V4,
        }
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.engine.folder().to_owned()
    }

    /// Ends the engine; what is left of it.
    pub(super) fn end(self) -> Vec<String> {
        drop(self.engine.ask(&["rm", "--force", CONTAINER]));
        self.engine.end()
    }

    /// Without this the peer would know no way to a container's own address.
    fn lead_strangers_to_the_containers(&self) {
        for (network, host) in [
            (self.network_v4(), self.plane.places().host(self.way.host)),
            (NETWORK_V6, self.plane.places().host_v6(self.way.host)),
        ] {
            let family = if host.address.is_ipv4() { "-4" } else { "-6" };
            let ip = |words: &[&str]| {
                let output = self.plane.lab(&[&["exec", "@bridge", "--", "ip", family], words].concat());
                assert!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            let route = ip(&["route", "show", &host.address.to_string()]);
            let hop =
                route.split_whitespace().skip_while(|word| *word != "via").nth(1).expect("hosts are behind a hop");
            drop(ip(&["route", "replace", network, "via", hop, "dev", "br0", "onlink"]));
        }
    }

    /// What is asked for and from where, by the families in which this way leads to the container by rules.
    fn sides(&self) -> Vec<Side> {
        let inspect = |field: &str| {
            let address = self.engine.ask(&[
                "inspect",
                "--format",
                &format!("{{{{range .NetworkSettings.Networks}}}}{{{{.{field}}}}}{{{{end}}}}"),
                CONTAINER,
            ]);
            address.parse::<IpAddr>().unwrap_or_else(|_| panic!("the container has no {field}: {address:?}"))
        };
        let places = self.plane.places();
        let namespace = self.engine.network_of(CONTAINER);
        let container = |address| Place { name: CONTAINER.to_owned(), namespace: namespace.clone(), address };
        let mut sides = vec![Side {
            dock: places.host(self.way.host),
            peer: places.host("peer-1"),
            stranger: places.host("stranger-1"),
            container: container(inspect("IPAddress")),
            is_own: true,
        }];
        let v6 = |address, is_own| Side {
            dock: places.host_v6(self.way.host),
            peer: places.host_v6("peer-1"),
            stranger: places.host_v6("stranger-1"),
            container: container(address),
            is_own,
        };
        match self.way.v6 {
            V6::Translated => sides.push(v6(inspect("GlobalIPv6Address"), true)),
            V6::Carried => sides.push(v6(inspect("IPAddress"), false)),
            V6::Absent => {}
        }
        sides
    }

    /// Those of them in which rules lead to the container.
    fn translated(&self) -> Vec<Side> {
        self.sides().into_iter().filter(|side| side.is_own).collect()
    }

    pub(super) fn all_is_open_while_the_host_watches(&self) {
        let theirs = self.theirs();
        self.set_mode("visibility");
        assert_eq!(self.theirs(), theirs, "after our change of mode");
        for side in self.sides() {
            for from in [&side.peer, &side.stranger] {
                for port in [SHOP, DENIED] {
                    drop(side.echo(from, port, Wanted::Passes));
                }
                for speech in [Speech::Udp, Speech::Tcp] {
                    drop(side.inward(speech, from, Wanted::Passes));
                }
            }
        }
        for side in self.translated() {
            side.past(Wanted::Passes);
            side.homeward(Wanted::Passes);
            for speech in [Speech::Udp, Speech::Tcp] {
                for (to, port) in [(&side.peer, ASKED), (&side.peer, NOT_ASKED), (&side.stranger, ASKED)] {
                    drop(side.outward(speech, to, port, Wanted::Passes));
                }
            }
        }
        self.answers_the_host_itself(Wanted::Passes);
        self.local_stays_local();
    }

    /// What was open and is denied stops with the change of mode, what is allowed goes on.
    pub(super) fn is_obeyed_once_the_host_enforces(&self) {
        let mut allowed = self.open();
        let mut denied = Open { pairs: Vec::new(), echoes: Vec::new() };
        for side in self.translated() {
            denied.echoes.extend(side.echo(&side.stranger, SHOP, Wanted::Passes));
            denied.echoes.extend(side.echo(&side.peer, DENIED, Wanted::Passes));
            for speech in [Speech::Udp, Speech::Tcp] {
                denied.pairs.extend(side.inward(speech, &side.stranger, Wanted::Passes));
                denied.pairs.extend(side.outward(speech, &side.peer, NOT_ASKED, Wanted::Passes));
            }
        }
        let theirs = self.theirs();
        self.set_mode("enforced");
        assert_eq!(self.theirs(), theirs, "after our change of mode");
        denied.pass(Wanted::Denied, "denied, and open before");
        allowed.pass(Wanted::Passes, "allowed, and open before");
        self.is_obeyed();
    }

    /// Everything that is new.
    fn is_obeyed(&self) {
        drop(self.open());
        for side in self.translated() {
            drop(side.echo(&side.stranger, SHOP, Wanted::Denied));
            drop(side.echo(&side.peer, DENIED, Wanted::Denied));
            side.past(Wanted::Denied);
            side.homeward(Wanted::Denied);
            for speech in [Speech::Udp, Speech::Tcp] {
                drop(side.inward(speech, &side.stranger, Wanted::Denied));
                drop(side.outward(speech, &side.peer, NOT_ASKED, Wanted::Denied));
                drop(side.outward(speech, &side.stranger, ASKED, Wanted::Denied));
            }
        }
        self.local_stays_local();
    }

    /// One of everything that is allowed, which must pass.
    fn open(&self) -> Open {
        let mut open = Open { pairs: Vec::new(), echoes: Vec::new() };
        for side in self.translated() {
            open.echoes.extend(side.echo(&side.peer, SHOP, Wanted::Passes));
            for speech in [Speech::Udp, Speech::Tcp] {
                open.pairs.extend(side.inward(speech, &side.peer, Wanted::Passes));
                open.pairs.extend(side.outward(speech, &side.peer, ASKED, Wanted::Passes));
            }
        }
        open
    }

    /// A port that is published on loopback is nobody's from outside, though policy would let it be.
    fn local_stays_local(&self) {
        for side in self.sides() {
            let refused = refusal(&side.peer, side.asked(LOCAL), PATIENCE);
            assert_eq!(refused, Some(ErrorKind::ConnectionRefused), "{} port {LOCAL}", side.dock);
        }
    }

    /// What the host asks of its own container, through the engine's programs or by its own address, and what these carry for others, is the host's egress.
    pub(super) fn answers_the_host_itself_where_egress_lets_it_ask(&self) {
        self.answers_the_host_itself(Wanted::Denied);
        let carried: Vec<Side> = self.sides().into_iter().filter(|side| !side.is_own).collect();
        for side in &carried {
            drop(side.echo(&side.peer, SHOP, Wanted::Denied));
            drop(side.inward(Speech::Udp, &side.peer, Wanted::Denied));
        }
        let theirs = self.theirs();
        self.apply(&format!(
            "apiVersion: holdfast.dev/v1\nkind: Policy\nmetadata: {{name: own-containers, namespace: docks}}\nspec:\n  \
             hostSelector: {{matchLabels: {{role: dock}}}}\n  \
             egress: [{{to: [{{cidr: {}}}, {{cidr: \"{NETWORK_V6}\"}}], \
             services: [{{tcp: [{SHOP_INSIDE}, {DESK_INSIDE}]}}, {{udp: {SHOP_INSIDE}}}]}}]\n",
            self.network_v4()
        ));
        assert_eq!(self.theirs(), theirs, "after our edit");
        self.answers_the_host_itself(Wanted::Passes);
        for side in &carried {
            drop(side.echo(&side.peer, SHOP, Wanted::Passes));
            for speech in [Speech::Udp, Speech::Tcp] {
                drop(side.inward(speech, &side.peer, Wanted::Passes));
                drop(side.inward(speech, &side.stranger, Wanted::Denied));
            }
            drop(side.echo(&side.stranger, SHOP, Wanted::Denied));
            drop(side.echo(&side.peer, DENIED, Wanted::Denied));
        }
        self.is_obeyed();
        let removed = self.plane.holdfast(&["delete", "Policy/docks/own-containers", "--wait"]);
        assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    }

    fn answers_the_host_itself(&self, wanted: Wanted) {
        for side in self.sides() {
            let loopback: IpAddr =
                if side.dock.address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            let loopback = Place { address: loopback, ..side.dock.clone() };
            let mut asked = vec![(side.dock.clone(), SHOP)];
            if self.way.has_proxy || loopback.address.is_ipv4() {
                asked.push((loopback.clone(), SHOP));
            }
            if loopback.address.is_ipv4() {
                asked.push((loopback, LOCAL));
            }
            for (own, port) in asked {
                let echo = Echo::open(&own, SocketAddr::new(own.address, port), wanted.patience());
                drop(wanted.of(echo, &format!("{own} itself, port {port}")));
            }
        }
    }

    pub(super) fn an_edit_closes_and_opens_what_is_new_and_what_is_open(&self) {
        let mut open = self.open();
        let theirs = self.theirs();
        self.let_in("nobody");
        assert_eq!(self.theirs(), theirs, "after our edit");
        open.pass(Wanted::Denied, "the edit closed it");
        for side in self.translated() {
            drop(side.echo(&side.peer, SHOP, Wanted::Denied));
            for speech in [Speech::Udp, Speech::Tcp] {
                drop(side.inward(speech, &side.peer, Wanted::Denied));
                drop(side.outward(speech, &side.peer, ASKED, Wanted::Denied));
            }
        }
        self.let_in("peer");
        assert_eq!(self.theirs(), theirs, "after our edit");
        open.pass(Wanted::Passes, "the edit opened it again");
        drop(self.open());
    }

    pub(super) fn containers_and_daemon_restart(&self) {
        let before = ours(self.plane, self.way.host);
        drop(self.engine.ask(&["restart", CONTAINER]));
        self.is_obeyed();
        let mut open = self.open();
        self.engine.restart_daemon();
        if self.way.keeps_containers {
            open.pass(Wanted::Passes, "the daemon restarted");
        }
        self.is_obeyed();
        assert_eq!(ours(self.plane, self.way.host), before, "our table after restarts of Docker's");
    }

    /// Our table goes, and comes back by itself with the agent: Docker's is as it was after each.
    pub(super) fn we_go_and_come_back(&self) {
        let theirs = self.theirs();
        let down = self.plane.agent(self.way.host, &["down"]);
        assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
        assert!(!self.listed(&["list", "tables"]).contains("inet holdfast"), "our table is still there");
        assert_eq!(self.theirs(), theirs, "after our table went");
        for side in self.translated() {
            drop(side.echo(&side.stranger, SHOP, Wanted::Passes));
            drop(side.outward(Speech::Tcp, &side.peer, NOT_ASKED, Wanted::Passes));
        }
        self.plane.up();
        assert_eq!(self.theirs(), theirs, "after our table came back");
        self.is_obeyed();
    }

    /// Everything of the kernel's rules that is not ours, with handles and without counts.
    fn theirs(&self) -> String {
        let listed = self.listed(&["-a", "-s", "list", "ruleset"]);
        let mut is_ours = false;
        let theirs = listed.split_inclusive('\n').filter(|line| {
            if line.starts_with("table ") {
                is_ours = line.starts_with("table inet holdfast {");
            }
            !is_ours
        });
        let theirs: String = theirs.collect();
        let saved = ["iptables", "ip6tables"].map(|tool| {
            let kind = if self.way.by_old_iptables { "legacy" } else { "nft" };
            let saved = self.on_host(&[&format!("{tool}-{kind}-save")]);
            // Lines of the time, and of chains with their counts.
            let line = |line: &str| line.split(" [").next().map(str::to_owned).unwrap_or_default();
            saved.lines().filter(|line| !line.starts_with('#')).map(line).collect::<Vec<_>>().join("\n")
        });
        let theirs = format!("{theirs}\n{}", saved.join("\n"));
        assert!(theirs.contains("DOCKER"), "Docker has no rules: {theirs}");
        theirs
    }

    fn listed(&self, arguments: &[&str]) -> String {
        self.on_host(&[&["nft"], arguments].concat())
    }

    /// What a program prints on the host.
    fn on_host(&self, command: &[&str]) -> String {
        let output = self.plane.lab(&[&["exec", self.way.host, "--"], command].concat());
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn set_mode(&self, mode: &str) {
        self.apply(&format!(
            "apiVersion: holdfast.dev/v1\nkind: Host\nmetadata: {{name: {}, namespace: docks}}\nspec: {{mode: {mode}}}\n",
            self.way.host
        ));
    }

    /// Lets hosts of this role ask the docks, and the docks ask them.
    fn let_in(&self, role: &str) {
        let estate = include_str!("estate/policies.yaml");
        let dock = estate.split("---\n").next().expect("the first is the docks'");
        assert_eq!(dock.matches("role: peer").count(), 2, "{dock}");
        self.apply(&dock.replace("role: peer", &format!("role: {role}")));
    }

    fn apply(&self, text: &str) {
        let file = self.plane.folder().join("edit.yaml");
        fs::write(&file, text).expect("the folder is ours");
        let applied = self.plane.holdfast(&["apply", "-f", file.to_str().expect("a plain path"), "--wait"]);
        fs::remove_file(&file).expect("it is there");
        assert!(applied.status.success(), "{text}: {}", String::from_utf8_lossy(&applied.stderr));
    }
}

fn ours(plane: &Plane, host: &str) -> Ours {
    (rules_on(plane, host), table_on(plane, host))
}
