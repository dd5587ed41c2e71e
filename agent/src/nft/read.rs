//! Reading the kernel back: the table, its chains, rules, sets and elements, and the generation id.
//!
//! - A read is one consistent picture only if the generation id is the same before and after; callers bracket it.
//! - What this agent does not know in a rule is kept as foreign, never left out.

use super::attr::{Attributes, Malformed, Message, Writer};
use super::link::{Error, Link};
use super::{batch, expr, numbers as n};
use crate::plan::{Boundary, Expr, Key, Observed, ObservedChain, ObservedRule, ObservedSet, RuleId, TABLE};

const NF_DROP: u32 = 0;

fn request(link: &mut Link, message: u16, flags: u16) -> Writer {
    Writer::new(n::SUBSYSTEM << 8 | message, n::REQUEST | flags, link.next_seq(), n::INET, 0)
}

/// The current generation of this network namespace's whole ruleset.
pub(super) fn generation(link: &mut Link) -> Result<u32, Error> {
    let request = request(link, n::GET_GENERATION, 0).finish();
    let mut id = None;
    link.ask(&request, "tell the generation", |message| {
        id = Some(message.attributes().need(n::GENERATION_ID)?.u32()?);
        Ok(())
    })?;
    id.ok_or(Error::Silent)
}

/// The flags of our table; `None` if it is not there.
pub(super) fn table_flags(link: &mut Link) -> Result<Option<u32>, Error> {
    let mut request = request(link, n::GET_TABLE, 0);
    request.text(n::TABLE_NAME, TABLE);
    let mut flags = None;
    let asked = link.ask(&request.finish(), "tell the table", |message| {
        flags = Some(message.attributes().find(n::TABLE_FLAGS)?.map_or(Ok(0), |attribute| attribute.u32())?);
        Ok(())
    });
    match asked {
        Err(Error::Refused { errno: nix::libc::ENOENT, .. }) => Ok(None),
        other => other.map(|()| flags),
    }
}

/// Everything that our table holds; `None` if it is not there.
pub(super) fn whole(link: &mut Link) -> Result<Option<Observed>, Error> {
    let Some(flags) = table_flags(link)? else { return Ok(None) };
    let chains = chains(link)?;
    let rules = rules(link, None)?;
    let mut sets = sets(link)?;
    for set in &mut sets {
        set.boundaries = elements(link, &set.name)?;
    }
    Ok(Some(Observed { flags, chains, rules, sets }))
}

fn chains(link: &mut Link) -> Result<Vec<ObservedChain>, Error> {
    let request = request(link, n::GET_CHAIN, n::DUMP).finish();
    let mut chains = Vec::new();
    link.ask(&request, "list chains", |message| {
        let attributes = message.attributes();
        if attributes.need(n::CHAIN_TABLE)?.text()? != TABLE {
            return Ok(());
        }
        let name = attributes.need(n::CHAIN_NAME)?.text()?.to_owned();
        let hook = attributes.find(n::CHAIN_HOOK)?.map(|hook| {
            let number = hook.nested().need(n::HOOK_NUMBER)?.u32()?;
            let priority = hook.nested().need(n::HOOK_PRIORITY)?.u32()?.cast_signed();
            let drops = attributes.need(n::CHAIN_POLICY)?.u32()? == NF_DROP;
            Ok((number, priority, drops, attributes.need(n::CHAIN_TYPE)?.text()?.to_owned()))
        });
        chains.push(ObservedChain { name, hook: hook.transpose()? });
        Ok(())
    })?;
    Ok(chains)
}

/// The rules of our table, or of one of its chains.
pub(super) fn rules(link: &mut Link, chain: Option<&str>) -> Result<Vec<ObservedRule>, Error> {
    let mut request = request(link, n::GET_RULE, n::DUMP);
    request.text(n::RULE_TABLE, TABLE);
    if let Some(chain) = chain {
        request.text(n::RULE_CHAIN, chain);
    }
    let mut rules = Vec::new();
    link.ask(&request.finish(), "list rules", |message| {
        rules.push(rule(message)?);
        Ok(())
    })?;
    Ok(rules)
}

