//! The kernel's Avro decoder in Python.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Int32Array, RecordBatch};
use arrow_schema::Schema;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow::imported;
use crate::json::{Decoded, to_python, value_error};

/// Decodes Avro datums to structs; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
pub struct AvroDecoder {
    inner: record_kernel::AvroDecoder,
}

#[pymethods]
impl AvroDecoder {
    #[new]
    fn new(fields: &Bound<'_, PyAny>, max_bytes: usize) -> PyResult<Self> {
        let fields = imported::<Schema>(fields)?.fields;
        Ok(AvroDecoder { inner: record_kernel::AvroDecoder::new(fields, max_bytes).map_err(value_error)? })
    }

    /// Adds a program, and returns its number.
    fn add_program(&mut self, numbers: Vec<i64>, constants: Vec<Vec<u8>>) -> PyResult<usize> {
        let constants: Vec<_> = constants.into_iter().map(Vec::into_boxed_slice).collect();
        self.inner.add_program(&numbers, &constants).map_err(value_error)
    }

    /// Decodes the first rows of a record batch with the binary column `value`, and perhaps columns of 32 bits
    /// `start` and `program`.
    fn decode<'py>(&mut self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<Decoded<'py>> {
        let batch: RecordBatch = imported(values)?;
        let values = batch.column_by_name("value").and_then(|column| column.as_binary_opt::<i32>());
        let values = values.ok_or_else(|| PyValueError::new_err("the column of values must be binary"))?;
        let (starts, programs) = (integers(&batch, "start")?, integers(&batch, "program")?);
        let decoded = py.detach(|| self.inner.decode(values, starts, programs)).map_err(value_error)?;
        to_python(py, decoded)
    }
}

pub(crate) fn integers<'a>(batch: &'a RecordBatch, name: &str) -> PyResult<Option<&'a Int32Array>> {
    let Some(column) = batch.column_by_name(name) else { return Ok(None) };
    let column = column.as_primitive_opt::<Int32Type>();
    column.map(Some).ok_or_else(|| PyValueError::new_err(format!("the column {name} must have 32-bit integers")))
}
