//! Writes values as Protobuf.

use std::ops::RangeInclusive;
use std::str;

use super::node::{Field, Integers, Message, Names, Node, Shape, Values};
use crate::values::{Invalid, InvalidReason, Output, Written, write_varint};
use crate::varint::zigzag;

const MICROS: i64 = 1_000_000;
const NANOS_OF_MICRO: i64 = 1000;

/// What Google's definitions allow: the years 1 to 9999, and 315,576,000,000 seconds in both directions.
const TIMESTAMP_MICROS: RangeInclusive<i64> = -62_135_596_800 * MICROS..=253_402_300_800 * MICROS - 1;
const DURATION_MICROS: RangeInclusive<i64> = -315_576_000_001 * MICROS + 1..=315_576_000_001 * MICROS - 1;

const SECONDS_TAG: u32 = 1 << 3;
const NANOS_TAG: u32 = 2 << 3;

impl Message<'_> {
    /// Writes the fields of a row that is not null.
    pub fn write_fields(&self, row: usize, out: &mut Output) -> Written {
        for members in &self.oneofs {
            let mut present = members.iter().map(|&index| &self.fields[index].node).filter(|node| !node.is_null(row));
            if let (Some(first), Some(second)) = (present.next(), present.next()) {
                return Err(Invalid { node: first.number, other: Some(second.number), reason: InvalidReason::Members });
            }
        }
        for field in &self.fields {
            field.write(row, out)?;
        }
        Ok(())
    }
}

