//! Arrow data from and to Python, as capsules of Arrow's C data interface.
//!
//! Callers export what they pass, and import what they get: the kernel does not call pyarrow, which releases the
//! interpreter lock. Before version 3.14, Python unwinds the stack of a thread that needs the lock while the process exits.
//! Functions of Rust on this stack would abort the process, or crash it, because they drop objects without the lock.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_pyarrow::FromPyArrow;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Capsules as an object that exports them.
#[pyclass(module = "pyspark_kafka_direct.records._native", frozen)]
struct Exported(Py<PyAny>);

#[pymethods]
impl Exported {
    fn __arrow_c_schema__(&self, py: Python<'_>) -> Py<PyAny> {
        self.0.clone_ref(py)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__(&self, py: Python<'_>, requested_schema: Option<&Bound<'_, PyAny>>) -> Py<PyAny> {
        let _ = requested_schema; // the protocol lets it be ignored
        self.0.clone_ref(py)
    }
}

/// Converts the result of `__arrow_c_schema__` or `__arrow_c_array__`.
pub(crate) fn imported<T: FromPyArrow>(capsules: &Bound<'_, PyAny>) -> PyResult<T> {
    let exported = Bound::new(capsules.py(), Exported(capsules.clone().unbind()))?;
    T::from_pyarrow_bound(exported.as_any())
}

/// Returns an object for `pyarrow.record_batch`.
pub(crate) fn exported<'py>(py: Python<'py>, batch: RecordBatch) -> PyResult<Bound<'py, PyAny>> {
    let schema = FFI_ArrowSchema::try_from(batch.schema_ref().as_ref());
    let schema = schema.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
    let array = FFI_ArrowArray::new(&StructArray::from(batch).into_data());
    let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
    let capsules = (schema, array).into_pyobject(py)?;
    Ok(Bound::new(py, Exported(capsules.into_any().unbind()))?.into_any())
}
