//! The memory of a column, which is reused: returning it to the operating system costs as much as decoding.

use std::mem;

use arrow_buffer::{ArrowNativeType, Buffer};

/// Larger buffers are freed.
pub(crate) const MAX_RETAINED_BYTES: usize = 16 << 20;

/// Python still uses the previous batch, and perhaps the one before, while the next one is decoded.
const MAX_BUFFERS: usize = 4;

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
