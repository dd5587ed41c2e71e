//! Opaque places in lists.
//!
//! A cursor names the list that it came from, with its filters: in another list it is refused, never misread.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_api::object::{PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Page};
use holdfast_api::problem::ProblemType;
use holdfast_model::numbers::Revision;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

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

/// Which page of a list is asked for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// The most items, 1 to 500.
    limit: Option<u32>,
    /// From the page before.
    cursor: Option<String>,
}

/// One page of a list that the store reads newest first, from a place on.
pub(crate) struct Paging<'a, K> {
    list: &'a str,
    limit: usize,
    /// Behind which the page begins.
    pub(crate) before: Option<K>,
}

impl<'a, K: Serialize + DeserializeOwned> Paging<'a, K> {
    pub(crate) fn of(list: &'a str, query: &PageQuery) -> Result<Self, Refusal> {
        let limit = limit_of(query.limit)?;
        Ok(Self { list, limit, before: decode(list, query.cursor.as_deref())? })
    }

    /// How many are read: one more than a page has tells whether there is another.
    pub(crate) fn with_more(&self) -> u32 {
        u32::try_from(self.limit.saturating_add(1)).unwrap_or(u32::MAX)
    }

    /// The page of what was read so.
    pub(crate) fn page<R, T>(
        &self,
        mut rows: Vec<R>,
        revision: Revision,
        place: impl Fn(&R) -> &K,
        view: impl Fn(&R) -> T,
    ) -> Result<Page<T>, Refusal> {
        let has_more = rows.len() > self.limit;
        rows.truncate(self.limit);
        let last = rows.last().filter(|_| has_more);
        let next_cursor = last.map(|last| encode(self.list, place(last))).transpose()?;
        Ok(Page { items: rows.iter().map(view).collect(), next_cursor, revision: revision.raw() })
    }
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
    fn a_page_says_where_the_next_begins_if_there_is_one() {
        let query = |cursor| PageQuery { limit: Some(2), cursor };
        let page = |paging: &Paging<'_, u32>, rows: &[u32]| {
            let page = paging.page(rows.to_vec(), Revision::from_raw(7), |row| row, |row| row * 10).expect("a page");
            (page.items, page.next_cursor)
        };
        let first = Paging::<u32>::of("numbers", &query(None)).expect("reads");
        assert_eq!((first.before, first.with_more()), (None, 3));
        assert_eq!(page(&first, &[9, 8]), (vec![90, 80], None));
        let (items, next) = page(&first, &[9, 8, 7]);
        assert_eq!(items, [90, 80]);
        assert_eq!(Paging::<u32>::of("numbers", &query(next)).expect("reads").before, Some(8));
    }

    #[test]
    fn a_page_has_a_bounded_number_of_items() {
        assert_eq!(limit_of(None).expect("default"), 100);
        assert!(limit_of(Some(0)).is_err() && limit_of(Some(501)).is_err());
    }
}
