//! The one place where an error and its causes become a line of text.
//!
//! - Every cause is printed once: a cause that its parent repeats in its own text is left out.
//! - Control characters are escaped, because a text may come from a peer.

use std::error::Error;
use std::fmt::{self, Write as _};

/// Prints an error and its causes, joined by `: `.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        write_escaped(f, &last)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            // Foreign errors often print their cause themselves, and `transparent` ones are their cause.
            if !text.is_empty() && !last.ends_with(&text) {
                f.write_str(": ")?;
                write_escaped(f, &text)?;
                last = text;
            }
            next = cause.source();
        }
        Ok(())
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for char in text.chars() {
        if char.is_control() { write!(f, "{}", char.escape_default())? } else { f.write_char(char)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|link| link as _)
        }
    }

    fn mk_chain(texts: &[&'static str]) -> Link {
        let (first, rest) = texts.split_first().unwrap();
        Link(first, (!rest.is_empty()).then(|| Box::new(mk_chain(rest))))
    }

    #[test]
    fn each_cause_is_printed_once_even_where_a_parent_repeats_it() {
        let chain = mk_chain(&["cannot start", "cannot read x: gone", "gone", "gone", "why"]);
        assert_eq!(Chain(&chain).to_string(), "cannot start: cannot read x: gone: why");
    }

    #[test]
    fn control_characters_of_a_peer_do_not_reach_the_terminal() {
        let chain = mk_chain(&["the peer said", "\u{1b}[2J\nERROR all is well"]);
        assert_eq!(Chain(&chain).to_string(), r"the peer said: \u{1b}[2J\nERROR all is well");
    }
}
