//! Compressing the records of a batch: what the files beside this one undo.
//!
//! Framing is that of the Java client, so that every client reads it: xerial's around Snappy (the layout is in
//! [`super::snappy`]); for LZ4 a frame of independent blocks of 64 KiB without checksums (the layout is in
//! [`super::lz4`]).

use flate2::{Compress, Compression, FlushCompress, Status};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use snap::raw::{Encoder, max_compress_len};
use zstd_safe::{CCtx, compress_bound};

use crate::error::Flaw;
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

/// Compresses batch after batch with one codec; its contexts are kept.
pub(crate) struct Compressor {
    number: u8,
    state: State,
}

enum State {
    None,
    Gzip(Box<Compress>),
    Snappy(Box<Encoder>),
    Lz4(CompressTable),
    Zstd { context: Box<CCtx<'static>>, level: i32 },
}

impl Compressor {
    /// A compressor for the codec of that number. Only gzip and zstd have levels here.
    pub fn new(number: u8, level: Option<i32>) -> Result<Compressor, Flaw> {
        let state = match number {
            codec::NONE => State::None,
            codec::GZIP => {
                let level = Compression::new(level.unwrap_or(DEFAULT_GZIP_LEVEL).clamp(0, 9) as u32);
                State::Gzip(Box::new(Compress::new_gzip(level, WINDOW_BITS)))
            }
            codec::SNAPPY => State::Snappy(Box::new(Encoder::new())),
            codec::LZ4 => State::Lz4(CompressTable::large()),
            codec::ZSTD => State::Zstd {
                context: Box::new(CCtx::try_create().ok_or_else(Flaw::no_memory)?),
                level: level.unwrap_or(DEFAULT_ZSTD_LEVEL),
            },
            _ => return Err(Flaw::unsupported(format!("there is no codec {number}"))),
        };
        Ok(Compressor { number, state })
    }

    /// The codec's number in the attributes of a batch.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Appends `plain`, compressed, to `out`.
    pub fn compress(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Flaw> {
        match &mut self.state {
            State::None => {
                out.try_reserve(plain.len())?;
                out.extend_from_slice(plain);
                Ok(())
            }
            State::Gzip(deflater) => gzip(deflater, plain, out),
            State::Snappy(encoder) => snappy(encoder, plain, out),
            State::Lz4(table) => lz4(table, plain, out),
            State::Zstd { context, level } => {
                let before = out.len();
                let room = room(out, compress_bound(plain.len()))?;
                let length = context.compress(room, plain, *level).map_err(|_| Flaw::no_memory())?;
                out.truncate(before + length);
                Ok(())
            }
        }
    }
}

fn gzip(deflater: &mut Compress, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Flaw> {
    deflater.reset();
    loop {
        out.try_reserve(plain.len() / 4 + 64)?;
        let rest = &plain[deflater.total_in() as usize..];
        let status = deflater.compress_vec(rest, out, FlushCompress::Finish).map_err(|error| unable("gzip", error))?;
        if status == Status::StreamEnd {
            return Ok(());
        }
    }
}

fn snappy(encoder: &mut Encoder, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Flaw> {
    out.try_reserve(XERIAL_HEADER.len())?;
    out.extend_from_slice(XERIAL_HEADER);
    for block in plain.chunks(SNAPPY_BLOCK) {
        let before = out.len();
        let (size, packed) = room(out, 4 + max_compress_len(block.len()))?.split_at_mut(4);
        let length = encoder.compress(block, packed).map_err(|error| unable("snappy", error))?;
        size.copy_from_slice(&(length as i32).to_be_bytes());
        out.truncate(before + 4 + length);
    }
    Ok(())
}

fn lz4(table: &mut CompressTable, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Flaw> {
    out.try_reserve(LZ4_HEADER.len())?;
    out.extend_from_slice(LZ4_HEADER);
    for block in plain.chunks(LZ4_BLOCK) {
        let before = out.len();
        let (size, packed) = room(out, 4 + get_maximum_output_size(block.len()))?.split_at_mut(4);
        let mut length = compress_into_with_table(block, packed, table).map_err(|error| unable("lz4", error))?;
        let mut flagged = length as u32;
        if length >= block.len() {
            length = block.len();
            packed[..length].copy_from_slice(block);
            flagged = length as u32 | LZ4_STORED;
        }
        size.copy_from_slice(&flagged.to_le_bytes());
        out.truncate(before + 4 + length);
    }
    out.try_reserve(LZ4_END.len())?;
    out.extend_from_slice(&LZ4_END);
    Ok(())
}

/// Appends `length` zeros, to be written over.
fn room(out: &mut Vec<u8>, length: usize) -> Result<&mut [u8], Flaw> {
    let before = out.len();
    out.try_reserve(length)?;
    out.resize(before + length, 0);
    Ok(&mut out[before..])
}

fn unable(codec: &str, what: impl std::fmt::Display) -> Flaw {
    Flaw::unsupported(format!("the records cannot be compressed ({codec}): {what}"))
}
