//! From fetch responses to record batches of Arrow columns.

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

use crate::aborted::{AbortedProducers, AbortedTransaction};
use crate::batch::{Header, scan};
use crate::codecs::{Codecs, DecompressedBuffer};
use crate::columns::Columns;
use crate::control::contains_abort_marker;
use crate::error::{DecodeError, ErrorKind, KernelError};
use crate::format::{CREATE_TIME, HEADER, LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC, NO_LEADER_EPOCH, at, codec};
use crate::legacy::{self, MessageSet};
use crate::record::{self, Headers, Record, RecordPrefix};

const MICROSECONDS_PER_MILLISECOND: i64 = 1000;

/// The wanted offsets, `from` inclusive to `until` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    pub from: i64,
    pub until: i64,
}

/// Bounds of one [`Decoder::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub rows: usize,
    /// Decompressed bytes of records, with the additional size of their headers as columns. A single larger record is
    /// returned alone.
    pub bytes: usize,
    /// Decompressed bytes of a batch, and bytes of a record. Less than 2 GiB, so that no column exceeds Arrow's 32-bit
    /// offsets.
    pub batch: usize,
}

/// Counters of the decoded part of the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Returned records.
    pub records: i64,
    /// Decompressed bytes of the returned records.
    pub bytes: i64,
    /// Skipped control records.
    pub control: i64,
    /// Skipped records of aborted transactions.
    pub aborted: i64,
    /// Offsets of the range without a record.
    pub gaps: i64,
}

/// Decodes one range of one partition.
pub struct Decoder {
    range: OffsetRange,
    limits: Limits,
    check_crcs: bool,
    /// Whether a batch that is wholly in the range is counted by its header: not decoded, and its CRC not checked.
    count_only: bool,
    columns: Columns,
    codecs: Codecs,
    aborted: AbortedProducers,

    /// The complete batches fed, up to `input_end`; longer than that, because it is reused.
    input: Vec<u8>,
    input_end: usize,
    /// Where the next batch starts.
    at: usize,
    /// The batch being read.
    open_batch: Option<OpenBatch>,
    /// The message of format 0 or 1 that is being read, with all inside it, and where it starts in the input.
    open_messages: Option<(usize, MessageSet)>,
    /// The records of the open batch, or the open messages, that are decompressed and not yet read.
    decompressed: DecompressedBuffer,

    /// The next offset to return: all before it were returned or skipped.
    position: i64,
    next_offset: i64,
    counts: Counts,
    /// The error behind the last good batch.
    trailing_error: Option<DecodeError>,
    /// The error that ended the decoding.
    failure: Option<DecodeError>,
}

/// How far a batch has been read.
struct OpenBatch {
    header: Header,
    compressed: bool,
    /// Whether all of its records are decompressed.
    ended: bool,
    /// Where the batch's records start in the input, and where the batch ends.
    start: usize,
    end: usize,
    /// Where the next record starts, in the decompressed bytes or in the batch's records.
    at: usize,
    remaining: i32,
    last_delta: i32,
}

enum ReadOutcome {
    /// The batch has no more records in the range.
    BatchEnd,
    /// More of the batch must be decompressed.
    NeedsDecompression,
    LimitReached,
}

impl Decoder {
    /// Creates a decoder; the schema may only have columns of Kafka records, with their types.
    pub fn new(
        schema: SchemaRef,
        topic: String,
        partition: i32,
        range: OffsetRange,
        limits: Limits,
        check_crcs: bool,
        count_only: bool,
    ) -> Result<Decoder, ArrowError> {
        Ok(Decoder {
            columns: Columns::new(schema, topic, partition)?,
            range,
            limits,
            check_crcs,
            count_only,
            codecs: Codecs::default(),
            aborted: AbortedProducers::default(),
            input: Vec::new(),
            input_end: 0,
            at: 0,
            open_batch: None,
            open_messages: None,
            decompressed: DecompressedBuffer::new(limits.batch),
            position: range.from,
            next_offset: range.from,
            counts: Counts::default(),
            trailing_error: None,
            failure: None,
        })
    }

