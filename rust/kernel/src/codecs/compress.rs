//! Compresses the records of a batch.
//!
//! Framing is that of the Java client, so that every client can read it: xerial's around Snappy (the layout is in
//! [`super::snappy`]); for LZ4 a frame of independent blocks of 64 KiB without checksums (the layout is in
//! [`super::lz4`]).

use flate2::{Compress, Compression, FlushCompress, Status};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use snap::raw::{Encoder, max_compress_len};
use zstd_safe::{CCtx, compress_bound};

use crate::error::KernelError;
use crate::format::codec;

/// zlib's largest window.
const WINDOW_BITS: u8 = 15;
const DEFAULT_GZIP_LEVEL: i32 = 6;
const DEFAULT_ZSTD_LEVEL: i32 = 3;

const XERIAL_HEADER: &[u8] = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01";
const SNAPPY_BLOCK: usize = 32 << 10;

/// Magic, version 01 and independent blocks, blocks of at most 64 KiB, and the checksum of these two.
const LZ4_HEADER: &[u8] = b"\x04\x22\x4d\x18\x60\x40\x82";
const LZ4_BLOCK: usize = 64 << 10;
const LZ4_STORED: u32 = 1 << 31;
const LZ4_END: [u8; 4] = [0; 4];

/// Compresses batches with one codec, and reuses its context.
pub(crate) struct Compressor {
    number: u8,
    state: State,
}

enum State {
    None,
    Gzip(Box<Compress>),
    Snappy(Box<Encoder>),
    Lz4(Box<CompressTable>),
    Zstd { context: Box<CCtx<'static>>, level: i32 },
}

impl Compressor {
    /// Only gzip and zstd use the level.
    pub fn new(number: u8, level: Option<i32>) -> Result<Compressor, KernelError> {
        let state = match number {
            codec::NONE => State::None,
            codec::GZIP => {
                let level = Compression::new(level.unwrap_or(DEFAULT_GZIP_LEVEL).clamp(0, 9) as u32);
                State::Gzip(Box::new(Compress::new_gzip(level, WINDOW_BITS)))
            }
            codec::SNAPPY => State::Snappy(Box::new(Encoder::new())),
            codec::LZ4 => State::Lz4(Box::new(CompressTable::large())),
            codec::ZSTD => State::Zstd {
                context: Box::new(CCtx::try_create().ok_or_else(KernelError::no_memory)?),
                level: level.unwrap_or(DEFAULT_ZSTD_LEVEL),
            },
            _ => return Err(KernelError::unsupported(format!("there is no codec {number}"))),
        };
        Ok(Compressor { number, state })
    }

    /// The codec number in the attributes of a batch.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Appends `uncompressed`, compressed, to `out`.
    pub fn compress(&mut self, uncompressed: &[u8], out: &mut Vec<u8>) -> Result<(), KernelError> {
        match &mut self.state {
            State::None => {
                out.try_reserve(uncompressed.len())?;
                out.extend_from_slice(uncompressed);
                Ok(())
            }
            State::Gzip(deflater) => gzip(deflater, uncompressed, out),
            State::Snappy(encoder) => snappy(encoder, uncompressed, out),
            State::Lz4(table) => lz4(table, uncompressed, out),
            State::Zstd { context, level } => {
                let before = out.len();
                let space = append_zeros(out, compress_bound(uncompressed.len()))?;
                let length = context.compress(space, uncompressed, *level).map_err(|_| KernelError::no_memory())?;
                out.truncate(before + length);
                Ok(())
            }
        }
    }
}

fn gzip(deflater: &mut Compress, uncompressed: &[u8], out: &mut Vec<u8>) -> Result<(), KernelError> {
    deflater.reset();
    loop {
        out.try_reserve(uncompressed.len() / 4 + 64)?;
        let rest = &uncompressed[deflater.total_in() as usize..];
        let status =
            deflater.compress_vec(rest, out, FlushCompress::Finish).map_err(|error| compress_error("gzip", error))?;
        if status == Status::StreamEnd {
            return Ok(());
        }
    }
}

fn snappy(encoder: &mut Encoder, uncompressed: &[u8], out: &mut Vec<u8>) -> Result<(), KernelError> {
    out.try_reserve(XERIAL_HEADER.len())?;
    out.extend_from_slice(XERIAL_HEADER);
    for block in uncompressed.chunks(SNAPPY_BLOCK) {
        let before = out.len();
        let (size, compressed) = append_zeros(out, 4 + max_compress_len(block.len()))?.split_at_mut(4);
        let length = encoder.compress(block, compressed).map_err(|error| compress_error("snappy", error))?;
        size.copy_from_slice(&(length as i32).to_be_bytes());
        out.truncate(before + 4 + length);
    }
    Ok(())
}

fn lz4(table: &mut CompressTable, uncompressed: &[u8], out: &mut Vec<u8>) -> Result<(), KernelError> {
    out.try_reserve(LZ4_HEADER.len())?;
    out.extend_from_slice(LZ4_HEADER);
    for block in uncompressed.chunks(LZ4_BLOCK) {
        let before = out.len();
        let (size, compressed) = append_zeros(out, 4 + get_maximum_output_size(block.len()))?.split_at_mut(4);
        let mut length =
            compress_into_with_table(block, compressed, table).map_err(|error| compress_error("lz4", error))?;
        let mut flagged = length as u32;
        if length >= block.len() {
            length = block.len();
            compressed[..length].copy_from_slice(block);
            flagged = length as u32 | LZ4_STORED;
        }
        size.copy_from_slice(&flagged.to_le_bytes());
        out.truncate(before + 4 + length);
    }
    out.try_reserve(LZ4_END.len())?;
    out.extend_from_slice(&LZ4_END);
    Ok(())
}

/// Appends `length` zeros, to be overwritten.
fn append_zeros(out: &mut Vec<u8>, length: usize) -> Result<&mut [u8], KernelError> {
    let before = out.len();
    out.try_reserve(length)?;
    out.resize(before + length, 0);
    Ok(&mut out[before..])
}

fn compress_error(codec: &str, reason: impl std::fmt::Display) -> KernelError {
    KernelError::unsupported(format!("the records cannot be compressed ({codec}): {reason}"))
}
