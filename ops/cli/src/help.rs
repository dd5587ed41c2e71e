//! What `--help` teaches: examples that can be copied, in the words of the demo that `./ops/up` makes.
//!
//! - Every command has an example, and every example parses (tests hold both).
//! - Examples stand before the flags: they are what most readers came for.

use clap::Command;

/// The page of one command: what it is for, examples, usage, flags, exit codes.
const PAGE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// How commands that only read or write end.
const ENDS: &str = "Exit codes: 0 done, 1 failed, 3 not found, 4 conflict, 5 not allowed, 64 wrong usage.";

/// Where the flags are that are not on every page.
const SETTINGS: &str = "`holdfast --help` has the settings (--api, --ca, --token-file …) that all commands share.";

/// Gives every page the same order and end.
pub(crate) fn taught(command: Command) -> Command {
    let command = match command.get_after_help().map(ToString::to_string) {
        Some(own) if own == ROOT_END => command,
        Some(own) => command.after_help(format!("{own}\n{SETTINGS}")),
        None => command.after_help(format!("{ENDS}\n{SETTINGS}")),
    };
    command.help_template(PAGE).mut_subcommands(taught)
}

pub(crate) const ROOT: &str = "\
Examples (the hosts are those of the demo: ./ops/up --detach, then . .holdfast/env):
  holdfast status                            # how far the fleet is
  holdfast get hosts                         # those in trouble first
  holdfast plan -f policies/                 # what that would change
  holdfast apply -f policies/ --wait         # until every host has proven it
  holdfast explain host web-1                # why it is not converged
  holdfast explain flow web-1 db-1 5432/tcp  # who may talk to whom, and why
  holdfast doctor                            # what is wrong, and what to do
";

pub(crate) const ROOT_END: &str = "\
Settings of every command (a flag goes before its variable):
  --api URL            HOLDFAST_API         where the API is, as https://holdfast.example:7080
  --ca FILE            HOLDFAST_CA          the file with the CA's certificate
  --token-file FILE    HOLDFAST_TOKEN_FILE  the file with the API token
                       HOLDFAST_TOKEN       or the token itself
  -o, --output FORM    table (default), wide, json, yaml or name
  --idempotency-key K  the name of a change: the same again is answered, not done
                       HOLDFAST_AUDIT_KEY   the audit service's public key, or its file
                       NO_COLOR             no colours

Exit codes: 0 done, 1 failed, 2 differences (plan --detailed-exitcode), 3 not found, 4 conflict, 5 not allowed, \
6 not applied by the deadline, 7 applied everywhere but not converged, 8 under way (doctor), 9 not allowed (explain flow \
--exit-code), 64 wrong usage, 130 Ctrl-C in a wait.";

pub(crate) const WAIT_ENDS: &str = "\
Exit codes: 0 done, 1 failed or a host did not take it, 3 not found, 4 conflict or superseded, 5 not allowed, and with \
--wait 6 not applied by the deadline, 7 applied everywhere but not converged, 130 Ctrl-C; 64 wrong usage.
The change stays in force however the wait ends: waiting only looks.";

pub(crate) const APPLY: &str = "\
Examples:
  holdfast apply -f policy.yaml
  holdfast apply -f policies/ --wait   # until every host has proven it
  # what else is in these namespaces goes:
  holdfast apply -f policies/ --prune --wait=5m
  cat policy.yaml | holdfast apply -f -
  # some hosts first, and halt if they fail:
  holdfast apply -f policies/ --rollout --stage canary=true --stage 10%
";

pub(crate) const DELETE: &str = "\
Examples:
  holdfast delete Policy/booking/quarantine --wait
  holdfast delete Endpoint/booking/printer Namespace/booking
";

pub(crate) const GET: &str = "\
Examples:
  holdfast get hosts   # -o wide has ids, addresses and labels
  holdfast get host booking/web-1 -o json
  holdfast get policies -n booking -o yaml > policies.yaml
  holdfast get Policy/booking/web -o yaml
  holdfast get objects
  holdfast get revisions   # who changed what, newest first
";

pub(crate) const DESCRIBE: &str = "\
Examples:
  holdfast describe host booking/web-1          # what governs it, its proof
  holdfast describe Policy/booking/web          # and which hosts it governs
  holdfast describe host booking/web-1 -o wide  # with digests and addresses
  holdfast describe revision 13                 # its changes, and how far it is
