//! `holdfast-agent doctor`: whether this host can do what the agent needs, and what to do where it cannot.
//!
//! - Nothing of the host is changed: the kernel is tried in a network namespace of its own, which ends with the trial.
//! - What a running agent knows it is asked; what it keeps on disk is read.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use holdfast_identity::https::{Client, Request};
use holdfast_identity::tls;
use holdfast_runtime::Chain;
use hyper::Method;
use hyper::header::DATE;
use nix::sched::{CloneFlags, unshare};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

use crate::engine::{Attempt, Depth, Kernel as _};
use crate::enrolment::{self, Enrolment};
use crate::local::{self, Answer, Question};
use crate::nft::{Netfilter, TableOwner};
use crate::plan::{Kept, layout};
use crate::service::{LedgerState, Status};
use crate::standalone::parse_policy;

/// `CAP_NET_ADMIN` of `linux/capability.h`.
const NET_ADMIN_BIT: u32 = 12;
/// How long a gateway may take to answer.
const GATEWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// How far two clocks may be apart.
const SKEW_SECONDS_MAX: i64 = 60;
/// Everything that a rendered policy asks of nf_tables: sets of intervals of both families, ports, ICMP, a drop, connection tracking.
const TRIAL: &[u8] = br#"{"mode": "enforced", "ingress": {"isolated": true, "rules": [
    {"action": "allow", "protocol": "tcp", "ports": [80, "8000-8099"], "peers": ["192.0.2.0/25", "2001:db8::1"]},
    {"action": "deny", "protocol": "icmp", "log": true}]}, "egress": {"isolated": false}}"#;

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Everything that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Findings {
    checks: Vec<Check>,
}

impl Findings {
    fn well(&mut self, name: &'static str, detail: impl Into<String>) {
        self.checks.push(Check { name, ok: true, detail: detail.into(), remedy: None });
    }

    fn unwell(&mut self, name: &'static str, detail: impl Into<String>, remedy: &str) {
        self.checks.push(Check { name, ok: false, detail: detail.into(), remedy: Some(remedy.to_owned()) });
    }

    /// Whether nothing is in trouble.
    pub(super) fn is_well(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// One screen for people.
    pub(super) fn print(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        for check in &self.checks {
            let word = if check.ok { "ok     " } else { "TROUBLE" };
            writeln!(out, "{word}  {:<14}  {}", check.name, check.detail)?;
            if let Some(remedy) = &check.remedy {
                writeln!(out, "         {:<14}  -> {remedy}", "")?;
            }
        }
        Ok(())
    }
}

/// Looks at everything.
pub(super) async fn look(state: &Path) -> Findings {
    let mut findings = Findings::default();
    kernel(&mut findings);
    capability(&mut findings);
    nf_tables(&mut findings);
    folder(state, &mut findings);
    let status = running(state, &mut findings);
    identity(state, status.as_ref(), &mut findings).await;
    findings
}

fn kernel(findings: &mut Findings) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    findings.well("kernel", format!("Linux {}", release.trim()));
}

fn capability(findings: &mut Findings) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if has_net_admin(&status) {
        findings.well("CAP_NET_ADMIN", "this process has it");
    } else {
        let remedy =
            "run it as root, or give the container or unit CAP_NET_ADMIN (AmbientCapabilities=, --cap-add NET_ADMIN)";
        findings.unwell("CAP_NET_ADMIN", "this process lacks it: no ruleset can be written", remedy);
    }
}

fn has_net_admin(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & (1 << NET_ADMIN_BIT) != 0
}

fn nf_tables(findings: &mut Findings) {
    const NAME: &str = "nf_tables";
    // A thread of its own: a network namespace belongs to a thread, and this one ends with it.
    let tried = std::thread::spawn(trial).join();
    match tried {
        Ok(Ok(detail)) => findings.well(NAME, detail),
        Ok(Err(error)) => {
            let remedy = "the kernel needs nf_tables with inet tables, interval sets and connection tracking: CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET, \
                          CONFIG_NFT_CT; modprobe nf_tables nft_ct";
            findings.unwell(NAME, error, remedy);
        }
        Err(_) => findings.unwell(NAME, "the trial broke", "report it as a fault, with the kernel's version"),
    }
}

/// Writes a ruleset that asks for everything into a namespace of its own and reads it back.
fn trial() -> Result<String, String> {
    let alone = unshare(CloneFlags::CLONE_NEWNET).is_ok();
    let mut kernel = Netfilter::open(TableOwner::Off).map_err(|error| Chain(&error).to_string())?;
    if !alone {
        kernel.holds_table().map_err(|cause| format!("{cause:?}"))?;
        return Ok("answers; a trial needs a network namespace of its own (CAP_SYS_ADMIN), and was not made".to_owned());
    }
    let body = parse_policy(TRIAL).map_err(|error| error.to_string())?;
    match kernel.apply(None, &layout(&body, &Kept::default()), Depth::Whole) {
        Attempt::Holds => {
            Ok("took intervals of both families, ports and connection tracking, and gave them back as written"
                .to_owned())
        }
        Attempt::Refused(cause) | Attempt::Unreadable(cause) => {
            Err(format!("a trial in a namespace of its own failed: {cause:?}"))
        }
        Attempt::Differs(difference) => Err(format!("a trial was not given back as written: {difference:?}")),
    }
}

