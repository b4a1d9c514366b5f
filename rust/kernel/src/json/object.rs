//! Decodes the wanted fields of an object. The next key is predicted from the previous object.

use std::sync::Arc;

use arrow_schema::{ArrowError, Field};

use super::column::Column;
use super::error::{Malformed, Parsed, Reason, unexpected};
use super::prediction::{MAX_PREDICTED_BYTES, Prediction, low_bytes};
use super::scan::{before_quote, load16};
use super::skip::{Input, State, skip};

/// A field that no column is for.
const UNWANTED: u32 = u32::MAX;

/// Bounds of what is remembered of earlier objects: hostile ones cannot make it grow.
const MAX_PREDICTIONS: usize = 4096;
const KNOWN_KEYS: usize = 256;
/// With its closing quote, such a key fits into 16 bytes, and `before_quote` returns more for a longer one.
const MAX_KNOWN_KEY: usize = 14;

/// The fields of an object, one column each. A column has fewer rows than objects if its last ones are null: they are
/// appended when it gets another value, or at the end (`Column::pad`).
pub(super) struct Object {
    pub columns: Vec<Column>,
    names: Vec<Vec<u8>>,
    predictions: Vec<Prediction>,
    known_keys: Vec<KnownKey>,
}

impl Object {
    pub fn new<'a>(fields: impl Iterator<Item = &'a Arc<Field>>, depth: usize) -> Result<Object, ArrowError> {
        let (mut names, mut columns) = (Vec::<Vec<u8>>::new(), Vec::new());
        for field in fields {
            let name = field.name().as_bytes().to_vec();
            if names.contains(&name) {
                return Err(ArrowError::SchemaError(format!("there are two fields {:?}", field.name())));
            }
            names.push(name);
            columns.push(Column::new(field.data_type(), depth)?);
        }
        Ok(Object { columns, names, predictions: Vec::new(), known_keys: vec![KnownKey::default(); KNOWN_KEYS] })
    }

    /// Decodes the object at `start` into row `row` of its columns; returns the position after it.
    #[inline(always)]
    pub fn decode(&mut self, input: Input<'_>, state: &mut State, start: usize, row: usize) -> Parsed<usize> {
        let mut at = start;
        let mut slot = 0;
        loop {
            let column = match self.predictions.get(slot) {
                Some(prediction) if prediction.matches(input, at) => {
                    at += prediction.length;
                    // There may be more blanks than in the previous object.
                    if input.byte(at) <= b' ' {
                        at = input.blanks(at);
                    }
                    prediction.target
                }
                _ => {
                    if slot > 0 && input.byte(at) == b'}' {
                        return Ok(at + 1);
                    }
                    match self.key(input, state, at, slot)? {
                        Key::Value { at: value, column } => {
                            at = value;
                            column
                        }
                        Key::End(end) => return Ok(end),
                    }
                }
            };
            slot += 1;
            if column == UNWANTED {
                at = skip(input, state, at)?;
            } else {
                let column = &mut self.columns[column as usize];
                if column.rows > row {
                    at = decode_duplicate(column, input, state, at, row)?;
                } else {
                    if column.rows < row {
                        column.pad(row)?;
                    }
                    at = column.decode(input, state, at)?;
                }
            }
            if at > input.end {
                return Err(Malformed { at: input.end, reason: Reason::Truncated });
            }
        }
    }

    /// The same for an object within another one.
    #[inline(never)]
    pub fn decode_nested(&mut self, input: Input<'_>, state: &mut State, start: usize, row: usize) -> Parsed<usize> {
        self.decode(input, state, start, row)
    }

    /// Removes the rows from `rows` on from the columns that have them.
    #[inline(always)]
    pub fn truncate(&mut self, rows: usize) {
        for column in &mut self.columns {
            if column.rows > rows {
                column.truncate(rows);
            }
        }
    }

    /// Reads separator, key and colon, and predicts them at `slot` of the next object.
    #[inline(never)]
    fn key(&mut self, input: Input<'_>, state: &mut State, start: usize, slot: usize) -> Parsed<Key> {
        if slot > 0
            && let Some(key) = self.known_key(input, start, slot)
        {
            return Ok(key);
        }
        let mut at = input.blanks(start);
        let close = slot > 0 && input.byte(at) == b'}';
        if !close {
            at = input.blanks(input.literal(at, if slot == 0 { b"{" } else { b"," })?);
        }
        if close || (slot == 0 && input.byte(at) == b'}') {
            return Ok(Key::End(at + 1));
        }
        let text = input.string(at)?;
        let written = &input.bytes[at + 1..text.end];
        let name = if text.escaped { state.unescaped(input, at + 1, text.end)? } else { written };
        let column = self.names.iter().position(|wanted| wanted == name).map_or(UNWANTED, |column| column as u32);
        at = input.blanks(text.end + 1);
        at = input.blanks(input.literal(at, b":")?);
        if at >= input.end {
            return unexpected(input.end, at, Reason::Truncated);
        }
        if !text.escaped && (1..=MAX_KNOWN_KEY).contains(&written.len()) {
            let key = load16(written, 0);
            self.known_keys[known_index(key)] = KnownKey { key, length: written.len(), column };
        }
        if at - start <= MAX_PREDICTED_BYTES && slot < MAX_PREDICTIONS {
            let prediction = Prediction::new(&input.bytes[start..at], column);
            if slot < self.predictions.len() {
                self.predictions[slot] = prediction;
            } else if slot == self.predictions.len() {
                self.predictions.push(prediction);
            }
        }
        Ok(Key::Value { at, column })
    }

    /// The fast path for keys in another order: a known key, with at most one blank before it and before its value.
    #[inline(always)]
    fn known_key(&mut self, input: Input<'_>, start: usize, slot: usize) -> Option<Key> {
        let word = load16(input.bytes, start);
        let quote = 1 + usize::from((word >> 8) as u8 == b' ');
        if word as u8 != b',' || (word >> (8 * quote)) as u8 != b'"' {
            return None;
        }
        let rest = load16(input.bytes, start + quote + 1);
        let length = before_quote(rest);
        let key = rest & low_bytes(length);
        let known = self.known_keys[known_index(key)];
        let colon = start + quote + 1 + length + 1;
        if length == 0 || known.length != length || known.key != key || input.byte(colon) != b':' {
            return None;
        }
        let at = colon + 1 + usize::from(input.byte(colon + 1) == b' ');
        if at >= input.end {
            return None;
        }
        if let Some(prediction) = self.predictions.get_mut(slot) {
            prediction.set(word, &input.bytes[start..at], known.column);
        }
        Some(Key::Value { at: input.blanks(at), column: known.column })
    }
}

enum Key {
    /// A field whose value is at `at`.
    Value { at: usize, column: u32 },
    /// The position after the object.
    End(usize),
}

/// A short key, wherever it was.
#[derive(Clone, Copy, Default)]
struct KnownKey {
    key: u128,
    length: usize, // 0: none
    column: u32,
}

fn known_index(key: u128) -> usize {
    let hash = (key as u64 ^ (key >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 56) as usize % KNOWN_KEYS
}

/// The last value of a repeated key counts, unless it does not fit.
#[cold]
#[inline(never)]
fn decode_duplicate(column: &mut Column, input: Input<'_>, state: &mut State, at: usize, row: usize) -> Parsed<usize> {
    state.unfit = false;
    let end = column.decode(input, state, at)?;
    if state.unfit {
        column.truncate(row + 1);
    } else {
        column.remove(row, row + 1);
    }
    Ok(end)
}
