//! The ways the records of a batch can be compressed.
//!
//! Records are decompressed a piece at a time while they are read, to a buffer that is re-used from batch to batch. So a
//! batch takes the memory of a piece, or of its largest record, whatever it decompresses to; and no size that the
//! compressed bytes claim is allocated before it is known to be possible.

mod compress;
mod gzip;
mod lz4;
mod plain;
mod snappy;
mod zstd;

pub(crate) use compress::Compressor;
pub(crate) use plain::Plain;

use crate::error::Flaw;
use crate::format::codec;

/// How many bytes are decompressed at a time, most batches in one go. A batch is read up to a multiple of it, or to its
/// end, as the decoder in Python does it: so both hand out the same rows of a batch that turns out to be damaged.
const PIECE: usize = 1 << 20;

/// Larger buffers and contexts, which unusual batches leave behind, are not kept.
const KEPT_BYTES: usize = 16 << 20;

/// The decompressors of one decoder, and the one at work.
#[derive(Default)]
pub(crate) struct Codecs {
    zstd: zstd::Zstd,
    stream: Stream,
    /// What is wrong behind pieces that are to be read first.
    flaw: Option<Flaw>,
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
    /// Begins with the records of another batch, compressed by `number` (the codec in its attributes, and not none).
    pub fn begin(&mut self, number: u8, plain: &mut Plain) -> Result<(), Flaw> {
        plain.clear();
        self.flaw = None;
        self.stream = match number {
            codec::GZIP => Stream::Gzip(gzip::Gzip::default()),
            codec::SNAPPY => Stream::Snappy(snappy::Snappy::default()),
            codec::LZ4 => Stream::Lz4(lz4::Lz4::default()),
            codec::ZSTD => {
                self.zstd.begin()?;
                Stream::Zstd
            }
            _ => {
                return Err(Flaw::unsupported(format!(
                    "the record batch is compressed with the unknown codec {number}"
                )));
            }
        };
        Ok(())
    }

    /// Shows the next pieces in `plain`; true when there is no more. `packed` are all of the batch's compressed bytes.
    ///
    /// # Errors
    /// The next piece cannot be decompressed; of the last one, that includes what the codec has behind it.
    pub fn more(&mut self, packed: &[u8], plain: &mut Plain) -> Result<bool, Flaw> {
        if let Some(flaw) = self.flaw.take() {
            return Err(flaw);
        }
        plain.slide();
        plain.room(packed.len().saturating_mul(4).clamp(1, PIECE))?; // a first guess
        loop {
            let step = match &mut self.stream {
                Stream::None => Ok(true),
                Stream::Gzip(gzip) => gzip.step(packed, plain),
                Stream::Snappy(snappy) => snappy.step(packed, plain),
                Stream::Lz4(lz4) => lz4.step(packed, plain),
                Stream::Zstd => self.zstd.step(packed, plain),
            };
            match step {
                Ok(true) => {
                    plain.show_all();
                    return Ok(true);
                }
                Ok(false) if plain.show_pieces() => return Ok(false),
                Ok(false) => {}
                // A large block can have pieces before the byte that is one too many.
                Err(flaw) if plain.show_pieces() => {
                    self.flaw = Some(flaw);
                    return Ok(false);
                }
                Err(flaw) => return Err(flaw),
            }
        }
    }
}

fn broken(codec: &str, what: impl std::fmt::Display) -> Flaw {
    Flaw::corrupt(format!("the records cannot be decompressed ({codec}): {what}"))
}
