//! The size of a batch of decoded values.
//!
//! A decoder returns the first values of a column that fit together into the limit, and the caller decodes the others in
//! another batch. Sizes are those of `width` and of the values themselves.

use arrow_schema::{ArrowError, DataType};

const MAX_LIMIT: usize = 1 << 30;

/// Counts the decoded bytes of a batch.
pub(crate) struct DecodedSize {
    limit: usize,
    row_bytes: usize,
    rows: usize,
    bytes: usize,
}

impl DecodedSize {
    /// `row_bytes` are those of each row, also of a null value.
    pub fn new(limit: usize, row_bytes: usize) -> DecodedSize {
        DecodedSize { limit, row_bytes, rows: 0, bytes: 0 }
    }

    /// Begins a row with a value that may have `bytes` more; false if the batch ends before it. A batch has a row.
    #[inline(always)]
    pub fn begin_row(&mut self, bytes: usize) -> bool {
        self.rows += 1;
        self.add(self.row_bytes + bytes)
    }

    /// Adds what was found while the row was decoded; false if the batch ends before this row.
    #[inline(always)]
    pub fn add(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes <= self.limit || self.rows == 1
    }
}

/// The bytes of a row of a type, estimated: eight for each column, sixteen for decimals.
///
/// A field that is null has this memory, too. The elements of lists and maps, and the bytes of strings, are not included.
pub(crate) fn width(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => 8 + fields.iter().map(|field| width(field.data_type())).sum::<usize>(),
        DataType::Decimal128(..) => 16,
        _ => 8,
    }
}

/// The bytes of an element of a list, or of an entry of a map.
pub(crate) fn element_width(data_type: &DataType) -> usize {
    match data_type {
        DataType::List(element) => width(element.data_type()),
        DataType::Map(entries, _) => width(entries.data_type()),
        _ => 0,
    }
}

/// Rejects limits with which the offsets of a column might not fit 32 bits.
pub(crate) fn check_limit(limit: usize) -> Result<usize, ArrowError> {
    if limit > MAX_LIMIT {
        return Err(ArrowError::InvalidArgumentError(format!("a batch of {limit} bytes is too large")));
    }
    Ok(limit)
}
