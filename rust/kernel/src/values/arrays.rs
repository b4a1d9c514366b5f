//! Parts of Arrow arrays.

use arrow_array::StringArray;
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::ArrowError;

/// Returns an array of strings, in which U+FFFD replaces what is not UTF-8, as in Java. Arrow checks all bytes anyway.
pub(crate) fn string_array(
    offsets: OffsetBuffer<i32>,
    data: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<StringArray, ArrowError> {
    if let Ok(array) = StringArray::try_new(offsets.clone(), data.clone(), nulls.clone()) {
        return Ok(array);
    }
    let (mut ends, mut replaced) = (vec![0], Vec::new());
    for row in offsets.windows(2) {
        replaced.extend_from_slice(String::from_utf8_lossy(&data[row[0] as usize..row[1] as usize]).as_bytes());
        let end = i32::try_from(replaced.len());
        ends.push(end.map_err(|_| ArrowError::InvalidArgumentError("2 GiB of strings are too many".to_owned()))?);
    }
    StringArray::try_new(OffsetBuffer::new(ends.into()), replaced.into(), nulls)
}

/// Empties a list of null rows.
pub(crate) fn null_buffer(null_rows: &mut Vec<u32>, rows: usize) -> Option<NullBuffer> {
    if null_rows.is_empty() {
        return None;
    }
    if null_rows.len() == rows {
        null_rows.clear();
        return Some(NullBuffer::new_null(rows));
    }
    let mut valid = BooleanBufferBuilder::new(rows);
    valid.append_n(rows, true);
    null_rows.drain(..).for_each(|row| valid.set_bit(row as usize, false));
    Some(NullBuffer::new(valid.finish()))
}
