//! From a column of JSON values to a column of VARIANTs.

use std::collections::HashMap;

use arrow_array::{Array, BinaryArray};
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::error::{Malformed, Parsed, Reason, unexpected};
use super::skip::{Input, State};
use super::variant::{Grammar, Variants};
use crate::values::{DecodedSize, DecodedValues, MalformedRows, OutOfMemory, check_limit, null_buffer, push, width};

/// Encodes columns of JSON values as Spark's VARIANT, with the bytes of `parse_json`; malformed values are null.
///
/// A batch has at most `limit` bytes, or one value.
pub struct VariantDecoder {
    fields: Fields,
    variants: Variants,
    state: State,
    limit: usize,
}

impl VariantDecoder {
    pub fn new(limit: usize) -> Result<VariantDecoder, ArrowError> {
        let marked = HashMap::from([("variant".to_owned(), "true".to_owned())]); // so Spark recognizes the type
        let fields = Fields::from(vec![
            Field::new("value", DataType::Binary, false),
            Field::new("metadata", DataType::Binary, false).with_metadata(marked),
        ]);
        let (variants, state) = (Variants::new(Grammar::Json), State::default());
        Ok(VariantDecoder { fields, variants, state, limit: check_limit(limit)? })
    }

    /// Decodes the first values: as many as fit into the limit, at least one.
    pub fn decode(&mut self, values: &BinaryArray) -> Result<DecodedValues, ArrowError> {
        self.try_decode(values).inspect_err(|_| self.variants.truncate(0))
    }

    fn try_decode(&mut self, values: &BinaryArray) -> Result<DecodedValues, ArrowError> {
        let offsets = values.value_offsets();
        let mut rows = offsets.len() - 1;
        let bytes = &values.value_data()[..offsets[rows] as usize];
        self.variants.is_ascii = bytes[offsets[0] as usize..].is_ascii();
        let (mut null_rows, mut malformed) = (Vec::new(), MalformedRows::default());
        let mut size = DecodedSize::new(self.limit, width(&DataType::Struct(self.fields.clone())));
        for row in 0..rows {
            if !size.begin_row(0) {
                rows = row;
                break;
            }
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            if values.is_null(row) {
                self.variants.push_null()?;
                push(&mut null_rows, row as u32)?;
                continue;
            }
            match self.decode_value(Input { bytes, end }, start) {
                Ok(()) => {
                    if !size.add(self.variants.last_row_bytes()) {
                        self.variants.truncate(row);
                        rows = row;
                        break;
                    }
                }
                Err(Malformed { reason: Reason::Memory, .. }) => return Err(OutOfMemory.into()),
                Err(Malformed { at, reason }) => {
                    self.variants.truncate(row);
                    self.variants.push_null()?;
                    push(&mut null_rows, row as u32)?;
                    malformed.push(row, at - start, reason as i8)?;
                }
            }
        }
        let structs = self.variants.finish(&self.fields, rows, null_buffer(&mut null_rows, rows)?)?;
        Ok(DecodedValues { values: structs, malformed: malformed.finish(rows, &Reason::ALL.map(Reason::message))? })
    }

    #[inline(always)]
    fn decode_value(&mut self, input: Input<'_>, start: usize) -> Parsed<()> {
        let mut at = self.variants.encode(input, &self.state, input.blanks(start))?;
        if at < input.end {
            at = input.blanks(at);
            if at < input.end {
                return unexpected(input.end, at, Reason::Trailing);
            }
        }
        Ok(())
    }
}
