//! Parts of Arrow arrays.

use arrow_array::StringArray;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::ArrowError;

use super::memory::{OutOfMemory, extend, push, resize};

const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

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
        push_valid(&mut replaced, &data[row[0] as usize..row[1] as usize])?;
        let end = i32::try_from(replaced.len());
        push(&mut ends, end.map_err(|_| ArrowError::OffsetOverflowError(replaced.len()))?)?;
    }
    StringArray::try_new(OffsetBuffer::new(ends.into()), replaced.into(), nulls)
}

/// Whether a column can have the text, in which U+FFFD may replace each byte.
#[inline(always)]
pub(crate) fn fits_column(text: &[u8]) -> bool {
    text.len() <= i32::MAX as usize / REPLACEMENT.len() || std::str::from_utf8(text).is_ok()
}

/// Returns text in which U+FFFD replaces what is not UTF-8.
pub(crate) fn replace_invalid(text: &[u8]) -> Result<Vec<u8>, OutOfMemory> {
    let mut replaced = Vec::new();
    push_valid(&mut replaced, text)?;
    Ok(replaced)
}

fn push_valid(out: &mut Vec<u8>, text: &[u8]) -> Result<(), OutOfMemory> {
    for chunk in text.utf8_chunks() {
        extend(out, chunk.valid().as_bytes())?;
        if !chunk.invalid().is_empty() {
            extend(out, REPLACEMENT)?;
        }
    }
    Ok(())
}

/// Empties a list of null rows.
pub(crate) fn null_buffer(null_rows: &mut Vec<u32>, rows: usize) -> Result<Option<NullBuffer>, OutOfMemory> {
    if null_rows.is_empty() {
        return Ok(None);
    }
    let is_null = null_rows.len() == rows;
    let mut valid = bits(if is_null { 0 } else { 0xff }, rows)?;
    if !is_null {
        null_rows.iter().for_each(|&row| valid[row as usize / 8] &= !(1 << (row % 8)));
    }
    null_rows.clear();
    Ok(Some(NullBuffer::new(BooleanBuffer::new(valid.into(), 0, rows))))
}

/// Returns booleans as bits.
pub(crate) fn boolean_buffer(values: &[bool]) -> Result<BooleanBuffer, OutOfMemory> {
    let mut packed = bits(0, values.len())?;
    for (byte, values) in packed.iter_mut().zip(values.chunks(8)) {
        *byte = values.iter().rev().fold(0, |byte, &value| byte << 1 | u8::from(value));
    }
    Ok(BooleanBuffer::new(packed.into(), 0, values.len()))
}

fn bits(byte: u8, rows: usize) -> Result<Vec<u8>, OutOfMemory> {
    let mut bits = Vec::new();
    resize(&mut bits, rows.div_ceil(8), byte)?;
    Ok(bits)
}

/// Removes the ends of rows, and returns the range of their content.
pub(crate) fn remove_ends(ends: &mut Vec<i32>, from: usize, until: usize) -> std::ops::Range<usize> {
    let (start, end) = (ends[from], ends[until]);
    ends.drain(from + 1..=until);
    ends[from + 1..].iter_mut().for_each(|later| *later -= end - start);
    start as usize..end as usize
}