    /// Returns the buffer to fill with `length` bytes of records before [`Decoder::feed`].
    pub fn input(&mut self, length: usize) -> Result<&mut [u8], DecodeError> {
        self.discard();
        let previous = self.input.len();
        if previous < length {
            self.input
                .try_reserve_exact(length - previous)
                .map_err(|error| KernelError::from(error).at(self.next_offset))?;
            self.input.resize(length, 0);
        }
        Ok(&mut self.input[..length])
    }

    /// Adds the records of one fetch response, the `length` bytes of [`Decoder::input`].
    pub fn feed(&mut self, length: usize, aborted: Vec<AbortedTransaction>) {
        self.discard();
        let scanned = scan(&self.input[..length.min(self.input.len())], self.next_offset, self.range.until);
        self.input_end = scanned.end;
        self.next_offset = scanned.next_offset;
        self.trailing_error = scanned.failure;
        self.aborted = AbortedProducers::new(aborted);
    }

    /// Returns the next rows, or `None` when the bytes fed are used up.
    ///
    /// Rows before an error are returned first; the next call returns the error, and so does every later one.
    pub fn read(&mut self) -> Result<Option<RecordBatch>, DecodeError> {
        let batch_start = self.position;
        if self.failure.is_none()
            && let Err(error) = self.fill()
        {
            self.failure = Some(error);
            // If memory is short, the decoded rows may need it.
            self.input = Vec::new();
            self.decompressed = DecompressedBuffer::new(0);
        }
        if self.columns.rows() > 0 {
            match self.columns.finish() {
                Ok(batch) => return Ok(Some(batch)),
                Err(error) => self.failure = Some(arrow_error(&error).at(batch_start)),
            }
        }
        match &self.failure {
            Some(error) => Err(error.clone()),
            None => Ok(None),
        }
    }

    /// The next offset to fetch.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// The next offset to return.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// Whether all records of the range were returned.
    pub fn done(&self) -> bool {
        self.next_offset >= self.range.until && !self.buffered()
    }

    /// Whether [`Decoder::read`] has not processed all input yet.
    pub fn buffered(&self) -> bool {
        self.open_batch.is_some()
            || self.open_messages.is_some()
            || self.at < self.input_end
            || self.trailing_error.is_some()
            || self.failure.is_some()
    }

    pub fn counts(&self) -> Counts {
        let processed = self.position.min(self.range.until) - self.range.from;
        let counted = self.counts.records + self.counts.control + self.counts.aborted;
        Counts { gaps: (processed - counted).max(0), ..self.counts }
    }

    fn discard(&mut self) {
        self.open_batch = None;
        self.open_messages = None;
        self.at = 0;
        self.input_end = 0;
        self.trailing_error = None;
    }

    /// Decodes until the limits are reached or the input is used up.
    fn fill(&mut self) -> Result<(), DecodeError> {
        let mut cost = 0;
        loop {
            if self.open_batch.is_none() && self.open_messages.is_none() && !self.open_next_batch()? {
                return Ok(());
            }
            let is_legacy = self.open_messages.is_some();
            match if is_legacy { self.read_messages(&mut cost)? } else { self.read_records(&mut cost)? } {
                ReadOutcome::LimitReached => return Ok(()),
                ReadOutcome::NeedsDecompression => self.decompress()?,
                ReadOutcome::BatchEnd => (self.open_batch, self.open_messages) = (None, None),
            }
        }
    }

