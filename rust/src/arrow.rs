//! Arrow data from and to pyarrow.

use std::{mem, thread};

use arrow_array::RecordBatch;
use arrow_pyarrow::{FromPyArrow, ToPyArrow};
use pyo3::prelude::*;

/// Converts an object of pyarrow.
pub(crate) fn from_pyarrow<T: FromPyArrow>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    call_python(|| T::from_pyarrow_bound(object))
}

/// Returns a `pyarrow.RecordBatch`.
pub(crate) fn to_pyarrow<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyAny>> {
    call_python(|| batch.to_pyarrow(py))
}

/// Calls a function that runs Python code.
fn call_python<T>(function: impl FnOnce() -> T) -> T {
    let guard = HangAtExit;
    let result = function();
    mem::forget(guard);
    result
}

/// Stops a thread that Python ends while the process exits.
///
/// Before version 3.14, Python calls `pthread_exit` if a daemon thread needs the interpreter lock then. This unwinds the
/// stack, and the process aborts when the unwinding reaches a function of Rust that catches panics.
struct HangAtExit;

impl Drop for HangAtExit {
    fn drop(&mut self) {
        while !thread::panicking() {
            thread::park();
        }
    }
}
