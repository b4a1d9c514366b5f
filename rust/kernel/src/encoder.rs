//! Encodes rows of one topic into record batches.

use arrow_array::RecordBatch;

use crate::batch_writer::{BatchWriter, RecordContent, RecordLayout};
use crate::codecs::Compressor;
use crate::error::{ErrorKind, KernelError};
use crate::murmur2::partition_for_key;
use crate::rows::{Row, Rows};

/// Settings of an encoder; sizes are those of uncompressed records.
#[derive(Clone, Copy, Debug)]
pub struct EncoderSettings {
    pub partitions: i32,
    /// The codec number in the attributes of a batch.
    pub codec: u8,
    /// `None`: the codec's default.
    pub level: Option<i32>,
    /// Maximum size of a batch's records; a single larger record gets its own batch.
    pub batch_bytes: usize,
    pub max_record_bytes: usize,
    /// Whether the choice of a partition ignores keys.
    pub ignore_keys: bool,
    /// The first partition of rows without a key.
    pub first_sticky: i32,
}

/// A complete record batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBatch {
    pub partition: i32,
    pub records: i32,
    pub uncompressed_bytes: usize,
    /// The batch, with its header.
    pub data: Vec<u8>,
}

/// Rows are counted from 0 over all calls of an encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// A column is missing or has another type.
    Columns(String),
    /// The topic has no such partition.
    Partition {
        row: u64,
        partition: i32,
    },
    /// A header has no key.
    Header {
        row: u64,
    },
    TooLarge {
        row: u64,
        size: usize,
    },
    NoMemory {
        row: u64,
    },
}

/// Keeps one open batch for each partition, and returns it when the next record does not fit.
pub struct Encoder {
    settings: EncoderSettings,
    /// By partition, up to the highest one with rows.
    open: Vec<BatchWriter>,
    open_bytes: usize,
    full: Vec<EncodedBatch>,
    sticky_partition: i32,
    /// Encoded keys, values and headers of the sticky partition since it changed. Timestamps do not count, so a task
    /// that runs again chooses the same partitions.
    sticky_bytes: usize,
    rows: u64,
    compressor: Compressor,
    compression_buffer: Vec<u8>,
    /// Buffers for future batches: new memory costs as much as filling it.
    spare_buffers: Vec<Vec<u8>>,
}

/// After this many bytes, rows without a key go to the next partition: `batch.size` of the Java client (KIP-794).
const MAX_STICKY_BYTES: usize = 16 << 10;
const MAX_SPARE_BUFFERS: usize = 4;
/// Larger buffers of unusual batches are freed.
const MAX_RETAINED_BYTES: usize = 16 << 20;

impl Encoder {
    pub fn new(settings: EncoderSettings) -> Result<Encoder, EncodeError> {
        if !(0..settings.partitions).contains(&settings.first_sticky) {
            return Err(EncodeError::Columns(format!("there is no partition {}", settings.first_sticky)));
        }
        Ok(Encoder {
            compressor: Compressor::new(settings.codec, settings.level).map_err(|error| failure(error, 0))?,
            sticky_partition: settings.first_sticky,
            sticky_bytes: 0,
            open: Vec::new(),
            open_bytes: 0,
            full: Vec::new(),
            rows: 0,
            compression_buffer: Vec::new(),
            spare_buffers: Vec::new(),
            settings,
        })
    }

    /// Adds rows; returns the batches that are full now, in the order in which they were filled.
    ///
    /// After an error the encoder is unusable.
    pub fn add(&mut self, rows: &RecordBatch) -> Result<Vec<EncodedBatch>, EncodeError> {
        let rows = Rows::new(rows).map_err(EncodeError::Columns)?;
        for index in 0..rows.count() {
            let row = rows.get(index).map_err(|_| EncodeError::Header { row: self.rows })?;
            self.add_row(&row)?;
            self.rows += 1;
        }
        Ok(std::mem::take(&mut self.full))
    }

    /// Returns all open batches, by partition.
    pub fn flush(&mut self) -> Result<Vec<EncodedBatch>, EncodeError> {
        for partition in 0..self.open.len() {
            if self.open[partition].records() > 0 {
                self.close(partition as i32)?;
            }
        }
        Ok(std::mem::take(&mut self.full))
    }

