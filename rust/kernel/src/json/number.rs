//! Numbers as JSON writes them, and the other numbers that Spark reads.

use super::error::{Parsed, Reason, unexpected};
use super::scan::{byte_at, digit_values, eight_digits, first_marked, load8, non_digits};

/// Spark's default limit of digits (the option `maxNumLen` of `from_json`).
const MAX_DIGITS: usize = 1000;

/// A scanned number. If it is `exact`, its value is `digits / 10^fraction`, negated if `negative`, and is an integer
/// below 2^63, or has `digits` below 2^53 and at most 18 digits.
#[derive(Clone, Copy)]
pub(super) struct Number {
    pub end: usize,
    pub digits: u64,
    pub fraction: usize,
    pub negative: bool,
    pub exact: bool,
    pub kind: NumberKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NumberKind {
    Integer,
    Decimal,
    /// NaN or an infinity.
    NonFinite(f64),
}

/// Scans a number; without a loop if it has at most seven characters, and another byte behind it.
#[inline(always)]
pub(super) fn number(bytes: &[u8], end: usize, start: usize) -> Parsed<Number> {
    let word = load8(bytes, start);
    let negative = word as u8 == b'-';
    let length = 8 - usize::from(negative);
    let word = word >> (8 * u32::from(negative));
    let others = non_digits(word);
    let integers = first_marked(others);
    if integers == 0 || integers >= length || (word as u8 == b'0' && integers > 1) {
        return long_number(bytes, end, start);
    }
    let stop = (word >> (8 * integers)) as u8;
    let (characters, fraction, packed, kind) = if stop == b'.' {
        let after_point = first_marked(others & (others - 1));
        if after_point >= length || after_point == integers + 1 || (word >> (8 * after_point)) as u8 | 0x20 == b'e' {
            return long_number(bytes, end, start);
        }
        let before_point = (1u64 << (8 * integers)) - 1;
        let packed = (word & before_point) | ((word >> 8) & !before_point);
        (after_point, after_point - integers - 1, packed, NumberKind::Decimal)
    } else if stop | 0x20 == b'e' {
        return long_number(bytes, end, start);
    } else {
        (integers, 0, word, NumberKind::Integer)
    };
    let digits = eight_digits(digit_values(packed) << (64 - 8 * (integers + fraction)));
    Ok(Number { end: start + usize::from(negative) + characters, digits, fraction, negative, exact: true, kind })
}

/// Scans any number of Spark's grammar.
#[inline(never)]
fn long_number(bytes: &[u8], end: usize, start: usize) -> Parsed<Number> {
    let negative = byte_at(bytes, end, start) == b'-';
    let first = start + usize::from(negative);
    let (mut at, mut digits) = digits(bytes, end, first, 0);
    if at == first {
        return non_finite(bytes, end, start);
    }
    if bytes[first] == b'0' && at > first + 1 {
        return unexpected(end, first, Reason::Number);
    }
    let mut count = if bytes[first] == b'0' { 0 } else { at - first }; // as in Spark
    let mut kind = NumberKind::Integer;
    let mut fraction = 0;
    if byte_at(bytes, end, at) == b'.' {
        kind = NumberKind::Decimal;
        let point = at;
        (at, digits) = self::digits(bytes, end, point + 1, digits);
        fraction = at - point - 1;
        count += fraction;
        if fraction == 0 {
            return unexpected(end, at, Reason::Number);
        }
    }
    let mut exact = count <= 18 && (kind == NumberKind::Integer || digits < 1 << 53);
    if byte_at(bytes, end, at) | 0x20 == b'e' {
        (kind, exact) = (NumberKind::Decimal, false);
        at += 1;
        if matches!(byte_at(bytes, end, at), b'+' | b'-') {
            at += 1;
        }
        let exponent = at;
        (at, _) = self::digits(bytes, end, at, 0);
        if at == exponent {
            return unexpected(end, at, Reason::Number);
        }
        count += at - exponent;
    }
    if count > MAX_DIGITS {
        return unexpected(end, start, Reason::Number);
    }
    Ok(Number { end: at, digits, fraction, negative, exact, kind })
}

/// The position after a run of digits, and their value after `digits`, modulo 2^64.
fn digits(bytes: &[u8], end: usize, mut at: usize, mut digits: u64) -> (usize, u64) {
    while byte_at(bytes, end, at).is_ascii_digit() {
        digits = digits.wrapping_mul(10).wrapping_add(u64::from(bytes[at] - b'0'));
        at += 1;
    }
    (at, digits)
}

const NON_FINITE: [(&[u8], f64); 6] = [
    (b"NaN", f64::NAN),
    (b"Infinity", f64::INFINITY),
    (b"+Infinity", f64::INFINITY),
    (b"-Infinity", f64::NEG_INFINITY),
    (b"+INF", f64::INFINITY),
    (b"-INF", f64::NEG_INFINITY),
];

fn non_finite(bytes: &[u8], end: usize, start: usize) -> Parsed<Number> {
    let rest = bytes.get(start..end).unwrap_or_default();
    match NON_FINITE.iter().find(|(word, _)| rest.starts_with(word)) {
        Some((word, value)) => Ok(Number {
            end: start + word.len(),
            digits: 0,
            fraction: 0,
            negative: false,
            exact: false,
            kind: NumberKind::NonFinite(*value),
        }),
        None if matches!(rest.first(), Some(b'+' | b'-' | b'.')) => unexpected(end, start, Reason::Number),
        None => unexpected(end, start, Reason::Unexpected),
    }
}
