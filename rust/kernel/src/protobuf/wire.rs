//! The wire format: varints, tags, lengths, and values that are skipped.

use super::reason::Reason;

/// Levels of messages and groups in a message, as in Google's libraries.
pub(super) const MAX_DEPTH: usize = 100;

pub(super) const VARINT: u32 = 0;
pub(super) const FIXED64: u32 = 1;
pub(super) const BYTES: u32 = 2;
pub(super) const GROUP: u32 = 3;
pub(super) const END_GROUP: u32 = 4;
pub(super) const FIXED32: u32 = 5;

const MAX_NUMBER_BYTES: usize = 10;
const MAX_TAG_BYTES: usize = 5;

/// Reads a varint; `data` ends with the message.
#[inline(always)]
pub(super) fn varint(data: &[u8], at: usize) -> Result<(u64, usize), Reason> {
    match data.get(at) {
        Some(&byte) if byte < 0x80 => Ok((u64::from(byte), at + 1)),
        _ => long_varint(data, at, MAX_NUMBER_BYTES),
    }
}

#[inline(never)]
fn long_varint(data: &[u8], at: usize, max_bytes: usize) -> Result<(u64, usize), Reason> {
    let mut value = 0;
    for (index, &byte) in data.get(at..).unwrap_or_default().iter().take(max_bytes).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index); // bits that do not fit are lost, as in Google's libraries
        if byte < 0x80 {
            return Ok((value, at + index + 1));
        }
    }
    Err(if data.len().saturating_sub(at) < max_bytes { Reason::Truncated } else { Reason::Varint })
}

/// Reads the tag of a field: its number, and its wire type in the three lowest bits.
#[inline(always)]
pub(super) fn tag(data: &[u8], at: usize) -> Result<(u32, usize), Reason> {
    let (value, after) = match data.get(at) {
        Some(&byte) if byte < 0x80 => (u64::from(byte), at + 1),
        _ => long_varint(data, at, MAX_TAG_BYTES)?,
    };
    match u32::try_from(value) {
        Ok(tag) if tag >= 8 => Ok((tag, after)),
        _ => Err(Reason::Tag),
    }
}

/// Reads a length; returns where its bytes start and end.
#[inline(always)]
pub(super) fn length(data: &[u8], at: usize) -> Result<(usize, usize), Reason> {
    let (length, start) = match data.get(at) {
        Some(&byte) if byte < 0x80 => (u64::from(byte), at + 1),
        _ => long_varint(data, at, MAX_TAG_BYTES)?,
    };
    if length > (data.len() - start) as u64 {
        return Err(Reason::Truncated);
    }
    Ok((start, start + length as usize))
}

#[inline(always)]
pub(super) fn fixed<const SIZE: usize>(data: &[u8], at: usize) -> Result<([u8; SIZE], usize), Reason> {
    match data.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => Ok((*bytes, at + SIZE)),
        None => Err(Reason::Truncated),
    }
}

/// Skips the value of a field, of which only the wire type is known.
pub(super) fn skip(data: &[u8], tag: u32, at: usize, depth: usize) -> Result<usize, Reason> {
    match tag & 7 {
        VARINT => varint(data, at).map(|(_, after)| after),
        FIXED64 => fixed::<8>(data, at).map(|(_, after)| after),
        FIXED32 => fixed::<4>(data, at).map(|(_, after)| after),
        BYTES => length(data, at).map(|(_, after)| after),
        GROUP => skip_group(data, tag, at, depth + 1),
        END_GROUP => Err(Reason::Group),
        _ => Err(Reason::Tag),
    }
}

fn skip_group(data: &[u8], start: u32, mut at: usize, depth: usize) -> Result<usize, Reason> {
    if depth > MAX_DEPTH {
        return Err(Reason::Depth);
    }
    loop {
        let (tag, after) = tag(data, at)?;
        if tag == start + 1 {
            return Ok(after);
        }
        at = skip(data, tag, after, depth)?;
    }
}
