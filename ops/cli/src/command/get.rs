//! `get` and `describe`.

use holdfast_api::object::{ObjectView, Page};
use holdfast_api::policy::HostPolicyView;
use holdfast_api::status::HostView;
use serde_json::Value;

use super::apply::object_path;
use super::{operation, past, tokens};
use crate::api::{Api, escape};
use crate::args::{ApiToken, EnrolToken, Operation};
use crate::describe::host_text;
use crate::error::{End, Error};
use crate::output::{Answer, Format, labels, line, or_dash, table, word, yaml};
use crate::{text, words};
use time::OffsetDateTime;

/// How many governed hosts are named before it is said how many more there are.
const GOVERNED_SHOWN: usize = 20;

/// Lists or shows.
pub(super) async fn get(
    api: &Api,
    what: &str,
    name: Option<&str>,
    namespace: Option<&str>,
    format: Format,
) -> Result<End, Error> {
    match (what, name) {
        ("host" | "hosts", None) => hosts(api, namespace, format).await,
        ("host" | "hosts", Some(name)) => {
            let host: HostView = api.get(&format!("/v1/hosts/{}", escape(&qualified(name, namespace)))).await?;
            show_hosts(&host, std::slice::from_ref(&host), format)
        }
        ("operation" | "operations", None) => operation::run(api, Operation::List, format).await,
        ("operation" | "operations", Some(id)) => {
            operation::run(api, Operation::Get { id: id.to_owned() }, format).await
        }
        ("revision" | "revisions", None) => past::revisions(api, format).await,
        ("revision" | "revisions", Some(number)) => past::revision(api, number, format).await,
        ("enrol-token" | "enrol-tokens", None) => tokens::enrol(api, EnrolToken::List, format).await,
        ("api-token" | "api-tokens", None) => tokens::api(api, ApiToken::List, format).await,
        ("object" | "objects", None) => objects(api, None, namespace, format).await,
        (object, None) if host_of(object).is_some() => {
            Box::pin(get(api, "host", host_of(object), namespace, format)).await
        }
        (object, None) if object.contains('/') => one_object(api, &object_path(object)?, format).await,
        (kind, None) => objects(api, Some(kind), namespace, format).await,
        (kind, Some(name)) => {
            let path = object_path(&format!("{kind}/{}", qualified(name, namespace)))?;
            one_object(api, &path, format).await
        }
    }
}

/// A name within the namespace that was given, unless it has one or is an id.
fn qualified(name: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) if !name.contains('/') && !name.starts_with("ho_") => format!("{namespace}/{name}"),
        Some(_) | None => name.to_owned(),
    }
}

fn query(path: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let given = pairs.iter().filter_map(|(key, value)| value.map(|value| format!("{key}={}", escape(value))));
    let given: Vec<String> = given.collect();
    if given.is_empty() { path.to_owned() } else { format!("{path}?{}", given.join("&")) }
}

async fn hosts(api: &Api, namespace: Option<&str>, format: Format) -> Result<End, Error> {
    let page = api.get_all(&query("/v1/hosts", &[("namespace", namespace)])).await?;
    let hosts =
        page.items.iter().map(|item| serde_json::from_value(item.clone())).collect::<Result<Vec<HostView>, _>>()?;
    show_hosts(&page, &hosts, format)?;
    tell_empty(hosts.is_empty(), "no host", namespace, format);
    Ok(End::Done)
}

/// A table without a row leaves open what was looked for, and where.
fn tell_empty(is_empty: bool, what: &str, namespace: Option<&str>, format: Format) {
    if is_empty && matches!(format, Format::Table | Format::Wide) {
        let place = namespace.map_or_else(String::new, |namespace| format!(" in the namespace {namespace}"));
        word(&format!("{what}{place}"));
    }
}

fn show_hosts<T: serde::Serialize>(value: &T, hosts: &[HostView], format: Format) -> Result<End, Error> {
    let names = hosts.iter().map(|host| format!("host/{}/{}", host.namespace, host.name)).collect();
    let versions = |host: &HostView| {
        let policy = host.components.iter().find(|component| component.component.word() == "policy");
        policy.map_or_else(|| "-".to_owned(), text::versions)
    };
    let now = OffsetDateTime::now_utc();
    let row = |host: &HostView| {
        let name = format!("{}/{}", host.namespace, host.name);
        [
            name,
            host.sync.word().to_owned(),
            host.state.to_string(),
            host.mode.to_string(),
            versions(host),
            words::last_seen(host, now),
        ]
    };
    let text = if format.is_wide() {
        let wide = |host: &HostView| {
            let [name, sync, state, mode, versions, seen] = row(host);
            let agent = or_dash(host.session.as_ref().map(|session| &session.agent_version));
            [
                name,
                sync,
                state,
                mode,
                versions,
                seen,
                host.id.clone(),
                host.addresses.join(","),
                labels(&host.labels),
                agent,
            ]
        };
        let header = ["HOST", "SYNC", "STATE", "MODE", "POLICY", "LAST SEEN", "ID", "ADDRESSES", "LABELS", "AGENT"];
        table(header, hosts.iter().map(wide).collect())
    } else {
        table(["HOST", "SYNC", "STATE", "MODE", "POLICY", "LAST SEEN"], hosts.iter().map(row).collect())
    };
    Answer { value, names, text }.show(format)?;
    Ok(End::Done)
}

