//! Expressions on their way into the kernel, through nftnl, and back out of its dumps.
//!
//! - Written by nftnl's own types where it has them, else by its raw setters; read by an own walk over the attributes. A fault in one of the two
//!   shows as a difference at the first read-back.

use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

use nftnl::expr::{self as stock, CmpOp, Expression};
use nftnl::nftnl_sys as sys;

use super::attr::{Attributes, Malformed};
use crate::plan::{CHAIN_NAMES, CtKey, Expr, Header, MetaKey, Verdict};

mod numbers;
use numbers as n;

/// An expression of a plan, for [`nftnl::Rule::add_expr`].
pub(super) struct Encoded<'a>(pub(super) &'a Expr);

impl Expression for Encoded<'_> {
    fn to_expr(&self, rule: &nftnl::Rule<'_>) -> NonNull<sys::nftnl_expr> {
        match self.0 {
            Expr::Meta(key) => meta(*key).to_expr(rule),
            Expr::Ct(key) => ct(*key),
            Expr::Payload { header, offset, len } => payload(*header, *offset, *len).to_expr(rule),
            Expr::Mask(mask) => stock::Bitwise::new(mask.as_slice(), vec![0_u8; mask.len()].as_slice()).to_expr(rule),
            Expr::Equal(bytes) => stock::Cmp::new(CmpOp::Eq, bytes.as_slice()).to_expr(rule),
            Expr::Unequal(bytes) => stock::Cmp::new(CmpOp::Neq, bytes.as_slice()).to_expr(rule),
            Expr::Range(from, to) => {
                let mut raw = Raw::new(c"range");
                raw.u32(sys::NFTNL_EXPR_RANGE_SREG, n::REGISTER);
                raw.u32(sys::NFTNL_EXPR_RANGE_OP, 0);
                raw.bytes(sys::NFTNL_EXPR_RANGE_FROM_DATA, from);
                raw.bytes(sys::NFTNL_EXPR_RANGE_TO_DATA, to);
                raw.0
            }
            Expr::Lookup(set) => {
                let mut raw = Raw::new(c"lookup");
                raw.u32(sys::NFTNL_EXPR_LOOKUP_SREG, n::REGISTER);
                raw.text(sys::NFTNL_EXPR_LOOKUP_SET, set);
                raw.0
            }
            Expr::Counter => stock::Counter.to_expr(rule),
            Expr::Limit { per_second, burst } => {
                let mut raw = Raw::new(c"limit");
                raw.u64(sys::NFTNL_EXPR_LIMIT_RATE, *per_second);
                raw.u64(sys::NFTNL_EXPR_LIMIT_UNIT, 1);
                raw.u32(sys::NFTNL_EXPR_LIMIT_BURST, *burst);
                raw.0
            }
            Expr::Log(prefix) => {
                let mut raw = Raw::new(c"log");
                raw.text(sys::NFTNL_EXPR_LOG_PREFIX, prefix);
                raw.u32(sys::NFTNL_EXPR_LOG_LEVEL, n::LOG_LEVEL_INFO);
                raw.0
            }
            Expr::Verdict(verdict) => verdict_of(verdict).to_expr(rule),
            // Only read, never planned; were it planned, the counter in its place would show as a difference.
            Expr::Foreign(_) => stock::Counter.to_expr(rule),
        }
    }
}

fn meta(key: MetaKey) -> stock::Meta {
    match key {
        MetaKey::InIndex => stock::Meta::Iif,
        MetaKey::OutIndex => stock::Meta::Oif,
        MetaKey::InName => stock::Meta::IifName,
        MetaKey::OutName => stock::Meta::OifName,
        MetaKey::Family => stock::Meta::NfProto,
        MetaKey::Protocol => stock::Meta::L4Proto,
    }
}

fn ct(key: CtKey) -> NonNull<sys::nftnl_expr> {
    let mut raw = Raw::new(c"ct");
    raw.u32(sys::NFTNL_EXPR_CT_DREG, n::REGISTER);
    raw.u32(sys::NFTNL_EXPR_CT_KEY, n::ct_number(key));
    if n::ct_is_original(key) {
        raw.u8(sys::NFTNL_EXPR_CT_DIR, 0);
    }
    raw.0
}

fn payload(header: Header, offset: u32, len: u32) -> stock::Payload {
    // nftnl calls these fields bits; they are bytes.
    match header {
        Header::Network => {
            stock::Payload::Network(stock::NetworkHeaderField::Raw { offset_bits: offset, length_bits: len })
        }
        Header::Transport => {
            stock::Payload::Transport(stock::TransportHeaderField::Raw { offset_bits: offset, length_bits: len })
        }
    }
}

