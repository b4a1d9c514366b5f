//! Looks at eight or sixteen bytes per step by integer arithmetic, so nothing here depends on the processor.
//!
//! `bytes` has all values of a batch, and `end` is the end of the current one. A load may read past `end`, into the next
//! value, but no scan may end past it.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Eight bytes from `at`, the first one in the lowest byte; zeros after the end of the batch.
#[inline(always)]
pub(super) fn load8(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => load_tail(bytes, at) as u64,
    }
}

#[inline(always)]
pub(super) fn load16(bytes: &[u8], at: usize) -> u128 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(chunk) => u128::from_le_bytes(*chunk),
        None => load_tail(bytes, at),
    }
}

#[cold]
#[inline(never)]
fn load_tail(bytes: &[u8], at: usize) -> u128 {
    let mut chunk = [0; 16];
    if let Some(rest) = bytes.get(at..) {
        let length = rest.len().min(16);
        chunk[..length].copy_from_slice(&rest[..length]);
    }
    u128::from_le_bytes(chunk)
}

/// Sets the high bit of each byte that is zero; exact for the lowest such byte.
#[inline(always)]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGH
}

/// Marks bytes below 0x20, backslashes and `quote`; exact for the lowest one.
#[inline(always)]
pub(super) fn string_end_mask(word: u64, quote: u8) -> u64 {
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
    zero_bytes(word ^ (ONES * u64::from(quote))) | zero_bytes(word ^ (ONES * u64::from(b'\\'))) | control
}

/// Marks the bytes that are not ASCII digits; exact in every byte.
#[inline(always)]
pub(super) fn non_digits(word: u64) -> u64 {
    let low = word & !HIGH;
    let above_nine = (low + ONES * (0x80 - 0x3a)) | (word & HIGH);
    let at_least_zero = (low | HIGH) - ONES * 0x30;
    (above_nine | !at_least_zero) & HIGH
}

/// The index of the lowest marked byte; 8 if there is none.
#[inline(always)]
pub(super) fn first_marked(mask: u64) -> usize {
    (mask.trailing_zeros() / 8) as usize
}

/// The number of bytes before the first `"`; 15 if there is none among the first 15.
#[inline(always)]
pub(super) fn before_quote(word: u128) -> usize {
    let quotes = |half: u64| zero_bytes(half ^ (ONES * u64::from(b'"')));
    let (low, high) = (quotes(word as u64), quotes((word >> 64) as u64));
    (if low != 0 { first_marked(low) } else { 8 + first_marked(high) }).min(15)
}

/// The value of up to eight digits, of which the last one is in the highest byte; the other bytes are zero.
#[inline(always)]
pub(super) fn eight_digits(digits: u64) -> u64 {
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours * 10_000 + (fours >> 32)) & 0xffff_ffff
}

/// Keeps the low four bits of each byte: the values of ASCII digits.
#[inline(always)]
pub(super) fn digit_values(word: u64) -> u64 {
    word & (ONES * 0x0f)
}

/// The position after blanks, at most `end`.
#[inline(always)]
pub(super) fn skip_blanks(bytes: &[u8], end: usize, mut at: usize) -> usize {
    while at < end && matches!(bytes[at], b' ' | b'\n' | b'\r' | b'\t') {
        at += 1;
    }
    at
}

/// The byte at `at`, or 0 at the end, which no token starts with.
#[inline(always)]
pub(super) fn byte_at(bytes: &[u8], end: usize, at: usize) -> u8 {
    if at < end { bytes[at] } else { 0 }
}
