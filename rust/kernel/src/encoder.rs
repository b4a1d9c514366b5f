//! Rows of one topic to record batches.

use arrow_array::RecordBatch;

use crate::batch_writer::{BatchWriter, Content, Place};
use crate::codecs::Compressor;
use crate::error::{ErrorKind, Flaw};
use crate::murmur2::partition_of;
use crate::rows::{Row, Rows};

/// What an encoder is told; sizes count records uncompressed, as in their batch.
#[derive(Clone, Copy, Debug)]
pub struct EncoderSettings {
    /// How many partitions the topic has.
    pub partitions: i32,
    /// The codec's number in the attributes of a batch.
    pub codec: u8,
    /// The codec's level, or its default.
    pub level: Option<i32>,
    /// Most bytes of a batch's records; a single larger record comes alone.
    pub batch_bytes: usize,
    /// Most bytes of a record; a larger one is an error.
    pub max_record_bytes: usize,
    /// Whether keys have no say in the choice of a partition.
    pub ignore_keys: bool,
    /// The partition where rows without a key begin.
    pub first_sticky: i32,
}

/// One record batch, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBatch {
    pub partition: i32,
    pub records: i32,
    /// The size of its records before compression.
    pub raw_bytes: usize,
    /// The whole batch, header included.
    pub data: Vec<u8>,
}

/// What cannot be encoded. Rows are counted from 0 over all that an encoder was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The rows as a whole cannot be used: a column is missing or has another type.
    Columns(String),
    /// A partition that the topic does not have.
    Partition { row: u64, partition: i32 },
    /// A header without a key.
    Header { row: u64 },
    /// A record beyond the largest size.
    TooLarge { row: u64, size: usize },
    /// The process may have no more memory.
    NoMemory { row: u64 },
}

/// Keeps one open batch per partition, and hands it out when the next record has no room in it.
pub struct Encoder {
    settings: EncoderSettings,
    /// By partition, as far as there were rows for them.
    open: Vec<BatchWriter>,
    open_bytes: usize,
    full: Vec<EncodedBatch>,
    sticky: i32,
    rows: u64,
    compressor: Compressor,
    /// Where batches are compressed.
    scratch: Vec<u8>,
    /// Buffers for batches to come: fresh memory costs as much as filling it.
    spare: Vec<Vec<u8>>,
}

/// How many buffers are kept.
const SPARE: usize = 4;
/// Larger buffers, which unusual batches leave behind, are not kept.
const KEPT_BYTES: usize = 16 << 20;

impl Encoder {
    /// # Errors
    /// The codec is unknown, the partition to begin with is not there, or there is no memory.
    pub fn new(settings: EncoderSettings) -> Result<Encoder, EncodeError> {
        if !(0..settings.partitions).contains(&settings.first_sticky) {
            return Err(EncodeError::Columns(format!("there is no partition {}", settings.first_sticky)));
        }
        Ok(Encoder {
            compressor: Compressor::new(settings.codec, settings.level).map_err(|flaw| failure(flaw, 0))?,
            sticky: settings.first_sticky,
            open: Vec::new(),
            open_bytes: 0,
            full: Vec::new(),
            rows: 0,
            scratch: Vec::new(),
            spare: Vec::new(),
            settings,
        })
    }

    /// Takes rows; returns the batches that are full now, in the order in which they were filled.
    ///
    /// # Errors
    /// Rows that cannot be written; the encoder is of no more use then.
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
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn flush(&mut self) -> Result<Vec<EncodedBatch>, EncodeError> {
        for partition in 0..self.open.len() {
            if self.open[partition].records() > 0 {
                self.close(partition as i32)?;
            }
        }
        Ok(std::mem::take(&mut self.full))
    }

    /// Takes back the buffer of a batch that is no longer needed, for another one.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE && (1..=KEPT_BYTES / SPARE).contains(&buffer.capacity()) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Bytes of the records in open batches.
    pub fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    #[inline(always)]
    fn add_row(&mut self, row: &Row<'_>) -> Result<(), EncodeError> {
        let named = self.partition(row)?;
        let mut partition = named.unwrap_or(self.sticky);
        let mut place = self.place(partition, row)?;
        if named.is_none() && place.is_none() {
            self.close(partition)?;
            self.unstick();
            partition = self.sticky;
            place = self.place(partition, row)?;
        }
        let place = match place {
            Some(place) => place,
            None => {
                self.close(partition)?;
                self.open[partition as usize].place(row.timestamp, row.size())
            }
        };
        if place.size > self.settings.max_record_bytes {
            return Err(EncodeError::TooLarge { row: self.rows, size: place.size });
        }
        let batch = &mut self.open[partition as usize];
        if batch.records() == 0 {
            batch.begin(self.spare.pop().unwrap_or_default()).map_err(|flaw| failure(flaw, self.rows))?;
        }
        batch.append(&place, row).map_err(|flaw| failure(flaw, self.rows))?;
        self.open_bytes += place.size;
        if batch.raw_bytes() >= self.settings.batch_bytes {
            self.close(partition)?;
            if named.is_none() {
                self.unstick();
            }
        }
        Ok(())
    }

    /// The row's own partition; `None` when it goes where such rows stick.
    #[inline(always)]
    fn partition(&self, row: &Row<'_>) -> Result<Option<i32>, EncodeError> {
        let partitions = self.settings.partitions;
        match (row.partition, row.key) {
            (Some(partition), _) if (0..partitions).contains(&partition) => Ok(Some(partition)),
            (Some(partition), _) => Err(EncodeError::Partition { row: self.rows, partition }),
            (None, Some(key)) if !self.settings.ignore_keys => Ok(Some(partition_of(key, partitions))),
            _ => Ok(None),
        }
    }

    /// The row's place in the open batch of that partition; `None` when there is no room. In an empty one there always is.
    #[inline(always)]
    fn place(&mut self, partition: i32, row: &Row<'_>) -> Result<Option<Place>, EncodeError> {
        let index = partition as usize;
        if index >= self.open.len() {
            let more = index + 1 - self.open.len();
            self.open.try_reserve(more).map_err(|error| failure(error.into(), self.rows))?;
            self.open.resize_with(index + 1, BatchWriter::default);
        }
        let batch = &self.open[index];
        let place = batch.place(row.timestamp, row.size());
        let used = batch.raw_bytes();
        Ok((used == 0 || used + place.size <= self.settings.batch_bytes).then_some(place))
    }

    #[inline(never)]
    fn close(&mut self, partition: i32) -> Result<(), EncodeError> {
        let batch = &mut self.open[partition as usize];
        let (records, raw_bytes) = (batch.records(), batch.raw_bytes());
        let finished = batch.finish(&mut self.compressor, &mut self.scratch);
        let (data, buffer) = finished.map_err(|flaw| failure(flaw, self.rows))?;
        self.recycle(buffer);
        if self.scratch.capacity() > KEPT_BYTES {
            self.scratch = Vec::new();
        }
        self.open_bytes -= raw_bytes;
        self.full.push(EncodedBatch { partition, records, raw_bytes, data });
        Ok(())
    }

    fn unstick(&mut self) {
        self.sticky = (self.sticky + 1) % self.settings.partitions;
    }
}

fn failure(flaw: Flaw, row: u64) -> EncodeError {
    match flaw.kind {
        ErrorKind::NoMemory => EncodeError::NoMemory { row },
        _ => EncodeError::Columns(flaw.message),
    }
}
