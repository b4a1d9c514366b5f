//! JSON values to Spark's VARIANT, with the bytes of Spark's `parse_json`.
//!
//! Without recursion. Keys are predicted from earlier values, and the dictionary of a value's keys is copied from the
//! previous value if it is the same.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Fields};

use super::error::{Malformed, Parsed, Reason, unexpected};
use super::number::{NumberKind, number};
use super::skip::{Input, MAX_DEPTH, State};
use super::text::{Escapes, remove_escapes, string};
use super::variant_bytes::{
    MAX_FIXED_BYTES, SIZE_LIMIT, insert_array_header, insert_object_header, max_header_bytes, push_boolean,
    push_decimal, push_double, push_integer, push_large_decimal, push_metadata, push_null, push_string,
};
use super::variant_keys::{Field, Keys, ROOT, Slot};
use crate::values::{
    MAX_RETAINED_BYTES, OutOfMemory, Spare, extend, push, remove_ends, replace_invalid, reserve, resize,
};

/// Which values are accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Grammar {
    /// JSON, as in Spark's `parse_json`.
    Json,
    /// Also strings in single quotes, and NaN and infinities, as in `from_json`.
    FromJson,
}

/// A column of VARIANTs under construction.
pub(super) struct Variants {
    grammar: Grammar,
    /// Whether all values are known to be ASCII; then no string has to be checked for UTF-8.
    pub is_ascii: bool,
    values: Bytes,
    metadata: Bytes,
    keys: Keys,
    /// The last dictionary, and where its metadata is.
    dictionary: Vec<u32>,
    dictionary_bytes: Range<usize>,
    /// Open objects and arrays, and their fields.
    open: Vec<Open>,
    fields: Vec<Field>,
    ids: Vec<u32>,
    offsets: Vec<u32>,
    scratch: Vec<u8>,
}

struct Bytes {
    ends: Vec<i32>,
    data: Vec<u8>,
    spare: Spare,
}

/// An open object or array.
#[derive(Clone, Copy)]
struct Open {
    /// Where its first value starts.
    start: usize,
    /// Its first one in `Variants::fields`.
    fields: usize,
    is_object: bool,
    /// The key that it is the value of, or an outer array is.
    key: u32,
}

