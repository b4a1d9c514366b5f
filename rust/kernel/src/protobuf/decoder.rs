//! From a column of Protobuf messages to a column of structs.

use arrow_array::{Array, BinaryArray, Int32Array};
use arrow_schema::{ArrowError, DataType, Fields};

use super::parse::parse;
use super::program::{NO_COLUMN, Program};
use super::read::Reader;
use super::reason::{MESSAGES, Reason};
use crate::avro::columns::{Column, new_columns, truncate};
use crate::values::{DecodedSize, DecodedValues, MalformedRows, OutOfMemory, check_limit, fits_column, push, width};

/// Decodes columns of messages of one type into structs. Memory is reused from batch to batch.
///
/// A batch has at most `limit` bytes, or one message. A message is malformed if the elements of its lists and maps, and its
/// strings that are not in the message, have more.
pub struct ProtobufDecoder {
    pub(super) fields: Fields,
    pub(super) columns: Vec<Column>,
    pub(super) replaced: Vec<Vec<u32>>,
    moments: Vec<(i64, i64)>,
    members: Vec<u32>,
    program: Program,
    limit: usize,
    row_bytes: usize,
}

impl ProtobufDecoder {
    pub fn new(
        fields: Fields,
        numbers: &[i64],
        constants: &[Box<[u8]>],
        limit: usize,
    ) -> Result<ProtobufDecoder, ArrowError> {
        let columns = new_columns(&fields)?;
        let program = parse(numbers, constants, &columns)?;
        let (replaced, moments) = (vec![Vec::new(); columns.len()], vec![(0, 0); columns.len()]);
        let members = vec![NO_COLUMN; program.oneofs];
        let row_bytes = width(&DataType::Struct(fields.clone()));
        let limit = check_limit(limit)?;
        Ok(ProtobufDecoder { fields, columns, replaced, moments, members, program, limit, row_bytes })
    }

    /// Decodes the first messages: as many as fit into the limit, at least one. A row has a header of `starts` bytes, by default none.
    ///
    /// A null value is a null struct. The fields of a row are null if its start is null, or if it is malformed.
    pub fn decode(&mut self, values: &BinaryArray, starts: Option<&Int32Array>) -> Result<DecodedValues, ArrowError> {
        self.try_decode(values, starts).inspect_err(|_| {
            truncate(&mut self.columns, 0, 0);
            self.replaced.iter_mut().for_each(Vec::clear);
        })
    }

    fn try_decode(&mut self, values: &BinaryArray, starts: Option<&Int32Array>) -> Result<DecodedValues, ArrowError> {
        let offsets = values.value_offsets();
        let mut rows = offsets.len() - 1;
        if starts.is_some_and(|starts| starts.len() != rows) {
            return Err(ArrowError::InvalidArgumentError("the columns differ in their rows".to_owned()));
        }
        let bytes = values.value_data();
        let (mut null_structs, mut malformed) = (Vec::new(), MalformedRows::default());
        let mut size = DecodedSize::new(self.limit, self.row_bytes);
        for row in 0..rows {
            let (value, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            // Strings have no more bytes than the message, but for U+FFFD, which replaces single bytes.
            if !size.begin_row(end - value) {
                rows = row;
                break;
            }
            if values.is_null(row) {
                push(&mut null_structs, row as u32)?;
                continue;
            }
            if starts.is_some_and(|starts| starts.is_null(row)) {
                continue;
            }
            let header = starts.map_or(0, |starts| starts.value(row).max(0) as usize);
            let start = value.saturating_add(header).min(end);
            let mut reader = Reader {
                program: &self.program,
                columns: &mut self.columns,
                moments: &mut self.moments,
                replaced: &mut self.replaced,
                members: &mut self.members,
                unknown: NO_COLUMN,
                at: start,
                bytes: self.limit,
            };
            let read = if fits_column(&bytes[value..end]) {
                read_row(&mut reader, &bytes[..end], start, row)
            } else {
                Err((start, Reason::Size))
            };
            let found_bytes = self.limit - reader.bytes;
            match read {
                Ok(()) => {
                    if found_bytes > 0 && !size.add(found_bytes) {
                        truncate(&mut self.columns, 0, row);
                        rows = row;
                        break;
                    }
                }
                Err((_, Reason::Memory)) => return Err(OutOfMemory.into()),
                Err((at, reason)) => {
                    truncate(&mut self.columns, 0, row);
                    malformed.push(row, at - value, reason as i8)?;
                }
            }
        }
        Ok(DecodedValues { values: self.finish(rows, null_structs)?, malformed: malformed.finish(rows, &MESSAGES)? })
    }
}

/// Reads the message of a row; an error has the start of the field.
fn read_row(reader: &mut Reader<'_>, data: &[u8], start: usize, row: usize) -> Result<(), (usize, Reason)> {
    let read = reader.message(0, data, start, row, 0);
    let closed = read.and_then(|_| reader.close(&reader.program.tables[0], row));
    closed.map_err(|reason| (reader.at, reason))
}
