//! Decompression and compression of record batches.
//!
//! Records are decompressed chunk by chunk while they are read, into a buffer that is reused for every batch. So a batch
//! takes the memory of a chunk, or of its largest record, for any decompressed size; and a size that compressed bytes
//! claim is only allocated if the input is large enough for it.

mod compress;
mod decompressed;
mod gzip;
mod lz4;
mod snappy;
mod zstd;

pub(crate) use compress::Compressor;
pub(crate) use decompressed::DecompressedBuffer;

use crate::error::KernelError;
use crate::format::codec;

/// How many bytes are decompressed and read at a time. The records of earlier chunks are returned before an error.
const CHUNK_BYTES: usize = 1 << 20;

/// Larger buffers and contexts of unusual batches are freed.
const MAX_RETAINED_BYTES: usize = 16 << 20;

/// The decompressors of one decoder, and the current one.
#[derive(Default)]
pub(crate) struct Codecs {
    zstd: zstd::Zstd,
    stream: Stream,
    /// The error behind chunks that are to be read first.
    pending_error: Option<KernelError>,
}

#[derive(Default)]
enum Stream {
    #[default]
    None,
    Gzip(gzip::Gzip),
    Snappy(snappy::Snappy),
    Lz4(lz4::Lz4),
    Zstd,
}

impl Codecs {
    /// Starts with the records of another batch; `number` is its codec, and not none.
    pub fn begin(&mut self, number: u8, decompressed: &mut DecompressedBuffer) -> Result<(), KernelError> {
        decompressed.clear();
        self.pending_error = None;
        self.stream = match number {
            codec::GZIP => Stream::Gzip(gzip::Gzip::default()),
            codec::SNAPPY => Stream::Snappy(snappy::Snappy::default()),
            codec::LZ4 => Stream::Lz4(lz4::Lz4::default()),
            codec::ZSTD => {
                self.zstd.begin()?;
                Stream::Zstd
            }
            _ => {
                return Err(KernelError::unsupported(format!(
                    "the record batch is compressed with the unknown codec {number}"
                )));
            }
        };
        Ok(())
    }

    /// Accepts any header checksum of the LZ4 frame that was begun.
    pub fn ignore_lz4_header_checksum(&mut self) {
        if let Stream::Lz4(lz4) = &mut self.stream {
            lz4.ignore_header_checksum = true;
        }
    }

    /// Appends the next chunks to `decompressed`; true at the end. `compressed` are all compressed bytes of the batch.
    ///
    /// At the end, this also verifies the codec's checksums.
    pub fn decompress_more(
        &mut self,
        compressed: &[u8],
        decompressed: &mut DecompressedBuffer,
    ) -> Result<bool, KernelError> {
        if let Some(error) = self.pending_error.take() {
            return Err(error);
        }
        decompressed.compact();
        decompressed.space(compressed.len().saturating_mul(4).clamp(1, CHUNK_BYTES))?; // a first guess
        loop {
            let step = match &mut self.stream {
                Stream::None => Ok(true),
                Stream::Gzip(gzip) => gzip.step(compressed, decompressed),
                Stream::Snappy(snappy) => snappy.step(compressed, decompressed),
                Stream::Lz4(lz4) => lz4.step(compressed, decompressed),
                Stream::Zstd => self.zstd.step(compressed, decompressed),
            };
            match step {
                Ok(true) => {
                    decompressed.release_all();
                    return Ok(true);
                }
                Ok(false) if decompressed.release_chunks() => return Ok(false),
                Ok(false) => {}
                // A large block can have chunks before the first excess byte.
                Err(error) if decompressed.release_chunks() => {
                    self.pending_error = Some(error);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn decompress_error(codec: &str, reason: impl std::fmt::Display) -> KernelError {
    KernelError::corrupt(format!("the records cannot be decompressed ({codec}): {reason}"))
}
