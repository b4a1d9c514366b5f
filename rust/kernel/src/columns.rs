//! Arrow columns under construction.
//!
//! Only the columns of the given schema are built; Python defines it once, after Spark's types.
//!
//! Large buffers are reserved before they are filled, so that a process without memory gets an error and is not aborted.

use std::collections::TryReserveError;
use std::sync::Arc;

use arrow_array::types::{BinaryType, ByteArrayType, Utf8Type};
use arrow_array::{
    Array, ArrayRef, GenericByteArray, Int32Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, SchemaRef, TimeUnit};

use crate::record::{Headers, Record};

/// The next batch's buffer is only preallocated up to this size.
const MAX_RETAINED_BYTES: usize = 16 << 20;

/// A column of a Spark Kafka source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Key,
    Value,
    Topic,
    Partition,
    Offset,
    Timestamp,
    TimestampType,
    Headers,
    LeaderEpoch,
}

/// Builds record batches of one schema.
pub(crate) struct Columns {
    schema: SchemaRef,
    order: Vec<Column>,
    rows: usize,
    key: Option<Bytes>,
    value: Option<Bytes>,
    offsets: Option<Vec<i64>>,
    timestamps: Option<Vec<i64>>,
    headers: Option<HeaderLists>,
    /// Timestamp type and leader epoch are the same for a whole record batch: value and number of rows. A negative leader
    /// epoch becomes null.
    timestamp_types: Vec<(i32, usize)>,
    leader_epochs: Vec<(i32, usize)>,
    topics: Constant<String>,
    partitions: Constant<i32>,
}

impl Columns {
    pub fn new(schema: SchemaRef, topic: String, partition: i32) -> Result<Columns, ArrowError> {
        let order = schema.fields().iter().map(|field| column(field)).collect::<Result<Vec<_>, _>>()?;
        let wanted = |column| order.contains(&column);
        Ok(Columns {
            key: wanted(Column::Key).then(Bytes::default),
            value: wanted(Column::Value).then(Bytes::default),
            offsets: wanted(Column::Offset).then(Vec::new),
            timestamps: wanted(Column::Timestamp).then(Vec::new),
            headers: wanted(Column::Headers).then(HeaderLists::default),
            timestamp_types: Vec::new(),
            leader_epochs: Vec::new(),
            topics: Constant { value: topic, built: None },
            partitions: Constant { value: partition, built: None },
            rows: 0,
            schema,
            order,
        })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn wants_timestamps(&self) -> bool {
        self.timestamps.is_some()
    }

    pub fn wants_headers(&self) -> bool {
        self.headers.is_some()
    }

    /// Reserves `rows` more rows, except the bytes of their keys, values and headers.
    pub fn reserve(&mut self, rows: usize) -> Result<(), TryReserveError> {
        if let Some(keys) = &mut self.key {
            keys.ends.try_reserve(rows)?;
        }
        if let Some(values) = &mut self.value {
            values.ends.try_reserve(rows)?;
        }
        if let Some(offsets) = &mut self.offsets {
            offsets.try_reserve(rows)?;
        }
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.try_reserve(rows)?;
        }
        if let Some(headers) = &mut self.headers {
            headers.ends.try_reserve(rows)?;
        }
        Ok(())
    }

