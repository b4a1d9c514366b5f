//! Arrow columns to Protobuf messages.
//!
//! A program, which Python compiles from the message type and the type of the column, says how each field is written;
//! `pyspark_kafka_direct.payloads.protobuf.encoder_program` describes its numbers. It is checked against the columns of each
//! batch, which takes no longer than a few rows. Memory grows with the output.

mod bind;
mod node;
mod write;

use arrow_array::{Array, BinaryArray};
use arrow_schema::ArrowError;

use bind::Binder;

use crate::values::{InvalidValue, encode_rows};

/// Encodes columns by one program.
pub struct ProtobufEncoder {
    numbers: Box<[i64]>,
    constants: Box<[Box<[u8]>]>,
    prefix: Box<[u8]>,
    max_bytes: usize,
}

impl ProtobufEncoder {
    /// `prefix` is written in front of each message, and the messages of a column may have `max_bytes`.
    pub fn new(numbers: Vec<i64>, constants: Vec<Vec<u8>>, prefix: Vec<u8>, max_bytes: usize) -> ProtobufEncoder {
        let constants = constants.into_iter().map(Vec::into_boxed_slice).collect();
        ProtobufEncoder { numbers: numbers.into(), constants, prefix: prefix.into(), max_bytes }
    }

    /// Encodes each value of a column of structs. A null value is null. Strings are arrays of bytes.
    pub fn encode(&self, values: &dyn Array) -> Result<Result<BinaryArray, InvalidValue>, ArrowError> {
        let root = Binder::bind(&self.numbers, &self.constants, values)?;
        encode_rows(values, &self.prefix, self.max_bytes, |row, out| root.write_fields(row, out))
    }
}
