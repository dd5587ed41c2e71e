//! Opaque places in lists.
//!
//! A cursor names the list that it came from, with its filters: in another list it is refused, never misread.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_api::object::{PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX};
use holdfast_api::problem::ProblemType;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::refuse::Refusal;

#[derive(Serialize, Deserialize)]
struct Cursor<K> {
    list: String,
    after: K,
}

/// The text of a cursor: the next page of `list` begins after `after`.
pub(crate) fn encode<K: Serialize>(list: &str, after: &K) -> Result<String, Refusal> {
    let cursor = Cursor { list: list.to_owned(), after };
    let bytes = serde_json::to_vec(&cursor).map_err(|error| Refusal::defect(&error))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The place that a cursor of `list` names.
pub(crate) fn decode<K: DeserializeOwned>(list: &str, text: Option<&str>) -> Result<Option<K>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let refused =
        || Refusal::new(ProblemType::InvalidCursor, "a cursor is taken from the page before, with the same filters");
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| refused())?;
    let cursor: Cursor<K> = serde_json::from_slice(&bytes).map_err(|_| refused())?;
    if cursor.list == list { Ok(Some(cursor.after)) } else { Err(refused()) }
}

/// How many items a page has.
pub(crate) fn limit_of(limit: Option<u32>) -> Result<usize, Refusal> {
    match limit.unwrap_or(PAGE_ITEMS_DEFAULT) {
        limit @ 1..=PAGE_ITEMS_MAX => Ok(limit as usize),
        _ => Err(Refusal::invalid("limit", "limit", format!("a page has 1 to {PAGE_ITEMS_MAX} items"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_in_its_own_list_only() {
        let text = encode("hosts", &("default", 7)).expect("encodes");
        assert_eq!(decode::<(String, u32)>("hosts", Some(&text)).expect("reads"), Some(("default".to_owned(), 7)));
        for (list, text) in [("objects", text.as_str()), ("hosts", "x"), ("hosts", "")] {
            let refusal = decode::<(String, u32)>(list, Some(text)).expect_err("another list");
            assert_eq!(refusal.problem().known_type(), Some(ProblemType::InvalidCursor));
        }
        assert_eq!(decode::<u8>("hosts", None).expect("none"), None);
    }

    #[test]
    fn a_page_has_a_bounded_number_of_items() {
        assert_eq!(limit_of(None).expect("default"), 100);
        assert!(limit_of(Some(0)).is_err() && limit_of(Some(501)).is_err());
    }
}
