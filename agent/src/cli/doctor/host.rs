//! What the host gives: kernel, rights, and a folder that takes what is to be kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use holdfast_runtime::Chain;
use holdfast_wire::limits::BODY_BYTES_MAX;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};

use super::Findings;
use crate::engine::{Attempt, Depth, Kernel as _};
use crate::nft::{Netfilter, TableOwner};
use crate::plan::{Kept, layout};
use crate::standalone::parse_policy;

/// `CAP_NET_ADMIN` of `linux/capability.h`.
const NET_ADMIN_BIT: u32 = 12;
/// The largest policy twice: the one that is kept, and the next one beside it.
const ROOM_BYTES_MIN: u64 = 2 * BODY_BYTES_MAX as u64;
/// Everything that a rendered policy asks of nf_tables: sets of intervals of both families, ports, ICMP, a drop, connection tracking.
const TRIAL: &[u8] = br#"{"mode": "enforced", "ingress": {"isolated": true, "rules": [
    {"action": "allow", "protocol": "tcp", "ports": [80, "8000-8099"], "peers": ["192.0.2.0/25", "2001:db8::1"]},
    {"action": "deny", "protocol": "icmp", "log": true}]}, "egress": {"isolated": false}}"#;

pub(super) fn look(state: &Path, findings: &mut Findings) {
    kernel(findings);
    if capability(findings) {
        nf_tables(findings);
    } else {
        let remedy = "run this as root: sudo holdfast-agent doctor";
        findings.unwell("nf_tables", "was not tried: this process lacks CAP_NET_ADMIN", remedy);
    }
    folder(state, findings);
}

fn kernel(findings: &mut Findings) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    findings.well("kernel", format!("Linux {}", release.trim()));
}

/// Whether this process may write rulesets.
fn capability(findings: &mut Findings) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let has = has_net_admin(&status);
    if has {
        findings.well("CAP_NET_ADMIN", "this process has it");
    } else {
        let remedy =
            "run it as root, or give the container or unit CAP_NET_ADMIN (AmbientCapabilities=, --cap-add NET_ADMIN)";
        findings.unwell("CAP_NET_ADMIN", "this process lacks it: no ruleset can be written", remedy);
    }
    has
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
        kernel.holds_table().map_err(|cause| Chain(cause.as_ref()).to_string())?;
        return Ok("answers; a trial needs a network namespace of its own (CAP_SYS_ADMIN), and was not made".to_owned());
    }
    let body = parse_policy(TRIAL).map_err(|error| error.to_string())?;
    match kernel.apply(None, &layout(&body, &Kept::default()), Depth::Whole) {
        Attempt::Holds => {
            Ok("took intervals of both families, ports and connection tracking, and gave them back as written"
                .to_owned())
        }
        Attempt::Refused(cause) | Attempt::Unreadable(cause) => {
            Err(format!("a trial in a namespace of its own failed: {}", Chain(cause.as_ref())))
        }
        Attempt::Differs(difference) => Err(format!("a trial was not given back as written: {difference}")),
    }
}

