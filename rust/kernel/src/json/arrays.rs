//! From finished columns to Arrow arrays.

use std::mem;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, ListArray, MapArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::column::{Column, Entries, Values};
use super::decimal::DecimalType;
use crate::values::{boolean_buffer, null_buffer, string_array};

impl Column {
    /// Returns all rows as an array, and empties the column.
    pub fn finish(&mut self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let rows = mem::take(&mut self.rows);
        let nulls = null_buffer(&mut self.nulls, rows)?;
        let spare = &mut self.spare;
        Ok(match &mut self.values {
            Values::Boolean(values) => {
                let bits = boolean_buffer(values)?;
                values.clear();
                Arc::new(BooleanArray::new(bits, nulls))
            }
            Values::Int8(values) => Arc::new(Int8Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Int16(values) => Arc::new(Int16Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Int32(values) => Arc::new(Int32Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Int64(values) => Arc::new(Int64Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Float32(values) => Arc::new(Float32Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Float64(values) => Arc::new(Float64Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Date(values) => Arc::new(Date32Array::try_new(spare.finish(values).into(), nulls)?),
            Values::Timestamp(values) | Values::LocalTimestamp(values) => {
                let array = TimestampMicrosecondArray::try_new(spare.finish(values).into(), nulls)?;
                Arc::new(array.with_data_type(data_type.clone()))
            }
            Values::Decimal(values, DecimalType { precision, scale }) => {
                let array = Decimal128Array::try_new(spare.finish(values).into(), nulls)?;
                Arc::new(array.with_precision_and_scale(*precision, *scale)?)
            }
            Values::Binary { ends, data } => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(spare.finish(ends)));
                ends.push(0);
                Arc::new(BinaryArray::try_new(offsets, spare.finish(data), nulls)?)
            }
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
            Values::Map { ends, entries } => {
                let DataType::Map(field, ordered) = data_type else {
                    return Err(ArrowError::SchemaError(format!("a map is no {data_type}")));
                };
                let offsets = OffsetBuffer::new(ScalarBuffer::from(spare.finish(ends)));
                ends.push(0);
                let entries = entries.finish(field)?;
                Arc::new(MapArray::try_new(field.clone(), offsets, entries, nulls, *ordered)?)
            }
        })
    }
}

impl Entries {
    fn finish(&mut self, field: &Field) -> Result<StructArray, ArrowError> {
        let DataType::Struct(fields) = field.data_type() else {
            return Err(ArrowError::SchemaError(format!("the entries of a map are no {}", field.data_type())));
        };
        let rows = self.keys.rows;
        let keys = self.keys.finish(fields[0].data_type())?;
        let values = self.values.finish(fields[1].data_type())?;
        StructArray::try_new_with_length(fields.clone(), vec![keys, values], None, rows)
    }
}

pub(super) fn struct_array(
    fields: &Fields,
    columns: &mut [Column],
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let arrays = fields.iter().zip(columns).map(|(field, column)| {
        column.pad(rows)?;
        column.finish(field.data_type())
    });
    let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows)?))
}