fn folder(state: &Path, findings: &mut Findings) {
    const NAME: &str = "state folder";
    match fs::metadata(state) {
        Ok(found) if !found.is_dir() => {
            findings.unwell(NAME, format!("{} is no folder", state.display()), "name another by --state");
        }
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            let mode = found.permissions().mode() & 0o7777;
            let detail = format!("{} is open to others (mode {mode:04o})", state.display());
            findings.unwell(NAME, detail, "chmod 0700: keys and the last good policy are in it");
        }
        Ok(_) => findings.well(NAME, format!("{} (mode 0700)", state.display())),
        Err(error) => {
            let detail = format!("{} cannot be read: {error}", state.display());
            findings.unwell(
                NAME,
                detail,
                "enrol the host (holdfast-agent enrol --help), or name its folder by --state",
            );
        }
    }
}

/// What a running agent says of itself.
fn running(state: &Path, findings: &mut Findings) -> Option<Status> {
    const NAME: &str = "agent";
    match local::ask(state, Question::Status) {
        Ok(Answer::Status(status)) => {
            let policy = &status.policy;
            match (&policy.fault, policy.proven) {
                (None, true) => {
                    findings.well(NAME, format!("runs (pid {}), and the kernel holds its policy", status.pid))
                }
                (fault, _) => {
                    let fault = fault.clone().unwrap_or_else(|| "the kernel was not read back yet".to_owned());
                    let detail = format!("runs (pid {}), but its policy is not proven: {fault}", status.pid);
                    findings.unwell(
                        NAME,
                        detail,
                        "holdfast-agent status says more; what another tool wrote is in `nft list ruleset`",
                    );
                }
            }
            ledger(&policy.ledger, findings);
            Some(*status)
        }
        Ok(Answer::Failed(reason)) => {
            findings.unwell(NAME, reason, "look at the agent's log");
            None
        }
        Ok(Answer::Reloaded(_) | Answer::Down { .. }) => {
            findings.unwell(NAME, "an unexpected answer", "another build's agent runs: restart it");
            None
        }
        Err(error) => {
            findings.unwell(
                NAME,
                Chain(&error).to_string(),
                "start it: holdfast-agent run (what the kernel holds stays enforced meanwhile)",
            );
            None
        }
    }
}

fn ledger(ledger: &LedgerState, findings: &mut Findings) {
    const NAME: &str = "ledger";
    match ledger {
        LedgerState::Loaded => findings.well(NAME, "the last good policy was on disk when the agent started"),
        LedgerState::Missing => findings.well(NAME, "there was none when the agent started: the first policy makes it"),
        LedgerState::Unusable(fault) => {
            let remedy = "the agent keeps the kernel's table until a policy comes; look at the disk, the damaged file is kept beside";
            findings.unwell(NAME, fault.clone(), remedy);
        }
    }
}

async fn identity(state: &Path, status: Option<&Status>, findings: &mut Findings) {
    const NAME: &str = "identity";
    let enrolment = match Enrolment::load(state) {
        Ok(enrolment) => enrolment,
        Err(enrolment::Error::Absent) if status.is_some_and(|status| status.session.is_none()) => {
            findings.well(NAME, "none: this agent takes its policy from a file");
            return;
        }
        Err(error) => {
            let remedy = "enrol it with a new token: holdfast-agent enrol --help";
            findings.unwell(NAME, Chain(&error).to_string(), remedy);
            return;
        }
    };
    match enrolment.credential() {
        Ok(credential) => dates(&enrolment, credential.validity().not_after, OffsetDateTime::now_utc(), findings),
        Err(error) => {
            findings.unwell(NAME, Chain(&error).to_string(), "enrol it with a new token: holdfast-agent enrol --help")
        }
    }
    let mut skew = None;
    let mut reached = 0_usize;
    for name in &enrolment.gateways {
        match gateway(&enrolment, name).await {
            Ok(apart) => {
                reached += 1;
                skew = skew.or(apart);
            }
            Err(error) => findings.unwell(
                "gateway",
                format!("{name}: {error}"),
                "is it up, is the way open (firewalls between, the gateways' own addresses), is it of this authority?",
            ),
        }
    }
    if reached > 0 {
        findings.well(
            "gateways",
            format!("{reached} of {} answer under the CA of the enrolment", enrolment.gateways.len()),
        );
    }
    if let Some(seconds) = skew {
        clock(seconds, findings);
    }
}

