//! `apply` and `delete`.

use holdfast_api::brake::Acknowledgement;
use holdfast_api::object::{ApplyRequest, ApplyResponse, DeleteRequest};
use holdfast_api::operation::OperationView;
use holdfast_api::status::StatusView;
use serde_json::{Value, json};

use super::{operation, rollout, status};
use crate::api::{Api, escape};
use crate::args::{Documents, Stages, Waiting};
use crate::documents::request;
use crate::error::{End, Error};
use crate::output::{Answer, Format, table, word};
use crate::progress::Progress;

/// How a change is made.
pub(super) struct How<'a> {
    /// That it is meant to take as much away as it does.
    pub(super) acknowledge: Option<Acknowledgement>,
    /// Whether it goes through the fleet in stages.
    pub(super) stages: &'a Stages,
    /// Whether it is waited for.
    pub(super) waiting: Option<Waiting>,
}

/// Puts documents in force.
pub(super) async fn apply(
    api: &Api,
    documents: Documents,
    plan: Option<String>,
    how: How<'_>,
    format: Format,
) -> Result<End, Error> {
    let How { acknowledge, stages, waiting } = how;
    let rollout = rollout::request(stages);
    let request = ApplyRequest { expected_plan: plan, acknowledge, rollout, ..request(&documents)? };
    let applying = api.change("/v1/apply", &request, Some(crate::api::LONG_TIMEOUT));
    let response: ApplyResponse = Progress::new(format).during("applying", Box::pin(applying)).await?;
    if response.objects.is_empty() {
        return Err(Error::NoDocument);
    }
    finish(api, response, waiting, format).await
}

/// Takes objects out of force, all of them or none.
pub(super) async fn delete(
    api: &Api,
    objects: &[String],
    expected_revision: Option<u64>,
    how: How<'_>,
    format: Format,
) -> Result<End, Error> {
    let objects = objects.iter().map(|object| full_name(object)).collect::<Result<Vec<_>, _>>()?;
    let How { acknowledge, stages, waiting } = how;
    let request = DeleteRequest { objects, expected_revision, acknowledge, rollout: rollout::request(stages) };
    finish(api, api.change("/v1/delete", &request, None).await?, waiting, format).await
}

/// The path of `Kind/namespace/name`, or of `Kind/name`.
pub(super) fn object_path(object: &str) -> Result<String, Error> {
    let (kind, namespace, name) = parts(object)?;
    Ok(format!("/v1/objects/{}/{}/{}", escape(kind), escape(namespace), escape(name)))
}

/// `Kind/namespace/name` for that, or for `Kind/name`.
pub(super) fn full_name(object: &str) -> Result<String, Error> {
    let (kind, namespace, name) = parts(object)?;
    Ok(format!("{kind}/{namespace}/{name}"))
}

fn parts(object: &str) -> Result<(&str, &str, &str), Error> {
    match object.split('/').collect::<Vec<_>>().as_slice() {
        [kind, name] if kind.eq_ignore_ascii_case("namespace") => Ok((kind, name, name)),
        [kind, name] => Ok((kind, "default", name)),
        [kind, namespace, name] => Ok((kind, namespace, name)),
        _ => {
            let forms = "write Kind/namespace/name, as Policy/booking/web";
            let message = format!("`{object}` is no object: {forms}; of a host: holdfast describe host {object}");
            Err(Error::Usage("object", message))
        }
    }
}

/// Tells what is odd about documents that were taken all the same.
pub(super) fn warn(warnings: &[String]) {
    warnings.iter().for_each(|warning| word(&format!("warning: {warning}")));
}

