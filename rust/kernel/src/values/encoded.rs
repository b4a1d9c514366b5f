//! What encoders of values have in common: the rows of a column as one growing buffer with a limit, and values that a
//! schema does not allow.

use arrow_array::{Array, BinaryArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

const MAX_LIMIT: usize = i32::MAX as usize;

/// A value that the schema does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    pub row: usize,
    /// The number of its node in the program.
    pub node: usize,
    /// That of another value, which it excludes.
    pub other: Option<usize>,
    pub reason: InvalidReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidReason {
    Null = 0,
    Symbol = 1,
    Size = 2,
    Members = 3,
    Key = 4,
    Limit = 5,
    Range = 6,
    Text = 7,
}

/// A value of the row that is written.
#[derive(Clone, Copy)]
pub(crate) struct Invalid {
    pub node: usize,
    pub other: Option<usize>,
    pub reason: InvalidReason,
}

pub(crate) type Written = Result<(), Invalid>;

/// The encoded rows of a column, which have at most `limit` bytes together.
pub(crate) struct Output {
    pub bytes: Vec<u8>,
    limit: usize,
}

impl Output {
    /// Fails if `more` bytes do not fit, of which a value that is written may have any number.
    #[inline(always)]
    pub fn check(&self, more: usize, node: usize) -> Written {
        if self.bytes.len().saturating_add(more) > self.limit {
            return Err(Invalid { node, other: None, reason: InvalidReason::Limit });
        }
        Ok(())
    }
}

/// Encodes each row of a column, with `prefix` in front of it. A null value is null.
pub(crate) fn encode_rows(
    values: &dyn Array,
    prefix: &[u8],
    limit: usize,
    mut write: impl FnMut(usize, &mut Output) -> Written,
) -> Result<Result<BinaryArray, InvalidValue>, ArrowError> {
    let mut out = Output { bytes: Vec::new(), limit: limit.min(MAX_LIMIT) };
    let mut ends = Vec::with_capacity(values.len() + 1);
    ends.push(0i32);
    for row in 0..values.len() {
        if !values.is_null(row) {
            out.bytes.extend_from_slice(prefix);
            let written = write(row, &mut out).and_then(|()| out.check(0, 0));
            if let Err(Invalid { node, other, reason }) = written {
                return Ok(Err(InvalidValue { row, node, other, reason }));
            }
        }
        ends.push(out.bytes.len() as i32); // the limit fits
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    BinaryArray::try_new(offsets, out.bytes.into(), values.nulls().cloned()).map(Ok)
}

/// Writes an integer in groups of seven bits, the lowest first.
#[inline]
pub(crate) fn write_varint(mut rest: u64, out: &mut Vec<u8>) {
    if rest < 0x80 {
        out.push(rest as u8);
        return;
    }
    let mut bytes = [0; 10];
    let mut length = 0;
    while rest >= 0x80 {
        bytes[length] = rest as u8 | 0x80;
        rest >>= 7;
        length += 1;
    }
    bytes[length] = rest as u8;
    out.extend_from_slice(&bytes[..=length]);
}