fn verdict_of(verdict: &Verdict) -> stock::Verdict {
    match verdict {
        Verdict::Accept => stock::Verdict::Accept,
        Verdict::Drop | Verdict::Foreign(_) => stock::Verdict::Drop,
        Verdict::Jump(chain) => stock::Verdict::Jump { chain: c_string(chain) },
        Verdict::Goto(chain) => stock::Verdict::Goto { chain: c_string(chain) },
    }
}

/// A C string up to the first zero of a text; the plan's names have none.
pub(super) fn c_string(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().take_while(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

/// An expression that nftnl has no type for.
struct Raw(NonNull<sys::nftnl_expr>);

impl Raw {
    fn new(name: &CStr) -> Self {
        // SAFETY: the name is a valid C string for the time of the call; libnftnl copies what it needs.
        let expr = unsafe { sys::nftnl_expr_alloc(name.as_ptr()) };
        match NonNull::new(expr) {
            Some(expr) => Self(expr),
            // libnftnl gives nothing only without memory, or for a name that it does not know; nftnl itself ends the process there, and the last
            // good state stays in the kernel.
            None => std::process::abort(),
        }
    }

    fn u8(&mut self, attribute: u32, value: u8) {
        // SAFETY: the expression is alive and ours; the attribute is one of its kind with this width.
        unsafe { sys::nftnl_expr_set_u8(self.0.as_ptr(), key(attribute), value) }
    }

    fn u32(&mut self, attribute: u32, value: u32) {
        // SAFETY: as above.
        unsafe { sys::nftnl_expr_set_u32(self.0.as_ptr(), key(attribute), value) }
    }

    fn u64(&mut self, attribute: u32, value: u64) {
        // SAFETY: as above.
        unsafe { sys::nftnl_expr_set_u64(self.0.as_ptr(), key(attribute), value) }
    }

    fn text(&mut self, attribute: u32, value: &str) {
        let value = c_string(value);
        // SAFETY: as above; the string outlives the call and is copied.
        unsafe {
            sys::nftnl_expr_set_str(self.0.as_ptr(), key(attribute), value.as_ptr());
        }
    }

    fn bytes(&mut self, attribute: u32, value: &[u8]) {
        let len = u32::try_from(value.len()).unwrap_or(0);
        // SAFETY: as above; the bytes outlive the call and are copied, `len` is their length.
        unsafe {
            sys::nftnl_expr_set(self.0.as_ptr(), key(attribute), value.as_ptr().cast::<c_void>(), len);
        }
    }
}

/// libnftnl's attribute numbers are small; its setters take them as 16 bits.
fn key(attribute: u32) -> u16 {
    u16::try_from(attribute).unwrap_or(u16::MAX)
}

/// Reads one expression of a dumped rule; counters come back beside it.
pub(super) fn decode(name: &str, data: Attributes<'_>) -> Result<(Expr, Option<(u64, u64)>), Malformed> {
    let foreign = || Expr::Foreign(name.to_owned());
    let expr = match name {
        "meta" if data.find(n::META_DREG)?.is_some() => {
            n::meta_key(data.need(n::META_KEY)?.u32()?).map_or_else(foreign, Expr::Meta)
        }
        "ct" if data.find(n::CT_DREG)?.is_some() => {
            let original = data.find(n::CT_DIRECTION)?.map(|attribute| attribute.u8()).transpose()?;
            let key = n::ct_key(data.need(n::CT_KEY)?.u32()?);
            key.filter(|key| (original == Some(0)) == n::ct_is_original(*key)).map_or_else(foreign, Expr::Ct)
        }
        "payload" => decode_payload(data)?.unwrap_or_else(foreign),
        "bitwise" => decode_bitwise(data)?.unwrap_or_else(foreign),
        "cmp" => {
            let bytes = value(data, n::CMP_DATA)?;
            match data.need(n::CMP_OP)?.u32()? {
                0 => Expr::Equal(bytes),
                1 => Expr::Unequal(bytes),
                _ => foreign(),
            }
        }
        "range" if data.need(n::RANGE_OP)?.u32()? == 0 => {
            Expr::Range(value(data, n::RANGE_FROM)?, value(data, n::RANGE_TO)?)
        }
        "lookup" => {
            let plain = data.find(n::LOOKUP_DREG)?.is_none();
            let flags = data.find(n::LOOKUP_FLAGS)?.map_or(Ok(0), |attribute| attribute.u32())?;
            if plain && flags == 0 { Expr::Lookup(data.need(n::LOOKUP_SET)?.text()?.to_owned()) } else { foreign() }
        }
        "counter" => {
            let counted = (data.need(n::COUNTER_PACKETS)?.u64()?, data.need(n::COUNTER_BYTES)?.u64()?);
            return Ok((Expr::Counter, Some(counted)));
        }
        "limit" => decode_limit(data)?.unwrap_or_else(foreign),
        "log" => decode_log(data)?.unwrap_or_else(foreign),
        "immediate" => decode_verdict(data)?.unwrap_or_else(foreign),
        _ => foreign(),
    };
    Ok((expr, None))
}

/// The bytes of an attribute that wraps a value.
fn value(data: Attributes<'_>, kind: u16) -> Result<Vec<u8>, Malformed> {
    Ok(data.need(kind)?.nested().need(n::DATA_VALUE)?.value.to_vec())
}

fn decode_payload(data: Attributes<'_>) -> Result<Option<Expr>, Malformed> {
    if data.find(n::PAYLOAD_DREG)?.is_none() {
        return Ok(None);
    }
    let header = match data.need(n::PAYLOAD_BASE)?.u32()? {
        1 => Header::Network,
        2 => Header::Transport,
        _ => return Ok(None),
    };
    let (offset, len) = (data.need(n::PAYLOAD_OFFSET)?.u32()?, data.need(n::PAYLOAD_LEN)?.u32()?);
    Ok(Some(Expr::Payload { header, offset, len }))
}

fn decode_bitwise(data: Attributes<'_>) -> Result<Option<Expr>, Malformed> {
    let op = data.find(n::BITWISE_OP)?.map_or(Ok(0), |attribute| attribute.u32())?;
    if op != 0 || data.find(n::BITWISE_MASK)?.is_none() {
        return Ok(None);
    }
    let (mask, xor) = (value(data, n::BITWISE_MASK)?, value(data, n::BITWISE_XOR)?);
    Ok(xor.iter().all(|byte| *byte == 0).then_some(Expr::Mask(mask)))
}

fn decode_limit(data: Attributes<'_>) -> Result<Option<Expr>, Malformed> {
    let zero = |kind| Ok(data.find(kind)?.map_or(Ok(0), |attribute| attribute.u32())? == 0);
    if !zero(n::LIMIT_TYPE)? || !zero(n::LIMIT_FLAGS)? || data.need(n::LIMIT_UNIT)?.u64()? != 1 {
        return Ok(None);
    }
    let (per_second, burst) = (data.need(n::LIMIT_RATE)?.u64()?, data.need(n::LIMIT_BURST)?.u32()?);
    Ok(Some(Expr::Limit { per_second, burst }))
}

fn decode_log(data: Attributes<'_>) -> Result<Option<Expr>, Malformed> {
    let level = data.find(n::LOG_LEVEL)?.map(|attribute| attribute.u32()).transpose()?;
    let flags = data.find(n::LOG_FLAGS)?.map_or(Ok(0), |attribute| attribute.u32())?;
    if level != Some(n::LOG_LEVEL_INFO) || flags != 0 || data.find(n::LOG_GROUP)?.is_some() {
        return Ok(None);
    }
    Ok(Some(Expr::Log(data.need(n::LOG_PREFIX)?.text()?.to_owned())))
}

fn decode_verdict(data: Attributes<'_>) -> Result<Option<Expr>, Malformed> {
    let Some(verdict) = data.need(n::IMMEDIATE_DATA)?.nested().find(n::DATA_VERDICT)? else { return Ok(None) };
    let code = verdict.nested().need(n::VERDICT_CODE)?.u32()?.cast_signed();
    let chain = verdict.nested().find(n::VERDICT_CHAIN)?.map(|attribute| attribute.text()).transpose()?;
    // A verdict leads to one of our own chains, or it is not ours.
    let known = chain.and_then(|name| CHAIN_NAMES.into_iter().find(|known| *known == name));
    Ok(Some(Expr::Verdict(match (code, known) {
        (n::ACCEPT, _) => Verdict::Accept,
        (n::DROP, _) => Verdict::Drop,
        (n::JUMP, Some(chain)) => Verdict::Jump(chain),
        (n::GOTO, Some(chain)) => Verdict::Goto(chain),
        (other, _) => Verdict::Foreign(other),
    })))
}
