//! Rust source as text, enough of it to tell code from comments and strings.
//!
//! - [`code_only`] keeps every byte's place, so a line found in its answer is the line in the file.
//! - Knows comments (nested), strings (raw too), characters and lifetimes; it is no parser and accepts what no compiler would.

/// The same text with every comment and the inside of every string and character literal blanked.
pub(crate) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let end = match (byte, bytes.get(at + 1)) {
            (b'/', Some(b'/')) => find(bytes, at, b"\n").unwrap_or(bytes.len()),
            (b'/', Some(b'*')) => end_of_block_comment(bytes, at),
            (b'"', _) => end_of_string(bytes, at),
            (b'\'', _) => end_of_character(bytes, at),
            _ => at + 1,
        };
        if end == at + 1 {
            out.push(byte);
        } else {
            out.extend(bytes.get(at..end).unwrap_or_default().iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The part of a file that is not its inline test module, which by convention comes last.
pub(crate) fn without_tests(text: &str) -> &str {
    let mut offset = 0;
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let opens = lines.peek().is_some_and(|next| next.trim_start().starts_with("mod ") && !next.contains(';'));
        if line.trim() == "#[cfg(test)]" && opens {
            return text.get(..offset).unwrap_or(text);
        }
        offset += line.len();
    }
    text
}

/// Whether a file holds nothing but tests, measurements or examples, and their helpers.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.contains("/benches/")
        || path.contains("/examples/")
}

/// The lines, from 1, on which a path or word stands as a whole (`sqlx`, `std::fs`, `unsafe`).
pub(crate) fn lines_with<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.lines().enumerate().filter(move |(_, line)| has_word(line, word)).map(|(index, _)| index + 1)
}

/// Whether a word stands in a line with no letter, digit or `_` on either side.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|s| s.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|s| s.chars().next());
        !before.is_some_and(is_word_character) && !after.is_some_and(is_word_character)
    })
}

/// Whether a character can be part of an identifier.
pub(crate) fn is_word_character(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    bytes.get(from..)?.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

fn end_of_block_comment(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b'/'), Some(b'*')) => {
                depth += 1;
                at += 2;
            }
            (Some(b'*'), Some(b'/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of the string whose quote is at `start`; it is a raw one if `r` and any number of `#` come before the quote.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let before = bytes.get(..start).unwrap_or_default();
    let hashes = before.iter().rev().take_while(|byte| **byte == b'#').count();
    let raw = before.len().checked_sub(hashes + 1).and_then(|at| before.get(at)) == Some(&b'r');
    if raw {
        let mut close = vec![b'"'];
        close.resize(hashes + 1, b'#');
        return find(bytes, start + 1, &close).map_or(bytes.len(), |at| at + close.len());
    }
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of the character literal at `start`, or one byte further where it is a lifetime.
fn end_of_character(bytes: &[u8], start: usize) -> usize {
    if bytes.get(start + 1) == Some(&b'\\') {
        return find(bytes, start + 3, b"'").map_or(bytes.len(), |at| at + 1);
    }
    // A character is at most four bytes long.
    let close = (start + 2..=start + 5).find(|at| bytes.get(*at) == Some(&b'\''));
    match close {
        Some(at) if one_character(bytes.get(start + 1..at)) => at + 1,
        _ => start + 1,
    }
}

fn one_character(bytes: Option<&[u8]>) -> bool {
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).is_some_and(|text| text.chars().count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked_and_lines_stay() {
        let code = code_only("a // sqlx\n/* sqlx /* nested */ sqlx */ b\nlet c = \"sqlx \\\" sqlx\"; d\n");
        assert!(!code.contains("sqlx"));
        assert_eq!(code.lines().count(), 3);
        for word in ["a", "b", "c", "d"] {
            assert!(has_word(&code, word), "{word} is code");
        }
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        let code = code_only("let a = r#\"unsafe \" unsafe\"#; b; r\"unsafe \\\"; c");
        assert!(!has_word(&code, "unsafe"));
        assert!(has_word(&code, "b") && has_word(&code, "c"));
    }

    #[test]
    fn a_lifetime_is_no_character() {
        let code = code_only("fn f<'a>(x: &'a str) { g('\"', '\\'', 'é', b'\\n'); unsafe {} }");
        assert!(has_word(&code, "unsafe"));
        assert!(has_word(&code, "str"));
        assert!(!code.contains('"'));
    }

    #[test]
    fn a_word_is_not_a_part_of_one() {
        assert!(has_word("use sqlx::Row", "sqlx"));
        assert!(!has_word("sqlx_core::x", "sqlx"));
        assert!(!has_word("#[expect(unsafe_code)]", "unsafe"));
        assert_eq!(lines_with("a\nunsafe {\nnot_unsafe", "unsafe").collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn the_inline_test_module_is_cut_off_and_a_declared_one_is_not() {
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\nb\n}\n"), "a\n");
        let declared = "a\n#[cfg(test)]\nmod tests;\nb\n";
        assert_eq!(without_tests(declared), declared);
    }
}