    /// Opens the next batch with records to return; false if there is none.
    fn open_next_batch(&mut self) -> Result<bool, DecodeError> {
        while self.at < self.input_end {
            let input = &self.input[..self.input_end];
            if input.get(self.at + at::MAGIC).is_some_and(|&magic| (magic as i8) < MAGIC) {
                if self.open_message()? {
                    return Ok(true);
                }
                continue;
            }
            let Some(header) = Header::parse(&input[self.at..]) else { break };
            if header.base_offset >= self.range.until {
                self.position = self.position.max(self.range.until);
                self.discard();
                return Ok(false);
            }
            let batch = &input[self.at..self.at + header.size];
            self.at += header.size;
            let last_offset = header.last_offset();
            self.aborted.advance_to(last_offset);
            // A marker before the wanted offset may still end a transaction.
            let may_end_transaction = header.is_control() && self.aborted.any();
            if last_offset < self.position && !may_end_transaction {
                continue;
            }
            let at_batch = |error: KernelError| error.at(header.base_offset);
            let whole = header.base_offset >= self.position && last_offset < self.range.until;
            let counted = self.count_only && whole && !header.is_control();
            if self.check_crcs && !counted {
                header.check_crc(batch).map_err(at_batch)?;
            }
            if header.count < 0 {
                let error = KernelError::corrupt(format!("a record batch claims {} records", header.count));
                return Err(at_batch(error));
            }
            // A batch that is not decoded counts its records, limited to the part of the range that it covers.
            let end_position = (last_offset + 1).min(self.range.until).max(self.position);
            let skipped = i64::from(header.count).min((end_position - self.position.max(header.base_offset)).max(0));
            if header.is_control() {
                if may_end_transaction
                    && header.count > 0
                    && contains_abort_marker(&header, batch, &mut self.codecs, &mut self.decompressed)
                        .map_err(at_batch)?
                {
                    self.aborted.end(header.producer_id);
                }
                self.counts.control += skipped;
                self.position = end_position;
                continue;
            }
            if header.is_transactional() && self.aborted.contains(header.producer_id) {
                self.counts.aborted += skipped;
                self.position = end_position;
                continue;
            }
            if counted {
                self.counts.records += skipped;
            }
            if counted || header.count == 0 {
                self.position = end_position;
                continue;
            }
            let compressed = header.codec() != codec::NONE;
            if compressed {
                self.codecs.begin(header.codec(), &mut self.decompressed).map_err(at_batch)?;
            }
            self.open_batch = Some(OpenBatch {
                compressed,
                ended: !compressed,
                start: self.at - header.size + HEADER,
                end: self.at,
                at: 0,
                remaining: header.count,
                last_delta: -1,
                header,
            });
            return Ok(true);
        }
        match self.trailing_error.take() {
            Some(error) => Err(error),
            None => Ok(false),
        }
    }

    /// Opens the next message of format 0 or 1; false if it is before the range.
    fn open_message(&mut self) -> Result<bool, DecodeError> {
        let input = &self.input[..self.input_end];
        let start = self.at;
        let (offset, size) = legacy::offset_and_size(input, start).map_err(|error| error.at(self.position))?;
        self.at += LOG_OVERHEAD + size;
        if offset < self.position {
            return Ok(false);
        }
        let message = &input[start..self.at];
        let opened = MessageSet::open(message, self.check_crcs, &mut self.codecs, &mut self.decompressed);
        self.open_messages = Some((start, opened.map_err(|error| error.at(offset))?));
        Ok(true)
    }

