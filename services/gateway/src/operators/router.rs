//! Every path of the door, each registered once for serving and for its description.

use std::sync::Arc;

use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::{Router, middleware};
use holdfast_api::problem::ProblemType;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::authenticate;
use super::door::Shared;
use super::refuse::{self, Refusal};
use super::{audit, explain, hosts, objects, operations, plan, rebuild, status, tokens};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdfast operators' API",
        description = "What operators ask of a Holdfast control plane. Every refusal is a problem (RFC 9457) whose type begins with `urn:holdfast:problem:`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    modifiers(&BearerToken),
    security(("token" = []))
)]
struct Described;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        openapi.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

fn described() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(objects::apply))
        .routes(routes!(plan::plan_change))
        .routes(routes!(objects::list))
        .routes(routes!(objects::one, objects::delete))
        .routes(routes!(status::status))
        .routes(routes!(hosts::list))
        .routes(routes!(hosts::one))
        .routes(routes!(hosts::diff))
        .routes(routes!(explain::flow))
        .routes(routes!(operations::list))
        .routes(routes!(operations::one))
        .routes(routes!(tokens::create_enrol, tokens::list_enrol))
        .routes(routes!(tokens::revoke_enrol))
        .routes(routes!(tokens::create_api, tokens::list_api))
        .routes(routes!(tokens::revoke_api))
        .routes(routes!(rebuild::check))
        .routes(routes!(audit::entries))
        .routes(routes!(audit::checkpoint))
        .routes(routes!(audit::checkpoints))
        .routes(routes!(audit::status))
}

/// The description of the API, as `/openapi.json` serves it and `docs/openapi.json` holds it.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().into_openapi()
}

/// The door's routes. A library's own refusals become problems in the outermost layer.
pub(crate) fn router(door: Shared) -> Router {
    let (routes, openapi) = described().split_for_parts();
    let written = openapi.to_pretty_json().inspect_err(|error| tracing::error!(%error, "the API has no description"));
    let description: Option<Arc<str>> = written.ok().map(Arc::from);
    let served = move || {
        let description = description.clone();
        async move {
            let missing = || Refusal::new(ProblemType::Internal, "the API has no description");
            let text = description.ok_or_else(missing)?;
            Ok::<_, Refusal>(([(header::CONTENT_TYPE, "application/json")], text.to_string()))
        }
    };
    routes
        .layer(from_fn_with_state(door.clone(), authenticate))
        .with_state(door)
        .route("/openapi.json", get(served))
        .layer(middleware::from_fn(refuse::finish))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// `HOLDFAST_BLESS=1` writes the description anew; the difference is reviewed with the change.
    #[test]
    fn the_committed_description_is_the_one_that_is_served() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let mut served = openapi().to_pretty_json().expect("JSON");
        served.push('\n');
        if std::env::var_os("HOLDFAST_BLESS").is_some() {
            std::fs::write(&path, &served).expect("writes");
        }
        let committed = std::fs::read_to_string(&path).expect("docs/openapi.json is there");
        assert!(committed == served, "docs/openapi.json differs: run the test with HOLDFAST_BLESS=1");
    }
}
