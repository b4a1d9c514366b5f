//! Reads messages by the tables of a program.

use std::collections::HashMap;
use std::mem;

use super::program::{Default, Field, Kind, NO_COLUMN, NO_ONEOF, Program, Table, UNKNOWN};
use super::put::{clear, put_bytes, put_default, put_double, put_float, put_integer};
use super::reason::Reason;
use super::wire::{END_GROUP, MAX_DEPTH, fixed, length, skip, tag, varint};
use crate::avro::columns::{Column, Values};
use crate::values::reserve;

/// Maps with fewer entries are searched for a duplicate key entry by entry.
const FEW_ENTRIES: usize = 8;

/// In place of the tag that ends a message which its length ends.
const NO_TAG: u32 = 0;

const MICROS: i64 = 1_000_000;
const NANOS_OF_MICRO: i64 = 1000;

/// What messages are read from, and written to.
pub(super) struct Reader<'a> {
    pub program: &'a Program,
    pub columns: &'a mut [Column],
    /// By column: seconds and nanoseconds of the last row of a timestamp or duration.
    pub moments: &'a mut [(i64, i64)],
    /// By column: entries of maps whose key comes again.
    pub replaced: &'a mut [Vec<u32>],
    /// By oneof: the column of its last member. It may be that of a message before, whose rows are complete.
    pub members: &'a mut [u32],
    /// The column of the last number that a closed enum does not have.
    pub unknown: u32,
    /// Where the field starts that is read.
    pub at: usize,
    /// What the elements of its lists and maps, and its strings that are not in the message, may still have.
    pub bytes: usize,
}