";

pub(crate) const PLAN: &str = "\
The digest that a plan ends with can be demanded: `apply --plan DIGEST` refuses to do anything else.

Examples:
  holdfast plan -f ops/lab/estates/harbour/steps/quarantine.yaml
  holdfast plan -f policies/ --detailed-exitcode   # exit 2 if it would change
  holdfast plan -f policies/ --rollout --stage 10%   # who is in which stage
";

pub(crate) const PLAN_ENDS: &str = "\
Exit codes: 0 done (2 with --detailed-exitcode if anything would change), 1 the documents have faults, 3 not found, \
4 conflict, 5 not allowed, 64 wrong usage.";

pub(crate) const STATUS: &str = "\
Converged is a proof: every host read its kernel back and signed that it holds exactly what was rendered for it.

Examples:
  holdfast status
  holdfast status --watch   # and every change, until Ctrl-C
  holdfast status --revision 13 -o json
";

pub(crate) const WAIT: &str = "\
Examples:
  holdfast wait   # until the last revision is proven on every host
  holdfast wait --revision 13 --for applied --timeout 5m
  holdfast wait operation op_01890a5d-ac96-774b-bcce-b302099a8057
";

pub(crate) const WAIT_OPERATION: &str = "\
An operation waits for the hosts that it is for, and for no other.

Examples:
  holdfast wait operation op_01890a5d-ac96-774b-bcce-b302099a8057 --timeout 5m
";

pub(crate) const WAIT_CODES: &str = "\
Exit codes: 0 reached, 1 a host did not take it, 6 not applied by the deadline, 7 applied everywhere but not converged, \
3 no such revision, 5 not allowed, 64 wrong usage, 130 Ctrl-C.";

pub(crate) const EXPLAIN: &str = "\
Examples:
  holdfast explain flow booking/web-1 booking/db-1 5432/tcp
";

pub(crate) const EXPLAIN_HOST: &str = "\
Examples:
  holdfast explain host web-1
  holdfast explain host web-1 -o json   # each component, with what it lacks
";

pub(crate) const FLOW: &str = "\
It is judged from what was authored, by a judge that shares no code with the renderer; `holdfast-lab probe` asks the \
same by real packets. Not in it is what no policy takes away: loopback, the gateways, declared resolvers, and the \
failsafe ports of an agent (inbound tcp 22, unless it is told otherwise). A name without a namespace is one of `default`, or one that a single namespace has.

Examples:
  holdfast explain flow booking/web-1 booking/db-1 5432/tcp
  holdfast explain flow 192.0.2.9 edge-1 443/tcp   # from somebody outside
  holdfast explain flow web-1 db-1 icmp
  holdfast explain flow web-1 db-1 protocol/47
";

pub(crate) const DIFF: &str = "\
What the host last said that it enforces is compared with what is rendered for it: `-` goes, `+` comes.

Examples:
  holdfast diff booking/web-1
";

pub(crate) const HOST: &str = "\
A directive is said to whoever holds the host's session now, and is kept by nobody: what nobody hears is lost, and may \
be asked again.

Examples:
  holdfast host resend-snapshot booking/web-1 --wait
  holdfast host reconnect booking/web-1
";

pub(crate) const HOST_ENDS: &str = "\
Exit codes: 0 asked (with --wait: obeyed), 1 failed, 3 not found, 4 the host has no open session, 5 not allowed \
(operator or admin), 6 with --wait: nothing moved by the deadline, 64 wrong usage.";

pub(crate) const HOST_RESEND: &str = "\
The gateway that holds the session reads the current state of every component and sends it whole; `--wait` looks until \
the host's last_snapshot_sent_at moves. Nothing is rendered and no version rises.

Examples:
  holdfast host resend-snapshot booking/web-1
  holdfast host resend-snapshot booking/web-1 --wait --timeout 10s
";

pub(crate) const HOST_RECONNECT: &str = "\
What is enforced stays. `--wait` looks until a newer session of the host is open.

Examples:
  holdfast host reconnect booking/web-1 --wait
";

pub(crate) const HOST_RE_ENROL: &str = "\
For an identity that is to be replaced: the agent ends its sessions, dials nobody and enrols nobody by itself; what it \
enforces stays. On the host, enrol it anew with a new token, or start the agent again to go on as before. `--wait` \
looks until the host has no open session.

Examples:
  holdfast host re-enrol booking/web-1 --wait
