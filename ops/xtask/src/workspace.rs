//! The crates of the project and who depends on whom, as `cargo metadata` tells it.
//!
//! - An edge is a normal or a build dependency, with every feature that the workspace turns on; dev-dependencies are kept apart.
//! - Versions of one name are one node: a rule about a crate is a rule about all its versions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// Why the crates could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cargo metadata could not be started")]
    Cargo(#[source] std::io::Error),
    #[error("cargo metadata failed: {0}")]
    Refused(String),
    #[error("the answer of cargo metadata could not be read")]
    Answer(#[from] serde_json::Error),
    #[error("Cargo.lock could not be read")]
    Lock(#[source] std::io::Error),
    #[error("Cargo.lock could not be understood")]
    LockText(#[from] toml::de::Error),
}

/// One crate of the project.
#[derive(Debug, Clone, Default)]
pub(crate) struct Member {
    /// Its folder, relative to the root.
    pub(crate) folder: String,
    /// The root file of each of its targets, relative to the root.
    pub(crate) target_roots: Vec<String>,
    /// Crates that only its tests use.
    pub(crate) dev: BTreeSet<String>,
}

/// All crates by name.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// The crates of the project.
    pub(crate) members: BTreeMap<String, Member>,
    /// For every crate, ours or not, the crates that it needs to be built.
    pub(crate) edges: BTreeMap<String, BTreeSet<String>>,
    /// Every name in the lock file.
    pub(crate) locked: BTreeSet<String>,
}

impl Workspace {
    /// Asks cargo about the project at `root`.
    pub(crate) fn load(root: &Path) -> Result<Self, Error> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(root)
            .args(["metadata", "--format-version", "1", "--locked"])
            .output()
            .map_err(Error::Cargo)?;
        if !output.status.success() {
            return Err(Error::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let lock = std::fs::read_to_string(root.join("Cargo.lock")).map_err(Error::Lock)?;
        let lock: Lock = toml::from_str(&lock)?;
        let mut workspace = Self::from_metadata(root, serde_json::from_slice(&output.stdout)?);
        workspace.locked = lock.package.into_iter().map(|package| package.name).collect();
        Ok(workspace)
    }

    fn from_metadata(root: &Path, metadata: Metadata) -> Self {
        let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        let names: BTreeMap<&str, &str> =
            metadata.packages.iter().map(|package| (package.id.as_str(), package.name.as_str())).collect();
        let mut workspace = Self::default();
        for package in &metadata.packages {
            if metadata.workspace_members.contains(&package.id) {
                let member = Member {
                    folder: package.manifest_path.parent().map(relative).unwrap_or_default(),
                    target_roots: package.targets.iter().map(|target| relative(&target.src_path)).collect(),
                    dev: BTreeSet::new(),
                };
                workspace.members.insert(package.name.clone(), member);
            }
        }
        for node in &metadata.resolve.nodes {
            let Some(&from) = names.get(node.id.as_str()) else { continue };
            for dep in &node.deps {
                let Some(&to) = names.get(dep.pkg.as_str()) else { continue };
                if dep.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev")) {
                    workspace.edges.entry(from.to_owned()).or_default().insert(to.to_owned());
                } else if let Some(member) = workspace.members.get_mut(from) {
                    member.dev.insert(to.to_owned());
                }
            }
        }
        workspace
    }

    /// The crates that `name` needs to be built, directly or through others, each with the path that leads there.
    pub(crate) fn reached_by(&self, name: &str) -> BTreeMap<String, Vec<String>> {
        let mut reached = BTreeMap::new();
        let mut open = vec![(name.to_owned(), vec![name.to_owned()])];
        while let Some((from, path)) = open.pop() {
            for to in self.edges.get(&from).into_iter().flatten() {
                if reached.contains_key(to) {
                    continue;
                }
                let mut longer = path.clone();
                longer.push(to.clone());
                reached.insert(to.clone(), longer.clone());
                open.push((to.clone(), longer));
            }
        }
        reached
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
}

#[cfg(test)]
impl Workspace {
    /// A workspace of these members (name, folder) and edges, with every name in the lock file.
    pub(crate) fn of(members: &[(&str, &str)], edges: &[(&str, &str)]) -> Self {
        let mut workspace = Self::default();
        for (name, folder) in members {
            let member = Member { folder: (*folder).to_owned(), ..Member::default() };
            workspace.members.insert((*name).to_owned(), member);
            workspace.locked.insert((*name).to_owned());
        }
        for (from, to) in edges {
            workspace.edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            workspace.locked.insert((*to).to_owned());
        }
        workspace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reached_through_others_is_reached_and_the_way_is_told() {
        let workspace = Workspace::of(&[("ours", "schema/ours")], &[("ours", "middle"), ("middle", "tokio")]);
        let reached = workspace.reached_by("ours");
        assert_eq!(reached.get("tokio").map(|path| path.join(" > ")), Some("ours > middle > tokio".to_owned()));
    }

    #[test]
    fn a_dev_dependency_is_no_edge() {
        let metadata = serde_json::from_str(
            r#"{
                "packages": [
                    {"id": "1", "name": "ours", "manifest_path": "/p/schema/ours/Cargo.toml", "targets": [{"src_path": "/p/schema/ours/src/lib.rs"}]},
                    {"id": "2", "name": "tokio", "manifest_path": "/r/tokio/Cargo.toml", "targets": []}
                ],
                "workspace_members": ["1"],
                "resolve": {"nodes": [{"id": "1", "deps": [{"pkg": "2", "dep_kinds": [{"kind": "dev"}]}]}]}
            }"#,
        )
        .unwrap();
        let workspace = Workspace::from_metadata(Path::new("/p"), metadata);
        assert!(workspace.reached_by("ours").is_empty());
        let ours = workspace.members.get("ours").unwrap();
        assert!(ours.dev.contains("tokio"));
        assert_eq!(ours.folder, "schema/ours");
        assert_eq!(ours.target_roots, ["schema/ours/src/lib.rs"]);
    }
}
