//! Finds the wanted fields of objects by their keys. The next key is predicted from the previous object.

use std::sync::Arc;

use arrow_schema::{ArrowError, Field};

use super::error::{Parsed, Reason, unexpected};
use super::prediction::{MAX_PREDICTED_BYTES, Prediction, low_bytes};
use super::scan::{before_quote, load16};
use super::skip::{Input, State};

/// A field that no column is for.
pub(super) const UNWANTED: u32 = u32::MAX;

/// Bounds of what is remembered of earlier objects: hostile ones cannot make it grow.
const MAX_PREDICTIONS: usize = 4096;
const KNOWN_KEYS: usize = 256;
/// With its closing quote, such a key fits into 16 bytes, and `before_quote` returns more for a longer one.
const MAX_KNOWN_KEY: usize = 14;

/// The names of the wanted fields, and what is remembered of earlier objects.
pub(super) struct ObjectKeys {
    names: Vec<Vec<u8>>,
    predictions: Vec<Prediction>,
    known_keys: Vec<KnownKey>,
}

impl ObjectKeys {
    pub fn new<'a>(fields: impl Iterator<Item = &'a Arc<Field>>) -> Result<ObjectKeys, ArrowError> {
        let mut names = Vec::<Vec<u8>>::new();
        for field in fields {
            let name = field.name().as_bytes().to_vec();
            if names.contains(&name) {
                return Err(ArrowError::SchemaError(format!("there are two fields {:?}", field.name())));
            }
            names.push(name);
        }
        Ok(ObjectKeys { names, predictions: Vec::new(), known_keys: vec![KnownKey::default(); KNOWN_KEYS] })
    }

    /// Returns the prediction for the key of field `slot`, if it matches.
    #[inline(always)]
    pub fn predicted(&self, input: Input<'_>, at: usize, slot: usize) -> Option<&Prediction> {
        self.predictions.get(slot).filter(|prediction| prediction.matches(input, at))
    }

    /// Reads separator, key and colon, and predicts them at `slot` of the next object.
    #[inline(never)]
    pub fn key(&mut self, input: Input<'_>, state: &mut State, start: usize, slot: usize) -> Parsed<Key> {
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

pub(super) enum Key {
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
