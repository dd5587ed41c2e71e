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
use super::etag::{Tagged, refuse_untaken};
use super::refuse::{self, Refusal};
use super::{
    audit, authority, decommission, directives, explain, history, hosts, modes, objects, operations, plan, plane,
    rebuild, restore, revisions, rollouts, status, tokens,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdfast operators' API",
        description = "What operators ask of a Holdfast control plane. Every refusal is a problem (RFC 9457) whose type begins with `urn:holdfast:problem:`. A changing call that has no `If-Match` among its parameters refuses one.",
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
        .routes(routes!(objects::delete_all))
        .routes(routes!(plan::plan_change))
        .routes(routes!(objects::list))
        .routes(routes!(objects::one, objects::delete))
        .routes(routes!(history::of_object))
        .routes(routes!(modes::set_mode))
        .routes(routes!(restore::restore))
        .routes(routes!(restore::plan_restore))
        .routes(routes!(revisions::list))
        .routes(routes!(revisions::one))
        .routes(routes!(status::status))
        .routes(routes!(plane::plane))
        .routes(routes!(hosts::list))
        .routes(routes!(hosts::one))
        .routes(routes!(history::of_host))
        .routes(routes!(hosts::diff))
        .routes(routes!(hosts::policy))
        .routes(routes!(directives::resend_snapshot))
        .routes(routes!(directives::reconnect))
        .routes(routes!(directives::re_enrol))
        .routes(routes!(decommission::decommission))
        .routes(routes!(explain::flow))
        .routes(routes!(operations::list))
        .routes(routes!(operations::one))
        .routes(routes!(operations::hosts))
        .routes(routes!(operations::cancel))
        .routes(routes!(rollouts::list))
        .routes(routes!(rollouts::one))
        .routes(routes!(rollouts::pause))
        .routes(routes!(rollouts::resume))
        .routes(routes!(rollouts::abort))
        .routes(routes!(tokens::enrol::create, tokens::enrol::list))
        .routes(routes!(tokens::enrol::revoke))
        .routes(routes!(tokens::api::create, tokens::api::list))
        .routes(routes!(tokens::api::revoke))
        .routes(routes!(authority::show))
        .routes(routes!(authority::bump))
        .routes(routes!(authority::confirm))
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
    let tagged = Tagged::of(&openapi);
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
        // Inside of the next: who shows no good token is told of nothing else.
        .route_layer(from_fn_with_state(tagged, refuse_untaken))
        .layer(from_fn_with_state(door.clone(), authenticate))
        .with_state(door)
        .route("/openapi.json", get(served))
        .layer(middleware::from_fn(refuse::finish))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_call_has_an_id_of_its_own_and_says_how_it_refuses() {
        let described = serde_json::to_value(openapi()).expect("JSON");
        let paths = described["paths"].as_object().expect("paths");
        let calls: Vec<&serde_json::Value> =
            paths.values().flat_map(|path| path.as_object().expect("methods").values()).collect();
        let mut ids: Vec<&str> = calls.iter().filter_map(|call| call["operationId"].as_str()).collect();
        assert_eq!(ids.len(), calls.len());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), calls.len(), "{ids:?}");
        assert!(calls.iter().all(|call| call["responses"]["default"].is_object()));
    }

    #[test]
    fn every_type_of_problem_has_a_line_in_the_page_about_the_api() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
        let page = std::fs::read_to_string(path).expect("docs/api.md is there");
        for kind in ProblemType::ALL {
            let line = format!("| `{}` | {} |", kind.word(), kind.status());
            assert!(page.contains(&line), "docs/api.md lacks {line}");
        }
    }

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
