//! From a column of Avro datums to a column of structs.

use arrow_array::{Array, BinaryArray, Int32Array};
use arrow_schema::{ArrowError, Fields};

use super::columns::{Column, new_columns, truncate};
use super::parse::parse;
use super::program::Program;
use super::read::{Datum, MAX_BATCH_BYTES, MAX_EMPTY_ITEMS, MAX_VALUE_BYTES, State, run};
use super::reason::{MESSAGES, Reason};
use crate::values::{DecodedValues, MalformedRows};

/// Decodes columns of datums into structs of the same fields. Memory is reused from batch to batch.
pub struct AvroDecoder {
    pub(super) fields: Fields,
    pub(super) columns: Vec<Column>,
    programs: Vec<Program>,
}

impl AvroDecoder {
    pub fn new(fields: Fields) -> Result<AvroDecoder, ArrowError> {
        let columns = new_columns(&fields)?;
        Ok(AvroDecoder { fields, columns, programs: Vec::new() })
    }

    /// Adds the program of a writer schema, and returns its number.
    pub fn add_program(&mut self, numbers: &[i64], constants: &[Box<[u8]>]) -> Result<usize, ArrowError> {
        self.programs.push(parse(numbers, constants, &self.columns)?);
        Ok(self.programs.len() - 1)
    }

    /// Decodes datums. A row has a header of `starts` bytes, by default none, and the program `programs`, by default 0.
    ///
    /// A null value is a null struct. The fields of a row are null if its program is null, or if it is malformed.
    pub fn decode(
        &mut self,
        values: &BinaryArray,
        starts: Option<&Int32Array>,
        programs: Option<&Int32Array>,
    ) -> Result<DecodedValues, ArrowError> {
        let offsets = values.value_offsets();
        let rows = offsets.len() - 1;
        if starts.is_some_and(|starts| starts.len() != rows) || programs.is_some_and(|numbers| numbers.len() != rows) {
            return Err(ArrowError::InvalidArgumentError("the columns differ in their rows".to_owned()));
        }
        let bytes = &values.value_data()[..offsets[rows] as usize];
        let (mut null_structs, mut malformed) = (Vec::new(), MalformedRows::default());
        let mut state = State { at: 0, value_bytes: 0, batch_bytes: MAX_BATCH_BYTES, empty_items: 0 };
        for row in 0..rows {
            if values.is_null(row) {
                null_structs.push(row as u32);
                continue;
            }
            if programs.is_some_and(|numbers| numbers.is_null(row)) {
                continue;
            }
            let number = programs.map_or(0, |numbers| numbers.value(row));
            let Some(program) = usize::try_from(number).ok().and_then(|number| self.programs.get(number)) else {
                return Err(ArrowError::InvalidArgumentError(format!("there is no program {number}")));
            };
            let (value, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            let header = starts.map_or(0, |starts| starts.value(row).max(0) as usize);
            let start = value.saturating_add(header).min(end);
            let columns = &mut self.columns;
            let batch_bytes = state.batch_bytes;
            state.value_bytes = MAX_VALUE_BYTES;
            state.empty_items = MAX_EMPTY_ITEMS;
            if run::<false>(program, columns, Datum { bytes, end }, start, row, &mut state) == Ok(end) {
                continue;
            }
            truncate(columns, 0, row);
            state = State { at: start, value_bytes: MAX_VALUE_BYTES, batch_bytes, empty_items: MAX_EMPTY_ITEMS };
            let datum = Datum { bytes: &bytes[..end], end };
            let (at, reason) = match run::<true>(program, columns, datum, start, row, &mut state) {
                Ok(at) if at == end => continue,
                Ok(at) => (at, Reason::Trailing),
                Err(reason) => (state.at, reason),
            };
            truncate(columns, 0, row);
            state.batch_bytes = batch_bytes;
            malformed.push(row, at - value, reason as i8);
        }
        Ok(DecodedValues { values: self.finish(rows, null_structs)?, malformed: malformed.finish(rows, &MESSAGES)? })
    }
}