impl Variants {
    pub fn new(grammar: Grammar) -> Variants {
        Variants {
            grammar,
            is_ascii: false,
            values: Bytes::new(),
            metadata: Bytes::new(),
            keys: Keys::new(),
            dictionary: Vec::new(),
            dictionary_bytes: 0..0,
            open: Vec::new(),
            fields: Vec::new(),
            ids: Vec::new(),
            offsets: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Appends the value at `at`; returns the position after it. After an error, the row is incomplete.
    #[inline(always)]
    pub fn encode(&mut self, input: Input<'_>, state: &State, at: usize) -> Parsed<usize> {
        self.keys.start_value();
        self.open.clear();
        self.fields.clear();
        let end = self.value(input, state.depth, at)?;
        let too_large = Err(Malformed { at: end, reason: Reason::Size });
        if self.values.row_bytes() > SIZE_LIMIT || !self.push_dictionary()? {
            return too_large;
        }
        if !(self.values.end_row()? && self.metadata.end_row()?) {
            return too_large;
        }
        Ok(end)
    }

    fn value(&mut self, input: Input<'_>, outer_depth: usize, start: usize) -> Parsed<usize> {
        let mut at = start;
        loop {
            // A value is expected at `at`.
            let first = input.byte(at);
            if first == b'{' || first == b'[' {
                if outer_depth + self.open.len() == MAX_DEPTH {
                    return Err(Malformed { at, reason: Reason::Depth });
                }
                let key = self.current_key();
                let is_object = first == b'{';
                push(
                    &mut self.open,
                    Open { start: self.values.data.len(), fields: self.fields.len(), is_object, key },
                )?;
                if is_object {
                    if let Some(value) = self.field(input, Slot::First(key), at)? {
                        at = value;
                        continue;
                    }
                    at = input.blanks(at + 1);
                } else {
                    at = input.blanks(at + 1);
                    if input.byte(at) != b']' {
                        self.start_field(ROOT, at)?;
                        continue;
                    }
                }
            } else {
                at = self.scalar(input, at, first)?;
            }
            // Then closing brackets, until another value follows.
            loop {
                let Some(&open) = self.open.last() else { return Ok(at) };
                if self.fields.len() > open.fields {
                    if open.is_object {
                        if let Some(value) = self.field(input, Slot::Next(self.current_key()), at)? {
                            at = value;
                            break;
                        }
                        at = input.blanks(at);
                    } else {
                        at = input.blanks(at);
                        if input.byte(at) == b',' {
                            at = input.blanks(at + 1);
                            self.start_field(ROOT, at)?;
                            break;
                        }
                    }
                }
                at = input.literal(at, if open.is_object { b"}" } else { b"]" })?;
                self.close(open, at)?;
            }
        }
    }

    /// The key that the next value has, or the outer array of the next value.
    #[inline(always)]
    fn current_key(&self) -> u32 {
        match (self.open.last(), self.fields.last()) {
            (Some(open), Some(field)) if open.is_object => field.key,
            (Some(open), _) => open.key,
            (None, _) => ROOT,
        }
    }

    /// Reads a separator, a key and a colon, and starts the field; returns the position of its value, or None if the
    /// object has no more fields.
    #[inline(always)]
    fn field(&mut self, input: Input<'_>, slot: Slot, start: usize) -> Parsed<Option<usize>> {
        let (key, at) = match self.keys.predicted(slot, input, start) {
            Some((key, at)) if input.byte(at) > b' ' => (key, at),
            _ => match self.key(input, slot, start)? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        self.keys.use_key(key)?;
        self.start_field(key, at)?;
        Ok(Some(at))
    }

    #[inline(never)]
    fn key(&mut self, input: Input<'_>, slot: Slot, start: usize) -> Parsed<Option<(u32, usize)>> {
        let mut at = input.blanks(start);
        if matches!(slot, Slot::First(_)) {
            at = input.blanks(at + 1);
            if input.byte(at) == b'}' {
                return Ok(None);
            }
        } else {
            if input.byte(at) != b',' {
                return Ok(None);
            }
            at = input.blanks(at + 1);
        }
        if input.byte(at) == b'\'' && self.grammar == Grammar::Json {
            return unexpected(input.end, at, Reason::Unexpected);
        }
        let text = input.string(at)?;
        let name = self.content(input, at + 1, text.end, text.escaped)?;
        let key = match name {
            Some(name) => self.keys.find_or_add(name)?,
            None => self.keys.find_or_add(&self.scratch)?,
        };
        at = input.blanks(text.end + 1);
        at = input.blanks(input.literal(at, b":")?);
        if at < input.end {
            self.keys.predict(slot, &input.bytes[start..at], key);
        }
        Ok(Some((key, at)))
    }

    #[inline(always)]
    fn start_field(&mut self, key: u32, at: usize) -> Parsed<()> {
        // A header has at least one byte for each field.
        if self.values.row_bytes() + self.fields.len() > SIZE_LIMIT {
            return Err(Malformed { at, reason: Reason::Size });
        }
        let start = self.open.last().map_or(0, |open| open.start);
        push(&mut self.fields, Field { key, offset: (self.values.data.len() - start) as u32 })?;
        Ok(())
    }

    fn close(&mut self, open: Open, at: usize) -> Parsed<()> {
        self.open.pop();
        self.ids.clear();
        self.offsets.clear();
        let fields = &self.fields[open.fields..];
        reserve(&mut self.ids, fields.len())?;
        reserve(&mut self.offsets, fields.len())?;
        reserve(&mut self.values.data, max_header_bytes(fields.len()))?;
        if open.is_object {
            if !self.keys.sort(fields, &mut self.ids, &mut self.offsets)? {
                return Err(Malformed { at: at - 1, reason: Reason::DuplicateKey });
            }
            insert_object_header(&mut self.values.data, open.start, &self.ids, &self.offsets);
        } else {
            self.offsets.extend(fields.iter().map(|field| field.offset));
            insert_array_header(&mut self.values.data, open.start, &self.offsets);
        }
        self.fields.truncate(open.fields);
        if self.values.row_bytes() > SIZE_LIMIT {
            return Err(Malformed { at: at - 1, reason: Reason::Size });
        }
        Ok(())
    }

    #[inline(always)]
    fn scalar(&mut self, input: Input<'_>, at: usize, first: u8) -> Parsed<usize> {
        let data = &mut self.values.data;
        reserve(data, MAX_FIXED_BYTES)?;
        match first {
            b'"' => {
                let text = string(input.bytes, input.end, at + 1)?;
                if text.escaped || !self.is_ascii {
                    return self.other_string(input, at, text.end, text.escaped);
                }
                push_string(data, &input.bytes[at + 1..text.end])?;
                Ok(text.end + 1)
            }
            b'0'..=b'9' | b'-' => self.number(input, at),
            b'n' => {
                push_null(data);
                input.literal(at, b"null")
            }
            b't' => {
                push_boolean(data, true);
                input.literal(at, b"true")
            }
            b'f' => {
                push_boolean(data, false);
                input.literal(at, b"false")
            }
            b'\'' if self.grammar == Grammar::FromJson => {
                let text = input.string(at)?;
                self.other_string(input, at, text.end, text.escaped)
            }
            b'+' | b'.' => self.number(input, at),
            _ if self.grammar == Grammar::FromJson => self.number(input, at),
            _ => unexpected(input.end, at, Reason::Unexpected),
        }
    }

    #[inline(never)]
    fn other_string(&mut self, input: Input<'_>, at: usize, end: usize, escaped: bool) -> Parsed<usize> {
        match self.content(input, at + 1, end, escaped)? {
            Some(text) => push_string(&mut self.values.data, text)?,
            None => push_string(&mut self.values.data, &self.scratch)?,
        }
        Ok(end + 1)
    }

    /// Returns a string's body if it is as it is written, otherwise None, and it is in `scratch`.
    fn content<'a>(&mut self, input: Input<'a>, start: usize, end: usize, escaped: bool) -> Parsed<Option<&'a [u8]>> {
        let written = &input.bytes[start..end];
        if !escaped && (self.is_ascii || std::str::from_utf8(written).is_ok()) {
            return Ok(Some(written));
        }
        self.scratch.clear();
        let accepted = if self.grammar == Grammar::Json { Escapes::Json } else { Escapes::SingleQuotes };
        remove_escapes(input.bytes, start, end, &mut self.scratch, accepted)?;
        if std::str::from_utf8(&self.scratch).is_err() {
            self.scratch = replace_invalid(&self.scratch)?;
        }
        Ok(None)
    }

    #[inline(always)]
    fn number(&mut self, input: Input<'_>, at: usize) -> Parsed<usize> {
        let mut found = number(input.bytes, input.end, at)?;
        if found.end > input.end {
            // The digits continue in the next value.
            found = number(&input.bytes[..input.end], input.end, at)?;
        }
        if !found.exact {
            return self.other_number(input, at, found.end, found.kind);
        }
        let data = &mut self.values.data;
        let value = if found.negative { -(found.digits as i64) } else { found.digits as i64 };
        match found.kind {
            NumberKind::Integer => push_integer(data, value),
            _ => push_decimal(data, value, found.fraction),
        }
        Ok(found.end)
    }

    #[inline(never)]
    fn other_number(&mut self, input: Input<'_>, at: usize, end: usize, kind: NumberKind) -> Parsed<usize> {
        let data = &mut self.values.data;
        let text = input.text(at, end);
        match kind {
            NumberKind::NonFinite(_) if self.grammar == Grammar::Json => {
                return unexpected(input.end, at, Reason::Number);
            }
            NumberKind::NonFinite(value) => push_double(data, value),
            _ => match text.parse() {
                Ok(integer) => push_integer(data, integer),
                Err(_) if push_large_decimal(data, text) => {}
                Err(_) => push_double(data, text.parse().unwrap_or_default()), // Rust's grammar contains that of JSON
            },
        }
        Ok(end)
    }

    fn push_dictionary(&mut self) -> Result<bool, OutOfMemory> {
        let data = &mut self.metadata.data;
        let previous = self.dictionary_bytes.clone();
        if !previous.is_empty() && self.keys.dictionary() == self.dictionary {
            reserve(data, previous.len())?;
            data.extend_from_within(previous);
            return Ok(true);
        }
        let start = data.len();
        if !push_metadata(data, self.keys.names())? {
            return Ok(false);
        }
        self.dictionary_bytes = start..data.len();
        self.dictionary.clear();
        extend(&mut self.dictionary, self.keys.dictionary())?;
        if self.keys.forget_if_full() {
            self.dictionary_bytes = 0..0;
        }
        Ok(true)
    }

    /// The bytes of the last row.
    pub fn last_row_bytes(&self) -> usize {
        self.values.last_row_bytes() + self.metadata.last_row_bytes()
    }

    pub fn push_null(&mut self) -> Result<(), OutOfMemory> {
        self.pad(self.values.ends.len())
    }

    /// Appends nulls until there are `rows` rows.
    pub fn pad(&mut self, rows: usize) -> Result<(), OutOfMemory> {
        self.values.pad(rows)?;
        self.metadata.pad(rows)
    }

    /// Removes the rows from `rows` on, of which the last one may be incomplete.
    pub fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.metadata.truncate(rows);
        if self.dictionary_bytes.end > self.metadata.data.len() {
            self.dictionary_bytes = 0..0;
        }
        self.forget_if_full();
    }

