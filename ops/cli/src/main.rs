//! `holdfast`: the operators' command line.
//!
//! - It prints what the API says and decides nothing: states, verdicts and differences come as they are shown.
//! - Data goes to stdout, words to stderr; the exit code tells scripts how it ended.

mod api;
mod args;
mod command;
mod describe;
mod documents;
mod error;
mod help;
mod output;
mod parse;
mod progress;
mod secret_file;
mod span;
mod text;
mod words;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use crate::error::{End, Error};
use crate::output::Format;

fn main() -> ExitCode {
    holdfast_identity::tls::install_crypto_provider();
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(error) => {
            // With stderr gone there is nobody left to tell; the code still says it.
            let _told = error.print();
            if !error.use_stderr() {
                return End::Done.into();
            }
            let _told = writeln!(std::io::stderr(), "[{}]", args::usage_rule(error.kind()));
            return End::Usage.into();
        }
    };
    let format = cli.common.output;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(command::run(cli)),
        Err(error) => Err(Error::Runtime(error)),
    };
    match result {
        Ok(end) => end.into(),
        // Whoever read our output has seen enough.
        Err(Error::Print(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => End::Done.into(),
        Err(error) => {
            tell(&error, format);
            error.end().into()
        }
    }
}

fn tell(error: &Error, format: Format) {
    let stderr = std::io::stderr();
    let text = match format {
        Format::Json => error.to_json(),
        Format::Table | Format::Wide | Format::Yaml | Format::Name => error.to_text(),
    };
    let mut stderr = stderr.lock();
    let is_terminal = stderr.is_terminal();
    // The same: nobody is left to tell.
    let _told = writeln!(stderr, "{}", if is_terminal { text } else { text.trim_end().to_owned() });
}