    /// Adds a row that [`Columns::reserve`] has reserved, or nothing if there is no memory. `timestamp` is in
    /// microseconds, and ignored unless timestamps are wanted.
    #[inline(always)]
    pub fn push(&mut self, record: &Record<'_>, offset: i64, timestamp: i64) -> Result<(), TryReserveError> {
        if let Some(keys) = &mut self.key {
            keys.reserve(record.key)?;
        }
        if let Some(values) = &mut self.value {
            values.reserve(record.value)?;
        }
        if let Some(headers) = &mut self.headers {
            headers.push(record.headers)?;
        }
        self.rows += 1;
        if let Some(keys) = &mut self.key {
            keys.push_nullable(record.key);
        }
        if let Some(values) = &mut self.value {
            values.push_nullable(record.value);
        }
        if let Some(offsets) = &mut self.offsets {
            offsets.push(offset);
        }
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.push(timestamp);
        }
        Ok(())
    }

    /// Sets timestamp type and leader epoch of the last `rows` rows.
    pub fn end_run(&mut self, rows: usize, timestamp_type: i32, leader_epoch: i32) {
        extend_run(&mut self.timestamp_types, timestamp_type, rows);
        extend_run(&mut self.leader_epochs, leader_epoch, rows);
    }

    /// Returns the rows added so far and resets the columns.
    pub fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let timestamp_types = std::mem::take(&mut self.timestamp_types);
        let leader_epochs = std::mem::take(&mut self.leader_epochs);
        let mut arrays = Vec::with_capacity(self.order.len());
        for index in 0..self.order.len() {
            let data_type = self.schema.field(index).data_type();
            let array: ArrayRef = match self.order[index] {
                Column::Key => Arc::new(required(&mut self.key)?.finish::<BinaryType>()?),
                Column::Value => Arc::new(required(&mut self.value)?.finish::<BinaryType>()?),
                Column::Offset => Arc::new(Int64Array::from(take_with_capacity(required(&mut self.offsets)?))),
                Column::Timestamp => {
                    let microseconds = take_with_capacity(required(&mut self.timestamps)?);
                    Arc::new(TimestampMicrosecondArray::from(microseconds).with_data_type(data_type.clone()))
                }
                Column::Headers => required(&mut self.headers)?.finish(data_type)?,
                Column::TimestampType => Arc::new(Int32Array::from(run_values(&timestamp_types, rows)?)),
                Column::LeaderEpoch => nullable_runs(&leader_epochs, rows)?,
                Column::Topic => self.topics.rows(rows, |topic, rows| repeated(topic, rows))?,
                Column::Partition => self
                    .partitions
                    .rows(rows, |&partition, rows| Ok(Arc::new(Int32Array::from(filled(partition, rows)?))))?,
            };
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
    }
}

/// Nullable variable-length values.
struct Bytes {
    ends: Vec<i32>,
    data: Vec<u8>,
    /// Null rows: mostly none, or all.
    nulls: Vec<u32>,
}

impl Default for Bytes {
    fn default() -> Self {
        Bytes { ends: vec![0], data: Vec::new(), nulls: Vec::new() }
    }
}

impl Bytes {
    /// Reserves the bytes of a value; its end offset is reserved already.
    #[inline(always)]
    fn reserve(&mut self, value: Option<&[u8]>) -> Result<(), TryReserveError> {
        match value {
            Some(value) => self.data.try_reserve(value.len()),
            None => self.nulls.try_reserve(1),
        }
    }

    #[inline(always)]
    fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        // The decoder limits a batch's bytes to 32 bits; finish() would reject a value that wrapped.
        self.ends.push(self.data.len() as i32);
    }

    #[inline(always)]
    fn push_nullable(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.push(value),
            None => {
                self.nulls.push(self.len() as u32);
                self.ends.push(self.data.len() as i32);
            }
        }
    }

    /// Removes the rows from `rows` on, and frees their memory.
    #[cold]
    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows + 1);
        self.ends.shrink_to_fit();
        self.data.truncate(self.ends.last().map_or(0, |&end| end as usize));
        self.data.shrink_to_fit();
        self.nulls.retain(|&row| (row as usize) < rows);
        self.nulls.shrink_to_fit();
    }

    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    fn finish<T: ByteArrayType<Offset = i32>>(&mut self) -> Result<GenericByteArray<T>, ArrowError> {
        if i32::try_from(self.data.len()).is_err() {
            return Err(ArrowError::OffsetOverflowError(self.data.len()));
        }
        let nulls = null_buffer(&take_with_capacity(&mut self.nulls), self.len())?;
        let ends = take_with_capacity(&mut self.ends);
        self.ends.push(0);
        let data = take_with_capacity(&mut self.data);
        GenericByteArray::try_new(OffsetBuffer::new(ScalarBuffer::from(ends)), Buffer::from_vec(data), nulls)
    }
}

