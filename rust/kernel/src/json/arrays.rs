//! From finished columns to Arrow arrays.

use std::mem;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray,
    StringArray, StructArray,
};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Fields};

use super::column::{Column, Values};

impl Column {
    /// Returns all rows as an array, and empties the column.
    pub fn finish(&mut self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let rows = mem::take(&mut self.rows);
        let nulls = null_buffer(&mut self.nulls, rows);
        let spare = &mut self.spare;
        Ok(match &mut self.values {
            Values::Boolean(values) => {
                let bits = BooleanBuffer::collect_bool(values.len(), |row| values[row]);
                values.clear();
                Arc::new(BooleanArray::new(bits, nulls))
            }
            Values::Int8(values) => Arc::new(Int8Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Int16(values) => Arc::new(Int16Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Int32(values) => Arc::new(Int32Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Int64(values) => Arc::new(Int64Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Float32(values) => Arc::new(Float32Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Float64(values) => Arc::new(Float64Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Text { ends, data } => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(spare.finish(ends)));
                ends.push(0);
                Arc::new(string_array(offsets, spare.finish(data), nulls)?)
            }
            Values::Struct { fields, object } => struct_array(fields, &mut object.columns, rows, nulls)?,
            Values::Variant { fields, variants } => variants.finish(fields, rows, nulls)?,
            Values::List { ends, element } => {
                let DataType::List(field) = data_type else {
                    return Err(ArrowError::SchemaError(format!("an array is no {data_type}")));
                };
                let offsets = OffsetBuffer::new(ScalarBuffer::from(spare.finish(ends)));
                ends.push(0);
                Arc::new(ListArray::try_new(field.clone(), offsets, element.finish(field.data_type())?, nulls)?)
            }
        })
    }
}

pub(super) fn struct_array(
    fields: &Fields,
    columns: &mut [Column],
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let arrays = fields.iter().zip(columns).map(|(field, column)| {
        column.pad(rows);
        column.finish(field.data_type())
    });
    let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows)?))
}

/// Returns an array of strings, in which U+FFFD replaces what is not UTF-8, as in Java. Arrow checks all bytes anyway.
fn string_array(
    offsets: OffsetBuffer<i32>,
    data: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<StringArray, ArrowError> {
    if let Ok(array) = StringArray::try_new(offsets.clone(), data.clone(), nulls.clone()) {
        return Ok(array);
    }
    let (mut ends, mut replaced) = (vec![0], Vec::new());
    for row in offsets.windows(2) {
        replaced.extend_from_slice(String::from_utf8_lossy(&data[row[0] as usize..row[1] as usize]).as_bytes());
        let end = i32::try_from(replaced.len());
        ends.push(end.map_err(|_| ArrowError::InvalidArgumentError("2 GiB of strings are too many".to_owned()))?);
    }
    StringArray::try_new(OffsetBuffer::new(ends.into()), replaced.into(), nulls)
}

/// Empties a list of null rows.
pub(super) fn null_buffer(null_rows: &mut Vec<u32>, rows: usize) -> Option<NullBuffer> {
    if null_rows.is_empty() {
        return None;
    }
    if null_rows.len() == rows {
        null_rows.clear();
        return Some(NullBuffer::new_null(rows));
    }
    let mut valid = BooleanBufferBuilder::new(rows);
    valid.append_n(rows, true);
    null_rows.drain(..).for_each(|row| valid.set_bit(row as usize, false));
    Some(NullBuffer::new(valid.finish()))
}
