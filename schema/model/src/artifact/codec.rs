//! The bytes below the artifact formats: fixed big-endian addresses and LEB128 numbers in their shortest form.

use crate::address::{Address, Either, Family, Interval, Intervals};
use crate::digest::Digest;

/// Why bytes are no artifact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    /// The bytes end early.
    #[error("the bytes end early")]
    Short,
    /// Bytes remain after the end.
    #[error("bytes remain after the end")]
    Trailing,
    /// A number is not in its shortest form, or too large for its place.
    #[error("a number is out of range or not in its shortest form")]
    Number,
    /// A tag, flag or kind that does not exist.
    #[error("an unknown tag {0}")]
    Tag(u8),
    /// A count that the remaining bytes cannot hold.
    #[error("a count is larger than the bytes that follow")]
    Count,
    /// Content that is not in canonical form.
    #[error("content is not in canonical form")]
    Canonical,
}

pub(super) fn put_number(out: &mut Vec<u8>, mut number: u128) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0x7f);
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

pub(super) fn put_len(out: &mut Vec<u8>, len: usize) {
    put_number(out, len as u128);
}

/// Orders are signed: zigzag keeps small ones short.
pub(super) fn put_order(out: &mut Vec<u8>, order: i32) {
    let zigzag = (order << 1) ^ (order >> 31);
    put_number(out, u128::from(zigzag.cast_unsigned()));
}

pub(super) fn put_intervals<A: Address>(out: &mut Vec<u8>, len: usize, each: impl FnOnce(&mut dyn FnMut(Interval<A>))) {
    put_len(out, len);
    each(&mut |interval| {
        interval.first().write_be(out);
        put_number(out, interval.extent());
    });
}

/// Reads from the front of a slice; every method refuses what [`put_number`] and its kin would not have written.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn end(&self) -> Result<(), CodecError> {
        if self.0.is_empty() { Ok(()) } else { Err(CodecError::Trailing) }
    }

    pub(super) fn byte(&mut self) -> Result<u8, CodecError> {
        let (byte, rest) = self.0.split_first().ok_or(CodecError::Short)?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(CodecError::Short)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn digest(&mut self) -> Result<Digest, CodecError> {
        Ok(Digest::from_bytes(self.bytes()?))
    }

    pub(super) fn number(&mut self) -> Result<u128, CodecError> {
        let mut number = 0_u128;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            let low = u128::from(byte & 0x7f);
            if shift >= 128 || (shift == 126 && low > 3) {
                return Err(CodecError::Number);
            }
            number |= low << shift;
            if byte & 0x80 == 0 {
                // A last group of zero would be a longer spelling of the same number.
                return if low == 0 && shift > 0 { Err(CodecError::Number) } else { Ok(number) };
            }
        }
        Err(CodecError::Number)
    }

    pub(super) fn small<T: TryFrom<u128>>(&mut self) -> Result<T, CodecError> {
        T::try_from(self.number()?).map_err(|_| CodecError::Number)
    }

    /// A count of things of at least `least` bytes each: never more than the bytes that follow can hold.
    pub(super) fn count(&mut self, least: usize) -> Result<usize, CodecError> {
        let count: usize = self.small()?;
        if count.checked_mul(least).is_none_or(|bytes| bytes > self.0.len()) {
            return Err(CodecError::Count);
        }
        Ok(count)
    }

    pub(super) fn order(&mut self) -> Result<i32, CodecError> {
        let zigzag: u32 = self.small()?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    pub(super) fn flag(&mut self) -> Result<bool, CodecError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(CodecError::Tag(other)),
        }
    }

    pub(super) fn family(&mut self) -> Result<Family, CodecError> {
        match self.byte()? {
            4 => Ok(Family::V4),
            6 => Ok(Family::V6),
            other => Err(CodecError::Tag(other)),
        }
    }

    pub(super) fn intervals_v4(&mut self) -> Result<Vec<Interval<u32>>, CodecError> {
        let count = self.count(5)?;
        (0..count).map(|_| self.bytes().map(u32::from_be_bytes).and_then(|first| self.extent(first))).collect()
    }

    pub(super) fn intervals_v6(&mut self) -> Result<Vec<Interval<u128>>, CodecError> {
        let count = self.count(17)?;
        (0..count).map(|_| self.bytes().map(u128::from_be_bytes).and_then(|first| self.extent(first))).collect()
    }

    pub(super) fn intervals(&mut self) -> Result<Intervals, CodecError> {
        Ok(match self.family()? {
            Family::V4 => Either::V4(self.intervals_v4()?),
            Family::V6 => Either::V6(self.intervals_v6()?),
        })
    }

    fn extent<A: Address>(&mut self, first: A) -> Result<Interval<A>, CodecError> {
        let last = first.plus(self.number()?).ok_or(CodecError::Number)?;
        Interval::new(first, last).ok_or(CodecError::Number)
    }
}

/// The byte that stands for a family.
pub(super) const fn family_byte(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_at_every_width() {
        for number in (0..128).flat_map(|bit| [1_u128 << bit, (1_u128 << bit) - 1]).chain([u128::MAX]) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.number(), Ok(number));
            assert_eq!(reader.end(), Ok(()));
        }
        for order in [0, 1, -1, i32::MAX, i32::MIN] {
            let mut bytes = Vec::new();
            put_order(&mut bytes, order);
            assert_eq!(Reader::new(&bytes).order(), Ok(order));
        }
    }

    #[test]
    fn longer_spellings_and_overflows_are_refused() {
        assert_eq!(Reader::new(&[0x87, 0x00]).number(), Err(CodecError::Number));
        assert_eq!(Reader::new(&[0xff; 30]).number(), Err(CodecError::Number));
        assert_eq!(Reader::new(&[0x80]).number(), Err(CodecError::Short));
        assert_eq!(Reader::new(&[0xff, 0x7f]).count(1), Err(CodecError::Count));
    }
}
