//! What a lab is asked to be: names and addresses of hosts, from whatever described them.
//!
//! - Of an estate only hosts and their addresses are read, as they are before its first step: policies are not the lab's business.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use holdfast_documents::estate::{Estate, State};
use holdfast_model::intent::EnrolledHost;
use serde::{Deserialize, Serialize};

use crate::replicas::{self, resize};
use crate::verify::{Case, FindError, find, load};

/// One host that the lab shall have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// Its name in the estate; any text.
    pub name: String,
    /// Its own addresses, of both families and any ranges; the first of a family is the source of what the host itself sends.
    pub addresses: Vec<IpAddr>,
    /// The namespace that an estate says it is in; a list of hosts says none.
    #[serde(default)]
    pub estate_namespace: Option<String>,
}

/// Why a file does not say what hosts there are.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read {}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no list of hosts.
    #[error("{} is no list of hosts", .file.display())]
    List {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// It is no estate.
    #[error(transparent)]
    Estate(#[from] FindError),
    /// The folder has more than one.
    #[error("{} holds many estates; name one", .folder.display())]
    ManyEstates {
        /// The folder.
        folder: PathBuf,
    },
    /// The estate cannot be brought to that number of hosts.
    #[error("{} cannot be brought to {hosts} hosts", .file.display())]
    Resize {
        /// The file.
        file: PathBuf,
        /// The number.
        hosts: usize,
        /// Why.
        #[source]
        source: replicas::Error,
    },
    /// A list of hosts has no roles to repeat.
    #[error("{} is a list of hosts; only an estate is brought to another number of hosts", .file.display())]
    ListResized {
        /// The file.
        file: PathBuf,
    },
    /// It has no hosts.
    #[error("{} is a list of addresses that changes and has no hosts", .file.display())]
    Churn {
        /// The file.
        file: PathBuf,
    },
}

/// Reads the hosts that a file or a folder names: one estate of any form, brought to a number of hosts where one is wanted, or a JSON array of
/// `{name, addresses}`.
///
/// # Errors
/// See [`Error`].
pub fn load_plans(file: &Path, hosts_wanted: Option<usize>) -> Result<Vec<HostPlan>, Error> {
    if !file.is_dir() {
        let bytes = fs::read(file).map_err(|source| Error::Read { file: file.to_owned(), source })?;
        if bytes.trim_ascii_start().starts_with(b"[") {
            if hosts_wanted.is_some() {
                return Err(Error::ListResized { file: file.to_owned() });
            }
            return serde_json::from_slice(&bytes).map_err(|source| Error::List { file: file.to_owned(), source });
        }
    }
    let estate = load_estate(file, hosts_wanted)?;
    Ok(estate.states.first().map_or_else(Vec::new, |state| plans_of(&estate, state)))
}

/// Reads the estate that a file or a folder names, brought to a number of hosts where one is wanted.
///
/// # Errors
/// See [`Error`].
pub fn load_estate(file: &Path, hosts_wanted: Option<usize>) -> Result<Estate, Error> {
    if file.is_dir() {
        return match find(file)?.as_slice() {
            [one] => load_estate(one, hosts_wanted),
            [] | [_, _, ..] => Err(Error::ManyEstates { folder: file.to_owned() }),
        };
    }
    match (load(file)?, hosts_wanted) {
        (Case::Estate(estate), None) => Ok(*estate),
        (Case::Estate(estate), Some(hosts)) => {
            resize(*estate, hosts).map_err(|source| Error::Resize { file: file.to_owned(), hosts, source })
        }
        (Case::Churn(_), _) => Err(Error::Churn { file: file.to_owned() }),
    }
}

/// The hosts of one state of an estate, by name.
#[must_use]
pub fn plans_of(estate: &Estate, state: &State) -> Vec<HostPlan> {
    let name_of = |id| estate.host_names.get(id).cloned().unwrap_or_else(|| id.to_string());
    let hosts = state.intent.hosts.iter();
    let plan = |(id, host): (_, &EnrolledHost)| HostPlan {
        name: name_of(id),
        addresses: host.addresses.clone(),
        estate_namespace: Some(host.namespace.to_string()),
    };
    let mut plans: Vec<HostPlan> = hosts.map(plan).collect();
    plans.sort_by(|one, other| one.name.cmp(&other.name));
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estates_and_lists_name_the_same_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let (list, estate) = (folder.path().join("list.json"), folder.path().join("estate.json"));
        fs::write(&list, r#"[{"name": "x/a", "addresses": ["10.0.0.1", "fd00::1"]}]"#).unwrap();
        let text = r#"{"format": "estate/1", "id": "e", "title": "t", "truth": "derived", "needs": [], "rules": [],
            "enforced": {"in": [], "out": []}, "source": {}, "expect": [],
            "workloads": [{"id": "x/a", "labels": {}, "ports": [], "addresses": ["10.0.0.1", "fd00::1"]}]}"#;
        fs::write(&estate, text).unwrap();
        let of_estate = load_plans(&estate, None).unwrap();
        assert_eq!(of_estate[0].estate_namespace.as_deref(), Some("default"));
        let without_estate_namespace =
            of_estate.into_iter().map(|plan| HostPlan { estate_namespace: None, ..plan }).collect::<Vec<_>>();
        assert_eq!(load_plans(&list, None).unwrap(), without_estate_namespace);
        assert_eq!(load_plans(&estate, Some(3)).unwrap().len(), 3);
        assert!(matches!(load_plans(&list, Some(3)), Err(Error::ListResized { .. })));
    }
}
