//! T10: every crate takes the lints of the workspace, and names each dependency through it, so that a version stands once.

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Every manifest of ours that goes its own way.
pub(crate) fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in workspace.members.values() {
        let path = format!("{}/Cargo.toml", member.folder);
        let Some(text) = tree.text(&path) else { continue };
        match text.parse::<toml::Table>() {
            Ok(manifest) => findings.extend(manifest_faults(&path, &manifest)),
            Err(error) => findings.push(Finding::new("T10", path, format!("cannot be read: {}", error.message()))),
        }
    }
    findings
}

fn manifest_faults(path: &str, manifest: &toml::Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !from_workspace(manifest.get("lints")) {
        findings.push(Finding::new("T10", path, "has no `[lints] workspace = true`"));
    }
    for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
        for (name, value) in manifest.get(kind).and_then(toml::Value::as_table).into_iter().flatten() {
            if !from_workspace(Some(value)) {
                let text = format!(
                    "takes {name} by itself: put it into [workspace.dependencies] and write `{name}.workspace = true`"
                );
                findings.push(Finding::new("T10", path, text));
            }
        }
    }
    findings
}

fn from_workspace(value: Option<&toml::Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str) -> usize {
        check(&Workspace::of(&[("a", "schema/a")], &[]), &Tree::of(&[("schema/a/Cargo.toml", manifest)])).len()
    }

    #[test]
    fn a_manifest_without_the_lints_or_with_its_own_version_is_found() {
        let lints = "[lints]\nworkspace = true\n";
        assert_eq!(found(&format!("{lints}[dependencies]\nserde.workspace = true\n")), 0);
        assert_eq!(found("[dependencies]\nserde.workspace = true\n"), 1);
        assert_eq!(
            found(&format!("{lints}[dependencies]\nserde = \"1\"\n[dev-dependencies]\nb = {{ path = \"../b\" }}\n")),
            2
        );
        assert_eq!(found("[lints"), 1);
    }
}
