//! `operation`.

use std::time::{Duration, Instant};

use holdfast_api::operation::OperationView;

use crate::api::{Api, escape};
use crate::error::{End, Error};
use crate::output::{Answer, Format, or_dash, table};
use crate::progress::Progress;

/// How long one request waits.
const REQUEST_WAIT: Duration = Duration::from_secs(20);
/// The pause before an API that is away is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Lists operations, or shows one, or waits for its end.
pub(super) async fn operation(
    api: &Api,
    id: Option<&str>,
    wait: Option<Duration>,
    format: Format,
) -> Result<End, Error> {
    let Some(id) = id else {
        let page = api.get_all("/v1/operations").await?;
        let list = page.items.iter().map(|item| serde_json::from_value(item.clone()));
        let list = list.collect::<Result<Vec<OperationView>, _>>()?;
        return show(&page, &list, format);
    };
    let path = format!("/v1/operations/{}", escape(id));
    let Some(timeout) = wait else {
        let one: OperationView = api.get(&path).await?;
        return show(&one, std::slice::from_ref(&one), format);
    };
    let one = Progress::new(format)
        .during(&format!("waiting: {id} has not ended"), Box::pin(ended(api, &path, timeout)))
        .await?;
    show(&one, std::slice::from_ref(&one), format)?;
    Ok(match (one.finished, one.state.as_str()) {
        (true, "applied" | "inactive" | "superseded") => End::Done,
        (true, _) => End::Failed,
        (false, _) => End::NotApplied,
    })
}

async fn ended(api: &Api, path: &str, timeout: Duration) -> Result<OperationView, Error> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let once = left.min(REQUEST_WAIT);
        let answered: Result<OperationView, Error> =
            api.get_waiting(&format!("{path}?wait={}ms", once.as_millis()), once).await;
        match answered {
            Ok(one) if one.finished || left <= once => return Ok(one),
            Ok(_) => {}
            Err(error) if error.is_passing() && left > RETRY => tokio::time::sleep(RETRY).await,
            Err(error) => return Err(error),
        }
    }
}

fn show<T: serde::Serialize>(value: &T, list: &[OperationView], format: Format) -> Result<End, Error> {
    let row = |one: &OperationView| {
        [
            one.id.clone(),
            one.verb.clone(),
            one.revision.to_string(),
            one.changes.to_string(),
            one.state.clone(),
            one.created_at.clone(),
        ]
    };
    let text = if format.is_wide() {
        let wide = |one: &OperationView| {
            let [id, verb, revision, changes, state, created] = row(one);
            let detail = if one.detail.is_empty() { "-".to_owned() } else { one.detail.clone() };
            [id, verb, revision, changes, state, created, or_dash(one.finished_at.as_ref()), one.actor.clone(), detail]
        };
        let header = ["OPERATION", "VERB", "REVISION", "CHANGES", "STATE", "CREATED", "FINISHED", "ACTOR", "DETAIL"];
        table(header, list.iter().map(wide).collect())
    } else {
        table(["OPERATION", "VERB", "REVISION", "CHANGES", "STATE", "CREATED"], list.iter().map(row).collect())
    };
    Answer { value, names: list.iter().map(|one| one.id.clone()).collect(), text }.show(format)?;
    Ok(End::Done)
}