";

pub(crate) const HOST_DECOMMISSION: &str = "\
For a machine that is gone, or is to go: nothing is rendered for it any more, others are rendered without it, its name \
is free again, and no session of it begins. It does not reach into the machine: what that enforces stays until \
`holdfast-agent down` is run there. It is for good: the machine comes back by being enrolled anew.

Examples:
  holdfast host decommission booking/web-1 --because disk-failed
";

pub(crate) const HOST_DECOMMISSION_ENDS: &str = "\
Exit codes: 0 it is out, 1 failed, 3 not found or out already, 4 its peers would lose much and nobody said that it is \
meant, 5 not allowed (operator or admin), 64 wrong usage.";

pub(crate) const ENROL: &str = "\
Examples:
  holdfast enrol-token create -n booking --label app=web --out web.token
  holdfast enrol-token list
";

pub(crate) const ENROL_CREATE: &str = "\
A host that enrols by the token gets its namespace, labels and ports: it cannot say them itself.

Examples:
  holdfast enrol-token create --namespace booking --label app=web \\
    --address 10.71.0.0/16 --out web.token
  holdfast enrol-token create --uses 50 --ttl 24h --port http=80/tcp -o json

With the file on the host, there (the pin is in public/ca.pin of the folder that `holdfast-renderer init` made):
  sudo holdfast-agent enrol --token-file web.token \\
    --gateway https://10.71.0.1:7443 --ca-pin sha256:…
";

pub(crate) const ENROL_LIST: &str = "Examples:\n  holdfast enrol-token list\n";
pub(crate) const ENROL_REVOKE: &str =
    "Examples:\n  holdfast enrol-token revoke et_01890a5d-ac96-774b-bcce-b302099a8057\n";

pub(crate) const TOKEN: &str = "\
Examples:
  holdfast api-token create ci --role editor -n booking --ttl 90d --out ci.token
  holdfast api-token list
";

pub(crate) const TOKEN_CREATE: &str = "\
viewer reads; editor also authors; operator also makes enrolment tokens and asks things of hosts; auditor reads the audit log; admin may all.

Examples:
  holdfast api-token create ci --role editor -n booking --ttl 90d --out ci.token
  holdfast api-token create anna --role admin --out anna.token
";

pub(crate) const TOKEN_LIST: &str = "Examples:\n  holdfast api-token list\n";
pub(crate) const TOKEN_REVOKE: &str =
    "Examples:\n  holdfast api-token revoke at_01890a5d-ac96-774b-bcce-b302099a8057\n";

pub(crate) const OPERATION: &str = "\
Every accepted change is an operation, with the hosts that it is for; `holdfast get operations` is the same list.

Examples:
  holdfast operation list
  holdfast operation get op_01890a5d-ac96-774b-bcce-b302099a8057
  holdfast operation hosts op_01890a5d-ac96-774b-bcce-b302099a8057
";

pub(crate) const OPERATION_LIST: &str = "Examples:\n  holdfast operation list\n";
pub(crate) const OPERATION_GET: &str = "Examples:\n  holdfast operation get op_01890a5d-ac96-774b-bcce-b302099a8057\n";
pub(crate) const OPERATION_HOSTS: &str =
    "Examples:\n  holdfast operation hosts op_01890a5d-ac96-774b-bcce-b302099a8057\n";
pub(crate) const OPERATION_CANCEL: &str = "\
Whoever might have made the change may cancel its operation. The intent stays as it is: to take it back, apply what was \
in force before.

Examples:
  holdfast operation cancel op_01890a5d-ac96-774b-bcce-b302099a8057
";

pub(crate) const OPERATION_ENDS: &str = "\
Exit codes: 0 shown, or ended as applied, 1 ended otherwise, 3 not found, 4 superseded, 5 not allowed, 6 not ended by \
the deadline, 64 wrong usage.";

pub(crate) const ROLLOUT: &str = "\
A change that is applied with `--rollout` goes through the fleet in stages. The hosts of a stage get it when every host \
of those before is proven to have it; the others are held at the revision before, whatever else is applied meanwhile. It \
halts by itself when hosts fail or are not heard, and then nobody else gets it. There is one at a time.

Examples:
  holdfast apply -f policies/ --rollout --stage canary=true --stage 10%
  holdfast rollout list
  holdfast rollout watch ro_01890a5d-ac96-774b-bcce-b302099a8057
  holdfast rollout abort ro_01890a5d-ac96-774b-bcce-b302099a8057
