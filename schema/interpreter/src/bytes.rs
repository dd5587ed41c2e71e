//! Reading the front of a byte string: bytes, numbers, counts.

use crate::body::Error;

/// What is left to read.
pub(crate) struct Bytes<'a> {
    left: &'a [u8],
    offset: usize,
}

impl<'a> Bytes<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes, offset: 0 }
    }

    /// How far reading got.
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) const fn is_at_end(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let Some((taken, left)) = self.left.split_first_chunk::<N>() else {
            return Err(Error::EndsEarly { offset: self.offset });
        };
        self.left = left;
        self.offset += N;
        Ok(*taken)
    }

    pub(crate) fn octet(&mut self) -> Result<u8, Error> {
        let [octet] = self.take::<1>()?;
        Ok(octet)
    }

    /// A byte that is 0 or 1.
    pub(crate) fn yes(&mut self) -> Result<bool, Error> {
        let offset = self.offset;
        match self.octet()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Error::Value { offset, value }),
        }
    }

    /// A number in groups of seven bits, low groups first, in its shortest form.
    pub(crate) fn number(&mut self) -> Result<u128, Error> {
        let offset = self.offset;
        let mut value: u128 = 0;
        let mut scale: u32 = 0;
        loop {
            let octet = self.octet()?;
            let group = u128::from(octet % 128);
            let placed = group.checked_shl(scale).filter(|placed| placed >> scale == group);
            value |= placed.ok_or(Error::Number { offset })?;
            if octet < 128 {
                let padded = octet == 0 && scale > 0;
                return if padded { Err(Error::Number { offset }) } else { Ok(value) };
            }
            scale += 7;
        }
    }

    /// How many things of at least `each` bytes follow; never more than fit into what is left.
    pub(crate) fn count(&mut self, each: usize) -> Result<usize, Error> {
        let offset = self.offset;
        let count = usize::try_from(self.number()?).map_err(|_| Error::Count { offset })?;
        if count > self.left.len() / each { Err(Error::Count { offset }) } else { Ok(count) }
    }

    /// A signed number of 32 bits, folded so that small ones of both signs are short.
    pub(crate) fn signed(&mut self) -> Result<i32, Error> {
        let offset = self.offset;
        let folded = u32::try_from(self.number()?).map_err(|_| Error::Number { offset })?;
        let half = i64::from(folded / 2);
        let value = if folded % 2 == 0 { half } else { -half - 1 };
        i32::try_from(value).map_err(|_| Error::Number { offset })
    }
}