impl Field<'_> {
    fn write(&self, row: usize, out: &mut Output) -> Written {
        match &self.shape {
            Shape::Optional => {
                if !self.node.is_null(row) {
                    write_tag(self.tag, out);
                    self.node.write(row, out)?;
                }
            }
            Shape::Implicit => {
                if !self.node.is_null(row) {
                    let start = out.bytes.len();
                    write_tag(self.tag, out);
                    let value = out.bytes.len();
                    self.node.write(row, out)?;
                    // A varint or number of 0, or the length of an empty string.
                    if out.bytes[value..].iter().all(|&byte| byte == 0) {
                        out.bytes.truncate(start);
                    }
                }
            }
            Shape::Required => {
                if self.node.is_null(row) {
                    return Err(self.node.invalid(InvalidReason::Null));
                }
                write_tag(self.tag, out);
                self.node.write(row, out)?;
            }
            Shape::Repeated(nulls, offsets) => {
                if !nulls.is_some_and(|nulls| nulls.is_null(row)) {
                    for item in offsets[row]..offsets[row + 1] {
                        write_tag(self.tag, out);
                        self.node.write_item(item as usize, out)?;
                    }
                }
            }
            Shape::Packed(nulls, offsets) => {
                let (start, end) = (offsets[row], offsets[row + 1]);
                if end > start && !nulls.is_some_and(|nulls| nulls.is_null(row)) {
                    write_tag(self.tag, out);
                    with_length(out, |out| (start..end).try_for_each(|item| self.node.write_item(item as usize, out)))?;
                }
            }
            Shape::Map(nulls, offsets, key_tag, key, value_tag) => {
                if !nulls.is_some_and(|nulls| nulls.is_null(row)) {
                    for entry in offsets[row]..offsets[row + 1] {
                        write_tag(self.tag, out);
                        with_length(out, |out| {
                            write_tag(*key_tag, out);
                            key.write_item(entry as usize, out)?;
                            write_tag(*value_tag, out);
                            self.node.write_item(entry as usize, out)
                        })?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Node<'_> {
    #[inline]
    fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }

    /// Writes an element of a list, or a key or value of a map.
    fn write_item(&self, row: usize, out: &mut Output) -> Written {
        if self.is_null(row) {
            return Err(self.invalid(InvalidReason::Null));
        }
        self.write(row, out)?;
        out.check(0, self.number)
    }

    /// Writes a value that is not null, without its tag.
    fn write(&self, row: usize, out: &mut Output) -> Written {
        match &self.values {
            Values::Boolean(values) => out.bytes.push(u8::from(values.value(row))),
            Values::Varint(values) => write_varint(self.integer(values, row)? as u64, &mut out.bytes),
            Values::Zigzag(values) => write_varint(zigzag(self.integer(values, row)?), &mut out.bytes),
            Values::Fixed32(values) => {
                out.bytes.extend_from_slice(&(self.integer(values, row)? as u32).to_le_bytes());
            }
            Values::Fixed64(values) => out.bytes.extend_from_slice(&self.integer(values, row)?.to_le_bytes()),
            Values::Float(values) => out.bytes.extend_from_slice(&values[row].to_le_bytes()),
            Values::Double(values) => out.bytes.extend_from_slice(&values[row].to_le_bytes()),
            Values::String(values) => {
                let value = values.value(row);
                if str::from_utf8(value).is_err() {
                    return Err(self.invalid(InvalidReason::Text));
                }
                write_bytes(value, out);
            }
            Values::Bytes(values) => write_bytes(values.value(row), out),
            Values::EnumName(values, names) => {
                let number = names.number(values.value(row)).ok_or_else(|| self.invalid(InvalidReason::Symbol))?;
                write_varint(i64::from(number) as u64, &mut out.bytes);
            }
            Values::EnumNumber(values, closed) => {
                let number = values[row];
                if closed.as_ref().is_some_and(|known| known.binary_search(&number).is_err()) {
                    return Err(self.invalid(InvalidReason::Symbol));
                }
                write_varint(i64::from(number) as u64, &mut out.bytes);
            }
            Values::Message(message) => with_length(out, |out| message.write_fields(row, out))?,
            Values::Wrapped(field) => with_length(out, |out| field.write(row, out))?,
            Values::Moment(values, has_sign) => {
                let micros = values[row];
                let range = if *has_sign { DURATION_MICROS } else { TIMESTAMP_MICROS };
                if !range.contains(&micros) {
                    return Err(self.invalid(InvalidReason::Range));
                }
                write_moment(micros, *has_sign, out);
            }
        }
        Ok(())
    }

    #[inline]
    fn integer(&self, values: &Integers, row: usize) -> Result<i64, Invalid> {
        Ok(match values {
            Integers::Int8(values) => i64::from(values[row]),
            Integers::Int16(values) => i64::from(values[row]),
            Integers::Int32(values) => i64::from(values[row]),
            Integers::Bits32(values) => i64::from(values[row] as u32),
            Integers::Int64(values) => values[row],
            Integers::Range(values, first, last) => {
                let value = values[row];
                if !(*first..=*last).contains(&value) {
                    return Err(self.invalid(InvalidReason::Range));
                }
                value
            }
            Integers::Decimal(values) => {
                u64::try_from(values[row]).map_err(|_| self.invalid(InvalidReason::Range))? as i64
            }
        })
    }

    #[cold]
    fn invalid(&self, reason: InvalidReason) -> Invalid {
        Invalid { node: self.number, other: None, reason }
    }
}

impl Names<'_> {
    /// Returns the number of a name, which may be that of a number without a name.
    fn number(&self, name: &[u8]) -> Option<i32> {
        if let Ok(found) = self.symbols.binary_search_by(|(symbol, _)| (*symbol).cmp(name)) {
            return Some(self.symbols[found].1);
        }
        let digits = str::from_utf8(name.strip_prefix(self.prefix?)?).ok()?;
        digits.parse::<i32>().ok().filter(|number| number.to_string() == digits)
    }
}

fn write_moment(micros: i64, has_sign: bool, out: &mut Output) {
    let (seconds, rest) = if has_sign {
        (micros / MICROS, micros % MICROS)
    } else {
        (micros.div_euclid(MICROS), micros.rem_euclid(MICROS))
    };
    let start = out.bytes.len();
    out.bytes.push(0);
    for (tag, value) in [(SECONDS_TAG, seconds), (NANOS_TAG, rest * NANOS_OF_MICRO)] {
        if value != 0 {
            write_tag(tag, out);
            write_varint(value as u64, &mut out.bytes);
        }
    }
    out.bytes[start] = (out.bytes.len() - start - 1) as u8; // at most 22
}

/// Writes bytes behind their length, for which there is one byte until it is known.
#[inline]
fn with_length(out: &mut Output, write: impl FnOnce(&mut Output) -> Written) -> Written {
    let start = out.bytes.len();
    out.bytes.push(0);
    write(out)?;
    let length = out.bytes.len() - start - 1;
    if length < 0x80 {
        out.bytes[start] = length as u8;
    } else {
        move_for_length(start, length, &mut out.bytes);
    }
    Ok(())
}

/// Inserts the bytes of a length that has more than one.
#[inline(never)]
fn move_for_length(start: usize, length: usize, out: &mut Vec<u8>) {
    let end = out.len();
    write_varint(length as u64, out);
    let size = out.len() - end;
    let mut bytes = [0; 10];
    bytes[..size].copy_from_slice(&out[end..]);
    out.copy_within(start + 1..end, start + size);
    out[start..start + size].copy_from_slice(&bytes[..size]);
    out.truncate(end + size - 1);
}

#[inline]
fn write_bytes(bytes: &[u8], out: &mut Output) {
    write_varint(bytes.len() as u64, &mut out.bytes);
    out.bytes.extend_from_slice(bytes);
}

#[inline]
fn write_tag(tag: u32, out: &mut Output) {
    write_varint(u64::from(tag), &mut out.bytes);
}
