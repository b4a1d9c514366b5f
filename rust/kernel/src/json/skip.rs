//! Steps over a value without decoding it, and rejects what JSON rejects.

use super::error::{Malformed, Parsed, Reason, unexpected};
use super::number::number;
use super::scan::{byte_at, skip_blanks};
use super::text::{Text, long_string, string, unescape};
use super::time::TimeZone;

/// The largest number of nested objects and arrays, that of the value included: Spark's default (`maxNestingDepth`).
pub(super) const MAX_DEPTH: usize = 1000;

/// The values of a batch, of which the current one ends at `end`.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub bytes: &'a [u8],
    pub end: usize,
}

impl<'a> Input<'a> {
    #[inline(always)]
    pub fn byte(self, at: usize) -> u8 {
        byte_at(self.bytes, self.end, at)
    }

    #[inline(always)]
    pub fn blanks(self, at: usize) -> usize {
        skip_blanks(self.bytes, self.end, at)
    }

    #[inline(always)]
    pub fn literal(self, at: usize, word: &[u8]) -> Parsed<usize> {
        let end = at + word.len();
        if end <= self.end && &self.bytes[at..end] == word {
            Ok(end)
        } else {
            unexpected(self.end, at, Reason::Unexpected)
        }
    }

    /// Finds the end of a string in either kind of quotes, of which the opening one is at `at`.
    #[inline(always)]
    pub fn string(self, at: usize) -> Parsed<Text> {
        match self.byte(at) {
            b'"' => string(self.bytes, self.end, at + 1),
            b'\'' => long_string(self.bytes, self.end, at + 1, b'\''),
            _ => unexpected(self.end, at, Reason::Unexpected),
        }
    }

    /// The characters from `at` to `end`, which are not from a string.
    pub fn text(self, at: usize, end: usize) -> &'a str {
        self.bytes.get(at..end).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }
}

/// What the parts of a decoder share while they decode a value.
#[derive(Default)]
pub(super) struct State {
    /// Open objects and arrays.
    pub depth: usize,
    /// Set if a value did not fit its column, and so is null.
    pub unfit: bool,
    /// The first field that did not fit its column.
    pub misfit: Option<Malformed>,
    /// How many bytes the elements of the value's arrays and maps, and its VARIANTs, may still have in columns.
    pub element_bytes: usize,
    /// Of timestamps without an offset.
    pub zone: TimeZone,
    scratch: Vec<u8>,
}

/// The content of a string, and the position after it.
pub(super) struct Quoted<'a> {
    /// None if its escapes were removed, so that it is in the state.
    plain: Option<&'a [u8]>,
    pub end: usize,
}

impl<'a> Quoted<'a> {
    pub fn bytes<'b>(&self, state: &'b State) -> &'b [u8]
    where
        'a: 'b,
    {
        self.plain.unwrap_or(&state.scratch)
    }
}

/// Reads a string that is converted to another type; none if the value is not a string.
#[inline(never)]
pub(super) fn quoted<'a>(input: Input<'a>, state: &mut State, at: usize, first: u8) -> Parsed<Option<Quoted<'a>>> {
    if !matches!(first, b'"' | b'\'') {
        return Ok(None);
    }
    let text = input.string(at)?;
    let plain = if text.escaped {
        state.unescaped(input, at + 1, text.end)?;
        None
    } else {
        Some(&input.bytes[at + 1..text.end])
    };
    Ok(Some(Quoted { plain, end: text.end + 1 }))
}

impl State {
    pub fn new(zone: TimeZone) -> State {
        State { zone, ..State::default() }
    }

    #[inline(always)]
    pub fn enter(&mut self, at: usize) -> Parsed<()> {
        if self.depth == MAX_DEPTH {
            return Err(Malformed { at, reason: Reason::Depth });
        }
        self.depth += 1;
        Ok(())
    }

    /// Counts an element of an array or a map, which has a row in columns.
    #[inline(always)]
    pub fn add_element(&mut self, bytes: usize, at: usize) -> Parsed<()> {
        let rest = self.element_bytes.checked_sub(bytes);
        self.element_bytes = rest.ok_or(Malformed { at, reason: Reason::Size })?;
        Ok(())
    }

    /// A string without its escapes.
    pub fn unescaped(&mut self, input: Input<'_>, start: usize, end: usize) -> Parsed<&[u8]> {
        self.scratch.clear();
        unescape(input.bytes, start, end, &mut self.scratch)?;
        Ok(&self.scratch)
    }
}

/// Returns the position after the value at `at`.
#[inline(always)]
pub(super) fn skip(input: Input<'_>, state: &mut State, at: usize) -> Parsed<usize> {
    let first = input.byte(at);
    if first == b'"' {
        return skip_string(input, state, at);
    }
    if first.is_ascii_digit() || first == b'-' {
        return Ok(number(input.bytes, input.end, at)?.end);
    }
    skip_other(input, state, at, first)
}

#[inline(always)]
fn skip_other(input: Input<'_>, state: &mut State, at: usize, first: u8) -> Parsed<usize> {
    match first {
        b'n' => input.literal(at, b"null"),
        b't' => input.literal(at, b"true"),
        b'f' => input.literal(at, b"false"),
        b'{' | b'[' => skip_nested(input, state, at),
        b'\'' => skip_string(input, state, at),
        _ => Ok(number(input.bytes, input.end, at)?.end),
    }
}

#[inline(always)]
fn skip_string(input: Input<'_>, state: &mut State, at: usize) -> Parsed<usize> {
    let text = input.string(at)?;
    if text.escaped {
        state.unescaped(input, at + 1, text.end)?;
    }
    Ok(text.end + 1)
}

/// Without recursion: one bit for each open level says whether it is an object.
#[inline(never)]
fn skip_nested(input: Input<'_>, state: &mut State, start: usize) -> Parsed<usize> {
    let mut objects = [0u64; MAX_DEPTH.div_ceil(64)];
    let outer = state.depth;
    let mut depth = outer;
    let mut at = start;
    loop {
        // A value is expected at `at`.
        let first = input.byte(at);
        let opened = first == b'{' || first == b'[';
        if opened {
            if depth == MAX_DEPTH {
                return Err(Malformed { at, reason: Reason::Depth });
            }
            let (word, bit) = (depth / 64, 1 << (depth % 64));
            objects[word] = if first == b'{' { objects[word] | bit } else { objects[word] & !bit };
            depth += 1;
            at += 1;
        } else if first == b'"' {
            at = skip_string(input, state, at)?;
        } else if first.is_ascii_digit() || first == b'-' {
            at = number(input.bytes, input.end, at)?.end;
        } else {
            at = skip_other(input, state, at, first)?; // no bracket, so it does not recurse
        }
        // Then closing brackets, and a comma unless a level was just opened.
        let mut separated = !opened;
        loop {
            at = input.blanks(at);
            let is_object = objects[(depth - 1) / 64] >> ((depth - 1) % 64) & 1 == 1;
            let next = input.byte(at);
            if next == if is_object { b'}' } else { b']' } {
                at += 1;
                depth -= 1;
                if depth == outer {
                    return Ok(at);
                }
                separated = true;
                continue;
            }
            if separated {
                at = input.blanks(input.literal(at, b",")?);
            }
            if is_object {
                if !matches!(input.byte(at), b'"' | b'\'') {
                    return unexpected(input.end, at, Reason::Unexpected);
                }
                at = input.blanks(skip_string(input, state, at)?);
                at = input.blanks(input.literal(at, b":")?);
            }
            break;
        }
    }
}
