//! The kernel's Avro and Protobuf encoders in Python.

use std::sync::Arc;

use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_schema::ArrowError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use record_kernel::InvalidValue;

use crate::arrow::imported;
use crate::json::{batch, value_error};

/// A batch of the encoded values, or the row, node, other node and reason of an invalid value.
type Encoded<'py> = (Option<Bound<'py, PyAny>>, Option<(usize, usize, Option<usize>, u8)>);

/// Encodes columns as Avro datums; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native", frozen)]
pub struct AvroEncoder {
    inner: record_kernel::AvroEncoder,
}

#[pymethods]
impl AvroEncoder {
    #[new]
    fn new(numbers: Vec<i64>, constants: Vec<Vec<u8>>, prefix: Vec<u8>, max_bytes: usize) -> Self {
        AvroEncoder { inner: record_kernel::AvroEncoder::new(numbers, constants, prefix, max_bytes) }
    }

    /// Encodes a record batch with one column, in which strings are binary.
    fn encode<'py>(&self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<Encoded<'py>> {
        encode(py, values, |column| self.inner.encode(column))
    }
}

/// Encodes columns as Protobuf messages; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native", frozen)]
pub struct ProtobufEncoder {
    inner: record_kernel::ProtobufEncoder,
}

#[pymethods]
impl ProtobufEncoder {
    #[new]
    fn new(numbers: Vec<i64>, constants: Vec<Vec<u8>>, prefix: Vec<u8>, max_bytes: usize) -> Self {
        ProtobufEncoder { inner: record_kernel::ProtobufEncoder::new(numbers, constants, prefix, max_bytes) }
    }

    /// Encodes a record batch with one column, in which strings are binary.
    fn encode<'py>(&self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<Encoded<'py>> {
        encode(py, values, |column| self.inner.encode(column))
    }
}

fn encode<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    encode: impl Fn(&dyn Array) -> Result<Result<BinaryArray, InvalidValue>, ArrowError> + Sync,
) -> PyResult<Encoded<'py>> {
    let values: RecordBatch = imported(values)?;
    if values.num_columns() != 1 {
        return Err(PyValueError::new_err(format!("one column is encoded, not {}", values.num_columns())));
    }
    let column = values.column(0);
    match py.detach(|| encode(column)).map_err(value_error)? {
        Ok(encoded) => Ok((Some(batch(py, vec![("value", Arc::new(encoded))])?), None)),
        Err(invalid) => Ok((None, Some((invalid.row, invalid.node, invalid.other, invalid.reason as u8)))),
    }
}
