//! Kafka's variable-length integers: zig-zag, then seven bits a byte, the lowest first, a set top bit saying "more".
//!
//! Lengths and counts are 32-bit (at most five bytes), timestamp deltas 64-bit (at most ten). A longer one, or one whose
//! last byte carries bits beyond the width, is malformed.

pub(crate) const MAX_VARINT_BYTES: usize = 5;
const MAX_VARLONG_BYTES: usize = 10;

/// Reads a 32-bit varint at `*at` and moves `*at` behind it; `None` if it is malformed or incomplete.
#[inline(always)]
pub(crate) fn varint(bytes: &[u8], at: &mut usize) -> Option<i32> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(unzigzag32(u32::from(first)));
    }
    let second = *bytes.get(*at + 1)?;
    if second < 0x80 {
        *at += 2;
        return Some(unzigzag32(u32::from(first & 0x7f) | u32::from(second) << 7));
    }
    let (raw, end) = raw_varint(bytes, *at, MAX_VARINT_BYTES)?;
    *at = end;
    u32::try_from(raw).ok().map(unzigzag32)
}

/// Reads a 64-bit varint at `*at` and moves `*at` behind it; `None` if it is malformed or incomplete.
#[inline(always)]
pub(crate) fn varlong(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(unzigzag64(u64::from(first)));
    }
    let second = *bytes.get(*at + 1)?;
    if second < 0x80 {
        *at += 2;
        return Some(unzigzag64(u64::from(first & 0x7f) | u64::from(second) << 7));
    }
    let (raw, end) = raw_varint(bytes, *at, MAX_VARLONG_BYTES)?;
    *at = end;
    Some(unzigzag64(raw))
}

/// The general case, not inlined: values of three or more bytes are rare.
#[inline(never)]
fn raw_varint(bytes: &[u8], start: usize, max_bytes: usize) -> Option<(u64, usize)> {
    let mut raw = 0u64;
    for (index, &byte) in bytes.get(start..)?.iter().take(max_bytes).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if index + 1 == MAX_VARLONG_BYTES && bits > 1 {
            return None;
        }
        raw |= bits << (7 * index);
        if byte < 0x80 {
            return Some((raw, start + index + 1));
        }
    }
    None
}

/// An integer as the bits of its varint, before they are divided into groups of seven.
#[inline(always)]
pub(crate) fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// The bits of a length or a count, which is not negative.
#[inline(always)]
pub(crate) fn zigzag_length(length: usize) -> u64 {
    (length as u64) << 1
}

/// The bits of -1, the length of a null.
pub(crate) const NULL: u64 = 1;

/// Encoded size of the varint with these bits.
#[inline(always)]
pub(crate) fn size(raw: u64) -> usize {
    if raw < 0x80 { 1 } else { (64 - raw.leading_zeros() as usize).div_ceil(7) }
}

/// Writes the varint with these bits to `out` at `*at`, and moves `*at` behind it.
#[inline(always)]
pub(crate) fn write(out: &mut [u8], at: &mut usize, mut raw: u64) {
    while raw > 0x7f {
        out[*at] = raw as u8 | 0x80;
        *at += 1;
        raw >>= 7;
    }
    out[*at] = raw as u8;
    *at += 1;
}

#[inline(always)]
fn unzigzag32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[inline(always)]
fn unzigzag64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(number: i64) -> Vec<u8> {
        let mut raw = (number << 1 ^ number >> 63) as u64;
        let mut out = Vec::new();
        while raw > 0x7f {
            out.push(raw as u8 | 0x80);
            raw >>= 7;
        }
        out.push(raw as u8);
        out
    }

    #[test]
    fn write_matches_reference_encoding() {
        for shift in 0..64 {
            for number in [1i64 << shift, (1i64 << shift).wrapping_neg(), (1i64 << shift).wrapping_sub(1), 0] {
                let (mut out, mut at) = ([0; MAX_VARLONG_BYTES], 0);
                write(&mut out, &mut at, zigzag(number));
                assert_eq!(out[..at], encoded(number));
                assert_eq!(size(zigzag(number)), at);
            }
        }
        assert_eq!((zigzag_length(0), zigzag_length(77), NULL), (zigzag(0), zigzag(77), zigzag(-1)));
    }

    #[test]
    fn every_width_round_trips() {
        for shift in 0..64 {
            for number in [1i64 << shift, (1i64 << shift).wrapping_neg(), (1i64 << shift).wrapping_sub(1)] {
                let bytes = encoded(number);
                let mut at = 0;
                assert_eq!(varlong(&bytes, &mut at), Some(number));
                assert_eq!(at, bytes.len());
                let mut at = 0;
                assert_eq!(varint(&bytes, &mut at), i32::try_from(number).ok());
            }
        }
    }

    #[test]
    fn incomplete_varints_are_rejected() {
        for number in [0, 63, 64, -8192, 8192, i64::from(i32::MIN), i64::MIN] {
            let bytes = encoded(number);
            for length in 0..bytes.len() {
                assert_eq!(varlong(&bytes[..length], &mut 0), None);
                assert_eq!(varint(&bytes[..length], &mut 0), None);
            }
        }
    }

    #[test]
    fn too_wide_varints_are_rejected() {
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x0f], &mut 0), Some(i32::MIN));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x1f], &mut 0), None);
        assert_eq!(varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0], &mut 0), None);
        assert_eq!(varlong(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], &mut 0), Some(i64::MIN));
        assert_eq!(varlong(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], &mut 0), None);
        assert_eq!(varlong(&[0x80; 11], &mut 0), None);
    }
}