fn dates(enrolment: &Enrolment, until: OffsetDateTime, now: OffsetDateTime, findings: &mut Findings) {
    let date = until.format(&Rfc3339).unwrap_or_else(|_| until.to_string());
    let detail = format!("{}, certificate until {date}", enrolment.host);
    if until <= now {
        let remedy = "no gateway lets it in any more: enrol it with a new token: holdfast-agent enrol --help";
        findings.unwell("identity", format!("{detail}, which is over"), remedy);
    } else {
        findings.well("identity", detail);
    }
}

fn clock(seconds: i64, findings: &mut Findings) {
    let detail = match seconds {
        -2..=2 => "the same as the gateway's".to_owned(),
        ahead @ 3.. => format!("{ahead} s ahead of the gateway's"),
        behind => format!("{} s behind the gateway's", behind.unsigned_abs()),
    };
    if seconds.abs() > SKEW_SECONDS_MAX {
        findings.unwell("clock", detail, "set both clocks by NTP (timedatectl): certificates are good by the clock");
    } else {
        findings.well("clock", detail);
    }
}

/// How far this clock is ahead of a gateway's, if it says what time it is there.
async fn gateway(enrolment: &Enrolment, name: &str) -> Result<Option<i64>, String> {
    let addresses: Vec<SocketAddr> = name.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    if addresses.is_empty() {
        return Err("the name has no address".to_owned());
    }
    let config = tls::https(&enrolment.roots).map_err(|error| Chain(&error).to_string())?;
    let request = Request::new(Method::GET, format!("https://{name}/")).timeout(GATEWAY_TIMEOUT);
    // Whatever it answers: that it does, under this CA, is what was asked.
    let response = Client::new(config).request(request).await.map_err(|error| Chain(&error).to_string())?;
    let told = response.headers.get(DATE).and_then(|date| date.to_str().ok()).map(|date| date.replace("GMT", "+0000"));
    let theirs = told.and_then(|date| OffsetDateTime::parse(&date, &Rfc2822).ok());
    Ok(theirs.map(|theirs| (OffsetDateTime::now_utc() - theirs).whole_seconds()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(findings: &Findings) -> &Check {
        let [check] = findings.checks.as_slice() else { panic!("{findings:?}") };
        assert_eq!(check.ok, check.remedy.is_none(), "who is told of trouble is told what to do: {check:?}");
        check
    }

    fn seen(look: impl FnOnce(&mut Findings)) -> Check {
        let mut findings = Findings::default();
        look(&mut findings);
        only(&findings).clone()
    }

    #[test]
    fn the_capability_is_read_from_what_the_kernel_says_of_the_process() {
        assert!(has_net_admin("Name:\tx\nCapEff:\t0000000000001000\n"));
        assert!(has_net_admin("CapEff:\t000001ffffffffff\n"));
        assert!(!has_net_admin("CapEff:\t000001ffffffefff\n") && !has_net_admin("") && !has_net_admin("CapEff:\tx\n"));
    }

    #[test]
    fn a_folder_that_is_away_or_open_to_others_is_trouble() {
        let folder = tempfile::tempdir().expect("a folder");
        let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).expect("sets");
        mode(0o700);
        assert!(seen(|findings| super::folder(folder.path(), findings)).ok);
        mode(0o750);
        assert!(seen(|findings| super::folder(folder.path(), findings)).detail.contains("0750"));
        let away = folder.path().join("away");
        assert!(!seen(|findings| super::folder(&away, findings)).ok);
        fs::write(&away, "").expect("writes");
        assert!(seen(|findings| super::folder(&away, findings)).detail.contains("no folder"));
        mode(0o700);
    }

    #[test]
    fn an_agent_that_does_not_run_and_a_host_that_is_not_enrolled_are_trouble() {
        let folder = tempfile::tempdir().expect("a folder");
        let check = seen(|findings| assert!(running(folder.path(), findings).is_none()));
        assert!(!check.ok && check.remedy.is_some_and(|remedy| remedy.contains("holdfast-agent run")));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let check = seen(|findings| runtime.block_on(identity(folder.path(), None, findings)));
        assert!(!check.ok && check.detail.contains("not enrolled"), "{check:?}");
    }

    #[test]
    fn a_ledger_that_could_not_be_used_and_a_clock_a_minute_off_are_trouble() {
        assert!(seen(|findings| ledger(&LedgerState::Loaded, findings)).ok);
        assert!(seen(|findings| ledger(&LedgerState::Missing, findings)).ok);
        assert!(!seen(|findings| ledger(&LedgerState::Unusable("torn".to_owned()), findings)).ok);
        assert!(seen(|findings| clock(60, findings)).ok);
        assert!(!seen(|findings| clock(-61, findings)).ok);
    }

    #[test]
    fn the_trial_asks_for_what_a_policy_may_ask_for() {
        let body = parse_policy(TRIAL).expect("reads");
        assert!(body.ingress.isolated && body.sets.iter().any(|set| !set.v6.is_empty()), "{body:?}");
    }
}
