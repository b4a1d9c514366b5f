//! LZ4 in its frame format (lz4_Frame_format.md), one frame.
//!
//! ```text
//! magic        uint32  0x184D2204, little-endian like all numbers here
//! FLG          byte    bits 7-6 version 01, 5 blocks are independent, 4 block checksums, 3 content size,
//!                      2 content checksum, 1 reserved, 0 dictionary id
//! BD           byte    bits 6-4 the largest block: 4 to 7 for 64 KiB, 256 KiB, 1 MiB, 4 MiB; the others reserved
//! content size uint64  where FLG says so
//! HC           byte    second byte of xxHash32 of what is between the magic and here
//! blocks       uint32 size (top bit: stored as it is), bytes, uint32 checksum where FLG says so
//! end mark     uint32  0
//! checksum     uint32  of the content, where FLG says so
//! ```
//!
//! The frame is walked here, so that blocks decompress straight into the batch's buffer and no size it claims is
//! believed beyond one block. Kafka's quirk of a wrong header checksum is of message format 0 only.

use std::hash::Hasher;

use lz4_flex::block::{decompress_into, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::{Plain, broken};
use crate::error::Flaw;

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
    pub fn step(&mut self, packed: &[u8], plain: &mut Plain) -> Result<bool, Flaw> {
        let mut rest = &packed[self.at..];
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                let frame = header(&mut rest)?;
                check_extent(&frame, rest)?;
                *self.frame.insert(frame)
            }
        };
        let size = number(&mut rest)?;
        if size == 0 {
            self.end(&frame, rest, plain)?;
            return Ok(true);
        }
        let stored = size & STORED != 0;
        let block = take(&mut rest, (size & !STORED) as usize)?;
        if frame.block_checksums && number(&mut rest)? != XxHash32::oneshot(0, block) {
            return Err(broken("lz4", "a block's checksum does not match"));
        }
        self.at = packed.len() - rest.len();
        self.append(&frame, stored, block, plain)?;
        Ok(false)
    }

    /// Checks what is behind the last block.
    fn end(&self, frame: &Frame, mut rest: &[u8], plain: &Plain) -> Result<(), Flaw> {
        if frame.content_checksum && u64::from(number(&mut rest)?) != self.checksum.finish() {
            return Err(broken("lz4", "the content's checksum does not match"));
        }
        if frame.content_size.is_some_and(|size| size != plain.total() as u64) {
            return Err(broken("lz4", "the content is not as long as the frame says"));
        }
        Ok(())
    }

    /// Appends one block's content to `plain`.
    fn append(&mut self, frame: &Frame, stored: bool, block: &[u8], plain: &mut Plain) -> Result<(), Flaw> {
        if stored && block.len() > frame.largest_block {
            return Err(broken("lz4", "a block is larger than the frame allows"));
        }
        // A byte of input stands for at most 255 of output, so a small block needs no room for the largest.
        let most = if stored { block.len() } else { frame.largest_block.min(block.len().saturating_mul(255)) };
        let (window, room) = plain.window_and_room(most)?;
        let room = &mut room[..most];
        let produced = if stored {
            room.copy_from_slice(block);
            most
        } else {
            let result = if frame.linked {
                decompress_into_with_dict(block, room, window)
            } else {
                decompress_into(block, room)
            };
            result.map_err(|error| broken("lz4", error))?
        };
        if frame.content_checksum {
            self.checksum.write(&room[..produced]);
        }
        plain.produced(produced)
    }
}

fn header(rest: &mut &[u8]) -> Result<Frame, Flaw> {
    if number(rest)? != MAGIC {
        return Err(broken("lz4", "this is no LZ4 frame"));
    }
    let descriptor = *rest;
    let &[flags, block] = take(rest, 2)? else { return Err(cut_off()) };
    let reserved = flags & RESERVED_FLAG != 0 || block & RESERVED_BLOCK_BITS != 0 || block >> 4 < SMALLEST_BLOCK;
    if flags >> 6 != VERSION || reserved {
        return Err(broken("lz4", "the frame's header has an unknown version or reserved bits"));
    }
    if flags & DICTIONARY != 0 {
        return Err(broken("lz4", "the frame wants a dictionary"));
    }
    let content_size = if flags & CONTENT_SIZE != 0 {
        let size = take(rest, 8)?.first_chunk().ok_or_else(cut_off)?;
        Some(u64::from_le_bytes(*size))
    } else {
        None
    };
    let hashed = &descriptor[..descriptor.len() - rest.len()];
    if take(rest, 1)?[0] != (XxHash32::oneshot(0, hashed) >> 8) as u8 {
        return Err(broken("lz4", "the frame header's checksum does not match"));
    }
    Ok(Frame {
        linked: flags & INDEPENDENT == 0,
        block_checksums: flags & BLOCK_CHECKSUMS != 0,
        content_checksum: flags & CONTENT_CHECKSUM != 0,
        content_size,
        largest_block: 256usize << (2 * (block >> 4)),
    })
}

/// Checks that the frame ends where the bytes do, before any of it is decompressed.
fn check_extent(frame: &Frame, mut rest: &[u8]) -> Result<(), Flaw> {
    loop {
        let size = number(&mut rest)?;
        if size == 0 {
            break;
        }
        take(&mut rest, (size & !STORED) as usize)?;
        if frame.block_checksums {
            number(&mut rest)?;
        }
    }
    if frame.content_checksum {
        number(&mut rest)?;
    }
    if rest.is_empty() { Ok(()) } else { Err(broken("lz4", "there are bytes behind the frame")) }
}

fn number(rest: &mut &[u8]) -> Result<u32, Flaw> {
    take(rest, 4)?.first_chunk().map(|&chunk| u32::from_le_bytes(chunk)).ok_or_else(cut_off)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Flaw> {
    let (taken, behind) = rest.split_at_checked(length).ok_or_else(cut_off)?;
    *rest = behind;
    Ok(taken)
}

fn cut_off() -> Flaw {
    broken("lz4", "the frame is cut off")
}
