//! The kernel's Protobuf decoder in Python.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::Schema;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow::imported;
use crate::avro::integers;
use crate::json::{Decoded, to_python, value_error};

/// Decodes Protobuf messages to structs; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
pub struct ProtobufDecoder {
    inner: record_kernel::ProtobufDecoder,
}

#[pymethods]
impl ProtobufDecoder {
    #[new]
    fn new(fields: &Bound<'_, PyAny>, numbers: Vec<i64>, constants: Vec<Vec<u8>>, max_bytes: usize) -> PyResult<Self> {
        let fields = imported::<Schema>(fields)?.fields;
        let constants: Vec<_> = constants.into_iter().map(Vec::into_boxed_slice).collect();
        let inner = record_kernel::ProtobufDecoder::new(fields, &numbers, &constants, max_bytes);
        Ok(ProtobufDecoder { inner: inner.map_err(value_error)? })
    }

    /// Decodes the first rows of a record batch with the binary column `value`, and perhaps a column of 32 bits `start`.
    fn decode<'py>(&mut self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<Decoded<'py>> {
        let batch: RecordBatch = imported(values)?;
        let values = batch.column_by_name("value").and_then(|column| column.as_binary_opt::<i32>());
        let values = values.ok_or_else(|| PyValueError::new_err("the column of values must be binary"))?;
        let starts = integers(&batch, "start")?;
        let decoded = py.detach(|| self.inner.decode(values, starts)).map_err(value_error)?;
        to_python(py, decoded)
    }
}
