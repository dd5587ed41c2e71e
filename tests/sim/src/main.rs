//! `holdfast-sim`: runs schedules and says whether everything held.
//!
//! - Results go to stdout, progress and words to stderr. Ends with 0 if all is as expected, 1 if not, 64 if it was called wrongly.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use holdfast_model::mutant::Mutant;
use holdfast_sim::{Outcome, Report, Run, replay};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  ./ops/sim                                        20,000 schedules of seed 1
  ./ops/sim --schedules 1000000 --seed 7           a million others
  ./ops/sim --replay 0x1f2e3d4c5b6a7988            one schedule by its own seed, told line by line
  ./ops/sim --list-mutants                         the mistakes that can be seeded into the machines
  ./ops/sim --mutant wrong-base-accepted           shows that the mistake is caught
  ./ops/sim --mutant mark-dropped -o json | jq .violations

A schedule is a fleet of one to three hosts and gateways, two renderers, a database and a bus, in which things fail for up to a minute and are then
mended. After every step a reference model looks for what must never be. docs/simulation.md says what is real in it and what is modelled.

Ends with 0 if every schedule held, or if a seeded mistake was caught; with 1 if a schedule failed, or a seeded mistake was not caught.";

/// Runs Holdfast's real machines over a network, a database and disks that fail, and checks them after every step.
#[derive(Debug, Parser)]
#[command(name = "sim", after_help = EXAMPLES, max_term_width = 120)]
struct Cli {
    /// How many schedules
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    schedules: u64,
    /// The seed from which each schedule has its own; decimal or 0x…
    #[arg(long, value_name = "S", default_value = "1", value_parser = number)]
    seed: u64,
    /// Seeds one mistake into the machines and ends with the first schedule that shows it
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Runs one schedule by its own seed, as a failure names it, and tells what happens
    #[arg(long, value_name = "S", value_parser = number, conflicts_with = "schedules")]
    replay: Option<u64>,
    /// Threads; one for each processor if it is not given. The result does not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Names the mistakes that can be seeded
    #[arg(long)]
    list_mutants: bool,
    /// The form of the result
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Form {
    /// Lines for people
    Text,
    /// One object: schedules, seed, violations and more
    Json,
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a seed is a number from 0 to 2^64 - 1, decimal or 0x and hexadecimal".to_owned())
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { 64 } else { 0 };
            // A closed terminal does not want to know.
            drop(error.print());
            return ExitCode::from(code);
        }
    };
    match run(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(Misuse(text)) => {
            tell(&format!("error: {text}\n"));
            ExitCode::from(64)
        }
    }
}

/// Something that this command cannot do.
struct Misuse(String);

fn run(cli: &Cli) -> Result<bool, Misuse> {
    if cli.list_mutants {
        let line = |mutant: Mutant| format!("{:<24} {}\n", mutant.word(), mutant.meaning());
        say(&Mutant::ALL.map(line).concat());
        return Ok(true);
    }
    let mutant = cli.mutant.as_deref().map(mutant_of).transpose()?;
    if let Some(seed) = cli.replay {
        let (outcome, lines) = replay(seed, mutant);
        say(&(lines.join("\n") + "\n"));
        say(&told(seed, &outcome));
        return Ok(outcome.violation.is_none());
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = cli.threads.map_or(cores, usize::from);
    let run = Run { schedules: cli.schedules, seed: cli.seed, mutant, threads, stops_at_first: mutant.is_some() };
    let (report, seconds) = watched(&run);
    say(&match cli.output {
        Form::Text => text_of(&run, &report, seconds),
        Form::Json => format!("{}\n", json_of(&run, &report, seconds)),
    });
    let is_caught = report.violations > 0;
    if let Some(mutant) = mutant
        && !is_caught
    {
        tell(&format!("error: {} was not caught: the simulation does not look where it should\n", mutant.word()));
    }
    Ok(is_caught == mutant.is_some())
}

fn mutant_of(name: &str) -> Result<Mutant, Misuse> {
    if !cfg!(feature = "mutants") {
        let text = "this build has no mistakes to seed: ./ops/sim builds one that has (cargo feature `mutants`)";
        return Err(Misuse(text.to_owned()));
    }
    Mutant::from_word(name).ok_or_else(|| {
        let names: Vec<&str> = Mutant::ALL.map(Mutant::word).to_vec();
        Misuse(format!("there is no mutant {name}; there are: {}", names.join(", ")))
    })
}

/// Runs, and shows how far it is on a terminal.
fn watched(run: &Run) -> (Report, f64) {
    let started = Instant::now();
    let shown = Mutex::new(started);
    let is_terminal = std::io::stderr().is_terminal();
    let report = run.run(&|done| {
        let Ok(mut last) = shown.try_lock() else { return };
        if is_terminal && last.elapsed() >= Duration::from_millis(200) {
            *last = Instant::now();
            let each = started.elapsed().as_secs_f64() / done as f64;
            let left = each * run.schedules.saturating_sub(done) as f64;
            tell(&format!("\r\x1b[K{done} of {} schedules, {left:.0} s left", run.schedules));
        }
    });
    if is_terminal {
        tell("\r\x1b[K");
    }
    (report, started.elapsed().as_secs_f64())
}

fn text_of(run: &Run, report: &Report, seconds: f64) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for failure in &report.failures {
        let with = run.mutant.map_or_else(String::new, |mutant| format!(" --mutant {}", mutant.word()));
        let _ = writeln!(text, "seed {:#018x}: {}", failure.seed, failure.violation);
        let _ = writeln!(text, "  tell it: ./ops/sim --replay {:#018x}{with}", failure.seed);
    }
    let counts = report.tally.named();
    let counts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
    let _ = writeln!(text, "seen: {}", counts.join(", "));
    let _ = writeln!(
        text,
        "{} schedules of seed {}, {} steps, {:.1} s, digest {:016x}: {} violations",
        report.schedules, run.seed, report.steps, seconds, report.digest, report.violations
    );
    text
}

fn json_of(run: &Run, report: &Report, seconds: f64) -> serde_json::Value {
    let failures: Vec<_> = report
        .failures
        .iter()
        .map(|failure| {
            json!({
                "seed": format!("{:#018x}", failure.seed),
                "invariant": failure.violation.invariant.word(),
                "message": failure.violation.message,
                "step": failure.violation.step,
                "at_ms": failure.violation.at_ms,
            })
        })
        .collect();
    let seen: serde_json::Map<_, _> =
        report.tally.named().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
    json!({
        "schedules": report.schedules,
        "seed": run.seed,
        "violations": report.violations,
        "mutant": run.mutant.map(Mutant::word),
        "steps": report.steps,
        "seconds": (seconds * 10.0).round() / 10.0,
        "digest": format!("{:016x}", report.digest),
        "failures": failures,
        "seen": seen,
    })
}

fn told(seed: u64, outcome: &Outcome) -> String {
    let end = outcome.violation.as_ref().map_or_else(|| "everything held".to_owned(), ToString::to_string);
    format!("seed {seed:#018x}, {} steps, digest {:016x}: {end}\n", outcome.steps, outcome.digest)
}

/// A reader that went away does not want the rest.
fn say(text: &str) {
    drop(std::io::stdout().lock().write_all(text.as_bytes()));
}

fn tell(text: &str) {
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}
