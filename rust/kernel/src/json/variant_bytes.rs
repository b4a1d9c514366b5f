//! The bytes of Spark's VARIANT: values, and the dictionary of their keys, which is called metadata.

use crate::values::{OutOfMemory, reserve};

/// The largest value, and the largest metadata, in bytes: that of Spark since 4.1.
pub(super) const SIZE_LIMIT: usize = 128 << 20;

const VERSION: u8 = 1;
const SHORT_STRING: u8 = 1;
const OBJECT: u8 = 2;
const ARRAY: u8 = 3;
const MAX_SHORT_STRING: usize = 63;

/// Types of primitive values.
const NULL: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const INT1: u8 = 3;
const INT2: u8 = 4;
const INT4: u8 = 5;
const INT8: u8 = 6;
const DOUBLE: u8 = 7;
const DECIMAL4: u8 = 8;
const DECIMAL8: u8 = 9;
const DECIMAL16: u8 = 10;
const LONG_STRING: u8 = 16;

const MAX_DECIMAL_DIGITS: usize = 38;

/// The largest value that is no string, object or array: a decimal. Also more than the bytes before those.
pub(super) const MAX_FIXED_BYTES: usize = 18;

const fn primitive(kind: u8) -> u8 {
    kind << 2
}

pub(super) fn push_null(data: &mut Vec<u8>) {
    data.push(primitive(NULL));
}

pub(super) fn push_boolean(data: &mut Vec<u8>, value: bool) {
    data.push(primitive(if value { TRUE } else { FALSE }));
}

/// Appends an integer in as few bytes as possible.
#[inline(always)]
pub(super) fn push_integer(data: &mut Vec<u8>, value: i64) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    if i8::try_from(value).is_ok() {
        data.extend_from_slice(&[primitive(INT1), a]);
    } else if i16::try_from(value).is_ok() {
        data.extend_from_slice(&[primitive(INT2), a, b]);
    } else if i32::try_from(value).is_ok() {
        data.extend_from_slice(&[primitive(INT4), a, b, c, d]);
    } else {
        data.extend_from_slice(&[primitive(INT8), a, b, c, d, e, f, g, h]);
    }
}

/// Appends `unscaled / 10^scale`, of which neither has more than 18 digits.
#[inline(always)]
pub(super) fn push_decimal(data: &mut Vec<u8>, unscaled: i64, scale: usize) {
    let [a, b, c, d, e, f, g, h] = unscaled.to_le_bytes();
    if scale <= 9 && unscaled.unsigned_abs() < 1_000_000_000 {
        data.extend_from_slice(&[primitive(DECIMAL4), scale as u8, a, b, c, d]);
    } else {
        data.extend_from_slice(&[primitive(DECIMAL8), scale as u8, a, b, c, d, e, f, g, h]);
    }
}

/// Appends a number as a decimal, if its text has no exponent and at most 38 digits, before and after the point.
#[must_use]
pub(super) fn push_large_decimal(data: &mut Vec<u8>, text: &str) -> bool {
    let (integer, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (negative, integer) = integer.strip_prefix('-').map_or((false, integer), |integer| (true, integer));
    let digits = integer.bytes().chain(fraction.bytes()).skip_while(|&digit| digit == b'0');
    if fraction.len() > MAX_DECIMAL_DIGITS || digits.clone().nth(MAX_DECIMAL_DIGITS).is_some() {
        return false;
    }
    let mut unscaled = 0i128;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return false;
        }
        unscaled = unscaled * 10 + i128::from(digit - b'0');
    }
    let unscaled = if negative { -unscaled } else { unscaled };
    match i64::try_from(unscaled) {
        Ok(small) if fraction.len() <= 18 && small.unsigned_abs() < 1_000_000_000_000_000_000 => {
            push_decimal(data, small, fraction.len());
        }
        _ => {
            data.extend_from_slice(&[primitive(DECIMAL16), fraction.len() as u8]);
            data.extend_from_slice(&unscaled.to_le_bytes());
        }
    }
    true
}

pub(super) fn push_double(data: &mut Vec<u8>, value: f64) {
    data.push(primitive(DOUBLE));
    data.extend_from_slice(&value.to_le_bytes());
}

