//! Snappy: a raw block, or xerial's framing around several (what the Java client writes).
//!
//! xerial's framing, big-endian: magic `82 S N A P P Y 00`, version int32, compatible version int32, then blocks of
//! length int32 and a raw block each.

use snap::raw::{Decoder, decompress_len};

use super::{DecompressedBuffer, decompress_error};
use crate::error::KernelError;

const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\x00";
const XERIAL_HEADER: usize = 16;

/// The maximum output of a byte of input: a copy of 64 bytes takes three (or two for 11).
const BEST_RATIO: usize = 22;

#[derive(Default)]
pub(super) struct Snappy {
    at: usize,
}

impl Snappy {
    /// Decompresses the next block; true after the last one. A raw block is the only one.
    pub fn step(&mut self, compressed: &[u8], decompressed: &mut DecompressedBuffer) -> Result<bool, KernelError> {
        if !compressed.starts_with(XERIAL_MAGIC) {
            block(compressed, decompressed)?;
            return Ok(true);
        }
        self.at = self.at.max(XERIAL_HEADER);
        let rest = compressed.get(self.at..).ok_or_else(|| decompress_error("snappy", "the framing is truncated"))?;
        if rest.is_empty() {
            return Ok(true);
        }
        let (length, remaining) = rest.split_first_chunk::<4>().ok_or_else(block_length_error)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| block_length_error())?;
        let block_bytes = remaining.get(..length).ok_or_else(block_length_error)?;
        block(block_bytes, decompressed)?;
        self.at += 4 + length;
        Ok(self.at == compressed.len())
    }
}

fn block(compressed: &[u8], decompressed: &mut DecompressedBuffer) -> Result<(), KernelError> {
    let claimed = decompress_len(compressed).map_err(|error| decompress_error("snappy", error))?;
    if claimed > compressed.len().saturating_mul(BEST_RATIO) {
        return Err(decompress_error(
            "snappy",
            format!("{} bytes cannot hold the {claimed} they claim", compressed.len()),
        ));
    }
    if claimed > decompressed.remaining() {
        return Err(decompressed.too_large());
    }
    let space = decompressed.space(claimed)?;
    let produced = Decoder::new().decompress(compressed, space).map_err(|error| decompress_error("snappy", error))?;
    decompressed.advance(produced)
}

fn block_length_error() -> KernelError {
    decompress_error("snappy", "a block's length does not fit the framing")
}
