//! From a column of JSON values to a column of structs.

use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::arrays::struct_array;
use super::column::{Column, Object, map_fields};
use super::error::{Malformed, Parsed, Reason, unexpected};
use super::skip::{Input, State};
use super::time::TimeZone;
use super::variant::is_variant;
use crate::values::{
    DecodedSize, DecodedValues, MalformedRows, OutOfMemory, check_limit, extend, fits_column, null_buffer, push, width,
};

/// Decodes columns of JSON objects into structs of the same fields. Memory is reused from batch to batch.
///
/// A batch has at most `limit` bytes, or one value. A value is malformed if the elements of its arrays and maps have more:
/// an element of three bytes may have a row in any number of columns.
pub struct JsonDecoder {
    fields: Fields,
    object: Object,
    corrupt_record: Option<CorruptRecords>,
    state: State,
    limit: usize,
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
    pub fn new(
        fields: Fields,
        corrupt_record: &str,
        utc_offsets: &[(i64, i32)],
        limit: usize,
    ) -> Result<JsonDecoder, ArrowError> {
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
        let object = Object::new(&wanted.map(|(_, field)| field).collect::<Vec<_>>(), 0)?;
        let state = State::new(TimeZone::new(utc_offsets));
        Ok(JsonDecoder { fields, object, corrupt_record, state, limit: check_limit(limit)? })
    }

    /// Decodes the first values: as many as fit into the limit, at least one.
    pub fn decode(&mut self, values: &BinaryArray) -> Result<DecodedValues, ArrowError> {
        self.try_decode(values).inspect_err(|_| self.truncate(0))
    }

    fn try_decode(&mut self, values: &BinaryArray) -> Result<DecodedValues, ArrowError> {
        let mut rows = values.value_offsets().len() - 1;
        let bytes = &values.value_data()[..values.value_offsets()[rows] as usize];
        let mut null_structs = Vec::new();
        let mut malformed = MalformedRows::default();
        let mut size = DecodedSize::new(self.limit, width(&DataType::Struct(self.fields.clone())));
        for row in 0..rows {
            let (start, end) = (values.value_offsets()[row] as usize, values.value_offsets()[row + 1] as usize);
            // Strings have no more bytes than the value, but for U+FFFD, which replaces single bytes.
            if !size.begin_row(end - start) {
                rows = row;
                break;
            }
            if values.nulls().is_some_and(|nulls| nulls.is_null(row)) {
                push(&mut null_structs, row as u32)?;
                continue;
            }
            let mut found_bytes = 0;
            let misfit = match self.decode_value(Input { bytes, end }, start, row) {
                Ok(is_null) => {
                    if is_null {
                        push(&mut null_structs, row as u32)?;
                    }
                    found_bytes = self.limit - self.state.element_bytes;
                    self.state.misfit
                }
                Err(Malformed { reason: Reason::Memory, .. }) => return Err(OutOfMemory.into()),
                Err(error) => {
                    self.object.truncate(row);
                    Some(error)
                }
            };
            if misfit.is_some() && self.corrupt_record.is_some() {
                found_bytes += end - start;
            }
            if found_bytes > 0 && !size.add(found_bytes) {
                self.object.truncate(row);
                rows = row;
                break;
            }
            if let Some(Malformed { at, reason }) = misfit {
                malformed.push(row, at - start, reason as i8)?;
                if let Some(CorruptRecords { column, .. }) = &mut self.corrupt_record
                    && fits_column(&bytes[start..end])
                {
                    column.pad(row)?;
                    column.push_text(&bytes[start..end])?;
                }
            }
        }
        let structs = self.finish(rows, null_structs)?;
        Ok(DecodedValues { values: structs, malformed: malformed.finish(rows, &Reason::ALL.map(Reason::message))? })
    }

    /// Decodes one value into a row; returns true for a blank one, which is a null struct.
    ///
    /// It is not inlined, so that the loop over the rows takes no registers from that over an object's fields.
    #[inline(never)]
    fn decode_value(&mut self, input: Input<'_>, start: usize, row: usize) -> Parsed<bool> {
        self.state.misfit = None;
        self.state.depth = 1;
        self.state.element_bytes = self.limit;
        if !fits_column(&input.bytes[start..input.end]) {
            return Err(Malformed { at: start, reason: Reason::Size });
        }
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

    /// Removes the rows from `rows` on.
    fn truncate(&mut self, rows: usize) {
        self.object.truncate(rows);
        if let Some(CorruptRecords { column, .. }) = &mut self.corrupt_record {
            column.truncate(rows);
        }
    }

    fn finish(&mut self, rows: usize, mut null_structs: Vec<u32>) -> Result<ArrayRef, ArrowError> {
        let nulls = null_buffer(&mut null_structs, rows)?;
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
    fn push_text(&mut self, value: &[u8]) -> Result<(), OutOfMemory> {
        if let super::column::Values::Text { ends, data } = &mut self.values {
            extend(data, value)?;
            push(ends, data.len() as i32)?;
            self.rows += 1;
        }
        Ok(())
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
