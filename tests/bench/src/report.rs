//! What a benchmark says at its end: on which machine, with which programs, which times and which exact figures.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;

use crate::paired::{Compared, Verdict};

/// What every TLS connection and signature of the product uses; figures of another provider or key type are other figures.
const CRYPTOGRAPHY: &str = "ring, TLS 1.3, X25519, P-256 certificates, Ed25519 signatures";

/// A figure that does not depend on how busy the machine is: a size, a count, memory; or nearly so: processor time.
#[derive(Clone, Debug, Serialize)]
pub struct Strict {
    /// The bar that it is for; empty for none.
    pub bar: &'static str,
    /// What is counted.
    pub what: String,
    /// How much.
    pub value: f64,
    /// In what.
    pub unit: &'static str,
    /// What it is held against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
    /// Whether the bound, if there is one, holds.
    pub verdict: Verdict,
}

/// What a strict figure is held against.
#[derive(Clone, Debug, Serialize)]
pub struct Over {
    /// What it is.
    pub what: String,
    /// How much of the same unit.
    pub value: f64,
    /// The figure over it.
    pub ratio: f64,
    /// The ratio must be no higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

impl Strict {
    /// A figure by itself.
    #[must_use]
    pub fn of(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { bar: "", what: what.into(), value, unit, over: None, verdict: Verdict::Unbounded }
    }

    /// The figure must be exactly this.
    #[must_use]
    pub fn exactly(mut self, bar: &'static str, value: f64) -> Self {
        self.bar = bar;
        self.verdict = if self.value.total_cmp(&value).is_eq() { Verdict::Met } else { Verdict::Missed };
        self
    }

    /// Holds it against another figure of the same unit.
    #[must_use]
    pub fn over(mut self, bar: &'static str, what: impl Into<String>, value: f64, at_most: Option<f64>) -> Self {
        let ratio = self.value / value;
        self.bar = bar;
        self.verdict = match at_most {
            None => Verdict::Unbounded,
            Some(most) if ratio <= most => Verdict::Met,
            Some(_) => Verdict::Missed,
        };
        self.over = Some(Over { what: what.into(), value, ratio, at_most });
        self
    }
}

/// Where and with what it ran.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// `release` or `debug`; figures of the latter say nothing.
    pub build: &'static str,
    /// What was built, and whether it was changed since.
    pub commit: Option<String>,
    /// Its release.
    pub kernel: Option<String>,
    /// How many processors there are.
    pub processors: usize,
    /// What they are.
    pub processor: Option<String>,
    /// Provider and key types.
    pub cryptography: &'static str,
    /// Version of the server.
    pub postgres: Option<String>,
    /// Version of the server.
    pub nats_server: Option<String>,
    /// Version of the tool.
    pub nft: Option<String>,
    /// The load over one minute before the run, in processes.
    pub load_before: Option<f64>,
    /// And after it.
    pub load_after: Option<f64>,
}

impl Machine {
    /// This one, before a run.
    #[must_use]
    pub fn observe() -> Self {
        let postgres = std::env::var_os("HOLDFAST_POSTGRES_BIN")
            .map_or_else(|| "/usr/lib/postgresql/15/bin".into(), PathBuf::from);
        let nats = std::env::var_os("HOLDFAST_NATS_SERVER").unwrap_or_else(|| "nats-server".into());
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            commit: first_line(
                "git",
                &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--exclude=*"],
            ),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            processor: model.map(|(_, model)| model.to_owned()),
            cryptography: CRYPTOGRAPHY,
            postgres: first_line(postgres.join("postgres"), &["--version"]),
            nats_server: first_line(nats, &["--version"]),
            nft: first_line("nft", &["--version"]),
            load_before: load(),
            load_after: None,
        }
    }

    /// The same one after the run.
    pub fn observe_end(&mut self) {
        self.load_after = load();
    }
}

/// The first line that a program prints; none if it is missing or fails.
fn first_line(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()?.lines().next().map(|line| line.trim().to_owned())
}

fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// All that one run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Which benchmark.
    pub benchmark: &'static str,
    /// Where and with what.
    pub machine: Machine,
    /// Times, beside the floors and peers that ran in turn.
    pub compared: Vec<Compared>,
    /// Exact figures.
    pub strict: Vec<Strict>,
}

impl Report {
    /// A report to be filled.
    #[must_use]
    pub fn begin(benchmark: &'static str) -> Self {
        Self { benchmark, machine: Machine::observe(), compared: Vec::new(), strict: Vec::new() }
    }

    /// Prints it: a table on a terminal, JSON everywhere else.
    #[expect(clippy::print_stdout, reason = "the figures are the program's output")]
    pub fn print(mut self) {
        self.machine.observe_end();
        if std::io::stdout().is_terminal() {
            println!("{self}");
        } else {
            println!("{}", self.to_json());
        }
    }

