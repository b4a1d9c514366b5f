//! The buffer of decompressed bytes.

use super::{CHUNK_BYTES, MAX_RETAINED_BYTES};
use crate::error::KernelError;

/// How far back LZ4's linked blocks refer; other codecs have their own window.
pub(super) const WINDOW: usize = 64 << 10;

/// The decompressed bytes of a batch that have not been read yet: initialised once and reused, so that a small batch
/// needs no clearing.
pub(crate) struct DecompressedBuffer {
    buffer: Vec<u8>,
    /// Bytes before it have been read.
    start: usize,
    end: usize,
    /// Bytes after it must not be read yet.
    readable_end: usize,
    /// Bytes of the batch so far.
    total: usize,
    max_bytes: usize,
}

impl DecompressedBuffer {
    pub fn new(max_bytes: usize) -> DecompressedBuffer {
        DecompressedBuffer { buffer: Vec::new(), start: 0, end: 0, readable_end: 0, total: 0, max_bytes }
    }

    /// The readable bytes that have not been read.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.readable_end]
    }

    /// Marks the first `count` bytes as read.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
    }

    pub(super) fn clear(&mut self) {
        (self.start, self.end, self.readable_end, self.total) = (0, 0, 0, 0);
        if self.buffer.len() > MAX_RETAINED_BYTES {
            self.buffer = Vec::new();
        }
    }

    /// Makes all bytes readable.
    pub(super) fn release_all(&mut self) {
        self.readable_end = self.end;
    }

    /// Makes complete chunks readable; false if there are no new ones.
    pub(super) fn release_chunks(&mut self) -> bool {
        let before = self.readable_end;
        self.readable_end = before.max(self.end.saturating_sub(self.total % CHUNK_BYTES));
        self.readable_end > before
    }

    /// How many bytes to decompress next: to the end of a chunk, or to the first excess byte. The output of a codec before
    /// an error is lost, so no read may start before the end of a chunk and exceed it.
    pub(super) fn next_read_size(&self) -> usize {
        (CHUNK_BYTES - self.total % CHUNK_BYTES).min(self.remaining() + 1)
    }

    /// Bytes since [`DecompressedBuffer::clear`].
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// How many more bytes the batch may have.
    pub(super) fn remaining(&self) -> usize {
        self.max_bytes - self.total
    }

    /// Moves the unread bytes, and the window before them, to the start of the buffer.
    pub(super) fn compact(&mut self) {
        let removed = self.start.saturating_sub(WINDOW);
        if removed > 0 {
            self.buffer.copy_within(removed..self.end, 0);
            self.start -= removed;
            self.end -= removed;
            self.readable_end -= removed;
        }
    }

    /// Returns space for at least `wanted` more bytes; the buffer at least doubles when it grows.
    pub(super) fn space(&mut self, wanted: usize) -> Result<&mut [u8], KernelError> {
        Ok(self.window_and_space(wanted)?.1)
    }

    /// The same, with the window before it.
    pub(super) fn window_and_space(&mut self, wanted: usize) -> Result<(&[u8], &mut [u8]), KernelError> {
        let needed = self.end + wanted;
        let length = self.buffer.len();
        if length < needed {
            // One byte more than the batch may have, so that a batch of exactly that size reaches its end.
            let new_length = needed.max((length * 2).min(self.end + self.remaining() + 1));
            self.buffer.try_reserve_exact(new_length - length)?;
            self.buffer.resize(new_length, 0);
        }
        let (before, space) = self.buffer.split_at_mut(self.end);
        Ok((&before[before.len().saturating_sub(WINDOW)..], space))
    }

    /// Adds `count` bytes that were written to the space, up to the limit of the batch.
    pub(super) fn advance(&mut self, count: usize) -> Result<(), KernelError> {
        let remaining = self.remaining();
        let accepted = count.min(remaining);
        self.end += accepted;
        self.total += accepted;
        if count > remaining { Err(self.too_large()) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn too_large(&self) -> KernelError {
        KernelError::too_large(format!("the records decompress to more than {} bytes", self.max_bytes))
    }
}
