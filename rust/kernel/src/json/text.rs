//! Strings: their ends and their escapes.

use super::error::{Malformed, Parsed, Reason, unexpected};
use super::scan::{first_marked, load8, string_end_mask};
use crate::values::reserve;

/// A string's body is from after its opening quote to `end`, where its closing quote is.
#[derive(Clone, Copy)]
pub(super) struct Text {
    pub end: usize,
    pub escaped: bool,
}

/// Finds the end of a string; `start` is after its opening quote. Escapes are noticed, but not checked.
#[inline(always)]
pub(super) fn string(bytes: &[u8], end: usize, start: usize) -> Parsed<Text> {
    let mut at = start;
    for _ in 0..4 {
        let mask = string_end_mask(load8(bytes, at), b'"');
        if mask != 0 {
            at += first_marked(mask);
            if at < end && bytes[at] == b'"' {
                return Ok(Text { end: at, escaped: false });
            }
            break;
        }
        at += 8;
    }
    long_string(bytes, end, at, b'"')
}

/// The same for long strings, strings with escapes, and strings in single quotes, which Spark allows.
#[inline(never)]
pub(super) fn long_string(bytes: &[u8], end: usize, start: usize, quote: u8) -> Parsed<Text> {
    let mut at = start;
    let mut escaped = false;
    while at < end {
        let mask = string_end_mask(load8(bytes, at), quote);
        if mask == 0 {
            at += 8;
            continue;
        }
        at += first_marked(mask);
        match bytes.get(at) {
            Some(&byte) if at < end && byte == quote => return Ok(Text { end: at, escaped }),
            Some(b'\\') => {
                escaped = true;
                at += 2;
            }
            _ => return unexpected(end, at, Reason::ControlCharacter),
        }
    }
    Err(Malformed { at: end, reason: Reason::Truncated })
}

/// Appends a string's body to `out` without its escapes, as `from_json` does. Bytes that are not UTF-8 are copied.
pub(super) fn unescape(bytes: &[u8], start: usize, end: usize, out: &mut Vec<u8>) -> Parsed<()> {
    remove_escapes(bytes, start, end, out, Escapes::FromJson)
}

/// Which escapes are accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// Also of single quotes; halves of surrogate pairs become `?`, as in Java.
    FromJson,
    /// Also of single quotes, but no halves of surrogate pairs.
    SingleQuotes,
    Json,
}

#[inline(never)]
pub(super) fn remove_escapes(
    bytes: &[u8],
    start: usize,
    end: usize,
    out: &mut Vec<u8>,
    accepted: Escapes,
) -> Parsed<()> {
    let body = &bytes[start..end];
    reserve(out, body.len())?; // no escape becomes longer
    let mut at = 0;
    while at < body.len() {
        let plain = body[at..].iter().position(|&byte| byte == b'\\').unwrap_or(body.len() - at);
        out.extend_from_slice(&body[at..at + plain]);
        at += plain;
        if at == body.len() {
            break;
        }
        let escape_at = start + at;
        let invalid = Err(Malformed { at: escape_at, reason: Reason::Escape });
        let Some(&escape) = body.get(at + 1) else { return invalid };
        at += 2;
        out.push(match escape {
            b'"' | b'\\' | b'/' => escape,
            b'\'' if accepted != Escapes::Json => escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let Some(first) = hex4(body, at) else { return invalid };
                at += 4;
                let second = if body.get(at..at + 2) == Some(b"\\u") { hex4(body, at + 2) } else { None };
                let pair = second.and_then(|second| surrogate_pair(first, second));
                if pair.is_some() {
                    at += 6;
                }
                let character = match pair.or_else(|| char::from_u32(first)) {
                    Some(character) => character,
                    None if accepted == Escapes::FromJson => '?',
                    None => return Err(Malformed { at: escape_at, reason: Reason::HalfPair }),
                };
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return invalid,
        });
    }
    Ok(())
}

fn hex4(body: &[u8], at: usize) -> Option<u32> {
    let digits = body.get(at..at + 4)?;
    digits.iter().try_fold(0, |value, &digit| Some(value * 16 + char::from(digit).to_digit(16)?))
}

fn surrogate_pair(high: u32, low: u32) -> Option<char> {
    let is_pair = (0xd800..0xdc00).contains(&high) && (0xdc00..0xe000).contains(&low);
    if is_pair { char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)) } else { None }
}