    /// Reads the open messages until their end, or until the limits are reached.
    fn read_messages(&mut self, cost: &mut usize) -> Result<ReadOutcome, DecodeError> {
        let Some((start, open)) = &mut self.open_messages else { return Ok(ReadOutcome::BatchEnd) };
        let bytes = if open.compressed() { self.decompressed.bytes() } else { &self.input[*start..self.at] };
        while let Some(message) = open.peek(bytes, self.check_crcs).map_err(|error| error.at(open.last_offset))? {
            let offset = message.offset;
            if offset >= self.range.until {
                break;
            }
            if offset >= self.position {
                let at_message = |error: KernelError| error.at(offset);
                let rows = self.columns.rows();
                if message.size > self.limits.batch {
                    return Err(at_message(too_large(self.limits.batch)));
                }
                if rows >= self.limits.rows || (rows > 0 && *cost + message.size > self.limits.bytes) {
                    return Ok(ReadOutcome::LimitReached);
                }
                let wants_timestamps = self.columns.wants_timestamps();
                let time = if wants_timestamps { microseconds(message.timestamp).map_err(at_message)? } else { 0 };
                let record = Record { key: message.key, value: message.value, headers: Headers::default() };
                let pushed = self.columns.reserve(1).and_then(|()| self.columns.push(&record, offset, time));
                pushed.map_err(|error| at_message(error.into()))?;
                self.columns.end_run(1, message.timestamp_type, NO_LEADER_EPOCH);
                *cost += message.size;
                self.counts.bytes += message.size as i64;
                self.counts.records += 1;
                self.position = offset + 1;
            }
            open.advance(&message);
        }
        self.position = self.position.max((open.last_offset + 1).min(self.range.until));
        Ok(ReadOutcome::BatchEnd)
    }

    /// Decompresses more of the open batch.
    fn decompress(&mut self) -> Result<(), DecodeError> {
        let Some(open) = &mut self.open_batch else { return Ok(()) };
        self.decompressed.consume(std::mem::take(&mut open.at));
        let more = self.codecs.decompress_more(&self.input[open.start..open.end], &mut self.decompressed);
        open.ended = more.map_err(|error| error.at(open.header.base_offset))?;
        Ok(())
    }

    /// Reads records of the open batch until it ends, more has to be decompressed, or the limits are reached.
    fn read_records(&mut self, cost: &mut usize) -> Result<ReadOutcome, DecodeError> {
        let Some(open) = &mut self.open_batch else { return Ok(ReadOutcome::BatchEnd) };
        let records = if open.compressed { self.decompressed.bytes() } else { &self.input[open.start..open.end] };
        let before = self.columns.rows();
        let from = self.position;
        let mut reader = RecordReader {
            records,
            range: OffsetRange { from, ..self.range },
            limits: self.limits,
            columns: &mut self.columns,
            total_cost: cost,
            record_bytes: 0,
            position: from,
        };
        let outcome = reader.run(open);
        self.position = reader.position;
        self.counts.bytes += reader.record_bytes as i64;
        let rows = self.columns.rows() - before;
        self.counts.records += rows as i64;
        if rows > 0 {
            let header = &open.header;
            let timestamp_type = if header.is_log_append_time() { LOG_APPEND_TIME } else { CREATE_TIME };
            self.columns.end_run(rows, timestamp_type, header.leader_epoch);
        }
        let outcome = outcome.map_err(|(error, offset)| error.at(offset))?;
        if let ReadOutcome::BatchEnd = outcome {
            self.position = self.position.max((open.header.last_offset() + 1).min(self.range.until));
        }
        Ok(outcome)
    }
}

/// The inner loop over the records of a batch.
struct RecordReader<'a> {
    records: &'a [u8],
    range: OffsetRange,
    limits: Limits,
    columns: &'a mut Columns,
    /// Bytes that count towards the limits.
    total_cost: &'a mut usize,
    /// The records' own bytes.
    record_bytes: usize,
    position: i64,
}

