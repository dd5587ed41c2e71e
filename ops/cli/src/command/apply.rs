//! `apply` and `delete`.

use holdfast_api::object::{ApplyRequest, ApplyResponse, DeleteRequest};
use serde_json::{Value, json};

use super::status;
use crate::api::{Api, escape};
use crate::args::{Documents, Waiting};
use crate::documents::request;
use crate::error::{End, Error};
use crate::output::{Answer, Format, table, word};
use crate::progress::Progress;

/// Puts documents in force.
pub(super) async fn apply(
    api: &Api,
    documents: Documents,
    plan: Option<String>,
    waiting: Option<Waiting>,
    format: Format,
) -> Result<End, Error> {
    let request = ApplyRequest { expected_plan: plan, ..request(&documents)? };
    let applying = api.post("/v1/apply", &request, Some(crate::api::LONG_TIMEOUT));
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
    waiting: Option<Waiting>,
    format: Format,
) -> Result<End, Error> {
    let objects = objects.iter().map(|object| full_name(object)).collect::<Result<Vec<_>, _>>()?;
    let request = DeleteRequest { objects, expected_revision: None };
    finish(api, api.post("/v1/delete", &request, None).await?, waiting, format).await
}

/// The path of `Kind/namespace/name`, or of `Kind/name`.
pub(super) fn object_path(object: &str) -> Result<String, Error> {
    let (kind, namespace, name) = parts(object)?;
    Ok(format!("/v1/objects/{}/{}/{}", escape(kind), escape(namespace), escape(name)))
}

/// `Kind/namespace/name` for that, or for `Kind/name`.
fn full_name(object: &str) -> Result<String, Error> {
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

async fn finish(api: &Api, response: ApplyResponse, waiting: Option<Waiting>, format: Format) -> Result<End, Error> {
    let rows = response.objects.iter().map(|one| [one.object.clone(), one.change.word().to_owned()]).collect();
    let text = table(["OBJECT", "CHANGE"], rows);
    let names = response.objects.iter().map(|one| one.object.clone()).collect();
    match &response.operation {
        Some(operation) => word(&format!("revision {}, operation {operation}", response.revision)),
        None => word(&format!("nothing to change: revision {} has it", response.revision)),
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
        let waited = status::waited(api, Some(response.revision), waiting, format).await?;
        word(&status::summary(&waited));
        let end = status::end(&waited);
        if end != End::Done {
            status::tell_missing(api, &waited).await;
        }
        return Ok(end);
    }
    let waited = status::waited(api, Some(response.revision), waiting, format).await;
    if let (Value::Object(fields), Ok(waited)) = (&mut value, &waited) {
        fields.insert("status".to_owned(), json!(waited));
    }
    // What is in force is said, also when the wait was given up.
    Answer { value: &value, names, text }.show(format)?;
    Ok(status::end(&waited?))
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
