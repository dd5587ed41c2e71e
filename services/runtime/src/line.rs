//! Command lines that teach: one order of every page, completions and manual pages for every binary.
//!
//! - A page has what it is for, examples, usage, flags, exit codes, in this order.
//! - [`faults`] is what a page lacks: a test of every binary wants none.

use std::io::{self, Write as _};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, Parser};
use clap_complete::Shell;

/// The page of one command.
const PAGE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";
/// What the narrowest usual terminal does not wrap, a pin of 64 digits being the longest word.
const EXAMPLE_WIDTH_MAX: usize = 84;
const COMPLETION: &str = "completion";
const MAN: &str = "man";
const SHELL: &str = "shell";

/// Gives every page the same order, an example where it has none, and the end.
#[must_use]
pub fn taught(command: Command, ends: &'static str) -> Command {
    let name = command.get_name().to_owned();
    taught_below(command, &name, ends)
}

fn taught_below(command: Command, path: &str, ends: &'static str) -> Command {
    let mut command = command.help_template(PAGE);
    if command.get_before_help().is_none() {
        command = command.before_help(format!("Examples:\n  {path}\n"));
    }
    if command.get_after_help().is_none() {
        command = command.after_help(ends);
    }
    let path = path.to_owned();
    command.mut_subcommands(move |sub| {
        let path = format!("{path} {}", sub.get_name());
        taught_below(sub, &path, ends)
    })
}

/// Adds the commands that print the binary's completions and manual page.
#[must_use]
pub fn with_pages(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let shells = PossibleValuesParser::new(["bash", "zsh", "fish"]);
    let completion = Command::new(COMPLETION)
        .about("Prints the completions of a shell.")
        .before_help(format!("Examples:\n  {name} completion bash > /etc/bash_completion.d/{name}\n"))
        .arg(Arg::new(SHELL).required(true).value_parser(shells).help("Which shell."));
    let man = Command::new(MAN)
        .about("Prints the manual page.")
        .before_help(format!("Examples:\n  {name} man > /usr/local/share/man/man1/{name}.1\n"));
    command.subcommand(completion).subcommand(man)
}

/// Prints what [`with_pages`] added, if it was asked for.
#[must_use]
pub fn pages(command: &Command, matches: &ArgMatches) -> Option<io::Result<()>> {
    let mut text = Vec::new();
    match matches.subcommand() {
        Some((COMPLETION, asked)) => {
            let shell = asked.get_one::<String>(SHELL).and_then(|shell| shell.parse::<Shell>().ok())?;
            let name = command.get_name().to_owned();
            clap_complete::generate(shell, &mut command.clone(), name, &mut text);
        }
        Some((MAN, _)) => {
            if let Err(error) = clap_mangen::Man::new(command.clone()).render(&mut text) {
                return Some(Err(error));
            }
        }
        Some(_) | None => return None,
    }
    Some(io::stdout().lock().write_all(&text))
}

/// The whole command line of a binary.
#[must_use]
pub fn line<P: Parser>(ends: &'static str) -> Command {
    taught(with_pages(P::command()), ends)
}

/// Reads the command line of this process; help, completions and manual pages are printed here, and end it.
///
/// # Errors
/// What is wrong with it, or the help that was asked for, to be printed.
pub fn parse<P: Parser>(ends: &'static str) -> Result<P, clap::Error> {
    let command = line::<P>(ends);
    let matches = command.clone().try_get_matches()?;
    if let Some(printed) = pages(&command, &matches) {
        // With stdout gone there is nobody to print for.
        std::process::exit(i32::from(printed.is_err()));
    }
    P::from_arg_matches(&matches)
}

/// What the pages of a command and of all below it lack.
#[must_use]
pub fn faults(root: &Command) -> Vec<String> {
    let mut found = Vec::new();
    look(root, root, root.get_name(), &mut found);
    found
}

fn look(root: &Command, command: &Command, path: &str, found: &mut Vec<String>) {
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    if command.get_about().is_none() {
        found.push(format!("{path}: no line that says what it is for"));
    }
    if !text(command.get_after_help()).contains("Exit codes:") {
        found.push(format!("{path}: no exit codes"));
    }
    let shown = text(command.get_before_help());
    for wide in shown.lines().filter(|line| line.starts_with("  ") && line.chars().count() > EXAMPLE_WIDTH_MAX) {
        found.push(format!("{path}: an example that a terminal wraps cannot be copied: `{wide}`"));
    }
    let shown = shown.replace(" \\\n   ", "");
    let typed: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    if !typed.iter().any(|line| line.contains(path)) {
        found.push(format!("{path}: no example of itself"));
    }
    // A remark begins as one of the shell's: what is copied whole must not hand it to the command.
    let own = typed.iter().filter_map(|line| line.split(['|', '>', '#']).next());
    let own = own.map(|line| line.trim().trim_start_matches("(umask 077; "));
    for line in own.filter(|line| line.starts_with(root.get_name())) {
        if let Err(error) = root.clone().try_get_matches_from(line.split_whitespace())
            && error.use_stderr()
        {
            found.push(format!("{path}: `{line}`: {error}"));
        }
    }
    for argument in command.get_arguments().filter(|argument| argument.get_help().is_none()) {
        found.push(format!("{path}: {} says nothing", argument.get_id()));
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        look(root, sub, &format!("{path} {}", sub.get_name()), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_line(example: &'static str) -> Command {
        let sub = Command::new("go").about("Goes.").before_help(example);
        taught(with_pages(Command::new("holdfast-x").about("X.").subcommand(sub)), "Exit codes: 0 done.")
    }

    #[test]
    fn a_page_without_an_example_that_parses_is_a_fault() {
        assert_eq!(faults(&mk_line("Examples:\n  holdfast-x go  # fast\n")), Vec::<String>::new());
        let wrong = faults(&mk_line("Examples:\n  holdfast-x go --fast\n"));
        assert!(wrong.len() == 1 && wrong[0].contains("--fast"), "{wrong:?}");
        let bare = faults(&mk_line("Examples:\n  holdfast-x go  and fast\n"));
        assert!(bare.len() == 1 && bare[0].contains("and"), "a remark that no shell takes for one: {bare:?}");
        let other = faults(&mk_line("Examples:\n  holdfast-x man\n"));
        assert_eq!(other, ["holdfast-x go: no example of itself"]);
    }

    #[test]
    fn an_argument_without_a_word_and_a_command_without_a_line_are_faults() {
        let silent = Command::new("holdfast-x").arg(Arg::new("y"));
        let found = faults(&taught(silent, "Exit codes: 0 done."));
        assert_eq!(found, ["holdfast-x: no line that says what it is for", "holdfast-x: y says nothing"]);
    }

    #[test]
    fn completions_name_every_command_and_the_manual_has_a_title() {
        let command = mk_line("Examples:\n  holdfast-x go\n");
        for (shell, mark) in [("bash", "complete "), ("zsh", "#compdef holdfast-x"), ("fish", "complete -c holdfast-x")]
        {
            let mut text = Vec::new();
            let shell: Shell = shell.parse().expect("a shell");
            clap_complete::generate(shell, &mut command.clone(), "holdfast-x", &mut text);
            let text = String::from_utf8(text).expect("text");
            assert!(text.contains(mark) && text.contains("go"), "{text}");
        }
        assert!(pages(&command, &command.clone().get_matches_from(["holdfast-x", "go"])).is_none());
    }
}
