//! "Did you mean": the known word that a misspelt one is closest to.
//!
//! A suggestion is only ever words for people: nothing is read as if it had been spelt so.

/// The longest word that is compared: longer ones are no slips of a name.
const WORD_CHARS_MAX: usize = 128;

/// The known word that is at most one slip in three letters away, the closest first; nothing if none is.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let chars = word.chars().count();
    if chars > WORD_CHARS_MAX {
        return None;
    }
    let slips_max = (chars / 3).max(1);
    let word = word.to_lowercase();
    let slips = |known: &'a str| (strsim::osa_distance(&word, &known.to_lowercase()), known);
    known
        .into_iter()
        .map(slips)
        .filter(|(slips, known)| *slips <= slips_max && *slips < known.chars().count())
        .min()
        .map(|(_, known)| known)
}

/// ``; did you mean `KNOWN`?`` to be put after a message, or nothing.
#[must_use]
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|known| format!("; did you mean `{known}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_close_and_another_word_is_not() {
        let known = ["ingress", "egress", "isolate", "hostSelector"];
        assert_eq!(nearest("ingres", known), Some("ingress"));
        assert_eq!(nearest("hostselector", known), Some("hostSelector"));
        assert_eq!(nearest("isolation", known), Some("isolate"));
        assert_eq!(nearest("spec", known), None);
        assert_eq!(nearest("a", ["b"]), None, "one letter is no slip of another");
        assert_eq!(nearest(&"ingress".repeat(50), known), None);
        assert_eq!(did_you_mean("egres", known), "; did you mean `egress`?");
        assert_eq!(did_you_mean("x", known), "");
    }
}