fn rule(message: &Message<'_>) -> Result<ObservedRule, Malformed> {
    let attributes = message.attributes();
    let mut exprs: Vec<Expr> = Vec::new();
    let mut counted = (0, 0);
    if let Some(list) = attributes.find(n::RULE_EXPRESSIONS)? {
        for element in list.nested() {
            let element = element?.nested();
            let name = element.need(n::EXPR_NAME)?.text()?;
            let data = element.find(n::EXPR_DATA)?.map_or(Attributes(&[]), |attribute| attribute.nested());
            let (expr, count) = expr::decode(name, data)?;
            exprs.push(expr);
            counted = count.unwrap_or(counted);
        }
    }
    let userdata = attributes.find(n::RULE_USERDATA)?.map_or(&[][..], |attribute| attribute.value);
    Ok(ObservedRule {
        chain: attributes.need(n::RULE_CHAIN)?.text()?.to_owned(),
        handle: attributes.need(n::RULE_HANDLE)?.u64()?,
        id: RuleId::new(comment(userdata)),
        exprs,
        counted,
    })
}

/// The comment in a rule's userdata: a row of (type, length, value), one byte each for the first two.
fn comment(mut userdata: &[u8]) -> &str {
    while let [kind, len, rest @ ..] = userdata {
        let (value, rest) = rest.split_at_checked(usize::from(*len)).unwrap_or((rest, &[]));
        if *kind == n::COMMENT {
            let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
            return std::str::from_utf8(text).unwrap_or_default();
        }
        userdata = rest;
    }
    ""
}

fn sets(link: &mut Link) -> Result<Vec<ObservedSet>, Error> {
    let mut request = request(link, n::GET_SET, n::DUMP);
    request.text(n::SET_TABLE, TABLE);
    let mut sets = Vec::new();
    link.ask(&request.finish(), "list sets", |message| {
        let attributes = message.attributes();
        sets.push(ObservedSet {
            name: attributes.need(n::SET_NAME)?.text()?.to_owned(),
            key_type: (attributes.need(n::SET_KEY_TYPE)?.u32()?, attributes.need(n::SET_KEY_LEN)?.u32()?),
            flags: attributes.find(n::SET_FLAGS)?.map_or(Ok(0), |attribute| attribute.u32())?,
            boundaries: Vec::new(),
        });
        Ok(())
    })?;
    Ok(sets)
}

/// The elements of one set, ascending.
pub(super) fn elements(link: &mut Link, set: &str) -> Result<Vec<Boundary>, Error> {
    let mut request = request(link, n::GET_ELEMENTS, n::DUMP);
    request.text(n::ELEMENTS_TABLE, TABLE);
    request.text(n::ELEMENTS_SET, set);
    let mut boundaries = Vec::new();
    link.ask(&request.finish(), "list elements", |message| boundaries_of(message, &mut boundaries))?;
    boundaries.sort_unstable();
    Ok(boundaries)
}

/// Whether a set has exactly this boundary; `None` if the kernel says neither.
///
/// Kernel 6.18 answers nothing at all when it is asked for an end above an interval that has none; only the acknowledgement that is asked for
/// here tells such an answer from a lost one.
pub(super) fn has_boundary(link: &mut Link, set: &str, boundary: Boundary) -> Result<Option<bool>, Error> {
    let mut request = request(link, n::GET_ELEMENTS, n::ACK);
    request.text(n::ELEMENTS_TABLE, TABLE);
    request.text(n::ELEMENTS_SET, set);
    request.nest(n::ELEMENTS, |list| batch::put_boundary(list, boundary));
    let mut found = Vec::new();
    match link.ask(&request.finish(), "tell an element", |message| boundaries_of(message, &mut found)) {
        Ok(()) if found.is_empty() => Ok(None),
        // The kernel answers with the interval that covers the key; only the very boundary counts.
        Ok(()) => Ok(Some(found.contains(&boundary))),
        Err(Error::Refused { errno: nix::libc::ENOENT, .. }) => Ok(Some(false)),
        Err(error) => Err(error),
    }
}

fn boundaries_of(message: &Message<'_>, into: &mut Vec<Boundary>) -> Result<(), Malformed> {
    let Some(list) = message.attributes().find(n::ELEMENTS)? else { return Ok(()) };
    for element in list.nested() {
        let element = element?.nested();
        let key = element.need(n::ELEMENT_KEY)?.nested().need(n::DATA_VALUE)?.value;
        let flags = element.find(n::ELEMENT_FLAGS)?.map_or(Ok(0), |attribute| attribute.u32())?;
        into.push(Boundary { key: Key::new(key).ok_or(Malformed)?, is_end: flags & n::INTERVAL_END != 0 });
    }
    Ok(())
}
