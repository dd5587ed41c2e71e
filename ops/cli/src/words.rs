//! Counts, ages and lists as people say them.

use holdfast_api::status::HostView;
use holdfast_model::silence::Presence;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// `1 host`, `2 hosts`.
pub(crate) fn count(number: u64, one: &str) -> String {
    let plural = one.strip_suffix('y').map_or_else(|| format!("{one}s"), |stem| format!("{stem}ies"));
    format!("{number} {}", if number == 1 { one } else { &plural })
}

/// `3 s ago`.
pub(crate) fn ago(seconds: u64) -> String {
    let (number, unit) = match seconds {
        0..=119 => (seconds, "s"),
        120..=7_199 => (seconds / 60, "min"),
        7_200..=172_799 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    format!("{number} {unit} ago")
}

/// How long ago a time in RFC 3339 was; the text itself if it is none. A time that this clock has not reached is now.
pub(crate) fn since(text: &str, now: OffsetDateTime) -> String {
    match OffsetDateTime::parse(text, &Rfc3339) {
        Ok(at) => ago(u64::try_from((now - at).whole_seconds()).unwrap_or(0)),
        Err(_) => text.to_owned(),
    }
}

/// When a host was last heard: by the gateway's count where there is one, which needs no clock to agree.
pub(crate) fn last_seen(host: &HostView, now: OffsetDateTime) -> String {
    let heard = host.session.as_ref().and_then(|session| session.heard_ms_ago);
    let seen = match (heard, &host.last_seen_at) {
        (Some(ms), _) => ago(ms / 1_000),
        (None, Some(at)) => since(at, now),
        (None, None) => "never".to_owned(),
    };
    if host.presence == Presence::Lost { format!("{seen}, lost") } else { seen }
}

/// A time of day and date without its fraction, as `2026-01-02 03:04:05`.
pub(crate) fn short_time(text: &str) -> String {
    match text.get(..19).map(|head| head.replacen('T', " ", 1)) {
        Some(head) if OffsetDateTime::parse(text, &Rfc3339).is_ok() => head,
        Some(_) | None => text.to_owned(),
    }
}

/// The first of a list, and how many more there are.
pub(crate) fn some_of(list: &[String], shown_max: usize) -> String {
    let shown = list.iter().take(shown_max).cloned().collect::<Vec<_>>().join(", ");
    match list.len().saturating_sub(shown_max) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grammar() {
        assert_eq!([count(1, "host"), count(0, "host"), count(2, "entry")], ["1 host", "0 hosts", "2 entries"]);
    }

    #[test]
    fn ages_have_one_unit_and_a_clock_that_is_behind_says_now() {
        assert_eq!([0, 119, 120, 7_200, 172_800].map(ago), ["0 s ago", "119 s ago", "2 min ago", "2 h ago", "2 d ago"]);
        let now = OffsetDateTime::UNIX_EPOCH;
        assert_eq!(since("1970-01-01T00:00:05Z", now), "0 s ago");
        assert_eq!(since("1969-12-31T23:59:57.5Z", now), "2 s ago");
        assert_eq!(since("soon", now), "soon");
        assert_eq!(short_time("2026-01-02T03:04:05.123Z"), "2026-01-02 03:04:05");
        assert_eq!(short_time("2026-01-02T03:04"), "2026-01-02T03:04");
    }

    #[test]
    fn a_long_list_says_how_many_more_there_are() {
        let list = ["a", "b", "c"].map(str::to_owned);
        assert_eq!([some_of(&list, 2), some_of(&list, 3)], ["a, b and 1 more", "a, b, c"]);
    }
}
