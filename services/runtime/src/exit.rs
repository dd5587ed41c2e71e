//! How a process ends: the exit codes of services and agents, after sysexits.
//!
//! - 0 only after an orderly end. A supervisor may restart on 69, 70 and 75; 64, 77 and 78 need a person first.
//!
//! The operators' command line has its own table; only `usage` is shared with it.

use crate::chain::Chain;
use crate::log;
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

/// The ends of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// In order.
    Ok,
    /// The command line is wrong.
    Usage,
    /// Something that it needs is not there.
    Unavailable,
    /// A fault of ours: a task panicked or ended.
    Software,
    /// It may work a moment later.
    TemporaryFailure,
    /// It is not allowed to.
    NotPermitted,
    /// The configuration is wrong.
    Config,
}

impl Exit {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Software => 70,
            Self::TemporaryFailure => 75,
            Self::NotPermitted => 77,
            Self::Config => 78,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error that knows how the process ends by it.
pub trait Fatal: Error {
    /// The end; one arm per variant.
    fn exit(&self) -> Exit;

    /// The stable name of the rule that was broken; `docs/rules.md` has all of them.
    fn rule(&self) -> &'static str;
}

/// Ends `main`: prints the chain of an error and its rule to stderr, once, behind what was logged, and gives its code.
pub fn finish<E: Fatal + 'static>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => {
            log::flush();
            Exit::Ok.into()
        }
        Err(error) => {
            log::say_last(&format!("error: {} [{}]", Chain(&error), error.rule()));
            error.exit().into()
        }
    }
}

/// How every service ends, for its pages.
pub const ENDS: &str = "\
Exit codes: 0 done, 64 wrong usage, 69 something it needs is away, 70 a defect, 75 try again, 77 not permitted,
78 a setting or a file is wrong.";

/// Parses the command line; words about a wrong one go to stderr and end the process with 64, help and version with 0.
#[must_use]
pub fn parse_args<P: clap::Parser>() -> P {
    crate::line::parse::<P>(ENDS).unwrap_or_else(|error| {
        let exit = if tell_usage(&error) { Exit::Usage } else { Exit::Ok };
        std::process::exit(i32::from(exit.code()))
    })
}

/// Prints what is said of a command line, with the rule that it breaks; whether it is wrong, and not a question for help or the version.
pub fn tell_usage(error: &clap::Error) -> bool {
    let _told = error.print();
    let wrong = error.use_stderr();
    if wrong {
        let _told = writeln!(std::io::stderr(), "[{}]", usage_rule(error.kind()));
    }
    wrong
}

/// The stable name of the rule that a command line breaks.
#[must_use]
pub fn usage_rule(kind: clap::error::ErrorKind) -> &'static str {
    use clap::error::ErrorKind;
    const RULES: [(ErrorKind, &str); 12] = [
        (ErrorKind::ArgumentConflict, "argument-conflict"),
        (ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, "command-missing"),
        (ErrorKind::InvalidSubcommand, "command-unknown"),
        (ErrorKind::InvalidUtf8, "argument-not-text"),
        (ErrorKind::InvalidValue, "argument-value"),
        (ErrorKind::MissingRequiredArgument, "argument-missing"),
        (ErrorKind::MissingSubcommand, "command-missing"),
        (ErrorKind::NoEquals, "argument-value"),
        (ErrorKind::TooFewValues, "argument-count"),
        (ErrorKind::TooManyValues, "argument-count"),
        (ErrorKind::UnknownArgument, "argument-unknown"),
        (ErrorKind::ValueValidation, "argument-form"),
    ];
    RULES.iter().find(|(known, _)| *known == kind).map_or("usage", |(_, rule)| rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_sysexits() {
        let all = [
            Exit::Ok,
            Exit::Usage,
            Exit::Unavailable,
            Exit::Software,
            Exit::TemporaryFailure,
            Exit::NotPermitted,
            Exit::Config,
        ];
        assert_eq!(all.map(Exit::code), [0, 64, 69, 70, 75, 77, 78]);
    }
}
