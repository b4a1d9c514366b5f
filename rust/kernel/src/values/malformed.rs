//! Decoded values, and why values of a column are malformed, as Arrow arrays.

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, Int8Array, Int32Array, StringArray};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use arrow_schema::ArrowError;

/// The decoded values of a column.
pub struct DecodedValues {
    /// Null if the value is null. The fields of a struct are null if its value is malformed, as far as they are.
    pub values: ArrayRef,
    /// None if no value is malformed.
    pub malformed: Option<MalformedValues>,
}

/// Why values are malformed, one row for each value of the column.
pub struct MalformedValues {
    /// Messages; null if a value is not malformed.
    pub reasons: DictionaryArray<Int8Type>,
    /// The byte of the value at which this was noticed; null if it is not malformed.
    pub positions: Int32Array,
}

/// The malformed values of a column under construction: rows, positions, and the indexes of messages.
#[derive(Default)]
pub(crate) struct MalformedRows(Vec<(u32, i32, i8)>);

impl MalformedRows {
    #[inline(always)]
    pub fn push(&mut self, row: usize, position: usize, reason: i8) {
        self.0.push((row as u32, position as i32, reason)); // Arrow limits a column to 31 bits of bytes
    }

    /// Returns the malformed values; `messages` are those of the format.
    pub fn finish(self, rows: usize, messages: &[&str]) -> Result<Option<MalformedValues>, ArrowError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (mut keys, mut positions) = (vec![0; rows], vec![0; rows]);
        let mut valid = BooleanBufferBuilder::new(rows);
        valid.append_n(rows, false);
        for (row, position, reason) in self.0 {
            let row = row as usize;
            keys[row] = reason;
            positions[row] = position;
            valid.set_bit(row, true);
        }
        let nulls = NullBuffer::new(valid.finish());
        let messages = StringArray::from_iter_values(messages);
        Ok(Some(MalformedValues {
            reasons: DictionaryArray::try_new(Int8Array::new(keys.into(), Some(nulls.clone())), Arc::new(messages))?,
            positions: Int32Array::new(positions.into(), Some(nulls)),
        }))
    }
}
