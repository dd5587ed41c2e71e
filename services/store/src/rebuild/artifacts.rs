//! Artifacts: each has the digest that names it, and whatever names one finds it.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::artifact::children;
use holdfast_model::desired::Component;
use holdfast_model::digest::Digest;
use sqlx::postgres::PgConnection;

use super::{RebuildReport, difference};
use crate::error::Error;
use crate::value::{component, digest};

/// Artifacts of one page; most are a few hundred bytes, the largest a few megabytes.
const PAGE: &str = "FETCH 200 FROM all_artifacts";

pub(super) async fn check(tx: &mut PgConnection, report: &mut RebuildReport) -> Result<(), Error> {
    let mut stored = BTreeSet::new();
    // What is named, and by what: one of the names is enough to find the fault.
    let mut named: BTreeMap<Digest, String> = BTreeMap::new();
    sqlx::query("DECLARE all_artifacts CURSOR FOR SELECT digest, bytes FROM artifacts ORDER BY digest")
        .execute(&mut *tx)
        .await?;
    loop {
        let page: Vec<(Vec<u8>, Vec<u8>)> = sqlx::query_as(PAGE).fetch_all(&mut *tx).await?;
        if page.is_empty() {
            break;
        }
        for (name, bytes) in page {
            report.artifacts += 1;
            let Ok(name) = digest("artifacts.digest", &name) else {
                report.differences.push(difference("artifacts", "", "digest", "32 bytes", name.len()));
                continue;
            };
            let key = format!("digest={name}");
            stored.insert(name);
            let content = Digest::of(&bytes);
            if content != name {
                report.differences.push(difference("artifacts", &key, "bytes", name, content));
                continue;
            }
            match children(&bytes) {
                Ok(children) => {
                    for child in children {
                        named.entry(child).or_insert_with(|| format!("artifacts [{key}]"));
                    }
                }
                Err(error) => report.differences.push(difference("artifacts", &key, "bytes", "a node", error)),
            }
        }
    }
    let states: Vec<(i16, Vec<u8>)> =
        sqlx::query_as("SELECT DISTINCT component, digest FROM desired_states").fetch_all(&mut *tx).await?;
    let empty = Component::ALL.map(Component::empty_digest);
    for (part, name) in states {
        // What is no digest, or no component, differs from its event and is listed there.
        let (Ok(part), Ok(name)) = (component(part), digest("desired_states.digest", &name)) else { continue };
        // A component with nothing in it is known to everybody by its digest.
        if !empty.contains(&name) {
            named.entry(name).or_insert_with(|| format!("a desired state ({part})"));
        }
    }
    let contents: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT DISTINCT spec_digest FROM objects WHERE spec_digest IS NOT NULL")
            .fetch_all(tx)
            .await?;
    for name in contents {
        let Ok(name) = digest("objects.spec_digest", &name) else { continue };
        named.entry(name).or_insert_with(|| "an object".to_owned());
    }
    for (name, by) in named {
        if !stored.contains(&name) {
            report.differences.push(difference("artifacts", &format!("digest={name}"), "*", by, "no row"));
        }
    }
    Ok(())
}
