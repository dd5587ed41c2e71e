//! How a secret looks in a text, so that one in the wrong place is found and not repeated.
//!
//! - A bearer token is `hfa_` or `hfe_` and 43 characters of URL-safe base64; a private key in PEM says so itself.
//! - Only the shape is known here. Making and checking tokens belongs to the identity of services.

use std::borrow::Cow;

/// What a token begins with.
const PREFIXES: [&str; 2] = ["hfa_", "hfe_"];
/// The characters of 32 bytes in base64 without padding.
const BODY_LEN: usize = 43;
/// What the first line of every private key in PEM ends with.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// Where the first secret of a text begins, in bytes.
#[must_use]
pub fn secret_at(text: &str) -> Option<usize> {
    [token_at(text), text.find(PRIVATE_KEY)].into_iter().flatten().min()
}

/// The text with `…` in the place of what follows a token's prefix.
#[must_use]
pub fn redacted(text: &str) -> Cow<'_, str> {
    let mut rest = text;
    let mut shown = String::new();
    while let Some(at) = token_at(rest) {
        let (before, token) = rest.split_at(at);
        let (prefix, body) = token.split_at(PREFIXES[0].len());
        shown.push_str(before);
        shown.push_str(prefix);
        shown.push('…');
        rest = body.trim_start_matches(is_body);
    }
    if shown.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(shown + rest) }
}

fn token_at(text: &str) -> Option<usize> {
    let whole = |(at, prefix): &(usize, &str)| {
        let body = text.get(at + prefix.len()..).unwrap_or_default();
        body.chars().take_while(|char| is_body(*char)).count() >= BODY_LEN
    };
    let found = PREFIXES.into_iter().filter_map(|prefix| text.match_indices(prefix).find(whole));
    found.map(|(at, _)| at).min()
}

fn is_body(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_token(prefix: &str) -> String {
        format!("{prefix}{}", "aB3-_".repeat(9).get(..BODY_LEN).expect("long enough"))
    }

    #[test]
    fn tokens_are_found_anywhere_and_shown_by_their_prefix_alone() {
        let text = format!("/v1/hosts/{}?x={}", mk_token("hfa_"), mk_token("hfe_"));
        assert_eq!(secret_at(&text), Some(10));
        assert_eq!(redacted(&text), "/v1/hosts/hfa_…?x=hfe_…");
        assert_eq!(redacted(&format!("hfa_short {}", mk_token("hfa_"))), "hfa_short hfa_…");
    }

    #[test]
    fn what_only_begins_like_a_token_is_none_and_a_private_key_is_found() {
        for text in ["", "hfa_", "a hfe_abc b", &mk_token("hfx_")] {
            assert_eq!((secret_at(text), redacted(text).as_ref()), (None, text));
        }
        assert!(secret_at(concat!("-----BEGIN EC ", "PRIVATE KEY-----\nx")).is_some());
    }
}
