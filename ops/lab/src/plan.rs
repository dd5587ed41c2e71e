//! What a lab is asked to be: names and addresses of hosts, from whatever described them.
//!
//! - Of an estate only workloads and their addresses are read: policies are not the lab's business.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One host that the lab shall have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// Its name in the estate; any text.
    pub name: String,
    /// Its own addresses, of both families and any ranges; the first of a family is the source of what the host itself sends.
    pub addresses: Vec<IpAddr>,
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
    /// It is neither an estate nor a list of hosts.
    #[error("{} is neither an estate nor a list of hosts", .file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// The two forms of a file that names hosts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    List(Vec<HostPlan>),
    Estate { format: EstateFormat, workloads: Vec<Workload> },
}

#[derive(Deserialize)]
enum EstateFormat {
    #[serde(rename = "estate/1")]
    One,
}

#[derive(Deserialize)]
struct Workload {
    id: String,
    addresses: Vec<IpAddr>,
}

/// Reads the hosts that a file names.
///
/// # Errors
/// See [`Error`].
pub fn load_plans(file: &Path) -> Result<Vec<HostPlan>, Error> {
    let bytes = fs::read(file).map_err(|source| Error::Read { file: file.to_owned(), source })?;
    parse_plans(&bytes).map_err(|source| Error::Parse { file: file.to_owned(), source })
}

fn parse_plans(bytes: &[u8]) -> Result<Vec<HostPlan>, serde_json::Error> {
    Ok(match serde_json::from_slice(bytes)? {
        Form::List(plans) => plans,
        Form::Estate { format: EstateFormat::One, workloads } => {
            workloads.into_iter().map(|Workload { id, addresses }| HostPlan { name: id, addresses }).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estates_and_lists_name_the_same_hosts() {
        let list = r#"[{"name": "x/a", "addresses": ["10.0.0.1", "fd00::1"]}]"#;
        let estate = r#"{"format": "estate/1", "id": "e", "rules": [],
            "workloads": [{"id": "x/a", "labels": {}, "ports": [], "addresses": ["10.0.0.1", "fd00::1"]}]}"#;
        assert_eq!(parse_plans(list.as_bytes()).unwrap(), parse_plans(estate.as_bytes()).unwrap());
    }

    #[test]
    fn another_form_is_refused() {
        assert!(parse_plans(br#"{"format": "estate/2", "workloads": []}"#).is_err());
    }
}
