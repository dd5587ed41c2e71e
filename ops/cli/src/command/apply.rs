//! `apply` and `delete`.

use std::path::{Path, PathBuf};

use holdfast_api::object::{APPLY_BODY_BYTES_MAX, ApplyRequest, ApplyResponse, DeleteRequest, Source};
use serde_json::{Value, json};

use super::status;
use crate::api::{Api, escape, read_text};
use crate::args::{Documents, Waiting};
use crate::error::{End, Error};
use crate::output::{Answer, Format, table, word};
use crate::progress::Progress;

/// Reads documents from files, folders and stdin; what is in them is the API's business.
pub(super) fn request(documents: Documents) -> Result<ApplyRequest, Error> {
    let (mut sources, mut bytes) = (Vec::new(), 0_u64);
    for path in &documents.files {
        for file in files(path, documents.recursive)? {
            let name = if file == Path::new("-") { "stdin".to_owned() } else { file.display().to_string() };
            // What cannot be sent is not read: the largest body is the API's.
            bytes = bytes.saturating_add(std::fs::metadata(&file).map_or(0, |found| found.len()));
            if bytes > APPLY_BODY_BYTES_MAX as u64 {
                return Err(Error::TooMuch { path: file, bytes });
            }
            sources.push(Source { name, text: read_text(&file)? });
        }
    }
    Ok(ApplyRequest {
        sources,
        prune: documents.prune,
        expected_revision: documents.expected_revision,
        expected_plan: None,
    })
}

/// The files that a path means, in the order of their names.
fn files(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, Error> {
    if path == Path::new("-") || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    gather(path, recursive, &mut found)?;
    if found.is_empty() {
        return Err(Error::Empty { path: path.to_owned() });
    }
    found.sort();
    Ok(found)
}

fn gather(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    let read = |source| Error::Read { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.is_dir() {
            if recursive {
                gather(&path, recursive, found)?;
            }
        } else if path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml" || ext == "json") {
            found.push(path);
        }
    }
    Ok(())
}

/// Puts documents in force.
pub(super) async fn apply(
    api: &Api,
    documents: Documents,
    plan: Option<String>,
    waiting: Option<Waiting>,
    format: Format,
) -> Result<End, Error> {
    let request = ApplyRequest { expected_plan: plan, ..request(documents)? };
    let applying = api.post("/v1/apply", &request, Some(crate::api::LONG_TIMEOUT));
    let response: ApplyResponse = Progress::new(format).during("applying", Box::pin(applying)).await?;
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
    let waited = status::waited(api, Some(response.revision), waiting, format).await?;
    if let Value::Object(fields) = &mut value {
        fields.insert("status".to_owned(), json!(waited));
    }
    Answer { value: &value, names, text }.show(format)?;
    Ok(status::end(&waited))
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
