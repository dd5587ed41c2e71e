//! `holdfast-lab verify` by real packets: the estate of the standing lab against its fleet, or any estates against agents of their own.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use holdfast_documents::estate::{At, Estate, State};
use holdfast_model::policy::{Body, Chain};
use holdfast_render::{Index, render_all};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::output::{Format, counted, say, write_json, write_table};
use crate::lab::{self, HostState, Lab};
use crate::packets::{
    self, Commanded, Difference, Expected, Finding, Fleet, Progress, Run, Skipped, Standalone, StandaloneError, Why,
    cells_of,
};
use crate::plan::{self, load_estate, plans_of};
use crate::verify::{Case, FindError, load};

/// The agent's binary, beside this one.
const AGENT_PROGRAM: &str = "holdfast-agent";
/// The folder of the labs that `--standalone` makes, below the lab's.
pub(super) const STANDALONE_FOLDER: &str = "standalone";

/// Why packets judge nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lab fails.
    #[error(transparent)]
    Lab(#[from] lab::Error),
    /// The estate cannot be read.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Which estate is not clear.
    #[error("packets judge one estate: name one file, or make the lab from one")]
    OneEstate,
    /// The lab's estate cannot be read.
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// The lab's hosts are others.
    #[error("the lab's hosts are not those of {}", .file.display())]
    OtherHosts {
        /// The file.
        file: PathBuf,
    },
    /// Nobody sets modes.
    #[error("the lab knows no program that sets modes: `up --mode-command` names it")]
    NoModeCommand,
    /// An agent fails.
    #[error(transparent)]
    Standalone(#[from] StandaloneError),
    /// The run fails.
    #[error(transparent)]
    Run(#[from] packets::Error),
    /// This binary cannot be started again.
    #[error("cannot find this program's own file")]
    Program(#[source] io::Error),
    /// Stdout or stderr does not take it.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
}

/// What came of one state of one estate, as programs read it.
#[derive(Serialize)]
pub struct View {
    /// The estate.
    id: String,
    /// Which of its states; 0 is the one as written.
    step: usize,
    /// Cells that were probed.
    cells: usize,
    /// Cells of which every probe was as it must be.
    agree: usize,
    /// The others.
    wrong: usize,
    /// Needs of the estate that are not understood.
    unmet: Vec<String>,
    /// Probes that were sent.
    probes: usize,
    /// What packets cannot show.
    skipped: Vec<Skipped>,
    /// Every difference.
    differences: Vec<Difference>,
}

/// Judges the standing lab. Exit code 0 if every cell agrees, 1 otherwise.
///
/// # Errors
/// See [`Error`].
pub fn verify_standing(folder: &Path, files: &[PathBuf], output: Format) -> Result<ExitCode, Error> {
    let lab = Lab::open(folder)?;
    let (file, hosts_wanted) = match files {
        [] => (lab.record().estate.clone().ok_or(Error::OneEstate)?, lab.record().hosts_wanted),
        [file] => (file.clone(), None),
        [_, _, ..] => return Err(Error::OneEstate),
    };
    let estate = load_estate(&file, hosts_wanted)?;
    let program = lab.record().mode_command.clone().ok_or(Error::NoModeCommand)?;
    let mut fleet = Commanded::new(&lab, program)?;
    let view = judge(&lab, &estate, (0, At::BothEnds), &mut fleet, &file)?;
    let right = view.wrong == 0 && view.unmet.is_empty();
    show(&[view], output)?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Judges estates with all their steps, each in a lab of its own in a folder below the lab's. Exit code 0 if every cell agrees, 1 otherwise.
///
/// # Errors
/// See [`Error`]; what was made is taken away all the same.
pub fn verify_standalone(
    folder: &Path,
    files: &[PathBuf],
    agent: Option<&Path>,
    hosts_max: usize,
    output: Format,
) -> Result<ExitCode, Error> {
    let agent = match agent {
        Some(agent) => agent.to_owned(),
        None => std::env::current_exe().map_err(Error::Program)?.with_file_name(AGENT_PROGRAM),
    };
    let folder = folder.join(STANDALONE_FOLDER);
    let mut views = Vec::new();
    for file in files {
        let Case::Estate(estate) = load(file)? else {
            say(&format!("{}: no hosts, not by packets", file.display()))?;
            continue;
        };
        let hosts = estate.states.iter().map(|state| state.intent.hosts.len()).max().unwrap_or_default();
        if hosts > hosts_max {
            say(&format!("{}: {hosts} hosts are too many, not by packets", estate.id))?;
            continue;
        }
        // What a crash left here would have agents of another run.
        Lab::remove(&folder, HostState::Wipe)?;
        let judged = judge_steps(&folder, &agent, &estate, file);
        Lab::remove(&folder, HostState::Wipe)?;
        views.extend(judged?);
    }
    let right = views.iter().all(|view| view.wrong == 0 && view.unmet.is_empty());
    show(&views, output)?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Judges every state of an estate; agents live on from state to state while the hosts are the same.
fn judge_steps(folder: &Path, agent: &Path, estate: &Estate, file: &Path) -> Result<Vec<View>, Error> {
    let mut views = Vec::new();
    for (step, state) in estate.states.iter().enumerate() {
        let plans = plans_of(estate, state);
        let mut lab = match Lab::ensure(folder, &plans) {
            Err(lab::Error::Differs { .. }) => {
                Lab::remove(folder, HostState::Wipe)?;
                Lab::ensure(folder, &plans)?.0
            }
            ensured => ensured?.0,
        };
        let bodies = bodies_of(estate, state);
        let mut fleet = Standalone::start(&mut lab, agent, &bodies)?;
        let mut view = judge(&lab, estate, (step, At::BothEnds), &mut fleet, file)?;
        if state.cells.iter().any(|cell| cell.at == At::Destination) {
            let open = bodies.into_iter().map(|(host, body)| (host, Arc::new(with_open_egress(&body)))).collect();
            let mut fleet = Standalone::start(&mut lab, agent, &open)?;
            view.take_destinations(judge(&lab, estate, (step, At::Destination), &mut fleet, file)?);
        }
        views.push(view);
    }
    Ok(views)
}

/// What is rendered for each host of a state, by the host's name.
fn bodies_of(estate: &Estate, state: &State) -> BTreeMap<String, Arc<Body>> {
    let name_of = |id| estate.host_names.get(id).cloned().unwrap_or_else(|| id.to_string());
    let rendered = render_all(&Index::new(&state.intent));
    rendered.iter().map(|(id, body)| (name_of(id), Arc::clone(body))).collect()
}

/// The body of a host that lets everything out: what gets through between such hosts is what the destination alone lets through.
fn with_open_egress(body: &Body) -> Body {
    Body { egress: Chain::default(), ..body.clone() }.canonical()
}

impl View {
    /// Adds what a run for destinations alone showed.
    fn take_destinations(&mut self, other: Self) {
        self.cells += other.cells;
        self.agree += other.agree;
        self.wrong += other.wrong;
        self.probes += other.probes;
        self.skipped.retain(|skipped| skipped.why != Why::OneEndOnly);
        self.skipped.extend(other.skipped);
        self.differences.extend(other.differences);
    }
}

/// Judges one state of an estate, by its place, in a lab that has its hosts.
fn judge(
    lab: &Lab,
    estate: &Estate,
    (step, at): (usize, At),
    fleet: &mut dyn Fleet,
    file: &Path,
) -> Result<View, Error> {
    let other_hosts = || Error::OtherHosts { file: file.to_owned() };
    let state = estate.states.get(step).ok_or_else(other_hosts)?;
    let stands = |name: &str| lab.record().host(name).map(|host| host.addresses.as_slice());
    if plans_of(estate, state).iter().any(|plan| stands(&plan.name) != Some(&plan.addresses)) {
        return Err(other_hosts());
    }
    let expansion = cells_of(estate, state, at);
    let program = std::env::current_exe().map_err(Error::Program)?;
    let bar = Bar::default();
    let report = Run { lab, program, fleet, progress: &bar }.verify(&expansion.cells)?;
    Ok(View {
        id: estate.id.clone(),
        step,
        cells: report.cells,
        agree: report.agree,
        wrong: report.cells - report.agree,
        unmet: estate.unmet(),
        probes: report.probes,
        skipped: expansion.skipped,
        differences: report.differences,
    })
}

fn show(views: &[View], output: Format) -> io::Result<()> {
    match output {
        Format::Json => write_json(&views),
        Format::Table => {
            let differences: Vec<Vec<String>> =
                views.iter().flat_map(|view| view.differences.iter().map(|difference| row(view, difference))).collect();
            if !differences.is_empty() {
                let header = ["ESTATE", "STEP", "FROM", "TO", "SOURCE", "DESTINATION", "FLOW", "EXPECTED", "FOUND"];
                write_table(&header, differences)?;
            }
            for view in views {
                say(&summary(view))?;
            }
            Ok(())
        }
    }
}

/// One line for people; that everything is as expected is its first words.
fn summary(view: &View) -> String {
    let step = if view.step == 0 { String::new() } else { format!(" step {}", view.step) };
    let flows = counted(view.cells, "flow");
    let verdict = match view.wrong {
        0 => "all as the estate expects".to_owned(),
        wrong => format!("{wrong} NOT as the estate expects"),
    };
    let skipped = match view.skipped.len() {
        0 => String::new(),
        skipped => format!("; {skipped} that packets cannot show were left out"),
    };
    format!("{}{step}: {flows} tried by real packets, {verdict}{skipped}", view.id)
}

fn row(view: &View, difference: &Difference) -> Vec<String> {
    let Difference { cell, source, destination, finding } = difference;
    let expected = match cell.expected {
        Expected::Allowed => "allowed",
        Expected::Denied => "denied",
    };
    vec![
        view.id.clone(),
        view.step.to_string(),
        cell.from.to_string(),
        cell.to.to_string(),
        source.to_string(),
        destination.to_string(),
        cell.flow.to_string(),
        expected.to_owned(),
        found(finding),
    ]
}

fn found(finding: &Finding) -> String {
    match finding {
        Finding::NotInVisibility { outcome } => format!("in visibility: {outcome}"),
        Finding::Blocked { outcome } | Finding::NotDropped { outcome } => outcome.to_string(),
        Finding::Leaked => "passed".to_owned(),
        Finding::NotCounted => "no answer, but no drop of ours counted".to_owned(),
    }
}

/// One bar at a time on a terminal; nothing elsewhere.
#[derive(Default)]
struct Bar(Mutex<Option<ProgressBar>>);

impl Bar {
    fn with(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        // A bar that a panic left half drawn is still a bar.
        act(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

impl Progress for Bar {
    fn begin(&self, part: &str, probes: usize) {
        let style = ProgressStyle::with_template("{msg:16} {wide_bar} {pos}/{len} probes, {eta} left");
        let bar = ProgressBar::new(u64::try_from(probes).unwrap_or(u64::MAX)).with_message(part.to_owned());
        let bar = match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        self.with(|place| {
            if let Some(before) = place.replace(bar) {
                before.finish_and_clear();
            }
        });
    }

    fn advance(&self, probes: usize) {
        self.with(|place| {
            if let Some(bar) = place {
                bar.inc(u64::try_from(probes).unwrap_or(u64::MAX));
            }
        });
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.with(|place| {
            if let Some(bar) = place.take() {
                bar.finish_and_clear();
            }
        });
    }
}
