//! The memory of columns. It is reused, because returning it to the operating system costs as much as decoding, and it
//! is reserved before it is filled, so that a process without memory gets an error and is not aborted.

use std::mem;

use arrow_buffer::{ArrowNativeType, Buffer};
use arrow_schema::ArrowError;

/// Larger buffers are freed.
pub(crate) const MAX_RETAINED_BYTES: usize = 16 << 20;

/// Python still uses the previous batch, and perhaps the one before, while the next one is decoded.
const MAX_BUFFERS: usize = 4;

/// The operating system has no memory for a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

impl From<OutOfMemory> for ArrowError {
    fn from(_: OutOfMemory) -> ArrowError {
        ArrowError::MemoryError("there is not enough memory for the decoded values".to_owned())
    }
}

/// Reserves memory for more values, at least as much as the vector already has.
#[inline(always)]
pub(crate) fn reserve<T>(values: &mut Vec<T>, more: usize) -> Result<(), OutOfMemory> {
    if values.capacity() - values.len() < more { grow(values, more) } else { Ok(()) }
}

#[cold]
#[inline(never)]
fn grow<T>(values: &mut Vec<T>, more: usize) -> Result<(), OutOfMemory> {
    values.try_reserve(more).map_err(|_| OutOfMemory)
}

#[inline(always)]
pub(crate) fn push<T>(values: &mut Vec<T>, value: T) -> Result<(), OutOfMemory> {
    reserve(values, 1)?;
    values.push(value);
    Ok(())
}

#[inline(always)]
pub(crate) fn extend<T: Copy>(values: &mut Vec<T>, more: &[T]) -> Result<(), OutOfMemory> {
    reserve(values, more.len())?;
    values.extend_from_slice(more);
    Ok(())
}

pub(crate) fn resize<T: Clone>(values: &mut Vec<T>, length: usize, value: T) -> Result<(), OutOfMemory> {
    reserve(values, length.saturating_sub(values.len()))?;
    values.resize(length, value);
    Ok(())
}

/// Appends the numbers of rows.
pub(crate) fn push_rows(rows: &mut Vec<u32>, from: usize, until: usize) -> Result<(), OutOfMemory> {
    reserve(rows, until.saturating_sub(from))?;
    rows.extend(from as u32..until as u32);
    Ok(())
}

/// The buffers of earlier batches; those that nobody uses any more are taken for the next one.
#[derive(Default)]
pub(crate) struct Spare {
    buffers: Vec<Buffer>,
}

impl Spare {
    /// Returns the content of a vector as a buffer, and replaces the vector by an empty one.
    pub fn finish<T: ArrowNativeType>(&mut self, values: &mut Vec<T>) -> Buffer {
        let buffer = Buffer::from_vec(mem::take(values));
        *values = self.take();
        if buffer.capacity() <= MAX_RETAINED_BYTES && self.buffers.len() < MAX_BUFFERS {
            self.buffers.push(buffer.clone());
        }
        buffer
    }

    fn take<T: ArrowNativeType>(&mut self) -> Vec<T> {
        for _ in 0..self.buffers.len() {
            match self.buffers.swap_remove(0).into_vec() {
                Ok(mut values) => {
                    values.clear();
                    return values;
                }
                Err(in_use) => self.buffers.push(in_use),
            }
        }
        Vec::new()
    }
}