fn folder(state: &Path, findings: &mut Findings) {
    const NAME: &str = "state folder";
    let shown = state.display();
    let mode = match fs::metadata(state) {
        Ok(found) if !found.is_dir() => {
            return findings.unwell(NAME, format!("{shown} is no folder"), "name another by --state");
        }
        Ok(found) => found.permissions().mode() & 0o7777,
        Err(error) => {
            let remedy = "enrol the host (holdfast-agent enrol --help), or name its folder by --state (in the lab: holdfast-lab hosts)";
            return findings.unwell(NAME, format!("{shown} cannot be read: {error}"), remedy);
        }
    };
    if mode & 0o077 != 0 {
        let detail = format!("{shown} is open to others (mode {mode:04o})");
        return findings.unwell(NAME, detail, "chmod 0700: keys and the last good policy are in it");
    }
    if mode & 0o700 != 0o700 {
        let detail = format!("{shown} is closed to its owner (mode {mode:04o})");
        return findings.unwell(NAME, detail, "chmod 0700: what is not durable is not put into force");
    }
    if let Err(errno) = access(state, AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK) {
        let remedy = if errno == Errno::EACCES {
            "run this as root (sudo holdfast-agent doctor), or give the folder to the user that the agent runs as"
        } else if errno == Errno::EROFS {
            "mount it for writing: what is not durable is not put into force"
        } else {
            "look at the file system: what is not durable is not put into force"
        };
        return findings.unwell(NAME, format!("{shown} cannot be written: {}", errno.desc()), remedy);
    }
    match statvfs(state) {
        Ok(found) => {
            let bytes = found.blocks_available().saturating_mul(found.fragment_size());
            // A file system without a fixed number of files says that it has none.
            let has_files = found.files() == 0 || found.files_available() > 0;
            room(&format!("{shown} (mode {mode:04o}), can be written"), bytes, has_files, findings);
        }
        Err(errno) => findings.unwell(
            NAME,
            format!("{shown} does not say how full it is: {}", errno.desc()),
            "look at the file system",
        ),
    }
}

fn room(what: &str, bytes: u64, has_files: bool, findings: &mut Findings) {
    let detail = format!("{what}, {} MiB are free", bytes >> 20);
    if bytes >= ROOM_BYTES_MIN && has_files {
        return findings.well("state folder", detail);
    }
    let detail = if has_files { detail } else { format!("{detail}, but no file more") };
    let remedy = format!(
        "make room: the largest policy needs {} MiB, and what is not durable is not put into force",
        ROOM_BYTES_MIN >> 20
    );
    findings.unwell("state folder", detail, &remedy);
}

#[cfg(test)]
mod tests {
    use super::super::seen;
    use super::*;

    #[test]
    fn the_capability_is_read_from_what_the_kernel_says_of_the_process() {
        assert!(has_net_admin("Name:\tx\nCapEff:\t0000000000001000\n"));
        assert!(has_net_admin("CapEff:\t000001ffffffffff\n"));
        assert!(!has_net_admin("CapEff:\t000001ffffffefff\n") && !has_net_admin("") && !has_net_admin("CapEff:\tx\n"));
    }

    #[test]
    fn a_folder_that_is_away_open_to_others_or_closed_to_its_owner_is_trouble() {
        let folder = tempfile::tempdir().expect("a folder");
        let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).expect("sets");
        let detail = || seen(|findings| super::folder(folder.path(), findings)).detail;
        mode(0o700);
        assert!(detail().contains("(mode 0700), can be written"), "{}", detail());
        for (bits, word) in [(0o750, "open to others (mode 0750)"), (0o500, "closed to its owner (mode 0500)")] {
            mode(bits);
            let check = seen(|findings| super::folder(folder.path(), findings));
            assert!(!check.ok && check.detail.contains(word), "{check:?}");
        }
        mode(0o700);
        let away = folder.path().join("away");
        assert!(!seen(|findings| super::folder(&away, findings)).ok);
        fs::write(&away, "").expect("writes");
        assert!(seen(|findings| super::folder(&away, findings)).detail.contains("no folder"));
    }

    #[test]
    fn room_for_less_than_the_largest_policy_twice_is_trouble() {
        assert!(seen(|findings| room("x", 64 << 20, true, findings)).ok);
        assert!(!seen(|findings| room("x", (64 << 20) - 1, true, findings)).ok);
        assert!(!seen(|findings| room("x", 1 << 40, false, findings)).ok);
    }

    #[test]
    fn the_trial_asks_for_what_a_policy_may_ask_for() {
        let body = parse_policy(TRIAL).expect("reads");
        assert!(body.ingress.isolated && body.sets.iter().any(|set| !set.v6.is_empty()), "{body:?}");
    }
}
