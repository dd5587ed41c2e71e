//! What the network of a plane loses: packets that one namespace neither sends nor takes.
//!
//! - A cut is a table of its own in the namespace, before everything else there; it goes with the value, also when the test panics.
//! - What is lost is lost without a word, both ways: neither end is told. What is refused is refused to who dials.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::Plane;

/// Packets that are lost until the value goes.
#[derive(Debug)]
pub struct Cut {
    namespace: String,
    table: String,
}

impl Plane {
    /// Loses every packet from and to a port of the control plane.
    ///
    /// # Panics
    /// When the rules cannot be written.
    #[must_use]
    pub fn cut_port(&self, port: u16) -> Cut {
        Cut::new(
            self.control(),
            &format!("test_port_{port}"),
            &[format!("tcp dport {port} drop"), format!("tcp sport {port} drop")],
        )
    }

    /// Refuses a host every new connection to a port, as if nobody listened there.
    ///
    /// # Panics
    /// When the rules cannot be written.
    #[must_use]
    pub fn refuse_port(&self, host: &str, port: u16) -> Cut {
        let refused = format!("tcp dport {port} ct state new reject with tcp reset");
        Cut::new(self.namespace_of(host), "test_refused", &[refused])
    }

    /// Loses every word of an end of a connection that a host sends to the gateways: they do not learn that it is over.
    ///
    /// # Panics
    /// When the rules cannot be written.
    #[must_use]
    pub fn cut_ends(&self, host: &str, ports: [u16; 2]) -> Cut {
        let ends = ports.map(|port| format!("tcp dport {port} tcp flags & (fin | rst) != 0 drop"));
        Cut::new(self.namespace_of(host), "test_ends", &ends)
    }
}

impl Cut {
    fn new(namespace: String, table: &str, rules: &[String]) -> Self {
        let chain = |hook: &str| {
            let rules: String = rules.iter().map(|rule| format!("    {rule}\n")).collect();
            format!("  chain {hook} {{\n    type filter hook {hook} priority -100; policy accept;\n{rules}  }}\n")
        };
        let text = format!("table inet {table} {{\n{}{}}}\n", chain("input"), chain("output"));
        let cut = Self { namespace, table: table.to_owned() };
        cut.nft(&text).unwrap_or_else(|said| panic!("nft: {said}\n{text}"));
        cut
    }

    fn nft(&self, text: &str) -> Result<(), String> {
        let child = Command::new("ip")
            .args(["netns", "exec", &self.namespace, "nft", "-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| error.to_string())?;
        let written = child.stdin.take().map(|mut input| input.write_all(text.as_bytes()));
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        if output.status.success() && matches!(written, Some(Ok(()))) {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        // The namespace may be gone with the plane, and the table with it.
        drop(self.nft(&format!("delete table inet {}", self.table)));
    }
}
