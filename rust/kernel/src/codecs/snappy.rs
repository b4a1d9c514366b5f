//! Snappy: a raw block, or xerial's framing around several (what the Java client writes).
//!
//! xerial's framing, big-endian: magic `82 S N A P P Y 00`, version int32, compatible version int32, then blocks of
//! length int32 and a raw block each.

use snap::raw::{Decoder, decompress_len};

use super::{Plain, broken};
use crate::error::Flaw;

const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\x00";
const XERIAL_HEADER: usize = 16;

/// The most output a byte of input can stand for: a copy of 64 bytes takes three (or two for 11).
const BEST_RATIO: usize = 22;

/// Bytes that have been read.
#[derive(Default)]
pub(super) struct Snappy {
    at: usize,
}

impl Snappy {
    /// Decompresses the next block; true behind the last one. A raw block is all there is.
    pub fn step(&mut self, packed: &[u8], plain: &mut Plain) -> Result<bool, Flaw> {
        if !packed.starts_with(XERIAL_MAGIC) {
            block(packed, plain)?;
            return Ok(true);
        }
        self.at = self.at.max(XERIAL_HEADER);
        let rest = packed.get(self.at..).ok_or_else(|| broken("snappy", "the framing is cut off"))?;
        if rest.is_empty() {
            return Ok(true);
        }
        let (length, behind) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| cut_off())?;
        let packed_block = behind.get(..length).ok_or_else(cut_off)?;
        block(packed_block, plain)?;
        self.at += 4 + length;
        Ok(self.at == packed.len())
    }
}

fn block(packed: &[u8], plain: &mut Plain) -> Result<(), Flaw> {
    let claimed = decompress_len(packed).map_err(|error| broken("snappy", error))?;
    if claimed > packed.len().saturating_mul(BEST_RATIO) {
        return Err(broken("snappy", format!("{} bytes cannot hold the {claimed} they claim", packed.len())));
    }
    if claimed > plain.left() {
        return Err(plain.too_large());
    }
    let room = plain.room(claimed)?;
    let produced = Decoder::new().decompress(packed, room).map_err(|error| broken("snappy", error))?;
    plain.produced(produced)
}

fn cut_off() -> Flaw {
    broken("snappy", "a block's length does not fit the framing")
}
