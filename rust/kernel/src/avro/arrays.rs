//! From finished columns to Arrow arrays.

use std::mem;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DurationMicrosecondArray, Float32Array,
    Float64Array, Int32Array, Int64Array, ListArray, MapArray, NullArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Fields};

use super::columns::{Column, Values};
use super::decoder::AvroDecoder;
use crate::values::{boolean_buffer, null_buffer, string_array};

impl AvroDecoder {
    /// Returns all rows as structs, and empties the columns.
    pub(super) fn finish(&mut self, rows: usize, mut null_structs: Vec<u32>) -> Result<ArrayRef, ArrowError> {
        let arrays = finish_fields(&mut self.columns, &self.fields, rows)?;
        let nulls = null_buffer(&mut null_structs, rows)?;
        Ok(Arc::new(StructArray::try_new_with_length(self.fields.clone(), arrays, nulls, rows)?))
    }
}

pub(crate) fn finish_fields(
    mut columns: &mut [Column],
    fields: &Fields,
    rows: usize,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let mut arrays = Vec::with_capacity(fields.len());
    for field in fields {
        let count = count_of(field.data_type());
        let (own, rest) = columns.split_at_mut(count);
        arrays.push(finish(own, field.data_type(), rows)?);
        columns = rest;
    }
    Ok(arrays)
}

/// The number of columns of a type.
fn count_of(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => 1 + fields.iter().map(|field| count_of(field.data_type())).sum::<usize>(),
        DataType::List(element) => 1 + count_of(element.data_type()),
        DataType::Map(entries, _) => count_of(entries.data_type()), // the struct of an entry has no column
        _ => 1,
    }
}

fn finish(columns: &mut [Column], data_type: &DataType, rows: usize) -> Result<ArrayRef, ArrowError> {
    let Some((column, inner)) = columns.split_first_mut() else {
        return Err(ArrowError::SchemaError("a type has no column".to_owned()));
    };
    column.resize(rows)?;
    let nulls = null_buffer(&mut column.nulls, rows)?;
    let spare = &mut column.spare;
    Ok(match &mut column.values {
        Values::Null(count) => {
            *count = 0;
            Arc::new(NullArray::new(rows))
        }
        Values::Boolean(values) => {
            let bits = boolean_buffer(values)?;
            values.clear();
            Arc::new(BooleanArray::new(bits, nulls))
        }
        Values::Int32(values) if *data_type == DataType::Date32 => {
            Arc::new(Date32Array::try_new(spare.finish(values).into(), nulls)?)
        }
        Values::Int32(values) => Arc::new(Int32Array::try_new(spare.finish(values).into(), nulls)?),
        Values::Int64(values) => match data_type {
            DataType::Timestamp(_, zone) => Arc::new(
                TimestampMicrosecondArray::try_new(spare.finish(values).into(), nulls)?.with_timezone_opt(zone.clone()),
            ),
            DataType::Duration(_) => Arc::new(DurationMicrosecondArray::try_new(spare.finish(values).into(), nulls)?),
            _ => Arc::new(Int64Array::try_new(spare.finish(values).into(), nulls)?),
        },
        Values::Float32(values) => Arc::new(Float32Array::try_new(spare.finish(values).into(), nulls)?),
        Values::Float64(values) => Arc::new(Float64Array::try_new(spare.finish(values).into(), nulls)?),
        Values::Decimal { values, .. } => {
            Arc::new(Decimal128Array::try_new(spare.finish(values).into(), nulls)?.with_data_type(data_type.clone()))
        }
        Values::Bytes { ends, data, spare: data_spare } => {
            let offsets = OffsetBuffer::new(ScalarBuffer::from(spare.finish(ends)));
            ends.push(0);
            let data = data_spare.finish(data);
            match data_type {
                DataType::Utf8 => Arc::new(string_array(offsets, data, nulls)?) as ArrayRef,
                _ => Arc::new(BinaryArray::try_new(offsets, data, nulls)?),
            }
        }
        Values::Struct(count) => {
            *count = 0;
            let DataType::Struct(fields) = data_type else { return Err(no_such(data_type)) };
            let arrays = finish_fields(inner, fields, rows)?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows)?)
        }
        Values::Items { ends, length } => {
            let length = mem::take(length);
            let offsets = OffsetBuffer::new(ScalarBuffer::from(spare.finish(ends)));
            ends.push(0);
            match data_type {
                DataType::List(element) => {
                    let elements = finish(inner, element.data_type(), length)?;
                    Arc::new(ListArray::try_new(element.clone(), offsets, elements, nulls)?)
                }
                DataType::Map(entries, sorted) => {
                    let DataType::Struct(fields) = entries.data_type() else { return Err(no_such(data_type)) };
                    let arrays = finish_fields(inner, fields, length)?;
                    let structs = StructArray::try_new_with_length(fields.clone(), arrays, None, length)?;
                    Arc::new(MapArray::try_new(entries.clone(), offsets, structs, nulls, *sorted)?)
                }
                _ => return Err(no_such(data_type)),
            }
        }
    })
}

fn no_such(data_type: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("a column has no type {data_type}"))
}