";

pub(crate) const ROLLOUT_LIST: &str = "Examples:\n  holdfast rollout list\n";
pub(crate) const ROLLOUT_GET: &str = "Examples:\n  holdfast rollout get ro_01890a5d-ac96-774b-bcce-b302099a8057\n";
pub(crate) const ROLLOUT_WATCH: &str = "\
Examples:
  holdfast rollout watch ro_01890a5d-ac96-774b-bcce-b302099a8057 --timeout 2h
";
pub(crate) const ROLLOUT_PAUSE: &str = "Examples:\n  holdfast rollout pause ro_01890a5d-ac96-774b-bcce-b302099a8057\n";
pub(crate) const ROLLOUT_RESUME: &str = "\
What is seen of its hosts counts anew, and the stage has its whole time: one that halted for what is not mended halts \
again.

Examples:
  holdfast rollout resume ro_01890a5d-ac96-774b-bcce-b302099a8057
";
pub(crate) const ROLLOUT_ABORT: &str = "\
What it changed is as it was before, as a new revision: hosts that had it get new versions, the others never see it. An \
object that a later change changed again stays, and is named.

Examples:
  holdfast rollout abort ro_01890a5d-ac96-774b-bcce-b302099a8057
";

pub(crate) const ROLLOUT_ENDS: &str = "\
Exit codes: 0 finished, 1 halted or aborted, 3 not found, 4 finished with something else in its place, or in a state from \
which it does not go there, 5 not allowed, 6 neither by the deadline, 64 wrong usage, 130 Ctrl-C.";

pub(crate) const REBUILD: &str = "\
Every table is folded anew from the events and compared column by column: a difference is a defect, or somebody wrote \
into the database. `--check` says that nothing is written; nothing else can be asked for in this version.

Examples:
  holdfast rebuild --check
";

pub(crate) const AUTHORITY: &str = "\
A database that was restored from a backup, or promoted from a replica, may have forgotten what hosts hold. Hosts \
refuse to go back by themselves: an operator says what happened, sees whom it takes back, and confirms it.

Examples:
  holdfast authority show
  holdfast authority bump --because backup-of-03:00
  holdfast authority confirm --expect 4
";

pub(crate) const AUTHORITY_SHOW: &str = "Examples:\n  holdfast authority show\n";
pub(crate) const AUTHORITY_BUMP: &str = "\
Hosts keep what they hold. They begin new sessions within a minute and say what that is: `holdfast authority show` \
counts who would go back.

Examples:
  holdfast authority bump --because backup-of-03:00
  holdfast authority bump --because promoted --above 7   # hosts know epoch 7
";
pub(crate) const AUTHORITY_CONFIRM: &str = "\
The number is the one that `holdfast authority show` tells; a host that comes back later is asked about anew.

Examples:
  holdfast authority confirm --expect 4
";

pub(crate) const AUDIT: &str = "\
Examples:
  holdfast audit tail                              # the last 20 events
  holdfast audit checkpoint > checkpoint.json      # keep it elsewhere
  holdfast audit verify --against checkpoint.json  # unchanged since
";

pub(crate) const TAIL: &str = "\
Examples:
  holdfast audit tail            # the last 20 events
  holdfast audit tail -n 100
  holdfast audit tail --since 1h
  holdfast audit tail --follow   # and what comes, until Ctrl-C
  # every entry as it is kept, one a line:
  holdfast audit tail --from 1 -o json > log.ndjson
";

pub(crate) const VERIFY: &str = "\
The whole log is read and every hash computed here. Only a checkpoint that was kept elsewhere shows that the end was \
not cut off or rewritten: keep what `holdfast audit checkpoint` prints.

Examples:
  holdfast audit verify
  holdfast audit verify --against checkpoint.json --key audit-signing.pub
  holdfast audit verify --log copy.ndjson
";

pub(crate) const CHECKPOINT: &str = "Examples:\n  holdfast audit checkpoint > checkpoint.json\n";

pub(crate) const DOCTOR: &str = "\
Looks at settings, files, name, address, certificate, clock, token, every part of the plane that the API can see, and \
the fleet; each line that is not well says what to do. On a host: `holdfast-agent doctor`.

Examples:
  holdfast doctor
  holdfast doctor -o json
";

