//! Arrow columns to Avro datums.
//!
//! A program, which Python compiles from the writer schema and the type of the column, says how each value is written;
//! `pyspark_kafka_direct.records.avro_encoding` describes its numbers. It is checked against the columns of each batch,
//! which takes no longer than a few rows. Memory grows with the output.

mod bind;
mod node;
mod write;

use arrow_array::{Array, BinaryArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use bind::Binder;

/// A value that the writer schema does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    pub row: usize,
    /// The number of its node in the program.
    pub node: usize,
    pub reason: InvalidReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidReason {
    Null = 0,
    Symbol = 1,
    Size = 2,
    Members = 3,
    Key = 4,
}

/// Encodes columns by one program.
pub struct AvroEncoder {
    numbers: Box<[i64]>,
    constants: Box<[Box<[u8]>]>,
    prefix: Box<[u8]>,
}

impl AvroEncoder {
    /// `prefix` is written in front of each datum.
    pub fn new(numbers: Vec<i64>, constants: Vec<Vec<u8>>, prefix: Vec<u8>) -> AvroEncoder {
        let constants = constants.into_iter().map(Vec::into_boxed_slice).collect();
        AvroEncoder { numbers: numbers.into(), constants, prefix: prefix.into() }
    }

    /// Encodes each value of a column. A null value is null. Strings are arrays of bytes.
    pub fn encode(&self, values: &dyn Array) -> Result<Result<BinaryArray, InvalidValue>, ArrowError> {
        let root = Binder::bind(&self.numbers, &self.constants, values)?;
        let mut data = Vec::new();
        let mut ends = Vec::with_capacity(values.len() + 1);
        ends.push(0i32);
        for row in 0..values.len() {
            if !values.is_null(row) {
                data.extend_from_slice(&self.prefix);
                if let Err(invalid) = root.write(row, &mut data) {
                    return Ok(Err(InvalidValue { row, node: invalid.node, reason: invalid.reason }));
                }
            }
            let end = i32::try_from(data.len());
            ends.push(end.map_err(|_| ArrowError::ComputeError("the Avro of a batch exceeds 2 GiB".into()))?);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        BinaryArray::try_new(offsets, data.into(), values.nulls().cloned()).map(Ok)
    }
}
