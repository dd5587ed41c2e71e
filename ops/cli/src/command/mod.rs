//! One module per group of commands.

mod apply;
mod audit;
mod authority;
mod doctor;
mod explain;
mod get;
mod host;
mod operation;
mod past;
mod plan;
mod programs;
mod rebuild;
mod rollout;
mod status;
mod tokens;
mod wait;

use crate::api::Api;
use crate::args::{Cli, Command, Goal, Operation, WaitOn, Waiting};
use crate::error::{End, Error};

/// Runs one command.
pub(crate) async fn run(cli: Cli) -> Result<End, Error> {
    let format = cli.common.output;
    // Made where it is needed: some commands ask nobody.
    let api = || Api::new(&cli.connection);
    match cli.command {
        Command::Lab { arguments } => programs::lab(&arguments),
        Command::Completion { shell } => programs::completion(shell),
        Command::Man { folder } => programs::man(folder.as_deref()),
        Command::Doctor => doctor::doctor(&cli.connection, format).await,
        Command::Audit { command } => audit::run(&cli.connection, command, format).await,
        Command::Apply { documents, plan, acknowledge, stages, wait, waiting } => {
            let how = apply::How { acknowledge, stages: &stages, waiting: Waiting::of(wait, waiting) };
            apply::apply(&api()?, documents, plan, how, format).await
        }
        Command::Delete { objects, if_revision, acknowledge, stages, wait, waiting } => {
            let how = apply::How { acknowledge, stages: &stages, waiting: Waiting::of(wait, waiting) };
            apply::delete(&api()?, &objects, if_revision, how, format).await
        }
        Command::Mode { command } => past::mode(&api()?, command, format).await,
        Command::History(history) => past::history(&api()?, history, format).await,
        Command::Restore(restore) => past::restore(&api()?, restore, format).await,
        Command::Get { what, name, namespace } => {
            get::get(&api()?, &what, name.as_deref(), namespace.as_deref(), format).await
        }
        Command::Describe { what, name } => get::describe(&api()?, &what, name.as_deref(), format).await,
        Command::Plan { documents, stages, detailed_exitcode } => {
            plan::plan(&api()?, documents, &stages, detailed_exitcode, format).await
        }
        Command::Status { revision, watch: false } => status::status(&api()?, revision, format).await,
        Command::Status { revision, watch: true } => status::watch(&api()?, revision, format).await,
        Command::Wait { what: None, revision, waiting } => status::wait(&api()?, revision, waiting, format).await,
        Command::Wait { what: Some(WaitOn::Operation { id, waiting }), .. } => {
            operation::wait(&api()?, &id, waiting, format).await
        }
        Command::Explain { what } => explain::explain(&api()?, what, format).await,
        Command::Diff { host } => explain::diff(&api()?, &host, format).await,
        Command::Host { command } => host::host(&api()?, command, format).await,
        Command::EnrolToken { command } => tokens::enrol(&api()?, command, format).await,
        Command::ApiToken { command } => tokens::api(&api()?, command, format).await,
        Command::Operation { command: Some(command), .. } => operation::run(&api()?, command, format).await,
        Command::Operation { command: None, id: None, .. } => operation::run(&api()?, Operation::List, format).await,
        Command::Operation { command: None, id: Some(id), wait: false, .. } => {
            operation::run(&api()?, Operation::Get { id }, format).await
        }
        Command::Operation { command: None, id: Some(id), wait: true, timeout } => {
            operation::wait(&api()?, &id, Waiting { timeout, goal: Goal::Applied }, format).await
        }
        Command::Rollout { command } => rollout::run(&api()?, command, format).await,
        Command::Authority { command } => authority::run(&api()?, command, format).await,
        Command::Rebuild { check: _ } => rebuild::check(&api()?, format).await,
    }
}
