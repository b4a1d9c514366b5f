//! Decoded values, and why values of a column are malformed, as Arrow arrays.

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, Int8Array, Int32Array, StringArray};
use arrow_schema::ArrowError;

use super::arrays::null_buffer;
use super::memory::{OutOfMemory, push, push_rows, resize};

/// The first values of a column, decoded: as many as fit into the limit of a batch, at least one.
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
    pub fn push(&mut self, row: usize, position: usize, reason: i8) -> Result<(), OutOfMemory> {
        push(&mut self.0, (row as u32, position as i32, reason)) // Arrow limits a column to 31 bits of bytes
    }

    /// Returns the malformed values; `messages` are those of the format.
    pub fn finish(self, rows: usize, messages: &[&str]) -> Result<Option<MalformedValues>, ArrowError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (mut keys, mut positions, mut null_rows) = (Vec::new(), Vec::new(), Vec::new());
        resize(&mut keys, rows, 0)?;
        resize(&mut positions, rows, 0)?;
        let mut next = 0;
        for (row, position, reason) in self.0 {
            push_rows(&mut null_rows, next, row as usize)?;
            next = row as usize + 1;
            keys[row as usize] = reason;
            positions[row as usize] = position;
        }
        push_rows(&mut null_rows, next, rows)?;
        let nulls = null_buffer(&mut null_rows, rows)?;
        let messages = StringArray::from_iter_values(messages);
        Ok(Some(MalformedValues {
            reasons: DictionaryArray::try_new(Int8Array::new(keys.into(), nulls.clone()), Arc::new(messages))?,
            positions: Int32Array::new(positions.into(), nulls),
        }))
    }
}
