//! `enrol-token` and `api-token`.

use holdfast_api::status::PortView;
use holdfast_api::token::{
    ApiTokenView, CreateApiToken, CreateEnrolToken, CreatedApiToken, CreatedEnrolToken, EnrolTokenView,
};

use serde::Serialize;
use serde_json::Value;

use crate::api::{Api, escape};
use crate::args::{ApiToken, EnrolToken};
use crate::error::{End, Error};
use crate::output::{Answer, Format, labels, or_dash, table, word};
use crate::secret_file::SecretFile;
use crate::words::{count, short_time};

/// Enrolment tokens.
pub(super) async fn enrol(api: &Api, command: EnrolToken, format: Format) -> Result<End, Error> {
    match command {
        EnrolToken::Create { namespace, labels, ports, addresses, region, owner, uses, ttl, out } => {
            let out = out.map(SecretFile::create).transpose()?;
            let port = |(name, port, protocol)| PortView { name, protocol, port };
            let wanted = CreateEnrolToken {
                namespace,
                labels: labels.into_iter().collect(),
                ports: ports.into_iter().map(port).collect(),
                region,
                owner,
                address_scope: addresses,
                uses,
                ttl_s: ttl.map(|ttl| ttl.as_secs()),
            };
            let created: CreatedEnrolToken = api.change("/v1/enrol-tokens", &wanted, None).await?;
            let (id, uses, until) = (&created.token.id, created.token.uses_max, &created.token.expires_at);
            let good = format!("{id}: good for {} until {}", count(uses.into(), "host"), short_time(until));
            show_created(&created, id, &good, &created.secret, out, format)
        }
        EnrolToken::List => {
            let tokens: Vec<EnrolTokenView> = api.get("/v1/enrol-tokens").await?;
            show_enrol(&tokens, format)
        }
        EnrolToken::Revoke { id } => revoke(api, "/v1/enrol-tokens", &id).await,
    }
}

/// Prints a new token, or keeps it in the file that was made for it: then the answer is told without it.
fn show_created<T: Serialize>(
    created: &T,
    id: &str,
    good: &str,
    secret: &str,
    out: Option<SecretFile>,
    format: Format,
) -> Result<End, Error> {
    let names = vec![id.to_owned()];
    let Some(out) = out else {
        word(&format!("{good}; it is shown this once"));
        Answer { value: created, names, text: secret.to_owned() }.show(format)?;
        return Ok(End::Done);
    };
    let path = out.keep(secret)?;
    word(&format!("{good}; it is in {}, and nowhere else", path.display()));
    let mut value = serde_json::to_value(created)?;
    if let Value::Object(fields) = &mut value {
        fields.remove("secret");
        fields.insert("file".to_owned(), path.display().to_string().into());
    }
    Answer { value: &value, names, text: String::new() }.show(format)?;
    Ok(End::Done)
}

fn show_enrol(tokens: &[EnrolTokenView], format: Format) -> Result<End, Error> {
    let row = |token: &EnrolTokenView| {
        let uses = format!("{}/{}", token.uses, token.uses_max);
        [
            token.id.clone(),
            token.namespace.clone(),
            uses,
            token.expires_at.clone(),
            or_dash(token.revoked_at.as_ref()),
            labels(&token.labels),
        ]
    };
    let text = table(["TOKEN", "NAMESPACE", "USES", "EXPIRES", "REVOKED", "LABELS"], tokens.iter().map(row).collect());
    Answer { value: &tokens, names: tokens.iter().map(|token| token.id.clone()).collect(), text }.show(format)?;
    Ok(End::Done)
}

async fn revoke(api: &Api, list: &str, id: &str) -> Result<End, Error> {
    api.delete(&format!("{list}/{}", escape(id))).await?;
    word(&format!("{id} is revoked"));
    Ok(End::Done)
}

/// API tokens.
pub(super) async fn api(api: &Api, command: ApiToken, format: Format) -> Result<End, Error> {
    match command {
        ApiToken::Create { name, role, namespaces, ttl, out } => {
            let out = out.map(SecretFile::create).transpose()?;
            let namespaces = (!namespaces.is_empty()).then_some(namespaces);
            let wanted = CreateApiToken { name, role, namespaces, ttl_s: ttl.map(|ttl| ttl.as_secs()) };
            let created: CreatedApiToken = api.change("/v1/api-tokens", &wanted, None).await?;
            let (id, role) = (&created.token.id, &created.token.role);
            let until =
                created.token.expires_at.as_ref().map_or_else(|| "for ever".to_owned(), |at| format!("until {at}"));
            show_created(&created, id, &format!("{id}: {role}, good {until}"), &created.secret, out, format)
        }
        ApiToken::List => {
            let tokens: Vec<ApiTokenView> = api.get("/v1/api-tokens").await?;
            show_api(&tokens, format)
        }
        ApiToken::Revoke { id } => revoke(api, "/v1/api-tokens", &id).await,
    }
}

fn show_api(tokens: &[ApiTokenView], format: Format) -> Result<End, Error> {
    let row = |token: &ApiTokenView| {
        let scope = token.namespaces.as_ref().map_or_else(|| "all".to_owned(), |names| names.join(","));
        [
            token.id.clone(),
            token.name.clone(),
            token.role.clone(),
            scope,
            or_dash(token.expires_at.as_ref()),
            or_dash(token.revoked_at.as_ref()),
        ]
    };
    let text = table(["TOKEN", "NAME", "ROLE", "NAMESPACES", "EXPIRES", "REVOKED"], tokens.iter().map(row).collect());
    Answer { value: &tokens, names: tokens.iter().map(|token| token.id.clone()).collect(), text }.show(format)?;
    Ok(End::Done)
}
