//! Lists of prefixes as text, one a line.
//!
//! - A line is a prefix or an address; empty lines and what follows `#` mean nothing.
//! - A list with an invalid line is refused whole, with its first invalid lines named: half a list is a hole in a policy.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::fault::quote;
use crate::limits;
use crate::scalar::parse_cidr;

/// How many invalid lines an error names.
const LINES_NAMED_MAX: usize = 20;

/// Why a list is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressListError {
    /// Lines that are neither prefix nor address.
    #[error("line {} is neither a prefix nor an address: {}{}", .lines[0].0, .lines[0].1, more(.lines.len()))]
    Lines {
        /// The numbers of the first invalid lines, from 1, and what they say, cut; never empty.
        lines: Vec<(usize, String)>,
    },
    /// More entries than one group may have.
    #[error("the list has more than {} entries", limits::GROUP_ENTRIES_MAX)]
    TooLong,
}

fn more(count: usize) -> String {
    if count > 1 { format!(", and {} more", count - 1) } else { String::new() }
}

/// Reads a list, in its own order, repetitions kept.
///
/// # Errors
/// [`AddressListError`]; nothing of the list is used then.
pub fn read_address_list(text: &str) -> Result<Vec<IpNet>, AddressListError> {
    let mut nets = Vec::new();
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let entry = line.split_once('#').map_or(line, |(entry, _)| entry).trim();
        if entry.is_empty() {
            continue;
        }
        match parse_entry(entry) {
            Some(_) if nets.len() >= limits::GROUP_ENTRIES_MAX => return Err(AddressListError::TooLong),
            Some(net) => nets.push(net),
            None if lines.len() < LINES_NAMED_MAX => lines.push((index + 1, quote(entry))),
            None => {}
        }
    }
    if lines.is_empty() { Ok(nets) } else { Err(AddressListError::Lines { lines }) }
}

/// A prefix, or an address as the prefix of itself.
pub(crate) fn parse_entry(text: &str) -> Option<IpNet> {
    parse_cidr(text).or_else(|| Some(IpNet::from(text.parse::<IpAddr>().ok()?.to_canonical())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order_and_takes_comments_and_bare_addresses() {
        let nets = read_address_list("# head\n10.1.2.3/8\n\n192.0.2.7 # one\r\n2001:db8::/32\n").expect("a list");
        let want: Vec<IpNet> =
            ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"].iter().map(|text| text.parse().expect("a net")).collect();
        assert_eq!(nets, want);
    }

    #[test]
    fn invalid_lines_are_named_and_nothing_is_taken() {
        let error = read_address_list("10.0.0.0/8\n10.0.0.0/33\n\nexample\n").expect_err("two bad lines");
        let lines = vec![(2, "`10.0.0.0/33`".to_owned()), (4, "`example`".to_owned())];
        assert_eq!(error, AddressListError::Lines { lines });
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