    /// Removes the rows from `from` to `until`, and so moves later rows.
    pub fn remove(&mut self, from: usize, until: usize) {
        self.values.remove(from, until);
        self.metadata.remove(from, until);
        self.dictionary_bytes = 0..0;
    }

    fn forget_if_full(&mut self) {
        if self.keys.forget_if_full() {
            self.dictionary_bytes = 0..0;
        }
    }

    /// Returns all rows as an array of type `Struct(fields)`, and removes them.
    pub fn finish(&mut self, fields: &Fields, rows: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        self.dictionary_bytes = 0..0;
        if self.fields.capacity() * size_of::<Field>() > MAX_RETAINED_BYTES {
            (self.fields, self.ids, self.offsets) = Default::default();
        }
        if self.scratch.capacity() > MAX_RETAINED_BYTES {
            self.scratch = Vec::new();
        }
        let columns = vec![self.values.finish()?, self.metadata.finish()?];
        Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?))
    }
}

impl Bytes {
    fn new() -> Bytes {
        Bytes { ends: vec![0], data: Vec::new(), spare: Spare::default() }
    }

    fn last_end(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }

    /// The bytes of the row that is not ended.
    #[inline(always)]
    fn row_bytes(&self) -> usize {
        self.data.len() - self.last_end()
    }

