//! One lab: made, found again and taken away, in its folder.
//!
//! - Making is idempotent: what stands and is the same stays as it is, what a crash left is taken away and made anew, what differs is refused.
//! - The record is on disk before the first namespace and goes after the last.
//! - Whatever lives in the lab's namespaces ends with it: those are its processes, whoever started them.
//! - One process at a time changes a lab; the others wait.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::netns::{self, BatchError, StopError};
use crate::plan::HostPlan;
use crate::record::{self, Host, Process, Record};
use crate::topology;

/// The lock's file in the lab's folder.
const LOCK_FILE: &str = "lock";
/// The folder of the hosts' state.
const HOSTS_FOLDER: &str = "hosts";

/// Why a lab cannot be made, found or taken away.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Namespaces are root's.
    #[error("a lab needs root: it makes network namespaces")]
    NotRoot,
    /// Its folder cannot be used.
    #[error("cannot use the folder {}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its lock cannot be taken.
    #[error("cannot lock the lab in {}", .folder.display())]
    Lock {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: nix::Error,
    },
    /// The hosts cannot be wired.
    #[error("these hosts make no lab")]
    Topology(#[from] topology::Error),
    /// The record fails.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// A namespace fails.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// The wiring fails.
    #[error("cannot wire the lab")]
    Wire(#[from] BatchError),
    /// A process of the lab lives on.
    #[error("cannot end what runs in the lab")]
    Stop(#[from] StopError),
    /// Another lab stands here.
    #[error("the lab in {} has other hosts; take it down first", .folder.display())]
    Differs {
        /// The folder.
        folder: PathBuf,
    },
    /// A host of that name is not there.
    #[error("the lab has no host `{name}`")]
    UnknownHost {
        /// The name.
        name: String,
    },
}

/// What happens to the hosts' state when a lab is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostState {
    /// It stays for the next lab in this folder.
    Keep,
    /// It goes.
    Wipe,
}

/// What [`Lab::ensure`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ensured {
    /// The lab was made.
    Made,
    /// It stood already and is as asked.
    Stood,
}

/// A lab that stands.
#[derive(Debug)]
pub struct Lab {
    folder: PathBuf,
    record: Record,
}

impl Lab {
    /// Finds the lab in a folder.
    ///
    /// # Errors
    /// [`Error::Folder`] and [`Error::Record`]; the latter also if there is none.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let record = Record::load(folder)?;
        Ok(Self { folder: absolute(folder)?, record })
    }

    /// Makes the lab of these hosts in a folder, unless it stands there already.
    ///
    /// # Errors
    /// See [`Error`]; a standing lab with other hosts is [`Error::Differs`] and stays.
    pub fn ensure(folder: &Path, plans: &[HostPlan]) -> Result<(Self, Ensured), Error> {
        require_root()?;
        make_folder(folder)?;
        let folder = absolute(folder)?;
        let _lock = lock(&folder)?;
        let mut record = topology::assign(&folder, plans)?;
        match Record::load(&folder) {
            Ok(standing) if stands(&standing)? => {
                return if same_hosts(&standing, &record) {
                    Ok((Self { folder, record: standing }, Ensured::Stood))
                } else {
                    Err(Error::Differs { folder })
                };
            }
            Ok(remains) => clear(&remains)?,
            Err(record::Error::Absent { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        record.save(&folder)?;
        make(&record)?;
        record.ready = true;
        record.save(&folder)?;
        Ok((Self { folder, record }, Ensured::Made))
    }

    /// Takes the lab of a folder away, with everything that runs in it; it is no fault if there is none.
    ///
    /// # Errors
    /// See [`Error`]; the record stays then, and a second try goes on where this one ended.
    pub fn remove(folder: &Path, state: HostState) -> Result<(), Error> {
        if !folder.exists() {
            return Ok(());
        }
        let folder = absolute(folder)?;
        let lock = lock(&folder)?;
        match Record::load(&folder) {
            Ok(record) => {
                require_root()?;
                clear(&record)?;
                Record::remove(&folder)?;
            }
            Err(record::Error::Absent { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if state == HostState::Wipe {
            let hosts = folder.join(HOSTS_FOLDER);
            match fs::remove_dir_all(&hosts) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Folder { folder: hosts, source });
                }
                Ok(()) | Err(_) => {}
            }
        }
        drop(lock);
        Ok(())
    }

    /// What it owns.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The host of this name.
    ///
    /// # Errors
    /// [`Error::UnknownHost`].
    pub fn host(&self, name: &str) -> Result<&Host, Error> {
        self.record.host(name).ok_or_else(|| Error::UnknownHost { name: name.to_owned() })
    }

    /// The host that has an address.
    #[must_use]
    pub fn host_at(&self, address: IpAddr) -> Option<&Host> {
        self.record.hosts.iter().find(|host| host.addresses.contains(&address))
    }

    /// The namespace that answers for an address: a host's, or the outside.
    #[must_use]
    pub fn namespace_of(&self, address: IpAddr) -> &str {
        self.host_at(address).map_or(&self.record.outside, |host| &host.namespace)
    }

    /// Writes down what `verify` needs to know of the lab's fleet.
    ///
    /// # Errors
    /// [`Error::Lock`] and [`Error::Record`].
    pub fn set_purpose(
        &mut self,
        estate: Option<PathBuf>,
        hosts_wanted: Option<usize>,
        mode_command: Option<PathBuf>,
    ) -> Result<(), Error> {
        let _lock = lock(&self.folder)?;
        self.record = Record::load(&self.folder)?;
        self.record.estate = estate;
        self.record.hosts_wanted = hosts_wanted;
        self.record.mode_command = mode_command;
        self.record.save(&self.folder)?;
        Ok(())
    }

    /// Writes down which process is the agent of a host, or that there is none.
    ///
    /// # Errors
    /// [`Error::UnknownHost`], [`Error::Lock`] and [`Error::Record`].
    pub fn set_agent(&mut self, host: &str, agent: Option<Process>) -> Result<(), Error> {
        let _lock = lock(&self.folder)?;
        // Another process may have written about other hosts in the meantime.
        self.record = Record::load(&self.folder)?;
        let found = self.record.hosts.iter_mut().find(|candidate| candidate.name == host);
        found.ok_or_else(|| Error::UnknownHost { name: host.to_owned() })?.agent = agent;
        self.record.save(&self.folder)?;
        Ok(())
    }
}

fn require_root() -> Result<(), Error> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err(Error::NotRoot) }
}

