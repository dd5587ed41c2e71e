//! The lab's record on disk: what it owns, by exact name and process id.
//!
//! - It is written before what it names is made and removed after that is gone, so a crash at any moment leaves a record that covers all of it.
//! - It is replaced by rename: a reader sees the old record or the new one.
//!
//! It does not say what really exists now; namespaces and processes are asked for that.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::topology::Blocks;

/// The record's file in the lab's folder.
const FILE: &str = "lab.json";
/// The form that this code writes.
const FORMAT: &str = "holdfast-lab/1";

/// A process that the lab started. The start time tells it apart from a later process of the same id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub started_ticks: u64,
}

/// One host of the lab.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Its name in the estate.
    pub name: String,
    /// Its network namespace.
    pub namespace: String,
    /// The namespace that its estate says it is in.
    #[serde(default)]
    pub estate_namespace: Option<String>,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// The addresses by which the control plane and the host reach each other; no estate knows them.
    pub management: Vec<IpAddr>,
    /// The agent, where one was started.
    pub agent: Option<Process>,
    /// The folder of the host's agent.
    pub state: PathBuf,
}

/// What a lab owns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    format: String,
    /// The start of the names of all its namespaces and links; made from the folder, so no other lab has it.
    pub tag: String,
    /// The namespace of the bridge, which routes between hosts, control and outside and has no way out.
    pub bridge: String,
    /// The namespace that answers for every address that is no host's.
    pub outside: String,
    /// The namespace of the control plane.
    pub control: String,
    /// Where its management addresses come from.
    pub blocks: Blocks,
    /// Whether all of it was made; a crash leaves `false`.
    pub ready: bool,
    /// The hosts, in the order of the plan.
    pub hosts: Vec<Host>,
    /// The estate that the hosts are from, where one was named.
    pub estate: Option<PathBuf>,
    /// The number of hosts that the estate was brought to, where that was asked for.
    #[serde(default)]
    pub hosts_wanted: Option<usize>,
    /// The program that puts all hosts into the mode that its one argument names, where the lab's fleet has one.
    pub mode_command: Option<PathBuf>,
}

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder holds no lab.
    #[error("there is no lab in {}: `up` makes one; that of ./ops/up is named by . .holdfast/env", .folder.display())]
    Absent {
        /// The lab's folder.
        folder: PathBuf,
    },
    /// The lab is another user's.
    #[error(
        "the lab in {} is root's: sudo --preserve-env=HOLDFAST_LAB \"$(command -v holdfast-lab)\" … (by its path, since sudo has a PATH of its own)",
        .folder.display()
    )]
    Denied {
        /// The lab's folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is there and cannot be read.
    #[error("cannot read the lab's record {}", .file.display())]
    Read {
        /// The record.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is no record.
    #[error("{} is no record of a lab", .file.display())]
    Parse {
        /// The record.
        file: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Another version wrote the record.
    #[error("{} has the form `{format}`, this program knows `{FORMAT}`", .file.display())]
    Format {
        /// The record.
        file: PathBuf,
        /// What it says.
        format: String,
    },
    /// The record cannot be put on disk.
    #[error("cannot write the lab's record {}", .file.display())]
    Write {
        /// The record.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Record {
    /// A record that owns the three namespaces that every lab has, under this tag.
    #[must_use]
    pub fn new(tag: String, blocks: Blocks) -> Self {
        Self {
            format: FORMAT.to_owned(),
            bridge: format!("{tag}.bridge"),
            outside: format!("{tag}.outside"),
            control: format!("{tag}.control"),
            tag,
            blocks,
            ready: false,
            hosts: Vec::new(),
            estate: None,
            hosts_wanted: None,
            mode_command: None,
        }
    }

    /// Reads the record of the lab in this folder.
    ///
    /// # Errors
    /// See [`Error`]; a folder without a lab is [`Error::Absent`].
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let file = folder.join(FILE);
        let bytes = fs::read(&file).map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                Error::Absent { folder: folder.to_owned() }
            } else if source.kind() == io::ErrorKind::PermissionDenied {
                Error::Denied { folder: folder.to_owned(), source }
            } else {
                Error::Read { file: file.clone(), source }
            }
        })?;
        let record: Self =
            serde_json::from_slice(&bytes).map_err(|source| Error::Parse { file: file.clone(), source })?;
        if record.format == FORMAT { Ok(record) } else { Err(Error::Format { file, format: record.format }) }
    }

    /// Puts the record on disk, in place of the one before.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn save(&self, folder: &Path) -> Result<(), Error> {
        let file = folder.join(FILE);
        let write = || {
            let mut next = tempfile::NamedTempFile::new_in(folder)?;
            serde_json::to_writer_pretty(&mut next, self)?;
            next.as_file().sync_all()?;
            next.persist(&file)?;
            fs::File::open(folder)?.sync_all()
        };
        write().map_err(|source| Error::Write { file: file.clone(), source })
    }

    /// Forgets the lab of this folder; it is no fault if there is none.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn remove(folder: &Path) -> Result<(), Error> {
        let file = folder.join(FILE);
        match fs::remove_file(&file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::Write { file, source }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The host of this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Every namespace that the lab owns.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        let own = [&self.bridge, &self.outside, &self.control];
        own.into_iter().chain(self.hosts.iter().map(|host| &host.namespace)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::HostPlan;
    use crate::topology;

    #[test]
    fn a_saved_record_is_read_back_and_owns_every_namespace_that_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let plan = HostPlan {
            name: "default/web[Deployment]".to_owned(),
            addresses: vec![[192, 0, 2, 1].into()],
            estate_namespace: None,
        };
        let mut record = topology::assign(folder.path(), &[plan]).unwrap();
        record.hosts[0].agent = Some(Process { pid: 7, started_ticks: 9 });
        record.save(folder.path()).unwrap();
        assert_eq!(Record::load(folder.path()).unwrap(), record);
        assert_eq!(record.namespaces().count(), 4);
    }

    #[test]
    fn a_folder_without_a_lab_is_told_apart_from_a_broken_record() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Record::load(folder.path()), Err(Error::Absent { .. })));
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(matches!(Record::load(folder.path()), Err(Error::Parse { .. })));
        Record::remove(folder.path()).unwrap();
        Record::remove(folder.path()).unwrap();
        assert!(matches!(Record::load(folder.path()), Err(Error::Absent { .. })));
    }
}