#[inline(always)]
pub(super) fn push_string(data: &mut Vec<u8>, text: &[u8]) -> Result<(), OutOfMemory> {
    reserve(data, MAX_FIXED_BYTES + text.len())?;
    if text.len() <= MAX_SHORT_STRING {
        data.push((text.len() as u8) << 2 | SHORT_STRING);
    } else {
        data.push(primitive(LONG_STRING));
        data.extend_from_slice(&(text.len() as u32).to_le_bytes());
    }
    data.extend_from_slice(text);
    Ok(())
}

/// The bytes of the largest header of an object or array.
pub(super) fn max_header_bytes(fields: usize) -> usize {
    MAX_FIXED_BYTES + 8 * fields // an id and an offset for each
}

/// Inserts the header of an object before its fields, which are written from `start` on. `ids` and `offsets` are in the
/// order of the names. The caller has reserved the memory, and does so for arrays.
pub(super) fn insert_object_header(data: &mut Vec<u8>, start: usize, ids: &[u32], offsets: &[u32]) {
    let (large, offset_size) = (ids.len() > 255, integer_size(data.len() - start));
    let id_size = integer_size(ids.iter().max().map_or(0, |&id| id as usize));
    let kind = u8::from(large) << 4 | (id_size as u8 - 1) << 2 | (offset_size as u8 - 1);
    insert_header(data, start, kind << 2 | OBJECT, large, Some((ids, id_size)), offsets, offset_size);
}

/// The same for an array and its elements.
pub(super) fn insert_array_header(data: &mut Vec<u8>, start: usize, offsets: &[u32]) {
    let (large, offset_size) = (offsets.len() > 255, integer_size(data.len() - start));
    let kind = u8::from(large) << 2 | (offset_size as u8 - 1);
    insert_header(data, start, kind << 2 | ARRAY, large, None, offsets, offset_size);
}

fn insert_header(
    data: &mut Vec<u8>,
    start: usize,
    first: u8,
    large: bool,
    ids: Option<(&[u32], usize)>,
    offsets: &[u32],
    offset_size: usize,
) {
    let end = data.len();
    // The header is written at the end, and rotated to its place.
    data.push(first);
    push_integers(data, &[offsets.len() as u32], if large { 4 } else { 1 });
    if let Some((ids, id_size)) = ids {
        push_integers(data, ids, id_size);
    }
    push_integers(data, offsets, offset_size);
    push_integers(data, &[(end - start) as u32], offset_size);
    data[start..].rotate_left(end - start);
}

/// Appends the dictionary of a value's keys, in the order of their ids; returns false if it is too large.
pub(super) fn push_metadata<'a>(
    data: &mut Vec<u8>,
    keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
) -> Result<bool, OutOfMemory> {
    let (count, bytes) = (keys.len(), keys.clone().map(<[u8]>::len).sum::<usize>());
    let size = integer_size(bytes.max(count));
    if bytes.max(count) > SIZE_LIMIT || 1 + (count + 2) * size + bytes > SIZE_LIMIT {
        return Ok(false);
    }
    reserve(data, 1 + (count + 2) * size + bytes)?;
    data.push((size as u8 - 1) << 6 | VERSION);
    push_integers(data, &[count as u32], size);
    let mut offset = 0;
    for key in keys.clone() {
        push_integers(data, &[offset], size);
        offset += key.len() as u32;
    }
    push_integers(data, &[offset], size);
    keys.for_each(|key| data.extend_from_slice(key));
    Ok(true)
}

/// The bytes of the smallest unsigned integer for a value, which is below 2^32.
fn integer_size(value: usize) -> usize {
    match value {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xff_ffff => 3,
        _ => 4,
    }
}

#[inline(always)]
fn push_integers(data: &mut Vec<u8>, values: &[u32], size: usize) {
    match size {
        1 => data.extend(values.iter().map(|&value| value as u8)),
        2 => values.iter().for_each(|&value| data.extend_from_slice(&(value as u16).to_le_bytes())),
        _ => values.iter().for_each(|&value| data.extend_from_slice(&value.to_le_bytes()[..size])),
    }
}