/// Makes a folder that only its owner reads: agents keep credentials in it.
fn make_folder(folder: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| Error::Folder { folder: folder.to_owned(), source })
}

fn absolute(folder: &Path) -> Result<PathBuf, Error> {
    folder.canonicalize().map_err(|source| Error::Folder { folder: folder.to_owned(), source })
}

fn lock(folder: &Path) -> Result<Flock<File>, Error> {
    let open = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK_FILE));
    let file = open.map_err(|source| Error::Folder { folder: folder.to_owned(), source })?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, source)| Error::Lock { folder: folder.to_owned(), source })
}

/// Whether all of a lab was made and is still there.
fn stands(record: &Record) -> Result<bool, Error> {
    if !record.ready {
        return Ok(false);
    }
    for namespace in record.namespaces() {
        if !netns::is_live(namespace)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn same_hosts(standing: &Record, asked: &Record) -> bool {
    let wiring = |host: &Host| Host { agent: None, estate_namespace: None, ..host.clone() };
    standing.blocks == asked.blocks
        && standing.hosts.len() == asked.hosts.len()
        && standing.hosts.iter().zip(&asked.hosts).all(|(one, other)| wiring(one) == wiring(other))
}

fn make(record: &Record) -> Result<(), Error> {
    let namespaces: Vec<String> = record.namespaces().map(|namespace| format!("netns add {namespace}")).collect();
    netns::run_batch(None, &namespaces)?;
    netns::apply_settings(&record.bridge, topology::BRIDGE_SETTINGS)?;
    for namespace in record.namespaces().filter(|namespace| *namespace != record.bridge) {
        netns::apply_settings(namespace, topology::MEMBER_SETTINGS)?;
    }
    netns::run_batch(Some(&record.bridge), &topology::bridge_script(record))?;
    netns::run_batch(Some(&record.control), &topology::control_script(record))?;
    netns::run_batch(Some(&record.outside), &topology::outside_script(record))?;
    for host in &record.hosts {
        netns::run_batch(Some(&host.namespace), &topology::host_script(record, host))?;
        make_folder(&host.state)?;
    }
    Ok(())
}

/// Ends what runs in a lab's namespaces and deletes them. Links and rulesets go with their namespaces.
fn clear(record: &Record) -> Result<(), Error> {
    // A process may start another one while it ends, so this is done until nobody is left.
    loop {
        let pids = netns::processes_in(record.namespaces())?;
        let processes: Vec<Process> = pids.into_iter().filter_map(netns::find_process).collect();
        if processes.is_empty() {
            break;
        }
        netns::stop_processes(&processes)?;
    }
    let names: Vec<String> = record
        .namespaces()
        .filter(|namespace| netns::is_named(namespace))
        .map(|namespace| format!("netns delete {namespace}"))
        .collect();
    netns::run_batch(None, &names)?;
    Ok(())
}