    /// As JSON.
    ///
    /// # Panics
    /// Never: every field has a text form.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field has a text form")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        writeln!(f, "{} ({} build of {})", self.benchmark, machine.build, known(&machine.commit))?;
        writeln!(f, "  {} x {}, Linux {}", machine.processors, known(&machine.processor), known(&machine.kernel))?;
        writeln!(f, "  {}; {}", known(&machine.postgres), known(&machine.nats_server))?;
        writeln!(f, "  {}; {}", known(&machine.nft), machine.cryptography)?;
        let load = |load: Option<f64>| load.map_or_else(|| "unknown".to_owned(), |load| load.to_string());
        writeln!(f, "  load {} before, {} after", load(machine.load_before), load(machine.load_after))?;
        for compared in &self.compared {
            writeln!(f, "\n{}, {} rounds", compared.what, compared.rounds)?;
            for side in &compared.sides {
                let Figure { p50, p99, count } = Figure::of(side.figure);
                writeln!(f, "  {:<44} {p50:>11} {p99:>11}  {count:>6}x", side.name)?;
            }
            for ratio in &compared.ratios {
                let bound = match (ratio.at_most, ratio.at_least) {
                    (Some(most), _) => format!("at most {most:.2}"),
                    (None, Some(least)) => format!("at least {least:.2}"),
                    (None, None) => String::new(),
                };
                let verdict = word(ratio.verdict);
                let moved = if ratio.conclusive {
                    String::new()
                } else {
                    format!(" (it moved {:.1} times)", ratio.floor_spread)
                };
                writeln!(
                    f,
                    "  {:<4} {} / {} = {:.2}  {bound} {verdict}{moved}",
                    ratio.bar, ratio.of, ratio.over, ratio.ratio
                )?;
            }
        }
        if !self.strict.is_empty() {
            writeln!(f, "\nexact figures")?;
        }
        for strict in &self.strict {
            let mut line = format!("  {:<4} {}: {} {}", strict.bar, strict.what, number(strict.value), strict.unit);
            if let Some(over) = &strict.over {
                write!(line, ", {:.2} times {} ({})", over.ratio, over.what, number(over.value))?;
                if let Some(most) = over.at_most {
                    write!(line, ", at most {most:.2}")?;
                }
            }
            writeln!(f, "{line} {}", word(strict.verdict))?;
        }
        Ok(())
    }
}

/// Times as people read them.
struct Figure {
    p50: String,
    p99: String,
    count: usize,
}

impl Figure {
    fn of(figure: crate::figures::Figure) -> Self {
        let text = |ms: f64| if ms < 1.0 { format!("{:.1} µs", ms * 1_000.0) } else { format!("{ms:.2} ms") };
        Self { p50: text(figure.p50_ms), p99: text(figure.p99_ms), count: figure.count }
    }
}

/// Whole where it is whole.
fn number(value: f64) -> String {
    if value.fract().abs() < 1e-9 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unbounded => "",
        Verdict::Met => "met",
        Verdict::Missed => "MISSED",
        Verdict::Inconclusive => "inconclusive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paired::{Bound, Paired, Role};

    #[test]
    fn sizes_meet_or_miss_their_bounds() {
        let bytes = |value| Strict::of("snapshot", value, "bytes").over("P15", "JSON", 100.0, Some(0.3));
        assert_eq!((bytes(30.0).verdict, bytes(31.0).verdict), (Verdict::Met, Verdict::Missed));
        assert_eq!(Strict::of("rows", 0.0, "rows").exactly("P18", 0.0).verdict, Verdict::Met);
        assert_eq!(Strict::of("rows", 1.0, "rows").exactly("P18", 0.0).verdict, Verdict::Missed);
    }

    #[test]
    fn people_and_programs_read_the_same_figures() {
        let mut report = Report::begin("test");
        let paired = Paired::new("work", 1).side("ours", Role::Product).side("raw", Role::Floor);
        let paired = paired.ratio("P0", "ours", "raw", Bound::AtMost(2.0));
        let time = std::time::Duration::from_micros;
        report.compared.push(paired.run(2, &mut [&mut || time(3_000), &mut || time(500)]));
        report.strict.push(Strict::of("rows", 7.0, "rows").exactly("P18", 0.0));
        let text = report.to_string();
        assert!(text.contains("ours / raw = 6.00  at most 2.00 MISSED"), "{text}");
        assert!(text.contains("500.0 µs") && text.contains("P18  rows: 7 rows MISSED"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["compared"][0]["ratios"][0]["ratio"], 6.0);
        assert_eq!(json["compared"][0]["sides"][1]["p50_ms"], 0.5);
        assert_eq!((&json["strict"][0]["value"], &json["strict"][0]["verdict"]), (&7.0.into(), &"missed".into()));
        assert!(json["machine"]["processors"].as_u64() > Some(0));
    }
}