pub(crate) const DOCTOR_ENDS: &str = "\
Exit codes: 0 everything is well, 1 something is in trouble, 8 nothing is, but something is under way or overdue: look \
again, 64 wrong usage.";

pub(crate) const LAB: &str = "\
Examples:
  holdfast lab probe web-1 db-1 5432/tcp   # a real packet
  holdfast lab --help
";

pub(crate) const COMPLETION: &str = "\
Examples:
  source <(holdfast completion bash)   # for this shell
  holdfast completion bash > /etc/bash_completion.d/holdfast
  holdfast completion zsh > ~/.zfunc/_holdfast
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish
";

pub(crate) const MAN: &str = "\
Examples:
  holdfast man | man -l -   # read the page
  holdfast man --folder /usr/local/share/man/man1  # one page for every command
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    fn every(command: &Command, path: &str, seen: &mut Vec<(String, Command)>) {
        let path = format!("{path}{} ", command.get_name());
        seen.push((path.clone(), command.clone()));
        command.get_subcommands().for_each(|sub| every(sub, &path, seen));
    }

    fn all() -> Vec<(String, Command)> {
        let mut seen = Vec::new();
        every(&args::command(), "", &mut seen);
        seen
    }

    /// The examples of a page, as they are typed, each line of one joined.
    fn examples(command: &Command) -> Vec<String> {
        let text = command.get_before_help().map(ToString::to_string).unwrap_or_default();
        let Some((_, listed)) = text.split_once("Examples") else { return Vec::new() };
        let typed = |line: &str| line.split(" # ").next().unwrap_or_default().trim().to_owned();
        let listed = listed.replace(" \\\n   ", "");
        listed.lines().skip(1).filter_map(|line| line.strip_prefix("  ")).map(typed).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        args::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_is_for_shows_an_example_of_itself_and_how_it_ends() {
        for (path, command) in all() {
            assert!(command.get_about().is_some(), "{path}has no line of its own");
            let shown = examples(&command);
            assert!(shown.iter().any(|one| one.contains(path.trim())), "{path}has no example of itself: {shown:?}");
            let end = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(end.contains("Exit codes:"), "{path}does not say how it ends");
        }
    }

    #[test]
    fn every_argument_says_what_it_is() {
        for (path, command) in all() {
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some() || argument.get_id() == "name", "{path}{}", argument.get_id());
            }
        }
    }

    /// Prose is wrapped where it is read; an example that wraps cannot be copied.
    #[test]
    fn no_example_is_wider_than_a_page() {
        for (path, command) in all() {
            let text = command.get_before_help().map(ToString::to_string).unwrap_or_default();
            let wide = text.lines().find(|line| line.starts_with("  ") && line.chars().count() > 80);
            assert!(wide.is_none(), "{path}{wide:?}");
        }
    }

    /// What is copied whole must not hand its remark to the command.
    #[test]
    fn a_remark_beside_an_example_is_one_to_the_shell_too() {
        for (path, command) in all() {
            let wrong = examples(&command).into_iter().find(|line| line.contains("  "));
            assert!(wrong.is_none(), "{path}{wrong:?}");
        }
    }

    #[test]
    fn every_example_is_a_command_line() {
        let mut count = 0;
        for (path, command) in all() {
            for line in examples(&command) {
                let Some(own) =
                    line.split(['|', '<', '>', '(', ')']).map(str::trim).find(|part| part.starts_with("holdfast "))
                else {
                    continue;
                };
                let parsed = args::command().try_get_matches_from(own.split_whitespace());
                match parsed {
                    Ok(_) => count += 1,
                    Err(error) => {
                        assert!(!error.use_stderr(), "{path}: `{own}`: {error}");
                        count += 1;
                    }
                }
            }
        }
        assert!(count > 50, "{count} examples: they are found");
    }

    #[test]
    fn examples_stand_before_the_flags() {
        let mut command = args::command();
        let apply = command.find_subcommand_mut("apply").expect("apply");
        let page = apply.render_long_help().to_string();
        let at = |word: &str| page.find(word).unwrap_or_else(|| panic!("no {word} in {page}"));
        assert!(
            at("Examples:") < at("Usage:")
                && at("Usage:") < at("      --prune")
                && at("      --prune") < at("Exit codes:")
        );
        assert!(!page.contains("HOLDFAST_TOKEN_FILE"), "the settings of all commands are on the first page: {page}");
    }
}