/// Shows an accepted change, and waits for it if that was asked for.
pub(super) async fn finish(
    api: &Api,
    response: ApplyResponse,
    waiting: Option<Waiting>,
    format: Format,
) -> Result<End, Error> {
    let rows = response.objects.iter().map(|one| [one.object.clone(), one.change.word().to_owned()]).collect();
    let text = table(["OBJECT", "CHANGE"], rows);
    let names = response.objects.iter().map(|one| one.object.clone()).collect();
    match &response.operation {
        Some(operation) => word(&format!("revision {}, operation {operation}", response.revision)),
        None => word(&format!("nothing to change: revision {} has it", response.revision)),
    }
    if response.replayed {
        word(
            "it was done before under this --idempotency-key, and nothing was done now: what came later may have changed it again",
        );
    }
    if let Some(rollout) = &response.rollout {
        word(&format!("it goes through the fleet in stages: holdfast rollout watch {rollout}"));
    }
    warn(&response.warnings);
    let mut value = json!(response);
    let Some(waiting) = waiting else {
        Answer { value: &value, names, text }.show(format)?;
        return Ok(End::Done);
    };
    if !matches!(format, Format::Json | Format::Yaml) {
        // People see what was done before they wait.
        Answer { value: &value, names, text }.show(format)?;
        return told(api, &response, waiting, format).await;
    }
    if let Some(id) = &response.rollout {
        let waited = rollout::awaited(api, id, waiting.timeout, format).await;
        if let (Value::Object(fields), Ok(one)) = (&mut value, &waited) {
            fields.insert("rolled_out".to_owned(), json!(one));
        }
        Answer { value: &value, names, text }.show(format)?;
        return Ok(rollout::end(&waited?));
    }
    let waited = waited(api, &response, waiting, format).await;
    if let (Value::Object(fields), Ok(waited)) = (&mut value, &waited) {
        fields.extend(waited.operation.as_ref().map(|one| ("waited".to_owned(), json!(one))));
        fields.insert("status".to_owned(), json!(waited.status));
    }
    // What is in force is said, also when the wait was given up.
    Answer { value: &value, names, text }.show(format)?;
    Ok(waited?.end)
}

/// What a wait came to.
struct Waited {
    /// The operation, if there was something to change.
    operation: Option<OperationView>,
    /// The fleet at the revision.
    status: StatusView,
    end: End,
}

/// Waits for the operation; without one, for the fleet to have the revision that has what was asked for.
async fn waited(api: &Api, response: &ApplyResponse, waiting: Waiting, format: Format) -> Result<Waited, Error> {
    let Some(id) = &response.operation else {
        let status = status::waited(api, Some(response.revision), waiting, format).await?;
        let end = status::end(&status);
        return Ok(Waited { operation: None, status, end });
    };
    let one = operation::awaited(api, id, waiting, format).await?;
    let end = operation::end(&one, waiting.goal);
    Ok(Waited { operation: Some(one), status: status::read(api, response.revision).await?, end })
}

/// The same, told to people.
async fn told(api: &Api, response: &ApplyResponse, waiting: Waiting, format: Format) -> Result<End, Error> {
    if let Some(id) = &response.rollout {
        let one = rollout::awaited(api, id, waiting.timeout, format).await?;
        rollout::tell(&one);
        return Ok(rollout::end(&one));
    }
    let waited = waited(api, response, waiting, format).await?;
    match &waited.operation {
        Some(one) => {
            operation::tell_end(api, one, waited.end).await;
            word(&status::summary(&waited.status));
        }
        None => {
            word(&status::summary(&waited.status));
            if waited.end != End::Done {
                status::tell_missing(api, &waited.status).await;
            }
        }
    }
    Ok(waited.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_with_their_kind_and_default_to_the_default_namespace() {
        let path = |object: &str| object_path(object).expect("a path");
        assert_eq!(path("Policy/edge/web"), "/v1/objects/Policy/edge/web");
        assert_eq!(path("policy/web"), "/v1/objects/policy/default/web");
        assert_eq!(path("Namespace/edge"), "/v1/objects/Namespace/edge/edge");
        assert!(object_path("web").is_err() && object_path("a/b/c/d").is_err());
    }
}
