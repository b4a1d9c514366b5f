//! From a column of Avro datums to a column of structs.

use arrow_array::{Array, BinaryArray, Int32Array};
use arrow_schema::{ArrowError, DataType, Fields};

use super::columns::{Column, new_columns, truncate};
use super::parse::parse;
use super::program::Decoding;
use super::read::{Datum, State, run};
use super::reason::{MESSAGES, Reason};
use crate::values::{DecodedSize, DecodedValues, MalformedRows, OutOfMemory, check_limit, fits_column, push, width};

/// Decodes columns of datums into structs of the same fields. Memory is reused from batch to batch.
///
/// A batch has at most `limit` bytes, or one datum. A datum is malformed if the elements of its arrays and maps, and its
/// strings that are in the schema, have more.
pub struct AvroDecoder {
    pub(super) fields: Fields,
    pub(super) columns: Vec<Column>,
    programs: Vec<Decoding>,
    limit: usize,
    row_bytes: usize,
}

impl AvroDecoder {
    pub fn new(fields: Fields, limit: usize) -> Result<AvroDecoder, ArrowError> {
        let columns = new_columns(&fields)?;
        let row_bytes = width(&DataType::Struct(fields.clone()));
        Ok(AvroDecoder { fields, columns, programs: Vec::new(), limit: check_limit(limit)?, row_bytes })
    }

    /// Adds the program of a writer schema, and returns its number.
    pub fn add_program(&mut self, numbers: &[i64], constants: &[Box<[u8]>]) -> Result<usize, ArrowError> {
        self.programs.push(parse(numbers, constants, &self.columns)?);
        Ok(self.programs.len() - 1)
    }

    /// Decodes the first datums: as many as fit into the limit, at least one. A row has a header of `starts` bytes, by default none, and the program `programs`, by default 0.
    ///
    /// A null value is a null struct. The fields of a row are null if its program is null, or if it is malformed.
    pub fn decode(
        &mut self,
        values: &BinaryArray,
        starts: Option<&Int32Array>,
        programs: Option<&Int32Array>,
    ) -> Result<DecodedValues, ArrowError> {
        self.try_decode(values, starts, programs).inspect_err(|_| truncate(&mut self.columns, 0, 0))
    }

    fn try_decode(
        &mut self,
        values: &BinaryArray,
        starts: Option<&Int32Array>,
        programs: Option<&Int32Array>,
    ) -> Result<DecodedValues, ArrowError> {
        let offsets = values.value_offsets();
        let mut rows = offsets.len() - 1;
        if starts.is_some_and(|starts| starts.len() != rows) || programs.is_some_and(|numbers| numbers.len() != rows) {
            return Err(ArrowError::InvalidArgumentError("the columns differ in their rows".to_owned()));
        }
        let bytes = &values.value_data()[..offsets[rows] as usize];
        let (mut null_structs, mut malformed) = (Vec::new(), MalformedRows::default());
        let mut size = DecodedSize::new(self.limit, self.row_bytes);
        let mut is_exact = false; // after a malformed datum, others may follow
        for row in 0..rows {
            let (value, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            // Strings have no more bytes than the datum, but for U+FFFD, which replaces single bytes.
            if !size.begin_row(end - value) {
                rows = row;
                break;
            }
            if values.is_null(row) {
                push(&mut null_structs, row as u32)?;
                continue;
            }
            if programs.is_some_and(|numbers| numbers.is_null(row)) {
                continue;
            }
            let number = programs.map_or(0, |numbers| numbers.value(row));
            let Some(decoding) = usize::try_from(number).ok().and_then(|number| self.programs.get(number)) else {
                return Err(ArrowError::InvalidArgumentError(format!("there is no program {number}")));
            };
            let header = starts.map_or(0, |starts| starts.value(row).max(0) as usize);
            let start = value.saturating_add(header).min(end);
            let (columns, program) = (&mut self.columns, &decoding.program);
            let mut state = State::new(start, self.limit, &decoding.routines);
            let mut decoded = false;
            if !is_exact && fits_column(&bytes[value..end]) {
                decoded = run::<false>(program, columns, Datum { bytes, end }, start, row, &mut state) == Ok(end);
                if !decoded {
                    truncate(columns, 0, row);
                    state = State::new(start, self.limit, &decoding.routines);
                }
            }
            if !decoded {
                let datum = Datum { bytes: &bytes[..end], end };
                let failure = if !fits_column(&bytes[value..end]) {
                    Some((start, Reason::Size))
                } else {
                    match run::<true>(program, columns, datum, start, row, &mut state) {
                        Ok(at) if at == end => None,
                        Ok(at) => Some((at, Reason::Trailing)),
                        Err(Reason::Memory) => return Err(OutOfMemory.into()),
                        Err(reason) => Some((state.at, reason)),
                    }
                };
                is_exact = failure.is_some();
                if let Some((at, reason)) = failure {
                    truncate(columns, 0, row);
                    malformed.push(row, at - value, reason as i8)?;
                    continue;
                }
            }
            let found_bytes = self.limit - state.bytes;
            if found_bytes > 0 && !size.add(found_bytes) {
                truncate(columns, 0, row);
                rows = row;
                break;
            }
            if state.is_null {
                push(&mut null_structs, row as u32)?;
            }
        }
        Ok(DecodedValues { values: self.finish(rows, null_structs)?, malformed: malformed.finish(rows, &MESSAGES)? })
    }
}
