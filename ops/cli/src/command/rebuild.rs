//! `rebuild --check`.

use holdfast_api::rebuild::{DifferenceView, RebuildView};

use crate::api::{Api, LONG_TIMEOUT};
use crate::error::{End, Error};
use crate::output::{Answer, Format, table, word};
use crate::progress::Progress;
use crate::words::count;

/// Compares tables and events; a difference fails.
pub(super) async fn check(api: &Api, format: Format) -> Result<End, Error> {
    let nothing = serde_json::json!({});
    let comparing = api.post("/v1/rebuild/check", &nothing, Some(LONG_TIMEOUT));
    let view: RebuildView =
        Progress::new(format).during("comparing the tables with the events", Box::pin(comparing)).await?;
    let names = view.differences.iter().map(|one| format!("{} {} {}", one.table, one.key, one.column)).collect();
    let row = |one: &DifferenceView| {
        [one.table.clone(), one.key.clone(), one.column.clone(), one.expected.clone(), one.found.clone()]
    };
    let text = if view.clean {
        format!("clean: {} events, {} rows, {} artifacts", view.events, view.rows, view.artifacts)
    } else {
        table(["TABLE", "KEY", "COLUMN", "EVENTS SAY", "STORED"], view.differences.iter().map(row).collect())
    };
    Answer { value: &view, names, text }.show(format)?;
    if view.clean {
        return Ok(End::Done);
    }
    let differences = count(view.differences.len() as u64, "difference");
    word(&format!("{differences}: the tables are not what the events say"));
    Ok(End::Failed)
}
