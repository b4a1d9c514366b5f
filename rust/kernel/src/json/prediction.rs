//! Predicts the bytes between two values: objects of one topic mostly have the same keys in the same order.

use super::scan::load16;
use super::skip::Input;

/// Longer bytes are not predicted.
pub(super) const MAX_PREDICTED_BYTES: usize = 256;

/// The bytes from the end of a value to the start of the next one, such as `, "origin": `.
pub(super) struct Prediction {
    first: u128,
    mask: u128,
    pub length: usize,
    /// The bytes after the first 16.
    rest: Vec<u8>,
    /// What the key is for: a column, or a key of a VARIANT.
    pub target: u32,
}

impl Prediction {
    pub fn new(bytes: &[u8], target: u32) -> Prediction {
        let mut prediction = Prediction { first: 0, mask: 0, length: 0, rest: Vec::new(), target };
        prediction.set(load16(bytes, 0), bytes, target);
        prediction
    }

    /// Predicts other bytes; `first` begins with them.
    #[inline(always)]
    pub fn set(&mut self, first: u128, bytes: &[u8], target: u32) {
        self.mask = low_bytes(bytes.len());
        self.first = first & self.mask;
        self.length = bytes.len();
        self.rest.clear();
        self.rest.extend_from_slice(bytes.get(16..).unwrap_or_default());
        self.target = target;
    }

    #[inline(always)]
    pub fn matches(&self, input: Input<'_>, at: usize) -> bool {
        (load16(input.bytes, at) ^ self.first) & self.mask == 0
            && at + self.length < input.end
            && (self.length <= 16 || input.bytes[at + 16..at + self.length] == self.rest[..])
    }
}

/// A mask of the lowest bytes, at most 16.
#[inline(always)]
pub(super) fn low_bytes(count: usize) -> u128 {
    if count >= 16 { u128::MAX } else { (1 << (8 * count)) - 1 }
}
