//! Namespaces, bodies and oracles for the tests.
#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

pub(crate) mod bodies;
pub(crate) mod namespace;

use std::process::{Command, Stdio};

use std::io::Write;

/// What a command prints; panics with its errors if it fails.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Loads nft text.
pub(crate) fn load_nft(text: &str) {
    let mut child = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
}

/// Our table as `nft` lists it, handles and counters left out.
pub(crate) fn listed() -> String {
    output_of("nft", &["--stateless", "--numeric", "list", "table", "inet", "holdfast"])
}
