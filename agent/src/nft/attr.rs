//! Netlink messages and attributes as bytes, written and read without libraries.
//!
//! - Reading never trusts a length: a truncated message or attribute ends the walk with an error, never a panic.
//! - nf_tables numbers are big-endian, netlink's own are the machine's.

use std::mem;

/// `nlmsghdr` and `nfgenmsg`.
pub(super) const MESSAGE_HEADER_BYTES: usize = 16;
const GENERIC_HEADER_BYTES: usize = 4;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// `NLA_F_NESTED`, and the mask that leaves an attribute's type.
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;
const ALIGN: usize = 4;

/// Bytes from the kernel that make no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the kernel's answer cannot be read")]
pub struct Malformed;

const fn aligned(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

/// A message being written.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Begins a message of a type with flags; `family` and `resource` are those of `nfgenmsg`.
    pub(super) fn new(kind: u16, flags: u16, seq: u32, family: u8, resource: u16) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&0_u32.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&seq.to_ne_bytes());
        bytes.extend_from_slice(&0_u32.to_ne_bytes());
        bytes.extend_from_slice(&[family, 0]);
        bytes.extend_from_slice(&resource.to_be_bytes());
        Self(bytes)
    }

    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        let len = u16::try_from(ATTRIBUTE_HEADER_BYTES + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(aligned(self.0.len()), 0);
    }

    pub(super) fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes);
    }

    pub(super) fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Writes what `fill` writes inside an attribute; at most 64 KiB, which callers keep.
    pub(super) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        fill(self);
        let len = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        if let Some(place) = self.0.get_mut(start..start + 2) {
            place.copy_from_slice(&len.to_ne_bytes());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The message, its length filled in.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        if let Some(place) = self.0.get_mut(..mem::size_of::<u32>()) {
            place.copy_from_slice(&len.to_ne_bytes());
        }
        self.0
    }
}

/// One message from the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) seq: u32,
    /// What follows the netlink header.
    pub(super) payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The attributes behind the nfgenmsg.
    pub(super) fn attributes(&self) -> Attributes<'a> {
        Attributes(self.payload.get(GENERIC_HEADER_BYTES..).unwrap_or_default())
    }
}

/// The messages of one datagram.
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = |bytes: &'a [u8]| {
            let len = usize::try_from(u32::from_ne_bytes(number(bytes, 0)?)).ok()?;
            let message = Message {
                kind: u16::from_ne_bytes(number(bytes, 4)?),
                flags: u16::from_ne_bytes(number(bytes, 6)?),
                seq: u32::from_ne_bytes(number(bytes, 8)?),
                payload: bytes.get(MESSAGE_HEADER_BYTES..len)?,
            };
            Some((message, bytes.get(aligned(len)..).unwrap_or_default()))
        };
        match read(self.0) {
            Some((message, rest)) => {
                self.0 = rest;
                Some(Ok(message))
            }
            None => {
                self.0 = &[];
                Some(Err(Malformed))
            }
        }
    }
}

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute<'a> {
    pub(super) kind: u16,
    pub(super) value: &'a [u8],
}

impl<'a> Attribute<'a> {
    pub(super) fn u8(&self) -> Result<u8, Malformed> {
        self.value.first().copied().ok_or(Malformed)
    }

    pub(super) fn u32(&self) -> Result<u32, Malformed> {
        number(self.value, 0).map(u32::from_be_bytes).ok_or(Malformed)
    }

    pub(super) fn u64(&self) -> Result<u64, Malformed> {
        number(self.value, 0).map(u64::from_be_bytes).ok_or(Malformed)
    }

    pub(super) fn text(&self) -> Result<&'a str, Malformed> {
        let end = self.value.iter().position(|byte| *byte == 0).unwrap_or(self.value.len());
        std::str::from_utf8(self.value.get(..end).unwrap_or_default()).map_err(|_| Malformed)
    }

    pub(super) fn nested(&self) -> Attributes<'a> {
        Attributes(self.value)
    }
}

/// A row of attributes.
#[derive(Clone, Copy)]
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The first attribute of a kind.
    pub(super) fn find(mut self, kind: u16) -> Result<Option<Attribute<'a>>, Malformed> {
        self.find_map(|attribute| match attribute {
            Ok(attribute) if attribute.kind == kind => Some(Ok(attribute)),
            Ok(_) => None,
            Err(malformed) => Some(Err(malformed)),
        })
        .transpose()
    }

    /// The first attribute of a kind, which must be there.
    pub(super) fn need(self, kind: u16) -> Result<Attribute<'a>, Malformed> {
        self.find(kind)?.ok_or(Malformed)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = |bytes: &'a [u8]| {
            let len = usize::from(u16::from_ne_bytes(number(bytes, 0)?));
            let kind = u16::from_ne_bytes(number(bytes, 2)?) & TYPE_MASK;
            let value = bytes.get(ATTRIBUTE_HEADER_BYTES..len)?;
            Some((Attribute { kind, value }, bytes.get(aligned(len)..).unwrap_or_default()))
        };
        match read(self.0) {
            Some((attribute, rest)) => {
                self.0 = rest;
                Some(Ok(attribute))
            }
            None => {
                self.0 = &[];
                Some(Err(Malformed))
            }
        }
    }
}

/// `N` bytes at an offset.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::new(7, 1, 42, 1, 0);
        writer.text(1, "holdfast");
        writer.nest(3, |inner| inner.u32(1, 99));
        let bytes = writer.finish();
        let message = Messages(&bytes).next().expect("one message").expect("well formed");
        assert_eq!((message.kind, message.flags, message.seq), (7, 1, 42));
        assert_eq!(message.attributes().need(1).and_then(|a| a.text()), Ok("holdfast"));
        let nested = message.attributes().need(3).expect("there").nested();
        assert_eq!(nested.need(1).and_then(|a| a.u32()), Ok(99));
    }

    #[test]
    fn bytes_cut_anywhere_are_an_error_or_shorter_never_a_panic() {
        let mut writer = Writer::new(7, 1, 42, 1, 0);
        writer.text(1, "holdfast");
        let bytes = writer.finish();
        for end in 1..bytes.len() {
            assert!(Messages(&bytes[..end]).next().is_some_and(|message| message.is_err()), "cut at {end}");
        }
        assert!(Attributes(&[3, 0, 1, 0]).next().is_some_and(|attribute| attribute.is_err()));
    }
}