/// U+FFFD in UTF-8.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Headers: a list of (key, value) for each row, null if it has none.
struct HeaderLists {
    ends: Vec<i32>,
    nulls: Vec<u32>,
    keys: Bytes,
    values: Bytes,
}

impl Default for HeaderLists {
    fn default() -> Self {
        HeaderLists { ends: vec![0], nulls: Vec::new(), keys: Bytes::default(), values: Bytes::default() }
    }
}

impl HeaderLists {
    /// Adds a row's headers, or nothing if there is no memory.
    #[inline(always)]
    fn push(&mut self, headers: Headers<'_>) -> Result<(), TryReserveError> {
        if headers.count == 0 {
            self.nulls.try_reserve(1)?;
            self.nulls.push((self.ends.len() - 1) as u32);
        } else {
            let before = self.keys.len();
            if let Err(error) = self.push_some(headers) {
                self.keys.truncate(before);
                self.values.truncate(before);
                return Err(error);
            }
        }
        self.ends.push(self.keys.len() as i32);
        Ok(())
    }

    fn push_some(&mut self, headers: Headers<'_>) -> Result<(), TryReserveError> {
        self.keys.ends.try_reserve(headers.count)?;
        self.values.ends.try_reserve(headers.count)?;
        for (key, value) in headers {
            self.values.reserve(value)?;
            // Like Java's String(bytes, UTF_8) in Kafka's client, replace invalid UTF-8 by U+FFFD.
            for chunk in key.utf8_chunks() {
                self.keys.data.try_reserve(chunk.valid().len() + REPLACEMENT.len())?;
                self.keys.data.extend_from_slice(chunk.valid().as_bytes());
                if !chunk.invalid().is_empty() {
                    self.keys.data.extend_from_slice(REPLACEMENT);
                }
            }
            self.keys.ends.push(self.keys.data.len() as i32);
            self.values.push_nullable(value);
        }
        Ok(())
    }

    fn finish(&mut self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let (Some(element), Some(fields)) = (list_element(data_type), header_fields(data_type)) else {
            return Err(ArrowError::SchemaError(format!("headers cannot have the type {data_type}")));
        };
        let nulls = null_buffer(&take_with_capacity(&mut self.nulls), self.ends.len() - 1)?;
        let ends = take_with_capacity(&mut self.ends);
        self.ends.push(0);
        let keys = Arc::new(self.keys.finish::<Utf8Type>()?);
        let values = Arc::new(self.values.finish::<BinaryType>()?);
        let pairs = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        Ok(Arc::new(ListArray::try_new(element.clone(), offsets, Arc::new(pairs), nulls)?))
    }
}

/// A column with the same value in every row: built once, returned as slices.
struct Constant<T> {
    value: T,
    built: Option<ArrayRef>,
}

impl<T> Constant<T> {
    fn rows(
        &mut self,
        rows: usize,
        build: impl FnOnce(&T, usize) -> Result<ArrayRef, ArrowError>,
    ) -> Result<ArrayRef, ArrowError> {
        match &self.built {
            Some(built) if built.len() >= rows => Ok(built.slice(0, rows)),
            _ => {
                let built = build(&self.value, rows.next_power_of_two())?;
                Ok(self.built.insert(built).slice(0, rows))
            }
        }
    }
}

/// The column of a field, if its name and type are supported.
fn column(field: &Field) -> Result<Column, ArrowError> {
    let data_type = field.data_type();
    let (column, fits) = match field.name().as_str() {
        "key" => (Column::Key, *data_type == DataType::Binary),
        "value" => (Column::Value, *data_type == DataType::Binary),
        "topic" => (Column::Topic, *data_type == DataType::Utf8),
        "partition" => (Column::Partition, *data_type == DataType::Int32),
        "offset" => (Column::Offset, *data_type == DataType::Int64),
        "timestamp" => (Column::Timestamp, matches!(data_type, DataType::Timestamp(TimeUnit::Microsecond, _))),
        "timestampType" => (Column::TimestampType, *data_type == DataType::Int32),
        "headers" => (Column::Headers, header_fields(data_type).is_some()),
        "leaderEpoch" => (Column::LeaderEpoch, *data_type == DataType::Int32),
        name => return Err(ArrowError::SchemaError(format!("there is no column {name:?}"))),
    };
    if fits && field.is_nullable() {
        Ok(column)
    } else {
        Err(ArrowError::SchemaError(format!("column {:?} cannot have the type {data_type}", field.name())))
    }
}