    /// Reuses the buffer of a batch that is no longer needed.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare_buffers.len() < MAX_SPARE_BUFFERS
            && (1..=MAX_RETAINED_BYTES / MAX_SPARE_BUFFERS).contains(&buffer.capacity())
        {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
    }

    /// The size of the records in open batches.
    pub fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    #[inline(always)]
    fn add_row(&mut self, row: &Row<'_>) -> Result<(), EncodeError> {
        let explicit_partition = self.partition(row)?;
        let partition = explicit_partition.unwrap_or(self.sticky_partition);
        let layout = match self.layout(partition, row)? {
            Some(layout) => layout,
            None => {
                self.close(partition)?;
                self.open[partition as usize].layout(row.timestamp, row.size())
            }
        };
        if layout.size > self.settings.max_record_bytes {
            return Err(EncodeError::TooLarge { row: self.rows, size: layout.size });
        }
        let batch = &mut self.open[partition as usize];
        if batch.records() == 0 {
            batch.begin(self.spare_buffers.pop().unwrap_or_default()).map_err(|error| failure(error, self.rows))?;
        }
        batch.append(&layout, row).map_err(|error| failure(error, self.rows))?;
        self.open_bytes += layout.size;
        if batch.uncompressed_bytes() >= self.settings.batch_bytes {
            self.close(partition)?;
        }
        if explicit_partition.is_none() {
            self.count_sticky(row.size());
        }
        Ok(())
    }

    /// The row's partition; `None` if it goes to the sticky partition.
    #[inline(always)]
    fn partition(&self, row: &Row<'_>) -> Result<Option<i32>, EncodeError> {
        let partitions = self.settings.partitions;
        match (row.partition, row.key) {
            (Some(partition), _) if (0..partitions).contains(&partition) => Ok(Some(partition)),
            (Some(partition), _) => Err(EncodeError::Partition { row: self.rows, partition }),
            (None, Some(key)) if !self.settings.ignore_keys => Ok(Some(partition_for_key(key, partitions))),
            _ => Ok(None),
        }
    }

    /// The row's layout in the open batch of that partition; `None` if it does not fit. An empty batch fits every row.
    #[inline(always)]
    fn layout(&mut self, partition: i32, row: &Row<'_>) -> Result<Option<RecordLayout>, EncodeError> {
        let index = partition as usize;
        if index >= self.open.len() {
            let more = index + 1 - self.open.len();
            self.open.try_reserve(more).map_err(|error| failure(error.into(), self.rows))?;
            self.open.resize_with(index + 1, BatchWriter::default);
        }
        let batch = &self.open[index];
        let layout = batch.layout(row.timestamp, row.size());
        let used = batch.uncompressed_bytes();
        Ok((used == 0 || used + layout.size <= self.settings.batch_bytes).then_some(layout))
    }

    #[inline(never)]
    fn close(&mut self, partition: i32) -> Result<(), EncodeError> {
        let batch = &mut self.open[partition as usize];
        let (records, uncompressed_bytes) = (batch.records(), batch.uncompressed_bytes());
        let finished = batch.finish(&mut self.compressor, &mut self.compression_buffer);
        let (data, buffer) = finished.map_err(|error| failure(error, self.rows))?;
        self.recycle(buffer);
        if self.compression_buffer.capacity() > MAX_RETAINED_BYTES {
            self.compression_buffer = Vec::new();
        }
        self.open_bytes -= uncompressed_bytes;
        self.full.push(EncodedBatch { partition, records, uncompressed_bytes, data });
        Ok(())
    }

    #[inline(always)]
    fn count_sticky(&mut self, bytes: usize) {
        self.sticky_bytes += bytes;
        if self.sticky_bytes >= self.settings.batch_bytes.min(MAX_STICKY_BYTES) {
            self.sticky_bytes = 0;
            self.sticky_partition = (self.sticky_partition + 1) % self.settings.partitions;
        }
    }
}

fn failure(error: KernelError, row: u64) -> EncodeError {
    match error.kind {
        ErrorKind::NoMemory => EncodeError::NoMemory { row },
        _ => EncodeError::Columns(error.message),
    }
}
