//! The kernel as a Python module.
//!
//! It converts Python's buffers and Arrow schemas to Rust, and record batches and errors to Python; `encoder` converts the
//! other way. The interpreter lock is released while records are decoded or encoded.

#![deny(unsafe_code)]

mod arrow;
mod avro;
mod encoder;
mod json;
mod payload_encoders;
mod protobuf;

use std::sync::Arc;

use arrow_schema::Schema;
use pyo3::buffer::{PyBuffer, ReadOnlyCell};
use pyo3::exceptions::{PyBufferError, PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use record_kernel::{AbortedTransaction, DecodeError, Limits, OffsetRange, Scan, ScannedBatch};

use crate::arrow::{exported, imported};

pyo3::create_exception!(
    _native,
    PyDecodeError,
    PyException,
    "Records that cannot be decoded: kind (corrupt, unsupported, timestamp, large, memory), message, offset."
);

/// Python rejects a kernel with another number. Increase it here and in `native_kernel.py` when the arguments or the
/// results of a function change.
const INTERFACE_VERSION: u32 = 6;

/// Decodes one range of one partition; see `pyspark_kafka_direct.records`.
#[pyclass(module = "pyspark_kafka_direct.records._native")]
struct Decoder {
    inner: record_kernel::Decoder,
}

#[pymethods]
impl Decoder {
    #[new]
    #[pyo3(signature = (schema, topic, partition, from_offset, until_offset, check_crcs, max_rows, max_bytes, max_batch_bytes, count_only))]
    #[allow(clippy::too_many_arguments)] // Python's keyword arguments
    fn new(
        schema: &Bound<'_, PyAny>,
        topic: String,
        partition: i32,
        from_offset: i64,
        until_offset: i64,
        check_crcs: bool,
        max_rows: usize,
        max_bytes: usize,
        max_batch_bytes: usize,
        count_only: bool,
    ) -> PyResult<Self> {
        let schema = Arc::new(imported::<Schema>(schema)?);
        let range = OffsetRange { from: from_offset, until: until_offset };
        let limits = Limits { rows: max_rows, bytes: max_bytes, batch: max_batch_bytes };
        let inner = record_kernel::Decoder::new(schema, topic, partition, range, limits, check_crcs, count_only)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Decoder { inner })
    }

    /// Adds the records of one fetch response.
    fn feed(&mut self, py: Python<'_>, records: &Bound<'_, PyAny>, aborted: Vec<(i64, i64)>) -> PyResult<()> {
        if self.inner.buffered() {
            return Err(PyRuntimeError::new_err("feed() before read() returned None"));
        }
        let buffer = PyBuffer::<u8>::get(records)?;
        // One copy, so that the lock can be released without others changing the bytes, and the caller may reuse the
        // buffer at once. Measured: 5 ns for a record of 100 bytes and 36 ns for one of 1 KiB, a sixth of decoding
        // uncompressed records to their values, 1 to 2 % of the cost of such a record from the broker to Spark.
        let length = buffer.len_bytes();
        buffer.copy_to_slice(py, self.inner.input(length).map_err(failure)?)?;
        let aborted =
            aborted.into_iter().map(|(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset });
        self.inner.feed(length, aborted.collect());
        Ok(())
    }

    /// Returns the next rows, or None when the bytes fed are used up.
    fn read<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let inner = &mut self.inner;
        let batch = py.detach(|| inner.read()).map_err(failure)?;
        batch.map(|batch| exported(py, batch)).transpose()
    }

    #[getter]
    fn position(&self) -> i64 {
        self.inner.position()
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.inner.next_offset()
    }

    #[getter]
    fn done(&self) -> bool {
        self.inner.done()
    }

    /// Records, bytes, control, aborted, gaps.
    #[getter]
    fn counts(&self) -> (i64, i64, i64, i64, i64) {
        let counts = self.inner.counts();
        (counts.records, counts.bytes, counts.control, counts.aborted, counts.gaps)
    }
}

fn failure(error: DecodeError) -> PyErr {
    PyDecodeError::new_err((error.kind.name(), error.message, error.offset))
}

/// Start, end, base offset, last offset, magic, leader epoch, producer id, whether it is transactional and control, records.
type BatchTuple = (usize, usize, i64, i64, i8, i32, i64, bool, bool, i32);

