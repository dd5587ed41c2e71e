//! T3: a Rust file that no module declaration leads to is never compiled, and nobody notices.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::rust_text::{code_only, is_word_character};
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Every Rust file that no target reaches by its `mod` declarations.
pub(crate) fn orphans(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<(String, Home)> = workspace
        .members
        .values()
        .flat_map(|member| member.target_roots.iter())
        .map(|root| (root.clone(), Home::Folder))
        .collect();
    while let Some((path, home)) = open.pop() {
        let Some(text) = tree.text(&path) else { continue };
        if !reached.insert(path.clone()) {
            continue;
        }
        for declaration in declarations(text) {
            open.extend(resolve(&path, home, &declaration, tree));
        }
    }
    tree.with_extension("rs")
        .filter(|(path, _)| !reached.contains(*path))
        .map(|(path, _)| Finding::new("T3", path, "no `mod` declaration leads here, so it is never compiled"))
        .collect()
}

/// Where the modules of a file are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// Beside it: a target's root, or a `mod.rs`.
    Folder,
    /// In the folder of its own name.
    OwnName,
}

/// `mod name;`, inside which inline modules, and at which path where an attribute says so.
#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    within: Vec<String>,
    name: String,
    path: Option<String>,
}

/// The file that a declaration means, if it is there.
fn resolve(path: &str, home: Home, declaration: &Declaration, tree: &Tree) -> Option<(String, Home)> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let mut base: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    if let Some(written) = &declaration.path {
        if home == Home::OwnName && !declaration.within.is_empty() {
            base.push(stem);
        }
        base.extend(declaration.within.iter().map(String::as_str));
        for part in written.split('/') {
            match part {
                ".." => drop(base.pop()),
                "." | "" => {}
                name => base.push(name),
            }
        }
        // A file named by an attribute looks for its own modules beside it.
        return Some((base.join("/"), Home::Folder)).filter(|(path, _)| tree.text(path).is_some());
    }
    if home == Home::OwnName {
        base.push(stem);
    }
    base.extend(declaration.within.iter().map(String::as_str));
    base.push(&declaration.name);
    let base = base.join("/");
    [(format!("{base}.rs"), Home::OwnName), (format!("{base}/mod.rs"), Home::Folder)]
        .into_iter()
        .find(|(path, _)| tree.text(path).is_some())
}

/// The module declarations of a file, in order.
fn declarations(text: &str) -> Vec<Declaration> {
    let code = code_only(text);
    let tokens = tokens(&code);
    let mut found = Vec::new();
    let mut braces: Vec<Option<String>> = Vec::new();
    let mut path = None;
    for (index, &(at, token)) in tokens.iter().enumerate() {
        let next = |ahead: usize| tokens.get(index + ahead).map(|(_, token)| *token);
        match token {
            "{" => {
                let named = index.checked_sub(2).and_then(|i| tokens.get(i)).is_some_and(|(_, token)| *token == "mod");
                let name = index.checked_sub(1).and_then(|i| tokens.get(i)).map(|(_, token)| (*token).to_owned());
                braces.push(name.filter(|_| named));
                path = None;
            }
            "}" => drop(braces.pop()),
            "path" if next(1) == Some("=") && index > 0 && tokens.get(index - 1).is_some_and(|(_, t)| *t == "[") => {
                path = text.get(at..).and_then(|rest| rest.split('"').nth(1)).map(str::to_owned);
            }
            "mod" if next(2) == Some(";") => {
                let within = braces.iter().flatten().cloned().collect();
                let name = next(1).unwrap_or_default().to_owned();
                found.push(Declaration { within, name, path: path.take() });
            }
            ";" => path = None,
            _ => {}
        }
    }
    found
}

/// Words and single signs, each with its place.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let word = rest.find(|c| !is_word_character(c)).unwrap_or(rest.len());
        let length = if word > 0 { word } else { rest.chars().next().map_or(1, char::len_utf8) };
        let token = rest.get(..length).unwrap_or_default();
        if !token.trim().is_empty() {
            found.push((at, token));
        }
        at += length;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Member;

    fn workspace_of(roots: &[&str]) -> Workspace {
        let mut workspace = Workspace::default();
        let target_roots = roots.iter().map(|root| (*root).to_owned()).collect();
        workspace.members.insert("a".to_owned(), Member { target_roots, ..Member::default() });
        workspace
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        orphans(&workspace_of(&["a/src/lib.rs"]), &Tree::of(files)).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn a_file_that_nothing_declares_is_found() {
        let files = [
            ("a/src/lib.rs", "mod b;\n// mod c;\n"),
            ("a/src/b.rs", "mod d;"),
            ("a/src/b/d.rs", ""),
            ("a/src/c.rs", ""),
        ];
        assert_eq!(found(&files), ["a/src/c.rs"]);
    }

    #[test]
    fn modules_of_a_folder_are_beside_its_mod_file() {
        let files = [
            ("a/src/lib.rs", "pub(crate) mod b;"),
            ("a/src/b/mod.rs", "mod c;"),
            ("a/src/b/c.rs", ""),
            ("a/src/c.rs", ""),
        ];
        assert_eq!(found(&files), ["a/src/c.rs"]);
    }

    #[test]
    fn an_inline_module_adds_a_folder_and_an_attribute_names_a_file() {
        let files = [
            ("a/src/lib.rs", "mod b { fn f() {} mod c; }\n#[path = \"other/d.rs\"]\nmod e;\nmod f;\n"),
            ("a/src/b/c.rs", ""),
            ("a/src/other/d.rs", ""),
            ("a/src/f.rs", ""),
            ("a/src/e.rs", ""),
        ];
        assert_eq!(found(&files), ["a/src/e.rs"]);
    }

    #[test]
    fn a_word_that_ends_in_mod_or_a_macro_with_braces_declares_nothing() {
        assert_eq!(declarations("let chmod = 1; m! { a; } fn g() { let mode; }"), []);
    }
}