impl Reader<'_> {
    /// Reads the fields of a message from `at` to the end of `data`, which ends with the message.
    pub fn message(&mut self, table: u32, data: &[u8], at: usize, row: usize, depth: usize) -> Result<usize, Reason> {
        self.fields(table, data, at, row, depth, NO_TAG)
    }

    /// Reads the fields of a message to the tag of its end, if it is a group, or to the end of `data`.
    ///
    /// A message may come in several parts, so its end is not yet written; see `close`. After an error, the row is
    /// incomplete.
    fn fields(
        &mut self,
        table: u32,
        data: &[u8],
        mut at: usize,
        row: usize,
        depth: usize,
        end: u32,
    ) -> Result<usize, Reason> {
        if depth > MAX_DEPTH {
            return Err(Reason::Depth);
        }
        let program = self.program;
        let table = &program.tables[table as usize];
        while at < data.len() {
            self.at = at;
            let (tag, after) = tag(data, at)?;
            let entry = table.find(tag);
            if entry == UNKNOWN {
                if tag == end {
                    return Ok(after);
                }
                at = skip(data, tag, after, depth)?;
                continue;
            }
            let field = &table.fields[usize::from(entry >> 1)];
            at = if entry & 1 == 1 {
                self.packed(field, data, after, depth)?
            } else if field.repeated && field.column != NO_COLUMN {
                self.element(field, data, after, depth)?
            } else {
                if field.kind != Kind::Enum {
                    self.select(field, row)?;
                }
                self.value(field, field.column, data, after, row, depth)?
            };
        }
        if end == NO_TAG { Ok(at) } else { Err(Reason::Truncated) }
    }

    /// Clears the other member of a oneof.
    #[inline(always)]
    fn select(&mut self, field: &Field, row: usize) -> Result<(), Reason> {
        if field.oneof != NO_ONEOF {
            let member = mem::replace(&mut self.members[field.oneof as usize], field.column);
            if member != field.column && member != NO_COLUMN && self.columns[member as usize].rows() > row {
                return self.clear_member(member, row);
            }
        }
        Ok(())
    }

    /// Time is limited like memory: a member of two bytes may have thousands of columns, and come again and again.
    #[inline(never)]
    fn clear_member(&mut self, member: u32, row: usize) -> Result<(), Reason> {
        self.charge(self.columns[member as usize].next - member as usize)?;
        clear(self.columns, member, row);
        Ok(())
    }

    /// Writes what is known at the end of a message: lists, and defaults of missing fields.
    pub fn close(&mut self, table: &Table, row: usize) -> Result<(), Reason> {
        for &index in &table.closers {
            let field = &table.fields[usize::from(index)];
            let number = field.column as usize;
            if field.repeated {
                if field.kind == Kind::Entry {
                    self.find_replaced(number)?;
                }
                self.columns[number].put_end(row)?;
                continue;
            }
            if self.columns[number].rows() <= row {
                if let Default::Bytes(bytes) = &field.default {
                    self.charge(bytes.len())?;
                }
                put_default(&mut self.columns[number], row, &field.default)?;
            }
            if field.kind == Kind::Message && self.columns[number].rows() > row {
                self.close(&self.program.tables[field.argument as usize], row)?;
            }
        }
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Reason> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Reason::Size)?;
        Ok(())
    }

    fn packed(&mut self, field: &Field, data: &[u8], at: usize, depth: usize) -> Result<usize, Reason> {
        let (mut at, end) = length(data, at)?;
        let data = &data[..end];
        while at < end {
            at = if field.column == NO_COLUMN {
                self.value(field, NO_COLUMN, data, at, 0, depth)?
            } else {
                self.element(field, data, at, depth)?
            };
        }
        Ok(end)
    }

    /// Adds an element to a list, or an entry to a map.
    #[inline(always)]
    fn element(&mut self, field: &Field, data: &[u8], at: usize, depth: usize) -> Result<usize, Reason> {
        let list = field.column as usize;
        self.charge(self.columns[list].element_width)?;
        let item = self.columns[list].length();
        let at = match field.kind {
            Kind::Entry => {
                let (start, end) = length(data, at)?;
                self.unknown = NO_COLUMN;
                self.message(field.argument, &data[..end], start, item, depth + 1)?;
                let (key, value) = (field.column + 1, field.column + 2);
                if self.unknown == value {
                    clear(self.columns, key, item);
                    clear(self.columns, value, item);
                    return Ok(end); // an entry without a value that the enum has is an unknown field
                }
                end
            }
            _ => self.value(field, field.column + 1, data, at, item, depth)?,
        };
        match field.kind {
            Kind::Message | Kind::Entry => self.close(&self.program.tables[field.argument as usize], item)?,
            Kind::Enum if self.columns[list + 1].rows() == item => return Ok(at), // an unknown number of a closed enum
            _ => {}
        }
        self.columns[list].add_items(1);
        Ok(at)
    }

    /// Reads one value, and writes it to a column unless the field is only checked.
    #[inline(always)]
    fn value(
        &mut self,
        field: &Field,
        column: u32,
        data: &[u8],
        at: usize,
        row: usize,
        depth: usize,
    ) -> Result<usize, Reason> {
        macro_rules! varint {
            ($convert:expr) => {{
                let (value, after) = varint(data, at)?;
                self.integer(field, column, row, $convert(value))?;
                after
            }};
        }
        macro_rules! fixed {
            ($kind:ty, $size:literal) => {{
                let (bytes, after) = fixed::<$size>(data, at)?;
                (<$kind>::from_le_bytes(bytes), after)
            }};
        }
        Ok(match field.kind {
            Kind::Int32 => varint!(|value| i64::from(value as i32)),
            Kind::Int64 | Kind::Uint64 => varint!(|value| value as i64),
            Kind::Double => {
                let (value, after) = fixed!(f64, 8);
                if column != NO_COLUMN {
                    if field.implicit && value.to_bits() == 0 {
                        clear(self.columns, column, row);
                    } else {
                        put_double(&mut self.columns[column as usize], row, value)?;
                    }
                }
                after
            }
            Kind::String | Kind::Text | Kind::Bytes => {
                let (start, end) = length(data, at)?;
                if field.kind == Kind::String && std::str::from_utf8(&data[start..end]).is_err() {
                    return Err(Reason::Utf8);
                }
                if column != NO_COLUMN {
                    if field.implicit && start == end {
                        clear(self.columns, column, row);
                    } else {
                        put_bytes(&mut self.columns[column as usize], row, data, start, end - start)?;
                    }
                }
                end
            }
            Kind::Bool => varint!(|value| i64::from(value != 0)),
            Kind::Uint32 => varint!(|value| i64::from(value as u32)),
            Kind::Sint32 => varint!(|value| i64::from((value as u32 >> 1) as i32 ^ -((value & 1) as i32))),
            Kind::Sint64 => varint!(|value| (value >> 1) as i64 ^ -((value & 1) as i64)),
            Kind::Fixed32 => {
                let (value, after) = fixed!(u32, 4);
                self.integer(field, column, row, i64::from(value))?;
                after
            }
            Kind::Sfixed32 => {
                let (value, after) = fixed!(i32, 4);
                self.integer(field, column, row, i64::from(value))?;
                after
            }
            Kind::Fixed64 | Kind::Sfixed64 => {
                let (value, after) = fixed!(i64, 8);
                self.integer(field, column, row, value)?;
                after
            }
            Kind::Float => {
                let (value, after) = fixed!(f32, 4);
                if column != NO_COLUMN {
                    if field.implicit && value.to_bits() == 0 {
                        clear(self.columns, column, row);
                    } else {
                        put_float(&mut self.columns[column as usize], row, value)?;
                    }
                }
                after
            }
            Kind::Enum | Kind::Seconds | Kind::Nanos => {
                let (value, after) = varint(data, at)?;
                if column != NO_COLUMN || field.kind == Kind::Enum && field.oneof != NO_ONEOF {
                    self.rare(field, column, row, value)?;
                }
                after
            }
            Kind::Message | Kind::Wrapped | Kind::Entry => {
                let (start, end) = length(data, at)?;
                if column != NO_COLUMN && field.kind == Kind::Message {
                    self.columns[column as usize].put_struct(row)?;
                }
                if column != NO_COLUMN && field.kind == Kind::Wrapped && self.columns[column as usize].rows() <= row {
                    self.moments[column as usize] = (0, 0);
                }
                self.message(field.argument, &data[..end], start, row, depth + 1)?;
                if column != NO_COLUMN && field.kind == Kind::Wrapped {
                    self.close(&self.program.tables[field.argument as usize], row)?;
                }
                end
            }
            Kind::Group => self.fields(field.argument, data, at, row, depth + 1, field.number << 3 | END_GROUP)?,
        })
    }

    #[inline(always)]
    fn integer(&mut self, field: &Field, column: u32, row: usize, value: i64) -> Result<(), Reason> {
        if column == NO_COLUMN {
        } else if field.implicit && value == 0 {
            clear(self.columns, column, row);
        } else {
            put_integer(&mut self.columns[column as usize], row, value)?;
        }
        Ok(())
    }

    /// Writes an enum, or a part of a timestamp or duration.
    #[inline(never)]
    fn rare(&mut self, field: &Field, column: u32, row: usize, value: u64) -> Result<(), Reason> {
        let index = column as usize;
        if field.kind != Kind::Enum {
            let (seconds, nanos) = &mut self.moments[index];
            if field.kind == Kind::Seconds {
                *seconds = value as i64;
            } else {
                *nanos = i64::from(value as i32);
            }
            let micros = seconds.checked_mul(MICROS).and_then(|micros| micros.checked_add(*nanos / NANOS_OF_MICRO));
            put_integer(&mut self.columns[index], row, micros.ok_or(Reason::Range)?)?;
            return Ok(());
        }
        let number = value as i32;
        let program = self.program;
        let known = &program.enums[field.argument as usize];
        let symbol = known.symbol(number);
        if symbol.is_none() && known.closed {
            self.unknown = column;
            return Ok(());
        }
        self.select(field, row)?;
        if column == NO_COLUMN {
            return Ok(());
        }
        if field.implicit && number == 0 {
            clear(self.columns, column, row);
            return Ok(());
        }
        if matches!(self.columns[index].values, Values::Int32(_)) {
            put_integer(&mut self.columns[index], row, i64::from(number))?;
            return Ok(());
        }
        if let Some(symbol) = symbol {
            self.charge(symbol.len())?;
            return put_bytes(&mut self.columns[index], row, symbol, 0, symbol.len());
        }
        let mut name = known.prefix.to_vec();
        name.extend_from_slice(number.to_string().as_bytes());
        self.charge(name.len())?;
        put_bytes(&mut self.columns[index], row, &name, 0, name.len())
    }

    /// Finds the entries of a map's last row that later ones replace.
    fn find_replaced(&mut self, map: usize) -> Result<(), Reason> {
        let column = &self.columns[map];
        let Values::Items { ends, length } = &column.values else { return Ok(()) };
        let first = ends.last().map_or(0, |&end| end as usize);
        let mut replaced = mem::take(&mut self.replaced[map]);
        while replaced.last().is_some_and(|&entry| entry as usize >= first) {
            replaced.pop(); // of a row that was removed
        }
        reserve(&mut replaced, *length - first)?;
        let keys = &self.columns[map + 1].values;
        if *length - first <= FEW_ENTRIES {
            for entry in first..*length {
                if (entry + 1..*length).any(|later| key(keys, later) == key(keys, entry)) {
                    replaced.push(entry as u32);
                }
            }
        } else {
            let mut last = HashMap::new();
            last.try_reserve(*length - first).map_err(|_| Reason::Memory)?;
            let start = replaced.len();
            replaced.extend((first..*length).filter_map(|entry| last.insert(key(keys, entry), entry as u32)));
            replaced[start..].sort_unstable();
        }
        self.replaced[map] = replaced;
        Ok(())
    }
}

#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Number(i128),
    Bytes(&'a [u8]),
}

fn key(keys: &Values, entry: usize) -> Key<'_> {
    match keys {
        Values::Boolean(values) => Key::Number(i128::from(values[entry])),
        Values::Int32(values) => Key::Number(i128::from(values[entry])),
        Values::Int64(values) => Key::Number(i128::from(values[entry])),
        Values::Decimal { values, .. } => Key::Number(values[entry]),
        Values::Bytes { ends, data, .. } => Key::Bytes(&data[ends[entry] as usize..ends[entry + 1] as usize]),
        _ => Key::Number(0),
    }
}
