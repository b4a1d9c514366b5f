//! From finished columns to Arrow arrays, without the entries of maps that later ones replace.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, StructArray, make_array};
use arrow_buffer::OffsetBuffer;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType};

use super::decoder::ProtobufDecoder;
use crate::avro::arrays::finish_fields;
use crate::values::null_buffer;

impl ProtobufDecoder {
    /// Returns all rows as structs, and empties the columns.
    pub(super) fn finish(&mut self, rows: usize, mut null_structs: Vec<u32>) -> Result<ArrayRef, ArrowError> {
        let mut arrays = finish_fields(&mut self.columns, &self.fields, rows)?;
        if self.replaced.iter().any(|entries| !entries.is_empty()) {
            let mut number = 0;
            for array in &mut arrays {
                *array = without(array, &self.replaced, &mut number)?;
            }
            self.replaced.iter_mut().for_each(Vec::clear);
        }
        let nulls = null_buffer(&mut null_structs, rows)?;
        Ok(Arc::new(StructArray::try_new_with_length(self.fields.clone(), arrays, nulls, rows)?))
    }
}

/// Removes entries from the maps of an array; `number` is that of its column, and becomes that of the next one.
fn without(array: &ArrayRef, replaced: &[Vec<u32>], number: &mut usize) -> Result<ArrayRef, ArrowError> {
    let own = *number;
    Ok(match array.data_type() {
        DataType::Struct(fields) => {
            *number += 1;
            let inner = array.as_struct().columns().iter().map(|column| without(column, replaced, number));
            let inner = inner.collect::<Result<Vec<_>, _>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), inner, array.nulls().cloned(), array.len())?)
        }
        DataType::List(element) => {
            *number += 1;
            let list = array.as_list::<i32>();
            let elements = without(list.values(), replaced, number)?;
            Arc::new(ListArray::try_new(element.clone(), list.offsets().clone(), elements, array.nulls().cloned())?)
        }
        DataType::Map(entries_field, sorted) => {
            *number += 1;
            let map = array.as_map();
            let columns = map.entries().columns().iter().map(|column| without(column, replaced, number));
            let mut columns = columns.collect::<Result<Vec<_>, _>>()?;
            let length = map.entries().len();
            let entries: Vec<usize> =
                replaced[own].iter().map(|&entry| entry as usize).filter(|&entry| entry < length).collect();
            for column in &mut columns {
                *column = without_rows(column, &entries)?;
            }
            let removed = |end: i32| entries.partition_point(|&entry| entry < end as usize) as i32;
            let offsets: Vec<i32> = map.offsets().iter().map(|&end| end - removed(end)).collect();
            let DataType::Struct(fields) = entries_field.data_type() else {
                return Err(ArrowError::SchemaError("the entries of a map are structs".to_owned()));
            };
            let structs = StructArray::try_new_with_length(fields.clone(), columns, None, length - entries.len())?;
            let offsets = OffsetBuffer::new(offsets.into());
            Arc::new(MapArray::try_new(entries_field.clone(), offsets, structs, array.nulls().cloned(), *sorted)?)
        }
        _ => {
            *number += 1;
            array.clone()
        }
    })
}

fn without_rows(array: &ArrayRef, rows: &[usize]) -> Result<ArrayRef, ArrowError> {
    let data = array.to_data();
    let mut retained = MutableArrayData::new(vec![&data], false, array.len());
    let mut start = 0;
    for &row in rows {
        retained.try_extend(0, start, row)?;
        start = row + 1;
    }
    retained.try_extend(0, start, array.len())?;
    Ok(make_array(retained.freeze()))
}