    fn last_row_bytes(&self) -> usize {
        match self.ends[..] {
            [.., start, end] => (end - start) as usize,
            _ => 0,
        }
    }

    /// Ends a row; returns false if the column is larger than Arrow's offsets.
    #[inline(always)]
    fn end_row(&mut self) -> Result<bool, OutOfMemory> {
        match i32::try_from(self.data.len()) {
            Ok(end) => push(&mut self.ends, end).map(|()| true),
            Err(_) => Ok(false),
        }
    }

    fn pad(&mut self, rows: usize) -> Result<(), OutOfMemory> {
        let end = self.ends[self.ends.len() - 1];
        resize(&mut self.ends, rows + 1, end)
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows + 1);
        self.data.truncate(self.last_end());
    }

    fn remove(&mut self, from: usize, until: usize) {
        self.data.drain(remove_ends(&mut self.ends, from, until));
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.spare.finish(&mut self.ends)));
        self.ends.push(0);
        Ok(Arc::new(BinaryArray::try_new(offsets, self.spare.finish(&mut self.data), None)?))
    }
}

/// Whether a type is that of VARIANT: a struct of `value` and `metadata`, marked as Spark marks it.
pub(super) fn is_variant(fields: &Fields) -> bool {
    let [value, metadata] = &fields[..] else { return false };
    let is_binary = |field: &arrow_schema::Field| *field.data_type() == DataType::Binary;
    value.name() == "value"
        && metadata.name() == "metadata"
        && is_binary(value)
        && is_binary(metadata)
        && metadata.metadata().get("variant").is_some_and(|marked| marked == "true")
}
