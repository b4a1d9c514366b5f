//! From a column of JSON values to a column of VARIANTs.

use std::collections::HashMap;

use arrow_array::{Array, BinaryArray};
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::error::{Malformed, Parsed, Reason, unexpected};
use super::skip::{Input, State};
use super::variant::{Grammar, Variants};
use crate::values::{DecodedValues, MalformedRows, null_buffer};

/// Encodes columns of JSON values as Spark's VARIANT, with the bytes of `parse_json`; malformed values are null.
pub struct VariantDecoder {
    fields: Fields,
    variants: Variants,
    state: State,
}

impl Default for VariantDecoder {
    fn default() -> VariantDecoder {
        let marked = HashMap::from([("variant".to_owned(), "true".to_owned())]); // so Spark recognizes the type
        let fields = Fields::from(vec![
            Field::new("value", DataType::Binary, false),
            Field::new("metadata", DataType::Binary, false).with_metadata(marked),
        ]);
        VariantDecoder { fields, variants: Variants::new(Grammar::Json), state: State::default() }
    }
}

impl VariantDecoder {
    pub fn decode(&mut self, values: &BinaryArray) -> Result<DecodedValues, ArrowError> {
        let offsets = values.value_offsets();
        let rows = offsets.len() - 1;
        let bytes = &values.value_data()[..offsets[rows] as usize];
        self.variants.is_ascii = bytes[offsets[0] as usize..].is_ascii();
        let (mut null_rows, mut malformed) = (Vec::new(), MalformedRows::default());
        for row in 0..rows {
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            if values.is_null(row) {
                self.variants.push_null();
                null_rows.push(row as u32);
            } else if let Err(Malformed { at, reason }) = self.decode_value(Input { bytes, end }, start) {
                self.variants.truncate(row);
                self.variants.push_null();
                null_rows.push(row as u32);
                malformed.push(row, at - start, reason as i8);
            }
        }
        let structs = self.variants.finish(&self.fields, rows, null_buffer(&mut null_rows, rows))?;
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
