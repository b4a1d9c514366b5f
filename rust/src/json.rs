//! The kernel's JSON decoder in Python: a record batch with a column of values in, structs out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_pyarrow::{FromPyArrow, ToPyArrow};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Decodes JSON values to structs; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
pub struct JsonDecoder {
    inner: record_kernel::JsonDecoder,
}

/// Structs and whether their values are malformed; row, position and reason of the first malformed one.
type Decoded<'py> = (Bound<'py, PyAny>, Option<(usize, usize, &'static str)>);

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
        let schema = Schema::new(vec![
            Field::new("value", decoded.structs.data_type().clone(), true),
            Field::new("malformed", DataType::Boolean, false),
        ]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![decoded.structs, Arc::new(decoded.malformed)])
            .map_err(value_error)?;
        let first = decoded.first_malformed.map(|first| (first.row, first.position, first.reason.message()));
        Ok((batch.to_pyarrow(py)?, first))
    }
}

fn value_error(error: arrow_schema::ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
