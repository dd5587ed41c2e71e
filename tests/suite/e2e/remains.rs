//! What a run may leave behind: processes, network namespaces, rulesets.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use holdfast_lab::topology::tag_of;

/// What there is now.
#[derive(Debug)]
pub(crate) struct Remains {
    namespaces: BTreeSet<String>,
    tables: BTreeSet<String>,
    processes: Vec<(u32, String)>,
}

impl Remains {
    /// Looks.
    pub(crate) fn observe() -> Self {
        Self {
            namespaces: lines("ip", &["netns", "list"]),
            tables: lines("nft", &["list", "tables"]),
            processes: processes(),
        }
    }

    /// What was not there before, or is of the plane in a folder.
    pub(crate) fn beyond(self, before: &Self, folder: &Path) -> Vec<String> {
        let folder = folder.to_str().expect("a plain path");
        let of_plane = |(pid, line): &(u32, String)| line.contains(folder).then(|| format!("process {pid}: {line}"));
        let new = |now: &BTreeSet<String>, then: &BTreeSet<String>| now.difference(then).cloned().collect::<Vec<_>>();
        let tag = tag_of(&Path::new(folder).join("lab"));
        let mut left = new(&self.namespaces, &before.namespaces);
        // Another lab of this machine may have been made meanwhile; its names are of another tag.
        left.retain(|name| name.starts_with(&tag) || !name.starts_with("hf-"));
        left.extend(new(&self.tables, &before.tables));
        left.extend(self.processes.iter().filter_map(of_plane));
        left
    }
}

fn lines(program: &str, arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// The command line of every process.
fn processes() -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").expect("there is a proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()));
    // One that ended meanwhile has no command line.
    let line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).ok().map(|line| (pid, line));
    pids.filter_map(line).map(|(pid, line)| (pid, String::from_utf8_lossy(&line).replace('\0', " "))).collect()
}
