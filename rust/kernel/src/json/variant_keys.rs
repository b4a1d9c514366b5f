//! The keys of VARIANT objects: those of recent values, each once, with what came after them.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::prediction::{MAX_PREDICTED_BYTES, Prediction};
use super::skip::Input;
use crate::values::{OutOfMemory, push, reserve};

/// Keys are forgotten before the next value if there are more, or if they have more bytes.
const MAX_KEYS: usize = 4096;
const MAX_KEY_BYTES: usize = 1 << 20;

/// It is checked that there is memory for longer names.
const MAX_UNCHECKED_NAME: usize = 1 << 12;

/// Orders of fields are remembered of smaller objects.
const MAX_ORDERED_FIELDS: usize = 256;

/// Stands for the key of the value itself, which has none.
pub(super) const ROOT: u32 = 0;

pub(super) struct Keys {
    keys: Vec<Key>,
    by_name: HashMap<Arc<[u8]>, u32>,
    name_bytes: usize,
    /// The number of the current value.
    value: u64,
    /// The keys of the current value; their position is their id.
    dictionary: Vec<u32>,
    /// What is remembered of the first keys; a value with many keys cannot make it grow.
    hints: Vec<Hints>,
}

struct Key {
    name: Arc<[u8]>,
    /// The last value that has the key, and the key's id there.
    value: u64,
    id: u32,
}

#[derive(Default)]
struct Hints {
    /// The first key of an object that is the value of this key, or is in an array that is.
    first: Option<Prediction>,
    /// The next key of the same object.
    next: Option<Prediction>,
    /// The order of the last object that starts with this key.
    order: Order,
}

/// The fields of an object.
#[derive(Default)]
struct Order {
    keys: Vec<u32>,
    /// Indexes of `keys`, sorted by name.
    sorted: Vec<u32>,
}

/// A field of an object, or an element of an array, of which `key` is `ROOT`.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub key: u32,
    /// Bytes from the start of the object's or array's first value.
    pub offset: u32,
}

/// Where a key is: behind the key of its object, or behind the previous key of the same object.
#[derive(Clone, Copy)]
pub(super) enum Slot {
    First(u32),
    Next(u32),
}

impl Keys {
    pub fn new() -> Keys {
        let mut keys = Keys {
            keys: Vec::new(),
            by_name: HashMap::new(),
            name_bytes: 0,
            value: 0,
            dictionary: Vec::new(),
            hints: Vec::new(),
        };
        keys.add(Arc::from([]));
        keys
    }

    #[inline(always)]
    pub fn start_value(&mut self) {
        self.value += 1;
        self.dictionary.clear();
    }

    /// Forgets the keys of earlier values if there are too many; returns true if it did.
    #[inline(always)]
    pub fn forget_if_full(&mut self) -> bool {
        let full = self.keys.len() > MAX_KEYS || self.name_bytes > MAX_KEY_BYTES;
        if full {
            *self = Keys::new();
        }
        full
    }

    /// Returns the key that is predicted at a position, and the position of its value.
    #[inline(always)]
    pub fn predicted(&self, slot: Slot, input: Input<'_>, at: usize) -> Option<(u32, usize)> {
        let prediction = match slot {
            Slot::First(parent) => self.hints.get(parent as usize)?.first.as_ref()?,
            Slot::Next(previous) => self.hints.get(previous as usize)?.next.as_ref()?,
        };
        prediction.matches(input, at).then(|| (prediction.target, at + prediction.length))
    }

    /// Predicts a key and the bytes before its value.
    pub fn predict(&mut self, slot: Slot, bytes: &[u8], key: u32) {
        let (Slot::First(at) | Slot::Next(at)) = slot;
        if bytes.len() <= MAX_PREDICTED_BYTES
            && let Some(hints) = self.hints.get_mut(at as usize)
        {
            let prediction = Some(Prediction::new(bytes, key));
            match slot {
                Slot::First(_) => hints.first = prediction,
                Slot::Next(_) => hints.next = prediction,
            }
        }
    }

