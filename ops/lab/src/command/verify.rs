//! `holdfast-lab verify`: whether estates get what they expect, by what is rendered or by real packets.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use holdfast_render::Index;

use super::output::{Format, complain, counted, say, write_json, write_table};
use super::packets;
use crate::verify::{Case, Error, FindError, Report, find, load, verify_churn, verify_estate};

/// The estates of the project, below its root.
const OWN_ESTATES: &str = "ops/lab/estates";

/// The most wrong answers that are shown; the counts are complete.
const DETAILS_SHOWN_MAX: usize = 200;

/// Flags of `verify`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Judges what is rendered, by evaluator and artifact, without packets; needs no root.
    #[arg(long)]
    render_only: bool,
    /// Judges estates, with all their steps, by packets between agents without a control plane, in labs made for it; needs root and `--estate`.
    #[arg(long, conflicts_with = "render_only", requires = "estates")]
    standalone: bool,
    /// The agent of `--standalone`; the one beside this program if absent.
    #[arg(long, value_name = "PROGRAM", requires = "standalone")]
    agent: Option<PathBuf>,
    /// Estates with more hosts are named and passed over by `--standalone`.
    #[arg(long, value_name = "N", default_value_t = 40)]
    hosts_max: usize,
    /// An estate, or a folder of estates; may be given more than once. Without it, packets judge the standing lab's own estate, and `--render-only`
    /// all estates of the folder that `HOLDFAST_ESTATES` names, or else the project's.
    #[arg(long = "estate", value_name = "PATH")]
    estates: Vec<PathBuf>,
    /// The form of the result.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A path names no estate.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Packets judge nothing.
    #[error(transparent)]
    Packets(#[from] packets::Error),
    /// Stdout or stderr does not take it.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
}

/// Judges all estates that are named; a failure if anything is wrong, unmet or cannot be read.
///
/// # Errors
/// See [`VerifyError`].
pub fn run(lab: &Path, args: &Args) -> Result<ExitCode, VerifyError> {
    if !args.render_only {
        let mut files = Vec::new();
        for path in &args.estates {
            files.extend(find(path)?);
        }
        return Ok(if args.standalone {
            packets::verify_standalone(lab, &files, args.agent.as_deref(), args.hosts_max, args.output)?
        } else {
            packets::verify_standing(lab, &files, args.output)?
        });
    }
    let own = || vec![std::env::var_os("HOLDFAST_ESTATES").map_or_else(|| OWN_ESTATES.into(), PathBuf::from)];
    let paths = if args.estates.is_empty() { own() } else { args.estates.clone() };
    let mut files = Vec::new();
    for path in &paths {
        files.extend(find(path)?);
    }
    let mut reports = Vec::new();
    let mut unread = 0;
    for file in files {
        match judge(&file) {
            Ok(report) => reports.push(report),
            Err(error) => {
                unread += 1;
                complain(error.as_ref());
            }
        }
    }
    show(&reports, args.output)?;
    let right = unread == 0 && reports.iter().all(Report::is_right);
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judge(file: &Path) -> Result<Report, Box<dyn std::error::Error>> {
    let made: Result<Report, Error> = match load(file)? {
        Case::Estate(estate) => verify_estate(&estate, &Index::new),
        Case::Churn(churn) => Ok(verify_churn(&churn, &Index::new)),
    };
    Ok(made?)
}

fn show(reports: &[Report], output: Format) -> io::Result<()> {
    let details: Vec<_> = reports.iter().flat_map(|report| &report.details).collect();
    for wrong in details.iter().take(DETAILS_SHOWN_MAX) {
        say(&format!(
            "wrong: {} step {}: {} -> {} {} {} {}: wanted {}, evaluator {}, artifact {}",
            wrong.estate,
            wrong.step,
            wrong.from,
            wrong.to,
            wrong.proto,
            wrong.port,
            wrong.family,
            wrong.wanted,
            wrong.evaluator,
            wrong.artifact
        ))?;
    }
    if details.len() > DETAILS_SHOWN_MAX {
        say(&format!("and {} more", details.len() - DETAILS_SHOWN_MAX))?;
    }
    match output {
        Format::Json => write_json(&reports),
        Format::Table => {
            let row = |report: &Report| {
                let counts = [report.cells, report.agree, report.wrong].map(|count| count.to_string());
                let unmet = if report.unmet.is_empty() { "-".to_owned() } else { report.unmet.join(" ") };
                [vec![report.id.clone()], counts.to_vec(), vec![unmet]].concat()
            };
            write_table(&["ESTATE", "CELLS", "AGREE", "WRONG", "UNMET"], reports.iter().map(row))?;
            let sum = |part: fn(&Report) -> usize| reports.iter().map(part).sum::<usize>();
            let (cells, wrong) = (sum(|report| report.cells), sum(|report| report.wrong));
            let unmet = reports.iter().filter(|report| !report.unmet.is_empty()).count();
            if unmet > 0 {
                say(
                    "needs that are not understood make an estate fail; ops/lab/estates/README.md lists those that are",
                )?;
            }
            let estates = counted(reports.len(), "estate");
            say(&format!("{estates}, {} asked, {wrong} answered wrongly", counted(cells, "flow")))
        }
    }
}
