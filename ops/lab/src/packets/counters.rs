//! Our own drop counters, as the kernel of a host's namespace has them.
//!
//! - Only rules of the table `inet holdfast` that count and drop are summed: what another table or the kernel dropped is no evidence.

use std::io;
use std::process::Command;

use serde_json::Value;

use crate::netns;

/// The table that agents own.
const TABLE: [&str; 2] = ["inet", "holdfast"];
/// The most bytes of what `nft` said that an error carries.
const DETAIL_BYTES_MAX: usize = 512;

/// Why counters cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// The namespace fails.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
    /// `nft` cannot be run.
    #[error("cannot run `nft` (the Debian package nftables has it)")]
    Run(#[source] io::Error),
    /// `nft` shows no such table.
    #[error("`nft` shows no table `{}` in {namespace}: {detail}", TABLE.join(" "))]
    Refused {
        /// The namespace.
        namespace: String,
        /// What it said.
        detail: String,
    },
    /// What `nft` shows is no ruleset.
    #[error("cannot read what `nft` shows of {namespace}")]
    Parse {
        /// The namespace.
        namespace: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Sums the packets that the rules of our table in a namespace dropped.
///
/// # Errors
/// See [`CountersError`].
pub fn observe_drops(namespace: &str) -> Result<u64, CountersError> {
    let mut nft = Command::new("nft");
    // Elements of sets are left out: there may be a million of them, and they count nothing.
    nft.args(["--json", "--terse", "list", "table"]).args(TABLE);
    let output = netns::within(namespace, || nft.output())?.map_err(CountersError::Run)?;
    if !output.status.success() {
        let detail = String::from_utf8_lossy(&output.stderr).trim().chars().take(DETAIL_BYTES_MAX).collect();
        return Err(CountersError::Refused { namespace: namespace.to_owned(), detail });
    }
    let ruleset = serde_json::from_slice(&output.stdout)
        .map_err(|source| CountersError::Parse { namespace: namespace.to_owned(), source })?;
    Ok(dropped(&ruleset))
}

fn dropped(ruleset: &Value) -> u64 {
    let objects = ruleset.get("nftables").and_then(Value::as_array).into_iter().flatten();
    let rules = objects.filter_map(|object| object.pointer("/rule/expr")?.as_array());
    rules
        .filter(|parts| parts.iter().any(|part| part.get("drop").is_some()))
        .flat_map(|parts| parts.iter().filter_map(|part| part.pointer("/counter/packets")?.as_u64()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_rules_that_count_and_drop_are_summed() {
        let rule = |expr: Value| json!({"rule": {"chain": "in", "expr": expr}});
        let counter = |packets: u64| json!({"counter": {"packets": packets, "bytes": 0}});
        let ruleset = json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            rule(json!([counter(5), {"drop": null}])),
            rule(json!([{"match": {}}, counter(7), {"drop": null}])),
            rule(json!([counter(11), {"accept": null}])),
            rule(json!([counter(13)])),
            rule(json!([{"drop": null}])),
        ]});
        assert_eq!(dropped(&ruleset), 12);
    }
}