    pub fn find_or_add(&mut self, name: &[u8]) -> Result<u32, OutOfMemory> {
        if let Some(&key) = self.by_name.get(name) {
            return Ok(key);
        }
        reserve(&mut self.keys, 1)?;
        self.by_name.try_reserve(1).map_err(|_| OutOfMemory)?;
        if name.len() > MAX_UNCHECKED_NAME {
            reserve(&mut Vec::<u8>::new(), 2 * name.len())?; // an Arc cannot be reserved
        }
        let name = Arc::<[u8]>::from(name);
        let key = self.add(name.clone());
        self.name_bytes += name.len();
        self.by_name.insert(name, key);
        Ok(key)
    }

    fn add(&mut self, name: Arc<[u8]>) -> u32 {
        self.keys.push(Key { name, value: 0, id: 0 });
        if self.hints.len() < MAX_KEYS {
            self.hints.push(Hints::default());
        }
        self.keys.len() as u32 - 1
    }

    /// Adds a key to the dictionary of the current value.
    #[inline(always)]
    pub fn use_key(&mut self, key: u32) -> Result<(), OutOfMemory> {
        let used = &mut self.keys[key as usize];
        if used.value != self.value {
            (used.value, used.id) = (self.value, self.dictionary.len() as u32);
            push(&mut self.dictionary, key)?;
        }
        Ok(())
    }

    /// The keys of the current value.
    pub fn dictionary(&self) -> &[u32] {
        &self.dictionary
    }

    pub fn names(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.dictionary.iter().map(|&key| &self.keys[key as usize].name[..])
    }

    /// Appends ids and offsets of an object's fields in the order of their names; returns false if there are two of a name.
    ///
    /// The caller has reserved the memory of `ids` and `offsets`.
    pub fn sort(&mut self, fields: &[Field], ids: &mut Vec<u32>, offsets: &mut Vec<u32>) -> Result<bool, OutOfMemory> {
        let Some(first) = fields.first().map(|field| field.key as usize) else { return Ok(true) };
        let mut order = self.hints.get_mut(first).map(|hints| std::mem::take(&mut hints.order)).unwrap_or_default();
        let is_known =
            order.keys.len() == fields.len() && order.keys.iter().zip(fields).all(|(&key, field)| key == field.key);
        if !is_known && !self.find_order(fields, &mut order)? {
            return Ok(false);
        }
        for &index in &order.sorted {
            let field = fields[index as usize];
            ids.push(self.keys[field.key as usize].id);
            offsets.push(field.offset);
        }
        if fields.len() <= MAX_ORDERED_FIELDS
            && let Some(hints) = self.hints.get_mut(first)
        {
            hints.order = order;
        }
        Ok(true)
    }

    /// Sorts fields by name; returns false if there are two of a name.
    fn find_order(&self, fields: &[Field], order: &mut Order) -> Result<bool, OutOfMemory> {
        order.keys.clear();
        order.sorted.clear();
        reserve(&mut order.keys, fields.len())?;
        reserve(&mut order.sorted, fields.len())?;
        order.keys.extend(fields.iter().map(|field| field.key));
        order.sorted.extend(0..fields.len() as u32);
        let Order { keys, sorted } = order;
        let name = |index: u32| &self.keys[keys[index as usize] as usize].name[..];
        sorted.sort_unstable_by(|&one, &other| compare_as_java(name(one), name(other)));
        Ok(sorted.windows(2).all(|pair| keys[pair[0] as usize] != keys[pair[1] as usize]))
    }
}

/// Compares UTF-8 by UTF-16 units, as Java does: characters from U+10000 on are before U+E000 to U+FFFF.
fn compare_as_java(one: &[u8], other: &[u8]) -> Ordering {
    let moved = |byte: u8| if matches!(byte, 0xee | 0xef) { byte + 0x10 } else { byte };
    match one.iter().zip(other).find(|(one, other)| one != other) {
        Some((&one, &other)) => moved(one).cmp(&moved(other)),
        None => one.len().cmp(&other.len()),
    }
}
