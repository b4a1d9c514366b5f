//! Writes values as Avro.

use arrow_array::Array;

use super::node::{Field, Node, Values};
use crate::values::{Invalid, InvalidReason, Output, Written, write_varint};
use crate::varint::zigzag;

impl Node<'_> {
    pub fn write(&self, row: usize, output: &mut Output) -> Written {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return self.write_null(&mut output.bytes);
        }
        let out = &mut output.bytes;
        if self.branch >= 0 && !matches!(self.values, Values::Union(_)) {
            write_long(self.branch, out);
        }
        match &self.values {
            Values::Null => {}
            Values::Boolean(values) => out.push(u8::from(values.value(row))),
            Values::Int8(values) => write_long(i64::from(values[row]), out),
            Values::Int16(values) => write_long(i64::from(values[row]), out),
            Values::Int32(values) => write_long(i64::from(values[row]), out),
            Values::Int64(values) => write_long(values[row], out),
            Values::MicrosToMillis(values) => write_long(values[row].div_euclid(1000), out),
            Values::Float(values) => out.extend_from_slice(&values[row].to_le_bytes()),
            Values::FloatToDouble(values) => out.extend_from_slice(&f64::from(values[row]).to_le_bytes()),
            Values::Double(values) => out.extend_from_slice(&values[row].to_le_bytes()),
            Values::Bytes(values) => write_bytes(values.value(row), out),
            Values::Fixed(values, size) => {
                let value = values.value(row);
                if value.len() != *size {
                    return Err(self.invalid(InvalidReason::Size));
                }
                out.extend_from_slice(value);
            }
            Values::Decimal(values) => {
                let bytes = values[row].to_be_bytes();
                write_bytes(&bytes[redundant_bytes(&bytes)..], out);
            }
            Values::FixedDecimal(values, size) => {
                let bytes = values[row].to_be_bytes();
                if bytes.len() - redundant_bytes(&bytes) > *size {
                    return Err(self.invalid(InvalidReason::Size));
                }
                output.check(*size, self.number)?;
                let out = &mut output.bytes;
                let sign = if values[row] < 0 { 0xff } else { 0 };
                out.resize(out.len() + size.saturating_sub(bytes.len()), sign);
                out.extend_from_slice(&bytes[bytes.len().saturating_sub(*size)..]);
            }
            Values::Enum(values, symbols) => {
                let value = values.value(row);
                match symbols.binary_search_by(|(symbol, _)| (*symbol).cmp(value)) {
                    Ok(found) => write_long(symbols[found].1, out),
                    Err(_) => return Err(self.invalid(InvalidReason::Symbol)),
                }
            }
            Values::Array(offsets, element) => {
                let (start, end) = (offsets[row], offsets[row + 1]);
                if end > start {
                    write_long(i64::from(end - start), out);
                    for item in start..end {
                        element.write(item as usize, output)?;
                        output.check(0, self.number)?;
                    }
                }
                output.bytes.push(0);
            }
            Values::Map(offsets, keys, item) => {
                let (start, end) = (offsets[row], offsets[row + 1]);
                if end > start {
                    write_long(i64::from(end - start), out);
                    for entry in start..end {
                        if keys.is_null(entry as usize) {
                            return Err(self.invalid(InvalidReason::Key));
                        }
                        write_bytes(keys.value(entry as usize), &mut output.bytes);
                        item.write(entry as usize, output)?;
                        output.check(0, self.number)?;
                    }
                }
                output.bytes.push(0);
            }
            Values::Record(fields) => {
                for field in fields {
                    match field {
                        Field::Column(node) => node.write(row, output)?,
                        Field::Constant(bytes) => output.bytes.extend_from_slice(bytes),
                    }
                }
            }
            Values::Union(members) => {
                let mut present = members.iter().filter(|member| !member.is_null(row));
                match (present.next(), present.next()) {
                    (Some(member), None) => return member.write(row, output),
                    (None, _) => return self.write_null(out),
                    _ => return Err(self.invalid(InvalidReason::Members)),
                }
            }
        }
        Ok(())
    }

    fn is_null(&self, row: usize) -> bool {
        matches!(self.values, Values::Null) || self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }

    #[inline]
    fn write_null(&self, out: &mut Vec<u8>) -> Written {
        if self.null_branch < 0 {
            return Err(self.invalid(InvalidReason::Null));
        }
        write_long(self.null_branch, out);
        Ok(())
    }

    #[cold]
    fn invalid(&self, reason: InvalidReason) -> Invalid {
        Invalid { node: self.number, other: None, reason }
    }
}

#[inline]
fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

#[inline]
fn write_long(value: i64, out: &mut Vec<u8>) {
    write_varint(zigzag(value), out);
}

/// Returns how many bytes at the start of a big-endian number only repeat its sign.
fn redundant_bytes(bytes: &[u8; 16]) -> usize {
    let sign = if bytes[0] >= 0x80 { 0xff } else { 0 };
    let repeated = bytes.windows(2).take_while(|pair| pair[0] == sign && (pair[1] ^ sign) < 0x80);
    repeated.count()
}
