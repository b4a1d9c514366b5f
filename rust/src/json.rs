//! The kernel's JSON decoder in Python: a record batch with a column of values in, structs out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_pyarrow::{FromPyArrow, ToPyArrow};
use arrow_schema::Schema;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Decodes JSON values to structs; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
pub struct JsonDecoder {
    inner: record_kernel::JsonDecoder,
}

/// A batch of the structs, and one of why values are malformed, and where, if there are any.
type Decoded<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

#[pymethods]
impl JsonDecoder {
    #[new]
    #[pyo3(signature = (fields, corrupt_record))]
    fn new(fields: &Bound<'_, PyAny>, corrupt_record: &str) -> PyResult<Self> {
        let fields = Schema::from_pyarrow_bound(fields)?.fields;
        Ok(JsonDecoder { inner: record_kernel::JsonDecoder::new(fields, corrupt_record).map_err(value_error)? })
    }

    /// Decodes a `pyarrow.RecordBatch` with one binary column.
    fn decode<'py>(&mut self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<Decoded<'py>> {
        let values = RecordBatch::from_pyarrow_bound(values)?;
        if values.num_columns() != 1 {
            return Err(PyValueError::new_err(format!("one column is decoded, not {}", values.num_columns())));
        }
        let column = values.column(0).as_binary_opt::<i32>();
        let column = column.ok_or_else(|| PyValueError::new_err("the column of values must be binary"))?;
        let inner = &mut self.inner;
        let decoded = py.detach(|| inner.decode(column)).map_err(value_error)?;
        let malformed = decoded.malformed.map(|malformed| {
            let (reasons, positions): (ArrayRef, ArrayRef) =
                (Arc::new(malformed.reasons), Arc::new(malformed.positions));
            batch(py, vec![("reason", reasons), ("position", positions)])
        });
        Ok((batch(py, vec![("value", decoded.structs)])?, malformed.transpose()?))
    }
}

fn batch<'py>(py: Python<'py>, columns: Vec<(&str, ArrayRef)>) -> PyResult<Bound<'py, PyAny>> {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .map_err(value_error)?
        .to_pyarrow(py)
}

fn value_error(error: arrow_schema::ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
