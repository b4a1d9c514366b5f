//! The kernel's encoder in Python: from Arrow's record batches to buffers.

use std::ffi::c_int;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyException, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyMemoryView};
use record_kernel::{EncodeError, EncodedBatch, EncoderSettings, HEADER_BYTES, ProducerState};

use crate::arrow::imported;

pyo3::create_exception!(
    _native,
    PyEncodeError,
    PyException,
    "A row that cannot be encoded: kind (partition, header, large, memory), row, partition or size."
);

/// Partition, records, uncompressed bytes, batch.
type EncodedTuple<'py> = (i32, i32, usize, Bound<'py, PyMemoryView>);

/// Memory of batches that Python needs no more.
type FreeBuffers = Arc<Mutex<Vec<Vec<u8>>>>;

const MAX_FREE_BUFFERS: usize = 4;

/// Encodes the rows of one topic; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
pub struct Encoder {
    inner: record_kernel::Encoder,
    free: FreeBuffers,
}

#[pymethods]
impl Encoder {
    #[new]
    #[pyo3(signature = (partitions, codec, level, batch_bytes, max_record_bytes, ignore_keys, first_sticky))]
    fn new(
        partitions: i32,
        codec: u8,
        level: Option<i32>,
        batch_bytes: usize,
        max_record_bytes: usize,
        ignore_keys: bool,
        first_sticky: i32,
    ) -> PyResult<Self> {
        let settings =
            EncoderSettings { partitions, codec, level, batch_bytes, max_record_bytes, ignore_keys, first_sticky };
        Ok(Encoder { inner: record_kernel::Encoder::new(settings).map_err(failure)?, free: FreeBuffers::default() })
    }

    /// Adds a record batch without strings; returns the batches that are full now.
    fn add<'py>(&mut self, py: Python<'py>, rows: &Bound<'py, PyAny>) -> PyResult<Vec<EncodedTuple<'py>>> {
        let rows: RecordBatch = imported(rows)?;
        self.recycle();
        let inner = &mut self.inner;
        let batches = py.detach(|| inner.add(&rows)).map_err(failure)?;
        self.to_python(py, batches)
    }

    /// Returns all open batches.
    fn flush<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<EncodedTuple<'py>>> {
        let inner = &mut self.inner;
        let batches = py.detach(|| inner.flush()).map_err(failure)?;
        self.to_python(py, batches)
    }

    #[getter]
    fn open_bytes(&self) -> usize {
        self.inner.open_bytes()
    }
}

/// The bytes of a batch. Python writes the producer state into them and sends them, without a copy. When it has dropped
/// the last view of them, because the batch was acknowledged, the encoder reuses the memory.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
pub struct BatchBuffer {
    data: Vec<u8>,
    free: FreeBuffers,
}

#[pymethods]
impl BatchBuffer {
    /// Fills a view of the bytes; see Python's buffer protocol.
    #[allow(unsafe_code)] // the protocol is one of pointers
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, length) = {
            let mut buffer = slf.borrow_mut();
            (buffer.data.as_mut_ptr(), buffer.data.len() as ffi::Py_ssize_t)
        };
        // SAFETY: `view` is the interpreter's. The view holds a reference to this object, and nothing but `drop` touches
        // the vector, so the bytes stay where they are while there is a view.
        if unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), length, 0, flags) } == -1 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}

impl Drop for BatchBuffer {
    fn drop(&mut self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MAX_FREE_BUFFERS {
            free.push(mem::take(&mut self.data));
        }
    }
}

/// Writes the producer state into a batch, in place.
#[pyfunction]
#[pyo3(signature = (data, producer_id, epoch, sequence, *, transactional))]
pub fn set_producer_state(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    producer_id: i64,
    epoch: i16,
    sequence: i32,
    transactional: bool,
) -> PyResult<()> {
    let buffer = PyBuffer::<u8>::get(data)?;
    let cells = buffer.as_mut_slice(py).ok_or_else(|| PyBufferError::new_err("the buffer cannot be written to"))?;
    let Some((header_cells, records)) = cells.split_first_chunk::<HEADER_BYTES>() else {
        return Err(PyValueError::new_err(record_kernel::not_a_batch(cells.len())));
    };
    let mut header = header_cells.each_ref().map(|cell| cell.get());
    record_kernel::set_producer_state(
        &mut header,
        records.len(),
        &ProducerState { producer_id, epoch, sequence, transactional },
    );
    for (cell, byte) in header_cells.iter().zip(header) {
        cell.set(byte);
    }
    Ok(())
}

/// Returns two batches with half of a batch's records each.
#[pyfunction]
pub fn split_batch<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyByteArray>, Bound<'py, PyByteArray>)> {
    let data = PyBuffer::<u8>::get(data)?.to_vec(py)?;
    let (first, second) = py.detach(|| record_kernel::split_batch(&data)).map_err(PyValueError::new_err)?;
    Ok((bytearray(py, &first)?, bytearray(py, &second)?))
}

impl Encoder {
    /// Passes batches to Python, which can change their bytes.
    fn to_python<'py>(&self, py: Python<'py>, batches: Vec<EncodedBatch>) -> PyResult<Vec<EncodedTuple<'py>>> {
        let passed = |batch: EncodedBatch| {
            let buffer = Bound::new(py, BatchBuffer { data: batch.data, free: self.free.clone() })?;
            let view = PyMemoryView::from(buffer.as_any())?;
            Ok((batch.partition, batch.records, batch.uncompressed_bytes, view))
        };
        batches.into_iter().map(passed).collect()
    }

    /// Takes back the memory of batches that Python has dropped.
    fn recycle(&mut self) {
        let free = mem::take(&mut *self.free.lock().unwrap_or_else(PoisonError::into_inner));
        for buffer in free {
            self.inner.recycle(buffer);
        }
    }
}

fn bytearray<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyByteArray>> {
    PyByteArray::new_with(py, bytes.len(), |target| {
        target.copy_from_slice(bytes);
        Ok(())
    })
}

fn failure(error: EncodeError) -> PyErr {
    match error {
        EncodeError::Columns(message) => PyValueError::new_err(message),
        EncodeError::Partition { row, partition } => PyEncodeError::new_err(("partition", row, i64::from(partition))),
        EncodeError::Header { row } => PyEncodeError::new_err(("header", row, 0)),
        EncodeError::TooLarge { row, size } => PyEncodeError::new_err(("large", row, size)),
        EncodeError::NoMemory { row } => PyEncodeError::new_err(("memory", row, 0)),
    }
}
