//! The ways the records of a batch can be compressed.
//!
//! Each codec writes to a buffer that is re-used from batch to batch and grows as bytes are produced; no size that the
//! compressed bytes claim is allocated before it is known to be possible.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use crate::error::Flaw;

/// No batch may decompress to more than this. Brokers refuse batches of more than a few megabytes, compressed, so only
/// damaged or hostile bytes get here.
const MOST_BYTES: usize = 1 << 30;

/// A buffer that an unusually large batch left behind is not kept.
const KEPT_BYTES: usize = 64 << 20;

/// Where decompressed bytes go: initialised once and re-used, so that a small batch costs no clearing.
#[derive(Default)]
pub(crate) struct Plain {
    buffer: Vec<u8>,
    length: usize,
}

impl Plain {
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    fn clear(&mut self) {
        self.length = 0;
        if self.buffer.len() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
    }

    /// Room for at least `wanted` more bytes; at least doubles when it has to grow.
    fn room(&mut self, wanted: usize) -> Result<&mut [u8], Flaw> {
        let needed = self.length + wanted;
        if needed > MOST_BYTES {
            return Err(Flaw::corrupt(format!(
                "the records decompress to more than {MOST_BYTES} bytes, the most a batch may have"
            )));
        }
        if self.buffer.len() < needed {
            self.buffer.resize(needed.max((self.buffer.len() * 2).min(MOST_BYTES)), 0);
        }
        Ok(&mut self.buffer[self.length..])
    }
}

/// The decompressors of one decoder.
#[derive(Default)]
pub(crate) struct Codecs {
    zstd: zstd::Zstd,
}

impl Codecs {
    /// Decompresses `packed` by `codec` (the number in the batch's attributes, not 0), replacing what `plain` held.
    pub fn decompress(&mut self, codec: u8, packed: &[u8], plain: &mut Plain) -> Result<(), Flaw> {
        plain.clear();
        match codec {
            1 => gzip::decompress(packed, plain),
            2 => snappy::decompress(packed, plain),
            3 => lz4::decompress(packed, plain),
            4 => self.zstd.decompress(packed, plain),
            _ => Err(Flaw::unsupported(format!("the record batch is compressed with the unknown codec {codec}"))),
        }
    }
}

/// A first guess at the output of codecs that do not tell.
fn guess(packed: &[u8]) -> usize {
    packed.len().saturating_mul(4).clamp(1, KEPT_BYTES)
}

fn broken(codec: &str, what: impl std::fmt::Display) -> Flaw {
    Flaw::corrupt(format!("the records cannot be decompressed ({codec}): {what}"))
}
