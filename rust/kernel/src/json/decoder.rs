//! From a column of JSON values to a column of structs.

use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::arrays::struct_array;
use super::column::{Column, map_fields};
use super::error::{Malformed, Parsed, Reason, unexpected};
use super::object::Object;
use super::skip::{Input, State};
use super::time::TimeZone;
use super::variant::is_variant;
use crate::values::{DecodedValues, MalformedRows, null_buffer};

/// Of the elements of a value's arrays: an element of three bytes may have a row in any number of columns.
const MAX_DECODED_BYTES: usize = 128 << 20;

/// Decodes columns of JSON objects into structs of the same fields. Memory is reused from batch to batch.
pub struct JsonDecoder {
    fields: Fields,
    object: Object,
    corrupt_record: Option<CorruptRecords>,
    state: State,
}

/// The column of the structs that has malformed values as they are.
struct CorruptRecords {
    index: usize,
    column: Column,
}

impl JsonDecoder {
    /// Creates a decoder. The field named `corrupt_record`, if there is one, is a string, and is not read from the JSON.
    ///
    /// `utc_offsets` are those of timestamps without an offset: UTC seconds, and the offset in seconds from then on.
    /// The last entry is the end of the table, and the 400 years before it repeat.
    pub fn new(fields: Fields, corrupt_record: &str, utc_offsets: &[(i64, i32)]) -> Result<JsonDecoder, ArrowError> {
        if let Some(field) = nullable_violation(&fields) {
            return Err(ArrowError::SchemaError(format!("field {:?} must be nullable", field.name())));
        }
        let corrupt_record = match fields.find(corrupt_record) {
            Some((index, field)) if *field.data_type() == DataType::Utf8 => {
                Some(CorruptRecords { index, column: Column::new(field.data_type(), 0)? })
            }
            Some((_, field)) => {
                let message = format!("field {:?} has the text of malformed values, so it is a string", field.name());
                return Err(ArrowError::SchemaError(message));
            }
            None => None,
        };
        let corrupt_index = corrupt_record.as_ref().map(|corrupt| corrupt.index);
        let wanted = fields.iter().enumerate().filter(|(index, _)| Some(*index) != corrupt_index);
        let object = Object::new(wanted.map(|(_, field)| field), 0)?;
        let state = State::new(TimeZone::new(utc_offsets));
        Ok(JsonDecoder { fields, object, corrupt_record, state })
    }

    pub fn decode(&mut self, values: &BinaryArray) -> Result<DecodedValues, ArrowError> {
        let rows = values.value_offsets().len() - 1;
        let bytes = &values.value_data()[..values.value_offsets()[rows] as usize];
        let mut null_structs = Vec::new();
        let mut malformed = MalformedRows::default();
        for row in 0..rows {
            let (start, end) = (values.value_offsets()[row] as usize, values.value_offsets()[row + 1] as usize);
            let input = Input { bytes, end };
            let misfit = if values.nulls().is_some_and(|nulls| nulls.is_null(row)) {
                null_structs.push(row as u32);
                None
            } else {
                match self.decode_value(input, start, row) {
                    Ok(is_null) => {
                        if is_null {
                            null_structs.push(row as u32);
                        }
                        self.state.misfit
                    }
                    Err(error) => {
                        self.object.truncate(row);
                        Some(error)
                    }
                }
            };
            if let Some(Malformed { at, reason }) = misfit {
                malformed.push(row, at - start, reason as i8);
                if let Some(CorruptRecords { column, .. }) = &mut self.corrupt_record {
                    column.pad(row);
                    column.push_text(&bytes[start..end]);
                }
            }
        }
        let structs = self.finish(rows, null_structs)?;
        Ok(DecodedValues { values: structs, malformed: malformed.finish(rows, &Reason::ALL.map(Reason::message))? })
    }

    /// Decodes one value into a row; returns true for a blank one, which is a null struct.
    #[inline(always)]
    fn decode_value(&mut self, input: Input<'_>, start: usize, row: usize) -> Parsed<bool> {
        self.state.misfit = None;
        self.state.depth = 1;
        self.state.element_bytes = MAX_DECODED_BYTES;
        let mut at = start;
        if input.byte(at) != b'{' {
            at = input.blanks(at);
            if at == input.end {
                return Ok(true);
            }
            if input.byte(at) != b'{' {
                return unexpected(input.end, at, Reason::NotObject);
            }
        }
        at = self.object.decode(input, &mut self.state, at, row)?;
        if at < input.end {
            at = input.blanks(at);
            if at < input.end {
                return unexpected(input.end, at, Reason::Trailing);
            }
        }
        Ok(false)
    }

    fn finish(&mut self, rows: usize, mut null_structs: Vec<u32>) -> Result<ArrayRef, ArrowError> {
        let nulls = null_buffer(&mut null_structs, rows);
        match &mut self.corrupt_record {
            None => struct_array(&self.fields, &mut self.object.columns, rows, nulls),
            Some(CorruptRecords { index, column }) => {
                // The columns of the struct are those of the object and this one, in the order of the fields.
                let columns = &mut self.object.columns;
                columns.insert(*index, std::mem::replace(column, Column::new(&DataType::Utf8, 0)?));
                let structs = struct_array(&self.fields, columns, rows, nulls);
                *column = columns.remove(*index);
                structs
            }
        }
    }
}

impl Column {
    /// Appends a string to a column of strings.
    fn push_text(&mut self, value: &[u8]) {
        if let super::column::Values::Text { ends, data } = &mut self.values {
            data.extend_from_slice(value);
            ends.push(data.len() as i32);
            self.rows += 1;
        }
    }
}

/// A field at any level that may not be null. Any field of a JSON object may be missing.
fn nullable_violation(fields: &Fields) -> Option<&Field> {
    fields.iter().find_map(|field| null_violation(field))
}

fn null_violation(field: &Field) -> Option<&Field> {
    if !field.is_nullable() {
        return Some(field);
    }
    match field.data_type() {
        DataType::Struct(fields) if !is_variant(fields) => nullable_violation(fields),
        DataType::List(element) => null_violation(element),
        DataType::Map(entries, _) => map_fields(entries).and_then(|(_, value)| null_violation(value)),
        _ => None,
    }
}
