//! The kernel's JSON decoders and encoder in Python: record batches with one column in and out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use arrow_schema::{ArrowError, Schema};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use record_kernel::DecodedValues;

use crate::arrow::{exported, imported};

/// Decodes JSON values to structs; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
pub struct JsonDecoder {
    inner: record_kernel::JsonDecoder,
}

/// A batch of the decoded values, and one of why values are malformed, and where, if there are any.
pub(crate) type Decoded<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

#[pymethods]
impl JsonDecoder {
    #[new]
    #[pyo3(signature = (fields, corrupt_record, utc_offsets, max_bytes))]
    fn new(
        fields: &Bound<'_, PyAny>,
        corrupt_record: &str,
        utc_offsets: Vec<(i64, i32)>,
        max_bytes: usize,
    ) -> PyResult<Self> {
        let fields = imported::<Schema>(fields)?.fields;
        let inner = record_kernel::JsonDecoder::new(fields, corrupt_record, &utc_offsets, max_bytes);
        Ok(JsonDecoder { inner: inner.map_err(value_error)? })
    }

    /// Decodes the first rows of a record batch with one binary column.
    fn decode<'py>(&mut self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<Decoded<'py>> {
        decode(py, values, |values| self.inner.decode(values))
    }
}

/// Decodes JSON values to VARIANTs; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
pub struct VariantDecoder {
    inner: record_kernel::VariantDecoder,
}

#[pymethods]
impl VariantDecoder {
    #[new]
    fn new(max_bytes: usize) -> PyResult<Self> {
        Ok(VariantDecoder { inner: record_kernel::VariantDecoder::new(max_bytes).map_err(value_error)? })
    }

    /// Decodes the first rows of a record batch with one binary column.
    fn decode<'py>(&mut self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<Decoded<'py>> {
        decode(py, values, |values| self.inner.decode(values))
    }
}

fn decode<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    decode_column: impl Send + FnOnce(&BinaryArray) -> Result<DecodedValues, ArrowError>,
) -> PyResult<Decoded<'py>> {
    let values: RecordBatch = imported(values)?;
    if values.num_columns() != 1 {
        return Err(PyValueError::new_err(format!("one column is decoded, not {}", values.num_columns())));
    }
    let column = values.column(0).as_binary_opt::<i32>();
    let column = column.ok_or_else(|| PyValueError::new_err("the column of values must be binary"))?;
    to_python(py, py.detach(|| decode_column(column)).map_err(value_error)?)
}

pub(crate) fn to_python<'py>(py: Python<'py>, decoded: DecodedValues) -> PyResult<Decoded<'py>> {
    let malformed = decoded.malformed.map(|malformed| {
        let (reasons, positions): (ArrayRef, ArrayRef) = (Arc::new(malformed.reasons), Arc::new(malformed.positions));
        batch(py, vec![("reason", reasons), ("position", positions)])
    });
    Ok((batch(py, vec![("value", decoded.values)])?, malformed.transpose()?))
}

pub(crate) fn batch<'py>(py: Python<'py>, columns: Vec<(&str, ArrayRef)>) -> PyResult<Bound<'py, PyAny>> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    exported(py, RecordBatch::try_from_iter_with_nullable(columns).map_err(value_error)?)
}

/// Encodes a record batch with one column, in which strings are binary; `types` is its schema with strings.
#[pyfunction]
pub fn encode_json<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    types: &Bound<'py, PyAny>,
    zones: record_kernel::UtcOffsets,
) -> PyResult<Bound<'py, PyAny>> {
    let values: RecordBatch = imported(values)?;
    let types: Schema = imported(types)?;
    if values.num_columns() != 1 || types.fields().len() != 1 {
        return Err(PyValueError::new_err(format!("one column is encoded, not {}", values.num_columns())));
    }
    let (column, data_type) = (values.column(0), types.field(0).data_type());
    let encoded = py.detach(|| record_kernel::encode_json(column, data_type, &zones)).map_err(value_error)?;
    batch(py, vec![("value", Arc::new(encoded))])
}

pub(crate) fn value_error(error: ArrowError) -> PyErr {
    match error {
        ArrowError::MemoryError(message) => PyMemoryError::new_err(message),
        _ => PyValueError::new_err(error.to_string()),
    }
}
