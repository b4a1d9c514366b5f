//! Reads strings and numbers by the rules of Spark's `from_json`.

use super::error::{Parsed, Reason};
use super::number::{Number, NumberKind, number};
use super::scan::load16;
use super::skip::{Input, State, skip};
use super::text::unescape;
use crate::values::{extend, reserve};

/// Powers of ten that are exact; dividing an exact integer by one of them rounds once, and so is correct.
const POWERS_OF_TEN: [f64; 19] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];

/// Whether a value is a string, or of a kind that is no number.
#[inline(always)]
pub(super) fn is_quote_or_other(first: u8) -> bool {
    matches!(first, b'"' | b'\'' | b'{' | b'[' | b't' | b'f')
}

/// Appends a string in double quotes; the caller appends its end.
#[inline(always)]
pub(super) fn string(data: &mut Vec<u8>, input: Input<'_>, at: usize) -> Parsed<usize> {
    let text = super::text::string(input.bytes, input.end, at + 1)?;
    let (start, length) = (data.len(), text.end - at - 1);
    if text.escaped {
        unescape(input.bytes, at + 1, text.end, data)?;
    } else if length <= 32 {
        reserve(data, 32)?;
        // A copy of constant size needs no call. What is too much is removed.
        data.extend_from_slice(&load16(input.bytes, at + 1).to_le_bytes());
        if length > 16 {
            data.extend_from_slice(&load16(input.bytes, at + 17).to_le_bytes());
        }
        data.truncate(start + length);
    } else {
        extend(data, &input.bytes[at + 1..text.end])?;
    }
    Ok(text.end + 1)
}

/// Appends a string in single quotes without them, and any other value as it is written.
#[inline(never)]
pub(super) fn other_text(
    data: &mut Vec<u8>,
    input: Input<'_>,
    state: &mut State,
    at: usize,
    first: u8,
) -> Parsed<usize> {
    let end = skip(input, state, at)?;
    if first == b'\'' {
        unescape(input.bytes, at + 1, end - 1, data)?;
    } else {
        extend(data, &input.bytes[at..end])?;
    }
    Ok(end)
}

#[inline(always)]
pub(super) fn to_f64(number: &Number, input: Input<'_>, at: usize) -> f64 {
    if number.exact {
        let value = number.digits as f64 / POWERS_OF_TEN[number.fraction];
        // As in Java, the integer -0 is 0.
        let negated = number.negative && (number.digits != 0 || number.kind == NumberKind::Decimal);
        return if negated { -value } else { value };
    }
    match number.kind {
        NumberKind::NonFinite(value) => value,
        _ => input.text(at, number.end).parse().unwrap_or_default(), // Rust's grammar contains that of JSON
    }
}

pub(super) fn to_f32(number: &Number, input: Input<'_>, at: usize) -> f32 {
    match number.kind {
        NumberKind::NonFinite(value) => value as f32,
        NumberKind::Integer if number.exact && number.digits == 0 => 0.0,
        _ => input.text(at, number.end).parse().unwrap_or_default(),
    }
}

/// A string that Spark reads as a number, and its end.
#[cold]
pub(super) fn quoted_number(input: Input<'_>, at: usize) -> Option<(f64, usize)> {
    let text = input.string(at).ok()?;
    match number(input.bytes, text.end, at + 1) {
        Ok(Number { end, kind: NumberKind::NonFinite(value), .. }) if end == text.end => Some((value, end + 1)),
        _ => None,
    }
}

/// An integer and its end, or why the value is none.
#[inline(always)]
pub(super) fn integer(input: Input<'_>, at: usize, first: u8) -> Parsed<Result<(i64, usize), Reason>> {
    if is_quote_or_other(first) {
        return Ok(Err(Reason::Type));
    }
    let number = number(input.bytes, input.end, at)?;
    if number.kind != NumberKind::Integer {
        return Ok(Err(Reason::Type));
    }
    if number.exact {
        let value = number.digits as i64;
        return Ok(Ok((if number.negative { -value } else { value }, number.end)));
    }
    Ok(input.text(at, number.end).parse().map(|value| (value, number.end)).map_err(|_| Reason::Range))
}

pub(super) fn range_or_type(integer: Result<(i64, usize), Reason>) -> Reason {
    integer.err().unwrap_or(Reason::Range)
}
