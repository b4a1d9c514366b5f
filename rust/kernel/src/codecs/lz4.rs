//! LZ4 in its frame format (lz4_Frame_format.md), one frame.
//!
//! ```text
//! magic        uint32  0x184D2204, little-endian like all numbers here
//! FLG          byte    bits 7-6 version 01, 5 blocks are independent, 4 block checksums, 3 content size,
//!                      2 content checksum, 1 reserved, 0 dictionary id
//! BD           byte    bits 6-4 the largest block: 4 to 7 for 64 KiB, 256 KiB, 1 MiB, 4 MiB; the others reserved
//! content size uint64  if FLG says so
//! HC           byte    second byte of xxHash32 of what is between the magic and here
//! blocks       uint32 size (top bit: stored as it is), bytes, uint32 checksum if FLG says so
//! end mark     uint32  0
//! checksum     uint32  of the content, if FLG says so
//! ```
//!
//! The frame is parsed here, so that blocks decompress directly into the batch's buffer and a claimed size is trusted for
//! one block at most. Kafka's clients before 0.10 computed the header's checksum over the magic as well (KAFKA-3160), and
//! still do in messages of format 0 (KIP-57), so it is ignored in these.

use std::hash::Hasher;

use lz4_flex::block::{decompress_into, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::{DecompressedBuffer, decompress_error};
use crate::error::KernelError;

const MAGIC: u32 = 0x184D_2204;
const STORED: u32 = 1 << 31;

const VERSION: u8 = 1;
const INDEPENDENT: u8 = 0x20;
const BLOCK_CHECKSUMS: u8 = 0x10;
const CONTENT_SIZE: u8 = 0x08;
const CONTENT_CHECKSUM: u8 = 0x04;
const RESERVED_FLAG: u8 = 0x02;
const DICTIONARY: u8 = 0x01;

const RESERVED_BLOCK_BITS: u8 = 0x8f;
const SMALLEST_BLOCK: u8 = 4;

/// A frame, and how far it has been read.
#[derive(Default)]
pub(super) struct Lz4 {
    frame: Option<Frame>,
    at: usize,
    checksum: XxHash32,
    pub(super) ignore_header_checksum: bool,
}

#[derive(Clone, Copy)]
struct Frame {
    linked: bool,
    block_checksums: bool,
    content_checksum: bool,
    content_size: Option<u64>,
    largest_block: usize,
}

impl Lz4 {
    /// Decompresses the next block; true at the end of the frame.
    pub fn step(&mut self, compressed: &[u8], decompressed: &mut DecompressedBuffer) -> Result<bool, KernelError> {
        let mut rest = &compressed[self.at..];
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                let frame = header(&mut rest, self.ignore_header_checksum)?;
                check_extent(&frame, rest)?;
                *self.frame.insert(frame)
            }
        };
        let size = read_u32(&mut rest)?;
        if size == 0 {
            self.end(&frame, rest, decompressed)?;
            return Ok(true);
        }
        let stored = size & STORED != 0;
        let block = take(&mut rest, (size & !STORED) as usize)?;
        if frame.block_checksums && read_u32(&mut rest)? != XxHash32::oneshot(0, block) {
            return Err(decompress_error("lz4", "a block's checksum does not match"));
        }
        self.at = compressed.len() - rest.len();
        self.append(&frame, stored, block, decompressed)?;
        Ok(false)
    }

    /// Checks the frame's end, after the last block.
    fn end(&self, frame: &Frame, mut rest: &[u8], decompressed: &DecompressedBuffer) -> Result<(), KernelError> {
        if frame.content_checksum && u64::from(read_u32(&mut rest)?) != self.checksum.finish() {
            return Err(decompress_error("lz4", "the content's checksum does not match"));
        }
        if frame.content_size.is_some_and(|size| size != decompressed.total() as u64) {
            return Err(decompress_error("lz4", "the content is not as long as the frame claims"));
        }
        Ok(())
    }

    /// Appends one block's content to `decompressed`.
    fn append(
        &mut self,
        frame: &Frame,
        stored: bool,
        block: &[u8],
        decompressed: &mut DecompressedBuffer,
    ) -> Result<(), KernelError> {
        if stored && block.len() > frame.largest_block {
            return Err(decompress_error("lz4", "a block is larger than the frame allows"));
        }
        // A byte of input becomes at most 255 of output, so a small block does not need space for the largest.
        let max_size = if stored { block.len() } else { frame.largest_block.min(block.len().saturating_mul(255)) };
        let (window, space) = decompressed.window_and_space(max_size)?;
        let space = &mut space[..max_size];
        let produced = if stored {
            space.copy_from_slice(block);
            max_size
        } else {
            let result = if frame.linked {
                decompress_into_with_dict(block, space, window)
            } else {
                decompress_into(block, space)
            };
            result.map_err(|error| decompress_error("lz4", error))?
        };
        if frame.content_checksum {
            self.checksum.write(&space[..produced]);
        }
        decompressed.advance(produced)
    }
}

fn header(rest: &mut &[u8], ignore_checksum: bool) -> Result<Frame, KernelError> {
    if read_u32(rest)? != MAGIC {
        return Err(decompress_error("lz4", "the bytes are not an LZ4 frame"));
    }
    let descriptor = *rest;
    let &[flags, block] = take(rest, 2)? else { return Err(truncated()) };
    let reserved = flags & RESERVED_FLAG != 0 || block & RESERVED_BLOCK_BITS != 0 || block >> 4 < SMALLEST_BLOCK;
    if flags >> 6 != VERSION || reserved {
        return Err(decompress_error("lz4", "the frame's header has an unknown version or reserved bits"));
    }
    if flags & DICTIONARY != 0 {
        return Err(decompress_error("lz4", "the frame requires a dictionary"));
    }
    let content_size = if flags & CONTENT_SIZE != 0 {
        let size = take(rest, 8)?.first_chunk().ok_or_else(truncated)?;
        Some(u64::from_le_bytes(*size))
    } else {
        None
    };
    let hashed = &descriptor[..descriptor.len() - rest.len()];
    if take(rest, 1)?[0] != (XxHash32::oneshot(0, hashed) >> 8) as u8 && !ignore_checksum {
        return Err(decompress_error("lz4", "the frame header's checksum does not match"));
    }
    Ok(Frame {
        linked: flags & INDEPENDENT == 0,
        block_checksums: flags & BLOCK_CHECKSUMS != 0,
        content_checksum: flags & CONTENT_CHECKSUM != 0,
        content_size,
        largest_block: 256usize << (2 * (block >> 4)),
    })
}

/// Checks that the bytes are exactly one frame, before any of it is decompressed.
fn check_extent(frame: &Frame, mut rest: &[u8]) -> Result<(), KernelError> {
    loop {
        let size = read_u32(&mut rest)?;
        if size == 0 {
            break;
        }
        take(&mut rest, (size & !STORED) as usize)?;
        if frame.block_checksums {
            read_u32(&mut rest)?;
        }
    }
    if frame.content_checksum {
        read_u32(&mut rest)?;
    }
    if rest.is_empty() { Ok(()) } else { Err(decompress_error("lz4", "there are bytes after the frame")) }
}

fn read_u32(rest: &mut &[u8]) -> Result<u32, KernelError> {
    take(rest, 4)?.first_chunk().map(|&chunk| u32::from_le_bytes(chunk)).ok_or_else(truncated)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], KernelError> {
    let (taken, remaining) = rest.split_at_checked(length).ok_or_else(truncated)?;
    *rest = remaining;
    Ok(taken)
}

fn truncated() -> KernelError {
    decompress_error("lz4", "the frame is truncated")
}
