//! Where decompressed bytes go.

use super::{KEPT_BYTES, PIECE};
use crate::error::Flaw;

/// How far back codecs without a window of their own refer (LZ4's linked blocks).
pub(super) const WINDOW: usize = 64 << 10;

/// The decompressed bytes of a batch that have not been read yet: initialised once and re-used, so that a small batch
/// costs no clearing.
pub(crate) struct Plain {
    buffer: Vec<u8>,
    /// What lies before has been read.
    start: usize,
    end: usize,
    /// What lies behind is not to be read yet.
    shown: usize,
    /// Bytes since the batch began.
    total: usize,
    /// The most bytes of a batch.
    most: usize,
}

impl Plain {
    pub fn new(most: usize) -> Plain {
        Plain { buffer: Vec::new(), start: 0, end: 0, shown: 0, total: 0, most }
    }

    /// What is to be read, and has not been yet.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.shown]
    }

    /// The first `count` bytes have been read.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
    }

    pub(super) fn clear(&mut self) {
        (self.start, self.end, self.shown, self.total) = (0, 0, 0, 0);
        if self.buffer.len() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
    }

    /// Lets all be read that was produced.
    pub(super) fn show_all(&mut self) {
        self.shown = self.end;
    }

    /// Lets the pieces be read that are whole; false when there are no new ones.
    pub(super) fn show_pieces(&mut self) -> bool {
        let before = self.shown;
        self.shown = before.max(self.end.saturating_sub(self.total % PIECE));
        self.shown > before
    }

    /// How many bytes to produce next: to the end of a piece, or to the first byte that is one too many. What a codec
    /// produces before it fails is lost, so a step must not begin before a piece's end and go beyond it.
    pub(super) fn step(&self) -> usize {
        (PIECE - self.total % PIECE).min(self.left() + 1)
    }

    /// Bytes produced since [`Plain::clear`].
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// How many bytes the batch may still have.
    pub(super) fn left(&self) -> usize {
        self.most - self.total
    }

    /// Moves what is unread, and the window before it, to the buffer's beginning.
    pub(super) fn slide(&mut self) {
        let kept = self.start.saturating_sub(WINDOW);
        if kept > 0 {
            self.buffer.copy_within(kept..self.end, 0);
            self.start -= kept;
            self.end -= kept;
            self.shown -= kept;
        }
    }

    /// Room for at least `wanted` more bytes; at least doubles when it has to grow.
    pub(super) fn room(&mut self, wanted: usize) -> Result<&mut [u8], Flaw> {
        Ok(self.window_and_room(wanted)?.1)
    }

    /// The same, with what was produced before.
    pub(super) fn window_and_room(&mut self, wanted: usize) -> Result<(&[u8], &mut [u8]), Flaw> {
        let needed = self.end + wanted;
        let length = self.buffer.len();
        if length < needed {
            // A byte more than the batch may have, so that one that has just as many comes to its end.
            let larger = needed.max((length * 2).min(self.end + self.left() + 1));
            self.buffer.try_reserve_exact(larger - length)?;
            self.buffer.resize(larger, 0);
        }
        let (before, room) = self.buffer.split_at_mut(self.end);
        Ok((&before[before.len().saturating_sub(WINDOW)..], room))
    }

    /// `count` bytes have been written to the room. Those count that the batch may have.
    pub(super) fn produced(&mut self, count: usize) -> Result<(), Flaw> {
        let left = self.left();
        let taken = count.min(left);
        self.end += taken;
        self.total += taken;
        if count > left { Err(self.too_large()) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn too_large(&self) -> Flaw {
        Flaw::too_large(format!("the records decompress to more than {} bytes", self.most))
    }
}