fn list_element(data_type: &DataType) -> Option<&Arc<Field>> {
    match data_type {
        DataType::List(element) => Some(element),
        _ => None,
    }
}

/// The fields of a header, if `data_type` is a list of (string, binary).
fn header_fields(data_type: &DataType) -> Option<&Fields> {
    match list_element(data_type)?.data_type() {
        DataType::Struct(fields) => match fields.as_ref() {
            [key, value]
                if *key.data_type() == DataType::Utf8
                    && *value.data_type() == DataType::Binary
                    && value.is_nullable() =>
            {
                Some(fields)
            }
            _ => None,
        },
        _ => None,
    }
}

fn required<T>(builder: &mut Option<T>) -> Result<&mut T, ArrowError> {
    builder.as_mut().ok_or_else(|| ArrowError::SchemaError("a column has no builder".to_owned()))
}

/// Takes a vector's content and reserves about as much: one batch is like the last.
fn take_with_capacity<T>(values: &mut Vec<T>) -> Vec<T> {
    let mut next = Vec::new();
    let capacity = values.len() + values.len() / 16;
    if capacity * size_of::<T>() <= MAX_RETAINED_BYTES {
        let _ = next.try_reserve_exact(capacity); // if it fails, the next batch reserves again
    }
    std::mem::replace(values, next)
}

fn extend_run(runs: &mut Vec<(i32, usize)>, value: i32, rows: usize) {
    match runs.last_mut() {
        Some((last, count)) if *last == value => *count += rows,
        _ => runs.push((value, rows)),
    }
}

fn run_values(runs: &[(i32, usize)], rows: usize) -> Result<Vec<i32>, ArrowError> {
    let mut values = with_capacity(rows)?;
    for &(value, count) in runs {
        values.resize(values.len() + count, value);
    }
    Ok(values)
}

fn nullable_runs(runs: &[(i32, usize)], rows: usize) -> Result<ArrayRef, ArrowError> {
    let values = run_values(runs, rows)?;
    let mut valid = NullBufferBuilder::new(rows);
    for &(value, count) in runs {
        if value < 0 {
            valid.append_n_nulls(count);
        } else {
            valid.append_n_non_nulls(count);
        }
    }
    Ok(Arc::new(Int32Array::new(ScalarBuffer::from(values), valid.finish())))
}

fn repeated(value: &str, rows: usize) -> Result<ArrayRef, ArrowError> {
    let mut data = with_capacity(value.len() * rows)?;
    let mut ends: Vec<i32> = with_capacity(rows + 1)?;
    ends.push(0);
    for _ in 0..rows {
        data.extend_from_slice(value.as_bytes());
        ends.push(data.len() as i32);
    }
    let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
    Ok(Arc::new(StringArray::try_new(ends, Buffer::from_vec(data), None)?))
}

fn null_buffer(nulls: &[u32], rows: usize) -> Result<Option<NullBuffer>, ArrowError> {
    if nulls.is_empty() {
        return Ok(None);
    }
    let mut valid = filled(0xffu8, rows.div_ceil(8))?;
    for &row in nulls {
        valid[row as usize / 8] &= !(1 << (row % 8));
    }
    Ok(Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(valid), 0, rows))))
}

fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>, ArrowError> {
    let mut values = with_capacity(count)?;
    values.resize(count, value);
    Ok(values)
}

/// An empty vector with capacity for `count` values.
fn with_capacity<T>(count: usize) -> Result<Vec<T>, ArrowError> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|error| ArrowError::MemoryError(error.to_string()))?;
    Ok(values)
}