/// Kind, message and offset, as in a DecodeError.
type ErrorTuple = (&'static str, String, i64);

/// Returns the complete batches in `records` that begin before `until`, the offset after them (at least `position`), and
/// the error of a malformed header behind them.
#[pyfunction]
fn scan_batches(
    py: Python<'_>,
    records: &Bound<'_, PyAny>,
    position: i64,
    until: i64,
) -> PyResult<(Vec<BatchTuple>, i64, Option<ErrorTuple>)> {
    let mut batches = Vec::new();
    let scanned = scan(py, records, position, until, |batch| {
        batches.push((
            batch.start,
            batch.end,
            batch.base_offset,
            batch.last_offset,
            batch.magic,
            batch.leader_epoch,
            batch.producer_id,
            batch.is_transactional,
            batch.is_control,
            batch.records,
        ));
    })?;
    Ok((batches, scanned.next_offset, scanned.failure.map(|error| (error.kind.name(), error.message, error.offset))))
}

/// Returns the leader epoch of the last complete batch in `records`; -1 if there is none. `scan_batches` without a Python
/// object for each batch.
#[pyfunction]
fn scan_leader_epoch(py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<i32> {
    Ok(scan(py, records, 0, i64::MAX, |_| ())?.leader_epoch)
}

/// Returns whether a complete control batch contains an ABORT marker; `max_bytes` limits its decompressed size.
#[pyfunction]
fn is_abort_marker(py: Python<'_>, batch: &Bound<'_, PyAny>, max_bytes: usize) -> PyResult<bool> {
    let batch = PyBuffer::<u8>::get(batch)?.to_vec(py)?;
    record_kernel::is_abort_marker(&batch, max_bytes).map_err(failure)
}

/// Returns whether `data` is one record batch of format 2 with a valid CRC.
#[pyfunction]
fn is_valid_batch(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let buffer = PyBuffer::<u8>::get(data)?;
    let cells = contiguous(py, &buffer)?;
    Ok(record_kernel::is_valid_batch(cells.len(), |at, chunk| copy(&cells[at..], chunk)))
}

fn scan(
    py: Python<'_>,
    records: &Bound<'_, PyAny>,
    position: i64,
    until: i64,
    each: impl FnMut(ScannedBatch),
) -> PyResult<Scan> {
    let buffer = PyBuffer::<u8>::get(records)?;
    let cells = contiguous(py, &buffer)?;
    Ok(record_kernel::scan_with(cells.len(), |at, prefix| copy(&cells[at..], prefix), position, until, each))
}

fn contiguous<'a>(py: Python<'a>, buffer: &'a PyBuffer<u8>) -> PyResult<&'a [ReadOnlyCell<u8>]> {
    buffer.as_slice(py).ok_or_else(|| PyBufferError::new_err("the buffer is not contiguous"))
}

fn copy(cells: &[ReadOnlyCell<u8>], target: &mut [u8]) {
    for (byte, cell) in target.iter_mut().zip(cells) {
        *byte = cell.get();
    }
}

/// Python's allocator aligns an object no more than this, so a value with a larger alignment belongs in a `Box`.
const fn fits_in_a_python_object<T>() {
    assert!(align_of::<T>() <= 2 * size_of::<usize>());
}

const _: () = {
    fits_in_a_python_object::<Decoder>();
    fits_in_a_python_object::<encoder::Encoder>();
    fits_in_a_python_object::<encoder::BatchBuffer>();
    fits_in_a_python_object::<avro::AvroDecoder>();
    fits_in_a_python_object::<payload_encoders::AvroEncoder>();
    fits_in_a_python_object::<json::JsonDecoder>();
    fits_in_a_python_object::<json::VariantDecoder>();
    fits_in_a_python_object::<protobuf::ProtobufDecoder>();
    fits_in_a_python_object::<payload_encoders::ProtobufEncoder>();
};

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE_VERSION", INTERFACE_VERSION)?;
    module.add("DEBUG_ASSERTIONS", cfg!(debug_assertions))?;
    module.add_class::<Decoder>()?;
    module.add_class::<encoder::Encoder>()?;
    module.add_class::<avro::AvroDecoder>()?;
    module.add_class::<payload_encoders::AvroEncoder>()?;
    module.add_class::<json::JsonDecoder>()?;
    module.add_class::<json::VariantDecoder>()?;
    module.add_class::<protobuf::ProtobufDecoder>()?;
    module.add_class::<payload_encoders::ProtobufEncoder>()?;
    module.add_function(wrap_pyfunction!(json::encode_json, module)?)?;
    module.add("DecodeError", module.py().get_type::<PyDecodeError>())?;
    module.add("EncodeError", module.py().get_type::<encoder::PyEncodeError>())?;
    module.add_function(wrap_pyfunction!(encoder::set_producer_state, module)?)?;
    module.add_function(wrap_pyfunction!(encoder::split_batch, module)?)?;
    module.add_function(wrap_pyfunction!(is_valid_batch, module)?)?;
    module.add_function(wrap_pyfunction!(is_abort_marker, module)?)?;
    module.add_function(wrap_pyfunction!(scan_batches, module)?)?;
    module.add_function(wrap_pyfunction!(scan_leader_epoch, module)?)
}
