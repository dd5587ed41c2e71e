//! The rules of the architecture that a command can check, with the numbers that they have in `ARCHITECTURE.md`.

/// A rule about dependency trees.
#[derive(Debug)]
pub(crate) struct TreeRule {
    /// Its number in `ARCHITECTURE.md`.
    pub(crate) number: &'static str,
    /// What it demands.
    pub(crate) demand: Demand,
}

/// What a rule about dependency trees demands.
#[derive(Debug)]
pub(crate) enum Demand {
    /// None of these crates of ours reaches any of those.
    NeverReaches { who: Who, forbidden: &'static [&'static str] },
    /// Of our crates only these depend on any of those directly; tests may, where the name says so.
    OnlyDirectly { crates: &'static [&'static str], by: &'static [&'static str], by_tests_of: &'static [&'static str] },
    /// Of our crates this one reaches only those.
    OursReachedOnly { who: Who, allowed: &'static [&'static str] },
}

/// Crates of ours that a rule is about.
#[derive(Debug)]
pub(crate) enum Who {
    /// All in this folder.
    Under(&'static str),
    /// This one.
    Crate(&'static str),
}

/// A rule about words in Rust code, outside comments and strings.
#[derive(Debug)]
pub(crate) struct TextRule {
    /// Its number in `ARCHITECTURE.md`.
    pub(crate) number: &'static str,
    /// The words or paths it is about.
    pub(crate) words: &'static [&'static str],
    /// Where they may not stand: everywhere, or below one folder.
    pub(crate) within: &'static str,
    /// Where they may stand all the same.
    pub(crate) except: &'static [&'static str],
    /// Whether tests are held to it too.
    pub(crate) tests: Tests,
    /// What to do instead.
    pub(crate) instead: &'static str,
}

/// Whether a rule is about tests too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tests {
    /// They are held to it.
    Held,
    /// They are not.
    Free,
}

const SCHEMA: &str = "schema/";
const SERVICES: &str = "services/";

/// Rules about dependency trees.
pub(crate) const TREES: &[TreeRule] = &[
    TreeRule {
        number: "A1",
        demand: Demand::NeverReaches {
            who: Who::Under(SCHEMA),
            forbidden: &["tokio", "sqlx", "async-nats", "nftnl", "mnl", "hyper", "rustls", "socket2", "nix"],
        },
    },
    TreeRule {
        number: "A2",
        demand: Demand::OnlyDirectly {
            crates: &["sqlx", "sqlx-core", "sqlx-postgres"],
            by: &["holdfast-store"],
            by_tests_of: &["holdfast-suite", "holdfast-bench"],
        },
    },
    TreeRule {
        number: "A2",
        demand: Demand::OnlyDirectly {
            crates: &["async-nats"],
            by: &["holdfast-bus"],
            by_tests_of: &["holdfast-suite", "holdfast-bench"],
        },
    },
    TreeRule {
        number: "A2",
        demand: Demand::OnlyDirectly {
            crates: &["nftnl", "nftnl-sys", "mnl", "mnl-sys"],
            by: &["holdfast-agent"],
            by_tests_of: &["holdfast-bench"],
        },
    },
    TreeRule {
        number: "A3",
        demand: Demand::NeverReaches {
            who: Who::Crate("holdfast-agent"),
            forbidden: &["holdfast-store", "holdfast-bus", "sqlx", "async-nats"],
        },
    },
    TreeRule {
        number: "A3",
        demand: Demand::NeverReaches { who: Who::Under(SERVICES), forbidden: &["holdfast-agent", "nftnl", "mnl"] },
    },
    TreeRule {
        number: "A3",
        demand: Demand::NeverReaches {
            who: Who::Under(SCHEMA),
            forbidden: &["holdfast-agent", "holdfast-store", "holdfast-bus"],
        },
    },
    TreeRule {
        number: "A11",
        demand: Demand::OursReachedOnly { who: Who::Crate("holdfast-interpreter"), allowed: &[] },
    },
    TreeRule {
        number: "A11",
        demand: Demand::NeverReaches {
            who: Who::Crate("holdfast-evaluator"),
            forbidden: &["holdfast-render", "holdfast-interpreter"],
        },
    },
    TreeRule {
        number: "A11",
        demand: Demand::NeverReaches {
            who: Who::Crate("holdfast-render"),
            forbidden: &["holdfast-evaluator", "holdfast-interpreter"],
        },
    },
    TreeRule {
        number: "A12",
        demand: Demand::OursReachedOnly {
            who: Who::Crate("holdfast-cli"),
            allowed: &["holdfast-api", "holdfast-identity", "holdfast-model"],
        },
    },
    TreeRule {
        number: "A16",
        demand: Demand::OursReachedOnly {
            who: Who::Crate("holdfast-sim"),
            allowed: &["holdfast-events", "holdfast-model", "holdfast-render", "holdfast-session", "holdfast-wire"],
        },
    },
];

/// Rules about words.
pub(crate) const TEXTS: &[TextRule] = &[
    TextRule {
        number: "A1",
        words: &["std::fs", "std::env", "std::process", "std::thread", "std::os", "TcpStream", "UdpSocket"],
        within: SCHEMA,
        except: &[],
        tests: Tests::Free,
        instead: "schema/ touches nothing outside its arguments: let the caller read it and pass it in",
    },
    TextRule {
        number: "A1",
        words: &["Instant::now", "SystemTime::now", "OffsetDateTime::now_utc", "Uuid::now_v7", "Uuid::new_v4"],
        within: SCHEMA,
        except: &[],
        tests: Tests::Free,
        instead: "schema/ has neither clock nor randomness: `now`, seeds and ids come in as arguments",
    },
    TextRule {
        number: "A2",
        words: &["sqlx"],
        within: "",
        except: &["services/store/", "tests/"],
        tests: Tests::Held,
        instead: "only services/store speaks SQL: add a function there",
    },
    TextRule {
        number: "A2",
        words: &["async_nats"],
        within: "",
        except: &["services/bus/", "tests/"],
        tests: Tests::Held,
        instead: "only services/bus speaks NATS: add a function there",
    },
    TextRule {
        number: "A2",
        words: &["nftnl", "nftnl_sys", "mnl", "mnl_sys"],
        within: "",
        except: &["agent/src/nft/", "tests/bench/examples/kernel/"],
        tests: Tests::Held,
        instead: "only agent/src/nft speaks netfilter's netlink: add a function there",
    },
    TextRule {
        number: "A13",
        words: &["unsafe"],
        within: "",
        except: &["agent/src/nft/"],
        tests: Tests::Held,
        instead: "unsafe code lives in agent/src/nft alone",
    },
];
