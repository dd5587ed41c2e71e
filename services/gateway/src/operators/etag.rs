//! Entity tags: what an answer is of, and that a change is made on nothing else.
//!
//! - The tag of an object is the revision since which it says what it says; that of all intent is the last revision;
//!   that of a host the revision since which it is enrolled as it is; that of a rollout the number of its row.
//! - Whoever shows a tag is refused when something else is there, in the transaction of the change.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use holdfast_model::numbers::Revision;

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
