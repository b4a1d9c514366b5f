//! A column and how its values are written.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, BinaryArray, BooleanArray, Decimal128Array, PrimitiveArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, TimeUnit};

use super::UtcOffsets;
use super::number::{write_decimal, write_double, write_float, write_integer};
use super::text::{write_base64, write_string};
use super::time::{Zone, write_date, write_timestamp};

const MAX_DEPTH: usize = 64;

/// The key of a field's metadata, as in `pyspark_kafka_direct.payloads.json.json_types`.
const WRITES_NULLS: &str = "writes_nulls";

/// A column of any length; rows outside of it are not written.
pub(super) struct Column<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

struct StructField<'a> {
    /// As JSON, with the colon.
    name: Vec<u8>,
    /// Whether it is written if it is null.
    writes_nulls: bool,
    column: Column<'a>,
}

enum Values<'a> {
    Null,
    Boolean(&'a BooleanArray),
    Int8(&'a PrimitiveArray<Int8Type>),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Decimal(&'a Decimal128Array, i8),
    Text(&'a BinaryArray),
    Binary(&'a BinaryArray),
    Date(&'a PrimitiveArray<Date32Type>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>, Zone<'a>),
    Struct(Vec<StructField<'a>>),
    List(&'a OffsetBuffer<i32>, Box<Column<'a>>),
    Map(&'a OffsetBuffer<i32>, Box<Column<'a>>, Box<Column<'a>>),
}

impl<'a> Column<'a> {
    /// Strings are arrays of bytes, because they may not be UTF-8; only the type distinguishes them from binary values.
    pub fn new(
        array: &'a dyn Array,
        data_type: &'a DataType,
        zones: &'a UtcOffsets,
        depth: usize,
    ) -> Result<Column<'a>, ArrowError> {
        if depth > MAX_DEPTH {
            return Err(ArrowError::SchemaError(format!("a type has more than {MAX_DEPTH} levels")));
        }
        let stored = if *data_type == DataType::Utf8 { &DataType::Binary } else { data_type };
        if !data_type.is_nested() && array.data_type() != stored {
            return Err(mismatch(array));
        }
        let nested = |array: &'a dyn Array, field: &'a Field| Column::new(array, field.data_type(), zones, depth + 1);
        let values = match data_type {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Boolean(array.as_boolean()),
            DataType::Int8 => Values::Int8(array.as_primitive()),
            DataType::Int16 => Values::Int16(array.as_primitive()),
            DataType::Int32 => Values::Int32(array.as_primitive()),
            DataType::Int64 => Values::Int64(array.as_primitive()),
            DataType::Float32 => Values::Float32(array.as_primitive()),
            DataType::Float64 => Values::Float64(array.as_primitive()),
            DataType::Decimal128(_, scale) => Values::Decimal(array.as_primitive::<Decimal128Type>(), *scale),
            DataType::Utf8 => Values::Text(array.as_binary()),
            DataType::Binary => Values::Binary(array.as_binary()),
            DataType::Date32 => Values::Date(array.as_primitive()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let zone = zone.as_ref().map_or(Ok(Zone::Local), |name| Zone::named(name, zones))?;
                Values::Timestamp(array.as_primitive(), zone)
            }
            DataType::Struct(fields) => {
                let columns = array.as_struct_opt().ok_or_else(|| mismatch(array))?.columns();
                let written = fields.iter().zip(columns).map(|(field, column)| {
                    let mut name = Vec::new();
                    write_string(field.name().as_bytes(), &mut name);
                    name.push(b':');
                    let writes_nulls = field.metadata().get(WRITES_NULLS).is_some_and(|value| value == "true");
                    Ok(StructField { name, writes_nulls, column: nested(column, field)? })
                });
                Values::Struct(written.collect::<Result<_, ArrowError>>()?)
            }
            DataType::List(element) => {
                let list = array.as_list_opt::<i32>().ok_or_else(|| mismatch(array))?;
                Values::List(list.offsets(), Box::new(nested(list.values(), element)?))
            }
            DataType::Map(entries, _) => {
                let map = array.as_map_opt().ok_or_else(|| mismatch(array))?;
                let DataType::Struct(fields) = entries.data_type() else { return Err(mismatch(array)) };
                let [key, item] = fields.as_ref() else { return Err(mismatch(array)) };
                Values::Map(map.offsets(), Box::new(nested(map.keys(), key)?), Box::new(nested(map.values(), item)?))
            }
            other => return Err(ArrowError::SchemaError(format!("the type {other} is not written as JSON"))),
        };
        Ok(Column { nulls: array.nulls(), values })
    }

    #[inline(always)]
    fn is_null(&self, row: usize) -> bool {
        matches!(self.values, Values::Null) || self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }

    /// Writes a value that is not null.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            Values::Null => out.extend_from_slice(b"null"),
            Values::Boolean(values) => out.extend_from_slice(if values.value(row) { b"true" } else { b"false" }),
            Values::Int8(values) => write_integer(i64::from(values.value(row)), out),
            Values::Int16(values) => write_integer(i64::from(values.value(row)), out),
            Values::Int32(values) => write_integer(i64::from(values.value(row)), out),
            Values::Int64(values) => write_integer(values.value(row), out),
            Values::Float32(values) => write_float(values.value(row), out),
            Values::Float64(values) => write_double(values.value(row), out),
            Values::Decimal(values, scale) => write_decimal(values.value(row), *scale, out),
            Values::Text(values) => write_string(values.value(row), out),
            Values::Binary(values) => write_base64(values.value(row), out),
            Values::Date(values) => {
                out.push(b'"');
                write_date(i64::from(values.value(row)), out);
                out.push(b'"');
            }
            Values::Timestamp(values, zone) => write_timestamp(values.value(row), zone, out),
            Values::Struct(fields) => {
                out.push(b'{');
                let first = out.len();
                for StructField { name, writes_nulls, column } in fields {
                    let is_null = column.is_null(row);
                    if is_null && !writes_nulls {
                        continue;
                    }
                    if out.len() > first {
                        out.push(b',');
                    }
                    out.extend_from_slice(name);
                    if is_null {
                        out.extend_from_slice(b"null");
                    } else {
                        column.write(row, out);
                    }
                }
                out.push(b'}');
            }
            Values::List(offsets, element) => {
                out.push(b'[');
                write_separated(offsets[row]..offsets[row + 1], out, |at, out| element.write_or_null(at, out));
                out.push(b']');
            }
            Values::Map(offsets, keys, items) => {
                out.push(b'{');
                write_separated(offsets[row]..offsets[row + 1], out, |at, out| {
                    keys.write_key(at, out);
                    out.push(b':');
                    items.write_or_null(at, out);
                });
                out.push(b'}');
            }
        }
    }

    #[inline(always)]
    fn write_or_null(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
        } else {
            self.write(row, out);
        }
    }

    /// Writes the key of a map as a string.
    fn write_key(&self, row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        match &self.values {
            // Spark writes its internal numbers.
            Values::Date(values) => write_integer(i64::from(values.value(row)), out),
            Values::Timestamp(values, _) => write_integer(values.value(row), out),
            _ => self.write(row, out),
        }
        if out[start] != b'"' {
            out.insert(start, b'"');
            out.push(b'"');
        }
    }
}

fn mismatch(array: &dyn Array) -> ArrowError {
    ArrowError::SchemaError(format!("an array of {} has another type", array.data_type()))
}

#[inline(always)]
fn write_separated(rows: std::ops::Range<i32>, out: &mut Vec<u8>, mut write: impl FnMut(usize, &mut Vec<u8>)) {
    for row in rows.clone() {
        if row > rows.start {
            out.push(b',');
        }
        write(row as usize, out);
    }
}
