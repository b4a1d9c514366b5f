//! Arrow columns of structs, arrays and maps to JSON.
//!
//! The result is that of Spark's `to_json` with default options; docs/typed-json.md lists the differences. Nesting is
//! bounded by the types, which Python has checked, and memory grows with the output.

mod column;
mod number;
mod text;
mod time;

use std::collections::HashMap;

use arrow_array::{Array, BinaryArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

use column::Column;

/// The offsets from UTC of time zones: the UTC second from which each applies, and the offset in seconds.
///
/// The last entry is where the table ends. The 400 years before it repeat.
pub type UtcOffsets = HashMap<String, Vec<(i64, i32)>>;

/// Encodes each value of a column as JSON. A null value is null. Strings in it are arrays of bytes.
pub fn encode_json(values: &dyn Array, data_type: &DataType, zones: &UtcOffsets) -> Result<BinaryArray, ArrowError> {
    let column = Column::new(values, data_type, zones, 0)?;
    let mut data = Vec::new();
    let mut ends = Vec::with_capacity(values.len() + 1);
    ends.push(0i32);
    for row in 0..values.len() {
        if !values.is_null(row) {
            column.write(row, &mut data);
        }
        let end = i32::try_from(data.len());
        ends.push(end.map_err(|_| ArrowError::ComputeError("the JSON of a batch exceeds 2 GiB".into()))?);
    }
    BinaryArray::try_new(OffsetBuffer::new(ScalarBuffer::from(ends)), data.into(), values.nulls().cloned())
}
