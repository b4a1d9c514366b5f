//! From a column of Protobuf messages to a column of structs.

use arrow_array::{Array, BinaryArray, Int32Array};
use arrow_schema::{ArrowError, Fields};

use super::parse::parse;
use super::program::Program;
use super::read::{MAX_BATCH_BYTES, MAX_VALUE_BYTES, Reader};
use super::reason::{MESSAGES, Reason};
use crate::avro::columns::{Column, new_columns, truncate};
use crate::values::{DecodedValues, MalformedRows};

/// Decodes columns of messages of one type into structs. Memory is reused from batch to batch.
pub struct ProtobufDecoder {
    pub(super) fields: Fields,
    pub(super) columns: Vec<Column>,
    pub(super) replaced: Vec<Vec<u32>>,
    moments: Vec<(i64, i64)>,
    program: Program,
}

impl ProtobufDecoder {
    pub fn new(fields: Fields, numbers: &[i64], constants: &[Box<[u8]>]) -> Result<ProtobufDecoder, ArrowError> {
        let columns = new_columns(&fields)?;
        let program = parse(numbers, constants, &columns)?;
        let (replaced, moments) = (vec![Vec::new(); columns.len()], vec![(0, 0); columns.len()]);
        Ok(ProtobufDecoder { fields, columns, replaced, moments, program })
    }

    /// Decodes messages. A row has a header of `starts` bytes, by default none.
    ///
    /// A null value is a null struct. The fields of a row are null if its start is null, or if it is malformed.
    pub fn decode(&mut self, values: &BinaryArray, starts: Option<&Int32Array>) -> Result<DecodedValues, ArrowError> {
        let offsets = values.value_offsets();
        let rows = offsets.len() - 1;
        if starts.is_some_and(|starts| starts.len() != rows) {
            return Err(ArrowError::InvalidArgumentError("the columns differ in their rows".to_owned()));
        }
        let bytes = values.value_data();
        let (mut null_structs, mut malformed) = (Vec::new(), MalformedRows::default());
        let mut batch_bytes = MAX_BATCH_BYTES;
        for row in 0..rows {
            if values.is_null(row) {
                null_structs.push(row as u32);
                continue;
            }
            if starts.is_some_and(|starts| starts.is_null(row)) {
                continue;
            }
            let (value, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            let header = starts.map_or(0, |starts| starts.value(row).max(0) as usize);
            let start = value.saturating_add(header).min(end);
            let mut reader = Reader {
                program: &self.program,
                columns: &mut self.columns,
                moments: &mut self.moments,
                replaced: &mut self.replaced,
                at: start,
                value_bytes: MAX_VALUE_BYTES,
                batch_bytes,
            };
            if let Err((at, reason)) = read_row(&mut reader, &bytes[..end], start, row) {
                truncate(&mut self.columns, 0, row);
                malformed.push(row, at - value, reason as i8);
            } else {
                batch_bytes = reader.batch_bytes;
            }
        }
        Ok(DecodedValues { values: self.finish(rows, null_structs)?, malformed: malformed.finish(rows, &MESSAGES)? })
    }
}

/// Reads the message of a row; an error has the start of the field.
fn read_row(reader: &mut Reader<'_>, data: &[u8], start: usize, row: usize) -> Result<(), (usize, Reason)> {
    let read = reader.message(0, data, start, row, 0);
    let closed = read.and_then(|()| reader.close(&reader.program.tables[0], row));
    closed.map_err(|reason| (reader.at, reason))
}
