//! What `--help` of the lab teaches: examples first, then flags, then how it ends.

use clap::Command;

/// The page of one command.
const PAGE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// How a command ends that says nothing else.
const ENDS: &str = "Exit codes: 0 done, 1 failed, 64 wrong usage.";

/// Gives every page the same order, and an end where it has none.
#[must_use]
pub fn taught(command: Command) -> Command {
    let has_end = command.get_after_help().is_some();
    let command = if has_end { command } else { command.after_help(ENDS) };
    command.help_template(PAGE).mut_subcommands(taught)
}

pub(super) const ROOT: &str = "\
Hosts are network namespaces of this machine; ./ops/up makes them with agents and a control plane, and . .holdfast/env \
says which lab is meant (HOLDFAST_LAB). Needs root, but for `verify --render-only`.

Examples:
  holdfast-lab hosts                       # their addresses and agents
  holdfast-lab probe web-1 db-1 5432/tcp   # one flow by a real packet
  holdfast-lab exec web-1 -- ip address    # a program on a host
  holdfast-lab verify                      # what the estate expects
  holdfast-lab verify --render-only        # the same on paper
";

pub(super) const DOCUMENTS: &str = "Examples:\n  holdfast-lab documents --to /tmp/documents\n";
pub(super) const DOWN: &str = "\
`./ops/down` ends a whole plane; this takes away what stands without one.

Examples:
  holdfast-lab down
  holdfast-lab down --wipe
";
pub(super) const EXEC: &str = "\
Examples:
  holdfast-lab exec web-1 -- ip address
  holdfast-lab exec web-1 -- nft list ruleset   # what its kernel enforces
  holdfast-lab exec @control -- ss -ltn         # who listens there
";
pub(super) const EXEC_ENDS: &str = "Exit codes: those of the program; 1 if it cannot be run, 64 wrong usage.";
pub(super) const HOSTS: &str = "Examples:\n  holdfast-lab hosts\n  holdfast-lab hosts -o json\n";
pub(super) const PROBE: &str = "\
`holdfast explain flow` asks the same of what was authored. Each pair of addresses of one family is tried.

Outcomes:
  passed      the packet got there, and the answer came back
  dropped     nobody answered in time, as when a packet is denied; takes some seconds to see
  refused     somebody answered that it may not be, and it is said who; Holdfast never does

Examples:
  holdfast-lab probe web-1 db-1 5432/tcp
  holdfast-lab probe booking/edge-1 booking/web-1 icmp
  holdfast-lab probe 192.0.2.9 edge-1 443/tcp   # from somebody outside
  holdfast-lab probe web-1 db-1 protocol/47
";
pub(super) const PROBE_ENDS: &str =
    "Exit codes: 0 every packet passed, 1 one did not or could not be sent, 64 wrong usage.";
pub(super) const PUBLISH: &str = "Examples:\n  holdfast-lab publish 127.0.0.1:7080=127.0.0.1:7080\n";
pub(super) const START: &str = "\
`./ops/up` starts the agents of its plane that do not run, with the settings that they have there (an empty \
HOLDFAST_AGENT_FAILSAFE_PORTS among them, so that packets show the policy alone); what is started here has those of the \
caller's environment.

Examples:
  holdfast-lab start -- holdfast-agent run --state {state}
  holdfast-lab start web-1 -- \\
    holdfast-agent run --state {state} --standalone policy.json
";
pub(super) const STOP: &str = "Examples:\n  holdfast-lab stop\n  holdfast-lab stop web-1\n";
pub(super) const UP: &str = "\
`./ops/up` does this and starts a control plane and agents besides.

Examples:
  holdfast-lab up --estate ops/lab/estates/harbour
  holdfast-lab up --estate ops/lab/estates/harbour --hosts 40
";
pub(super) const VERIFY: &str = "\
By packets, every host is opened for some seconds, so that it is seen that each probe can get through at all; then the \
estate's own Host documents are put back: what was changed in a Host document since is lost.
A flow is one source, one destination, one service and one family, with what the estate expects of it.

Examples:
  holdfast-lab verify   # the standing lab's estate, by real packets
  holdfast-lab verify --render-only --estate ops/lab/estates/harbour
  holdfast-lab verify --standalone --estate ops/lab/estates/words
";
pub(super) const VERIFY_ENDS: &str =
    "Exit codes: 0 everything is as expected, 1 something is not or cannot be judged, 64 wrong usage.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    fn every(command: &Command, path: &str, seen: &mut Vec<(String, Command)>) {
        let path = format!("{path}{} ", command.get_name());
        seen.push((path.clone(), command.clone()));
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).for_each(|sub| every(sub, &path, seen));
    }

    #[test]
    fn every_command_of_the_lab_has_an_example_that_parses_and_says_how_it_ends() {
        let mut seen = Vec::new();
        every(&command::line(), "", &mut seen);
        assert!(seen.len() > 10, "{}", seen.len());
        for (path, page) in seen {
            let text = page.get_before_help().map(ToString::to_string).unwrap_or_default();
            let (_, listed) = text.split_once("Examples:").unwrap_or_else(|| panic!("{path}has no example"));
            let listed = listed.replace(" \\\n   ", "");
            let typed = listed.lines().filter_map(|line| line.strip_prefix("  "));
            // Neither a remark nor where its words go is the command's.
            let typed: Vec<&str> = typed.filter_map(|line| line.split(['#', '>']).next()).map(str::trim).collect();
            assert!(
                typed.iter().any(|line| line.starts_with(path.trim())),
                "{path}has no example of itself: {typed:?}"
            );
            for line in typed {
                let parsed = command::line().try_get_matches_from(line.split_whitespace());
                assert!(parsed.is_ok(), "{path}: `{line}`: {:?}", parsed.err());
            }
            assert!(
                page.get_about().is_some()
                    && page.get_after_help().is_some_and(|end| end.to_string().contains("Exit codes:")),
                "{path}"
            );
            let silent = page.get_arguments().find(|argument| argument.get_help().is_none());
            assert!(silent.is_none(), "{path}{silent:?}");
        }
    }
}
