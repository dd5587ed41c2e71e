//! Entity tags: what an answer is of, and that a change is made on nothing else.
//!
//! - The tag of an object is the revision since which it says what it says; that of all intent is the last revision;
//!   that of a host the revision since which it is enrolled as it is; that of a rollout the number of its row.
//! - Whoever shows a tag is refused when something else is there, in the transaction of the change.
//! - A call that changes something and takes no tag refuses one: what is shown is never passed over.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use holdfast_model::numbers::Revision;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use super::door::Shared;
use super::refuse::Refusal;

/// The number that a request shows, if it shows one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IfMatch(pub(crate) Option<u64>);

impl FromRequestParts<Shared> for IfMatch {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _door: &Shared) -> Result<Self, Refusal> {
        shown(&parts.headers).map(Self)
    }
}

fn shown(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = || {
        let text = "one tag is shown, as the `etag` of what was read: a number in quotes";
        Refusal::invalid("if-match", "if-match", text)
    };
    let text = value.to_str().map_err(|_| wrong())?.trim();
    let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).ok_or_else(wrong)?;
    let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_plain && values.next().is_none());
    number.map(Some).ok_or_else(wrong)
}

/// The changing calls whose description has `If-Match` among their parameters.
#[derive(Clone, Debug)]
pub(crate) struct Tagged(Arc<HashSet<(Method, String)>>);

impl Tagged {
    /// As the description of the API has it.
    pub(crate) fn of(openapi: &OpenApi) -> Self {
        let calls = openapi.paths.paths.iter().flat_map(|(path, item)| {
            let calls = [
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            let takes_one = calls.into_iter().filter(|(_, call)| call.as_ref().is_some_and(takes_tag));
            takes_one.map(|(method, _)| (method, path.clone()))
        });
        Self(Arc::new(calls.collect()))
    }

    fn takes(&self, method: &Method, path: &str) -> bool {
        self.0.contains(&(method.clone(), path.to_owned()))
    }
}

fn takes_tag(call: &Operation) -> bool {
    let is_tag = |name: &str| name.eq_ignore_ascii_case(header::IF_MATCH.as_str());
    call.parameters.iter().flatten().any(|one| match one {
        RefOr::T(one) => one.parameter_in == ParameterIn::Header && is_tag(&one.name),
        RefOr::Ref(_) => false,
    })
}

/// Refuses a tag that is shown to a call which changes something and takes none.
pub(crate) async fn refuse_untaken(
    State(tagged): State<Tagged>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let is_shown = request.headers().contains_key(header::IF_MATCH);
    if is_shown && !request.method().is_safe() && !tagged.takes(request.method(), path.as_str()) {
        let text = "this call takes no `if-match`: nothing was done";
        return Err(Refusal::invalid("if-match", "if-match", text));
    }
    Ok(next.run(request).await)
}

/// The header that says what an answer is of.
pub(crate) type Tag = [(HeaderName, String); 1];

/// The tag of what is so since a revision.
pub(crate) fn etag(revision: Revision) -> Tag {
    numbered(revision.raw())
}

/// The tag of what counts by itself what becomes of it.
pub(crate) fn numbered(number: u64) -> Tag {
    [(header::ETAG, format!("\"{number}\""))]
}

/// What a change of all intent is to be made on: the header says what the body may say.
pub(crate) fn expected(body: Option<u64>, IfMatch(shown): IfMatch) -> Result<Option<u64>, Refusal> {
    match (body, shown) {
        (Some(body), Some(shown)) if body != shown => {
            let text = "the body expects another revision than `if-match` shows";
            Err(Refusal::invalid("expected_revision", "if-match", text))
        }
        (body, shown) => Ok(body.or(shown)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn mk_headers(tags: &[&'static str]) -> HeaderMap {
        tags.iter().map(|tag| (header::IF_MATCH, HeaderValue::from_static(tag))).collect()
    }

    #[test]
    fn a_tag_is_read_as_it_is_written_and_nothing_else_is() {
        let [(_, written)] = etag(Revision::from_raw(12));
        assert_eq!(written, "\"12\"");
        assert_eq!(shown(&mk_headers(&["\"12\""])).expect("reads"), Some(12));
        assert_eq!(shown(&mk_headers(&[])).expect("none is fine"), None);
        for wrong in
            [&["12"][..], &["W/\"12\""], &["*"], &["\"1\", \"2\""], &["\"+1\""], &["\"\""], &["\"1\"", "\"1\""]]
        {
            assert!(shown(&mk_headers(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn body_and_header_do_not_contradict_each_other() {
        assert_eq!(expected(None, IfMatch(Some(3))).expect("one"), Some(3));
        assert_eq!(expected(Some(3), IfMatch(Some(3))).expect("the same"), Some(3));
        assert!(expected(Some(2), IfMatch(Some(3))).is_err());
    }
}