impl RecordReader<'_> {
    fn run(&mut self, open: &mut OpenBatch) -> Result<ReadOutcome, (KernelError, i64)> {
        let header = open.header;
        let wants_timestamps = self.columns.wants_timestamps();
        let wants_headers = self.columns.wants_headers();
        let append_time = header.is_log_append_time();
        let rows = (open.remaining as usize)
            .min(1 + self.records.len() / record::MIN_RECORD_BYTES)
            .min(self.limits.rows.saturating_sub(self.columns.rows()));
        let at_position = |error| (KernelError::from(error), self.position);
        self.columns.reserve(rows).map_err(at_position)?;
        while open.remaining > 0 {
            // Until a record's offset is decoded, errors name the offset after its predecessor's.
            let error_offset = header.base_offset + i64::from(open.last_delta) + 1;
            let prefix = match RecordPrefix::parse(self.records, open.at) {
                Ok(prefix) => prefix,
                Err(error) => return self.incomplete_record(open, error).map_err(|error| (error, error_offset)),
            };
            let delta = prefix.offset_delta;
            if delta <= open.last_delta || delta > header.last_offset_delta {
                return Err((out_of_order(delta, open.last_delta, header.last_offset_delta), error_offset));
            }
            let offset = header.base_offset + i64::from(delta);
            if offset >= self.range.until {
                self.position = self.position.max(self.range.until);
                return Ok(ReadOutcome::BatchEnd);
            }
            if offset >= self.range.from {
                let size = prefix.end - open.at;
                let rows = self.columns.rows();
                if rows >= self.limits.rows {
                    return Ok(ReadOutcome::LimitReached);
                }
                let record = prefix.record().map_err(|error| (error, offset))?;
                let cost = if wants_headers { size + record.headers.extra_bytes() } else { size };
                if cost > self.limits.batch {
                    return Err((too_large(self.limits.batch), offset));
                }
                if rows > 0 && *self.total_cost + cost > self.limits.bytes {
                    return Ok(ReadOutcome::LimitReached);
                }
                let mut time = 0;
                if wants_timestamps {
                    let milliseconds = if append_time {
                        header.max_timestamp
                    } else {
                        header.base_timestamp.wrapping_add(prefix.timestamp_delta)
                    };
                    time = microseconds(milliseconds).map_err(|error| (error, offset))?;
                }
                self.columns.push(&record, offset, time).map_err(|error| (KernelError::from(error), offset))?;
                *self.total_cost += cost;
                self.record_bytes += size;
                self.position = offset + 1;
            }
            open.last_delta = delta;
            open.remaining -= 1;
            open.at = prefix.end;
        }
        if open.at != self.records.len() {
            let error = KernelError::corrupt("a record batch has bytes after its last record");
            return Err((error, header.last_offset()));
        }
        // The rest of a compressed batch should be a checksum at most.
        Ok(if open.ended { ReadOutcome::BatchEnd } else { ReadOutcome::NeedsDecompression })
    }

    /// Returns the error unless the record is only incomplete, because more of the batch must be decompressed.
    #[cold]
    fn incomplete_record(&self, open: &OpenBatch, error: KernelError) -> Result<ReadOutcome, KernelError> {
        if open.ended {
            return Err(error);
        }
        let records = &self.records[open.at..];
        match record::size(records)? {
            Some(size) if size > self.limits.batch => Err(too_large(self.limits.batch)),
            Some(size) if size <= records.len() => Err(error),
            _ => Ok(ReadOutcome::NeedsDecompression),
        }
    }
}

#[inline(always)]
fn microseconds(milliseconds: i64) -> Result<i64, KernelError> {
    milliseconds.checked_mul(MICROSECONDS_PER_MILLISECOND).ok_or_else(|| overflow(milliseconds))
}

#[cold]
fn out_of_order(delta: i32, last: i32, last_of_batch: i32) -> KernelError {
    KernelError::corrupt(format!(
        "a record's offset delta {delta} is not after its predecessor's ({last}) or beyond its batch's last ({last_of_batch})"
    ))
}

#[cold]
fn overflow(milliseconds: i64) -> KernelError {
    KernelError {
        kind: ErrorKind::Timestamp,
        message: format!("the timestamp {milliseconds} ms does not fit Spark's 64-bit microseconds"),
    }
}

#[cold]
fn too_large(max_bytes: usize) -> KernelError {
    KernelError::too_large(format!("a record takes more than {max_bytes} bytes"))
}

fn arrow_error(error: &ArrowError) -> KernelError {
    match error {
        ArrowError::MemoryError(_) => KernelError::no_memory(),
        _ => KernelError::unsupported(format!("the records do not fit an Arrow record batch: {error}")),
    }
}
