//! The kernel's encoder as Python sees it: pyarrow's record batches in, bytearrays out.

use arrow_array::RecordBatch;
use arrow_pyarrow::FromPyArrow;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use record_kernel::{EncodeError, EncodedBatch, EncoderSettings, HEADER_BYTES, Stamp};

pyo3::create_exception!(
    _native,
    PyEncodeError,
    PyException,
    "A row that the kernel could not encode: kind (partition, header, large, memory), row, partition or size."
);

/// Partition, records, bytes before compression, the whole batch.
type Finished<'py> = (i32, i32, usize, Bound<'py, PyByteArray>);

/// Encodes the rows of one topic; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
pub struct Encoder {
    inner: record_kernel::Encoder,
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
        Ok(Encoder { inner: record_kernel::Encoder::new(settings).map_err(failure)? })
    }

    /// Takes a `pyarrow.RecordBatch` without text; returns the batches that are full now.
    fn add<'py>(&mut self, py: Python<'py>, rows: &Bound<'py, PyAny>) -> PyResult<Vec<Finished<'py>>> {
        let rows = RecordBatch::from_pyarrow_bound(rows)?;
        let inner = &mut self.inner;
        let batches = py.detach(|| inner.add(&rows)).map_err(failure)?;
        self.finished(py, batches)
    }

    /// Returns all open batches.
    fn flush<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Finished<'py>>> {
        let inner = &mut self.inner;
        let batches = py.detach(|| inner.flush()).map_err(failure)?;
        self.finished(py, batches)
    }

    #[getter]
    fn open_bytes(&self) -> usize {
        self.inner.open_bytes()
    }
}

/// Writes into a batch who sends it, in place.
#[pyfunction]
#[pyo3(signature = (data, producer_id, epoch, sequence, *, transactional))]
pub fn stamp(
    py: Python<'_>,
    data: &Bound<'_, PyByteArray>,
    producer_id: i64,
    epoch: i16,
    sequence: i32,
    transactional: bool,
) -> PyResult<()> {
    let buffer = PyBuffer::<u8>::get(data)?;
    let cells = buffer.as_mut_slice(py).ok_or_else(|| PyBufferError::new_err("the buffer cannot be written to"))?;
    let Some((head, records)) = cells.split_first_chunk::<HEADER_BYTES>() else {
        return Err(PyValueError::new_err(record_kernel::no_batch(cells.len())));
    };
    let mut header = head.each_ref().map(|cell| cell.get());
    record_kernel::stamp(&mut header, records.len(), &Stamp { producer_id, epoch, sequence, transactional });
    for (cell, byte) in head.iter().zip(header) {
        cell.set(byte);
    }
    Ok(())
}

/// Two batches with half of a batch's records each.
#[pyfunction]
pub fn split<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyByteArray>, Bound<'py, PyByteArray>)> {
    let data = PyBuffer::<u8>::get(data)?.to_vec(py)?;
    let (first, second) = py.detach(|| record_kernel::split(&data)).map_err(PyValueError::new_err)?;
    Ok((bytearray(py, &first)?, bytearray(py, &second)?))
}

impl Encoder {
    /// Copies batches for Python, which owns what it may change; their buffers are for the next ones.
    fn finished<'py>(&mut self, py: Python<'py>, batches: Vec<EncodedBatch>) -> PyResult<Vec<Finished<'py>>> {
        let copied = |batch: EncodedBatch| {
            let data = bytearray(py, &batch.data)?;
            self.inner.recycle(batch.data);
            Ok((batch.partition, batch.records, batch.raw_bytes, data))
        };
        batches.into_iter().map(copied).collect()
    }
}

fn bytearray<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyByteArray>> {
    PyByteArray::new_with(py, bytes.len(), |room| {
        room.copy_from_slice(bytes);
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