async fn objects(api: &Api, kind: Option<&str>, namespace: Option<&str>, format: Format) -> Result<End, Error> {
    let with_documents = matches!(format, Format::Json | Format::Yaml);
    let documents = with_documents.then_some("true");
    let list = async |kind| {
        let pairs = [("kind", kind), ("namespace", namespace), ("documents", documents)];
        api.get_all(&query("/v1/objects", &pairs)).await
    };
    let mut page = list(kind).await?;
    if kind.is_some_and(|kind| ["policy", "policies"].contains(&kind.to_ascii_lowercase().as_str())) {
        // Who asks for policies means those of both dialects.
        let more = list(Some("NetworkPolicy")).await?;
        page.items.extend(more.items);
        page.revision = page.revision.max(more.revision);
    }
    show_objects(&page, format)?;
    tell_empty(page.items.is_empty(), "no object", namespace, format);
    Ok(End::Done)
}

fn show_objects(page: &Page<Value>, format: Format) -> Result<End, Error> {
    let objects =
        page.items.iter().map(|item| serde_json::from_value(item.clone())).collect::<Result<Vec<ObjectView>, _>>()?;
    if format == Format::Yaml {
        // Documents that `apply -f -` takes as they are.
        return documents(&objects);
    }
    let rows = objects.iter().map(row).collect();
    let names = objects.iter().map(|one| one.object.clone()).collect();
    Answer { value: page, names, text: table(["KIND", "NAMESPACE", "NAME"], rows) }.show(format)?;
    Ok(End::Done)
}

/// A Namespace is in none.
fn row(object: &ObjectView) -> [String; 3] {
    let namespace = if object.kind == "Namespace" { "-".to_owned() } else { object.namespace.clone() };
    [object.kind.clone(), namespace, object.name.clone()]
}

fn documents(objects: &[ObjectView]) -> Result<End, Error> {
    for document in objects.iter().filter_map(|object| object.document.as_ref()) {
        line("---")?;
        line(yaml(document)?.trim_end())?;
    }
    Ok(End::Done)
}

async fn one_object(api: &Api, path: &str, format: Format) -> Result<End, Error> {
    let object: ObjectView = api.get(path).await?;
    if format == Format::Yaml {
        return documents(std::slice::from_ref(&object));
    }
    let rows = vec![row(&object)];
    let text = table(["KIND", "NAMESPACE", "NAME"], rows);
    Answer { value: &object, names: vec![object.object.clone()], text }.show(format)?;
    Ok(End::Done)
}

/// The name in `host/booking/web-1`, which is how lists write it; a Host document has a capital letter.
fn host_of(object: &str) -> Option<&str> {
    object.strip_prefix("host/").or_else(|| object.strip_prefix("hosts/"))
}

/// Everything that is known of one host or object.
pub(super) async fn describe(api: &Api, what: &str, name: Option<&str>, format: Format) -> Result<End, Error> {
    match (what, name) {
        ("host" | "hosts", Some(name)) => {
            let host: HostView = api.get(&format!("/v1/hosts/{}", escape(name))).await?;
            let policy: HostPolicyView = api.get(&format!("/v1/hosts/{}/policy", escape(&host.id))).await?;
            let names = vec![format!("host/{}/{}", host.namespace, host.name)];
            let text = host_text(&host, &policy, format.is_wide(), OffsetDateTime::now_utc());
            // Programs get the host and its policy in one.
            let mut value = serde_json::to_value(&host)?;
            if let Value::Object(fields) = &mut value {
                fields.insert("policy".to_owned(), serde_json::to_value(&policy)?);
            }
            Answer { value: &value, names, text }.show(format)?;
            Ok(End::Done)
        }
        (object, None) if host_of(object).is_some() => Box::pin(describe(api, "host", host_of(object), format)).await,
        ("revision" | "revisions", Some(number)) => past::revision(api, number, format).await,
        ("host" | "hosts", None) => {
            Err(Error::Usage("host-missing", "which host? write: holdfast describe host NAMESPACE/NAME".to_owned()))
        }
        (object, name) => {
            let object = name.map_or_else(|| object.to_owned(), |name| format!("{object}/{name}"));
            let object: ObjectView = api.get(&object_path(&object)?).await?;
            let document = object.document.as_ref().map(yaml).transpose()?.unwrap_or_default();
            let text = match &object.governs {
                None => document,
                Some(hosts) => {
                    let shown = if format.is_wide() { usize::MAX } else { GOVERNED_SHOWN };
                    let list =
                        if hosts.is_empty() { String::new() } else { format!(": {}", words::some_of(hosts, shown)) };
                    format!(
                        "{} governs {}{list}\n\n{document}",
                        object.object,
                        words::count(hosts.len() as u64, "host")
                    )
                }
            };
            Answer { value: &object, names: vec![object.object.clone()], text }.show(format)?;
            Ok(End::Done)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_for_in_the_namespace_that_was_given_unless_it_says_its_own() {
        assert_eq!(qualified("web", Some("edge")), "edge/web");
        assert_eq!(qualified("core/web", Some("edge")), "core/web");
        assert_eq!(qualified("ho_1", Some("edge")), "ho_1");
        assert_eq!(query("/v1/x", &[("a", None), ("b", Some("c d"))]), "/v1/x?b=c%20d");
    }
}
