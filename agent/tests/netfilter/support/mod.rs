//! Namespaces, bodies and oracles for the tests.
#![expect(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test helper fails by panicking")]

pub(crate) mod agent;
pub(crate) mod bodies;
pub(crate) mod disk;
pub(crate) mod gateway;
pub(crate) mod namespace;

use std::io::Write;
use std::process::{Command, Stdio};

/// What a command prints; panics with its errors if it fails.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Loads nft text; panics if `nft` or the kernel refuses.
pub(crate) fn load_nft(text: &str) {
    assert!(try_nft(text), "nft refuses:\n{text}");
}

/// Loads nft text; whether it was taken.
pub(crate) fn try_nft(text: &str) -> bool {
    nft_accepts(&["-f", "-"], text)
}

/// Gives a text to `nft`; whether it succeeded.
pub(crate) fn nft_accepts(arguments: &[&str], text: &str) -> bool {
    feed("nft", arguments, text)
}

/// Gives a text to a program; whether it succeeded.
pub(crate) fn feed(program: &str, arguments: &[&str], text: &str) -> bool {
    let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait().unwrap().success()
}

/// The sets and chains of our table as `nft` lists them, handles and counters left out; sorted, for the order of chains means nothing.
pub(crate) fn listed() -> Vec<String> {
    let text = output_of("nft", &["--stateless", "--numeric", "list", "table", "inet", "holdfast"]);
    let held = text.strip_prefix("table inet holdfast {\n").and_then(|text| text.strip_suffix("}\n"));
    let mut blocks: Vec<String> =
        held.expect("one table").split("\n\n").map(|block| block.trim_end().to_owned()).collect();
    blocks.sort_unstable();
    blocks
}
