//! From finished columns to Arrow arrays.

use std::mem;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray,
    StructArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Fields};

use super::column::{Column, Values};
use crate::values::{null_buffer, string_array};

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
