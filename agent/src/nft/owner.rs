//! Whether our table is owned: with both flags other writers are refused, and the table outlives the agent.
//!
//! - Never OWNER without PERSIST: that one dies with the agent.
//! - `auto` owns only where the kernel has both flags and the host's `nft`, if there is one, can read such a table again; else a plain
//!   `nft list ruleset > file` would write a file that `nft -f` refuses.

use std::io::Write;
use std::process::{Command, Stdio};
use std::str::FromStr;

use super::attr::Writer;
use super::link::Link;
use super::numbers as n;

/// `NFT_TABLE_F_PERSIST`.
pub(super) const PERSIST: u32 = 4;
/// `NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST`.
pub(super) const OWNED: u32 = 2 | PERSIST;
/// A table that is only ever described, never made.
const PROBE: &str = "holdfast_probe";

/// What configuration says about ownership.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableOwner {
    /// Owned where kernel and `nft` can take it.
    #[default]
    Auto,
    /// Owned; an apply fails where the kernel cannot.
    On,
    /// Plain.
    Off,
}

/// The text is none of the three.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("table owner is one of auto, on, off")]
pub struct TableOwnerError;

impl FromStr for TableOwner {
    type Err = TableOwnerError;

    fn from_str(text: &str) -> Result<Self, TableOwnerError> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(TableOwnerError),
        }
    }
}

impl TableOwner {
    /// The flags that our table is to have.
    pub(super) fn flags(self, link: &mut Link) -> u32 {
        let owned = match self {
            Self::On => true,
            Self::Off => false,
            Self::Auto => kernel_can(link) && nft_can(),
        };
        if owned { OWNED } else { 0 }
    }
}

/// Describes an owned table in a batch without an end: the kernel checks it and makes nothing.
fn kernel_can(link: &mut Link) -> bool {
    let mut bytes = Writer::new(n::BATCH_BEGIN, n::REQUEST, 0, 0, n::SUBSYSTEM).finish();
    let mut table = Writer::new(n::SUBSYSTEM << 8 | n::NEW_TABLE, n::REQUEST | n::CREATE, 1, n::INET, 0);
    table.text(n::TABLE_NAME, PROBE);
    table.u32(n::TABLE_FLAGS, OWNED);
    bytes.extend(table.finish());
    link.batch(&bytes, "own a table").error.is_none()
}

/// Whether the host's `nft` is absent, or parses both flags.
fn nft_can() -> bool {
    let spawned = Command::new("nft")
        .args(["--check", "--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = spawned else { return true };
    let text = format!("table inet {PROBE} {{ flags owner, persist; }}\n");
    // A child that does not read its input fails the check just as one that refuses it.
    let written = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(text.as_bytes()).is_ok());
    let parsed = child.wait().is_ok_and(|status| status.success());
    written && parsed
}
