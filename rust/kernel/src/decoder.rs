//! From fetch responses to record batches of Arrow columns.

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

use crate::aborted::{AbortedTransaction, AbortedTransactions};
use crate::batch::{Header, scan};
use crate::codecs::{Codecs, Plain};
use crate::columns::Columns;
use crate::error::{DecodeError, ErrorKind, Flaw};
use crate::format::{ABORT_MARKER, CREATE_TIME, HEADER, LOG_APPEND_TIME, codec};
use crate::record::{self, Head};

/// Microseconds in the milliseconds Kafka counts in.
const MICROSECONDS: i64 = 1000;

/// The wanted offsets: `from` up to, not including, `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub from: i64,
    pub until: i64,
}

/// Bounds of one [`Decoder::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub rows: usize,
    /// Bytes of records as they are in their batch, decompressed, with what their headers take more as columns. A
    /// single larger record comes alone.
    pub bytes: usize,
    /// Bytes that a batch may decompress to, and a record may take: larger ones are refused. Less than 2 GiB, so that no
    /// column outgrows Arrow's 32-bit offsets.
    pub batch: usize,
}

/// What has been decoded so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records handed out.
    pub records: i64,
    /// Their bytes, decompressed.
    pub bytes: i64,
    /// Control records passed over.
    pub control: i64,
    /// Records of aborted transactions passed over.
    pub aborted: i64,
    /// Offsets of the range that no batch had a record for.
    pub holes: i64,
}

/// Decodes one range of one partition.
pub struct Decoder {
    range: Range,
    limits: Limits,
    check_crcs: bool,
    columns: Columns,
    codecs: Codecs,
    aborted: AbortedTransactions,

    /// The complete batches fed, up to `input_end`; longer than that, since it is re-used.
    input: Vec<u8>,
    input_end: usize,
    /// Where the next batch starts.
    at: usize,
    /// The batch being read, if it is not finished.
    open: Option<OpenBatch>,
    /// The records of the open batch that are decompressed and not yet read, if they were compressed.
    plain: Plain,

    /// The next offset to hand out: all before it are dealt with.
    position: i64,
    next_offset: i64,
    counts: Counts,
    /// Offsets dealt with elsewhere, see [`Decoder::advance_to`].
    elsewhere: i64,
    /// What is wrong behind the last good batch.
    tail: Option<DecodeError>,
    /// The error that ended the decoding.
    failure: Option<DecodeError>,
}

/// How far a batch has been read.
struct OpenBatch {
    header: Header,
    compressed: bool,
    /// Whether all of its records are at hand: there is nothing left to decompress.
    ended: bool,
    /// Where the batch's records start in the input, and where the batch ends.
    start: usize,
    end: usize,
    /// Where the next record starts, in the plain bytes or in the batch's records.
    at: usize,
    remaining: i32,
    last_delta: i32,
}

enum Stop {
    /// The batch has no more records for us.
    Finished,
    /// More has to be decompressed.
    Starved,
    /// The limits of this read are reached.
    Full,
}

impl Decoder {
    /// Makes a decoder.
    ///
    /// # Errors
    /// The schema has columns that Kafka records do not, or of other types.
    pub fn new(
        schema: SchemaRef,
        topic: String,
        partition: i32,
        range: Range,
        limits: Limits,
        check_crcs: bool,
    ) -> Result<Decoder, ArrowError> {
        Ok(Decoder {
            columns: Columns::new(schema, topic, partition)?,
            range,
            limits,
            check_crcs,
            codecs: Codecs::default(),
            aborted: AbortedTransactions::default(),
            input: Vec::new(),
            input_end: 0,
            at: 0,
            open: None,
            plain: Plain::new(limits.batch),
            position: range.from,
            next_offset: range.from,
            counts: Counts::default(),
            elsewhere: 0,
            tail: None,
            failure: None,
        })
    }

    /// The buffer to fill with `length` bytes of records before [`Decoder::feed`].
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn input(&mut self, length: usize) -> Result<&mut [u8], DecodeError> {
        self.discard();
        let held = self.input.len();
        if held < length {
            self.input.try_reserve_exact(length - held).map_err(|error| Flaw::from(error).at(self.next_offset))?;
            self.input.resize(length, 0);
        }
        Ok(&mut self.input[..length])
    }

    /// Takes the records of one fetch response, `length` bytes that [`Decoder::input`] was filled with.
    ///
    /// Returns false, and takes nothing, when there are batches of message format 0 or 1 among them.
    pub fn feed(&mut self, length: usize, aborted: Vec<AbortedTransaction>) -> bool {
        self.discard();
        let found = scan(&self.input[..length.min(self.input.len())], self.next_offset, self.range.until);
        if found.old_format {
            return false;
        }
        self.input_end = found.end;
        self.next_offset = found.next_offset;
        self.tail = found.failure;
        self.aborted = AbortedTransactions::new(aborted);
        true
    }

    /// Returns the next rows, or `None` when the bytes fed are used up.
    ///
    /// Rows that were decoded before an error are handed out first; the error comes with the next call, and with every
    /// one after it.
    ///
    /// # Errors
    /// Malformed or unsupported records, records that are too large, or a timestamp that does not fit.
    pub fn read(&mut self) -> Result<Option<RecordBatch>, DecodeError> {
        let first = self.position;
        if self.failure.is_none()
            && let Err(error) = self.fill()
        {
            self.failure = Some(error);
            // Where memory is short, the rows that are there may need it.
            self.input = Vec::new();
            self.plain = Plain::new(0);
        }
        if self.columns.rows() > 0 {
            match self.columns.finish() {
                Ok(batch) => return Ok(Some(batch)),
                Err(error) => self.failure = Some(unfit(&error).at(first)),
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

    /// The next offset to hand out.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// Whether all of the range has been handed out.
    pub fn done(&self) -> bool {
        self.next_offset >= self.range.until && !self.buffered()
    }

    /// Whether there is something that [`Decoder::read`] has not looked at yet.
    pub fn buffered(&self) -> bool {
        self.open.is_some() || self.at < self.input_end || self.tail.is_some() || self.failure.is_some()
    }

    pub fn counts(&self) -> Counts {
        let passed = self.position.min(self.range.until) - self.range.from - self.elsewhere;
        let known = self.counts.records + self.counts.control + self.counts.aborted;
        Counts { holes: (passed - known).max(0), ..self.counts }
    }

    /// Continues at `offset`: someone else decoded what is before it.
    pub fn advance_to(&mut self, offset: i64) {
        self.discard();
        let from = self.position.min(self.range.until);
        self.position = self.position.max(offset);
        self.next_offset = self.next_offset.max(offset);
        self.elsewhere += self.position.min(self.range.until) - from;
    }

    fn discard(&mut self) {
        self.open = None;
        self.at = 0;
        self.input_end = 0;
        self.tail = None;
    }

    /// Decodes until the limits are reached or the input is used up.
    fn fill(&mut self) -> Result<(), DecodeError> {
        let mut bytes = 0;
        loop {
            if self.open.is_none() && !self.open_batch()? {
                return Ok(());
            }
            match self.read_records(&mut bytes)? {
                Stop::Full => return Ok(()),
                Stop::Starved => self.decompress()?,
                Stop::Finished => self.open = None,
            }
        }
    }

    /// Opens the next batch that has records for us; false when there is none.
    fn open_batch(&mut self) -> Result<bool, DecodeError> {
        while self.at < self.input_end {
            let input = &self.input[..self.input_end];
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
            let marker = header.is_control() && self.aborted.any();
            if last_offset < self.position && !marker {
                continue;
            }
            let at_batch = |flaw: Flaw| flaw.at(header.base_offset);
            if self.check_crcs {
                header.check_crc(batch).map_err(at_batch)?;
            }
            if header.count < 0 {
                let flaw = Flaw::corrupt(format!("a record batch claims {} records", header.count));
                return Err(at_batch(flaw));
            }
            // What a batch that is passed over counts for: its records, as far as its part of the range goes.
            let after = (last_offset + 1).min(self.range.until).max(self.position);
            let passed = i64::from(header.count).min((after - self.position.max(header.base_offset)).max(0));
            if header.is_control() {
                if marker
                    && header.count > 0
                    && is_abort(&header, batch, &mut self.codecs, &mut self.plain).map_err(at_batch)?
                {
                    self.aborted.end(header.producer_id);
                }
                self.counts.control += passed;
                self.position = after;
                continue;
            }
            if header.is_transactional() && self.aborted.contains(header.producer_id) {
                self.counts.aborted += passed;
                self.position = after;
                continue;
            }
            if header.count == 0 {
                self.position = after;
                continue;
            }
            let compressed = header.codec() != codec::NONE;
            if compressed {
                self.codecs.begin(header.codec(), &mut self.plain).map_err(at_batch)?;
            }
            self.open = Some(OpenBatch {
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
        match self.tail.take() {
            Some(error) => Err(error),
            None => Ok(false),
        }
    }

    /// Decompresses more of the open batch.
    fn decompress(&mut self) -> Result<(), DecodeError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        self.plain.consume(std::mem::take(&mut open.at));
        let more = self.codecs.more(&self.input[open.start..open.end], &mut self.plain);
        open.ended = more.map_err(|flaw| flaw.at(open.header.base_offset))?;
        Ok(())
    }

    /// Reads records of the open batch until it ends, more has to be decompressed, or the limits are reached.
    fn read_records(&mut self, bytes: &mut usize) -> Result<Stop, DecodeError> {
        let Some(open) = &mut self.open else { return Ok(Stop::Finished) };
        let records = if open.compressed { self.plain.bytes() } else { &self.input[open.start..open.end] };
        let before = self.columns.rows();
        let from = self.position;
        let mut walk = Walk {
            records,
            range: Range { from, ..self.range },
            limits: self.limits,
            columns: &mut self.columns,
            bytes,
            sizes: 0,
            position: from,
        };
        let stop = walk.run(open);
        self.position = walk.position;
        self.counts.bytes += walk.sizes as i64;
        let rows = self.columns.rows() - before;
        self.counts.records += rows as i64;
        if rows > 0 {
            let header = &open.header;
            let timestamp_type = if header.is_log_append_time() { LOG_APPEND_TIME } else { CREATE_TIME };
            self.columns.end_run(rows, timestamp_type, header.leader_epoch);
        }
        let stop = stop.map_err(|(flaw, offset)| flaw.at(offset))?;
        if let Stop::Finished = stop {
            self.position = self.position.max((open.header.last_offset() + 1).min(self.range.until));
        }
        Ok(stop)
    }
}

/// The inner loop, with what it needs at hand.
struct Walk<'a> {
    records: &'a [u8],
    range: Range,
    limits: Limits,
    columns: &'a mut Columns,
    /// What counts for the limits.
    bytes: &'a mut usize,
    /// The records' own bytes.
    sizes: usize,
    position: i64,
}

impl Walk<'_> {
    fn run(&mut self, open: &mut OpenBatch) -> Result<Stop, (Flaw, i64)> {
        let header = open.header;
        let wants_timestamps = self.columns.wants_timestamps();
        let wants_headers = self.columns.wants_headers();
        let append_time = header.is_log_append_time();
        let rows = (open.remaining as usize)
            .min(1 + self.records.len() / record::LEAST)
            .min(self.limits.rows.saturating_sub(self.columns.rows()));
        let flaw_here = |error| (Flaw::from(error), self.position);
        self.columns.reserve(rows).map_err(flaw_here)?;
        while open.remaining > 0 {
            // Until its own is known, a record's offset is the one after its predecessor's.
            let expected = header.base_offset + i64::from(open.last_delta) + 1;
            let head = match Head::parse(self.records, open.at) {
                Ok(head) => head,
                Err(flaw) => return self.cut_off(open, flaw).map_err(|flaw| (flaw, expected)),
            };
            let delta = head.offset_delta;
            if delta <= open.last_delta || delta > header.last_offset_delta {
                return Err((out_of_order(delta, open.last_delta, header.last_offset_delta), expected));
            }
            let offset = header.base_offset + i64::from(delta);
            if offset >= self.range.until {
                self.position = self.position.max(self.range.until);
                return Ok(Stop::Finished);
            }
            if offset >= self.range.from {
                let size = head.end - open.at;
                let rows = self.columns.rows();
                if rows >= self.limits.rows {
                    return Ok(Stop::Full);
                }
                let record = head.record().map_err(|flaw| (flaw, offset))?;
                let cost = if wants_headers { size + record.headers.extra() } else { size };
                if cost > self.limits.batch {
                    return Err((too_large(self.limits.batch), offset));
                }
                if rows > 0 && *self.bytes + cost > self.limits.bytes {
                    return Ok(Stop::Full);
                }
                let mut microseconds = 0;
                if wants_timestamps {
                    let milliseconds = if append_time {
                        header.max_timestamp
                    } else {
                        header.base_timestamp.wrapping_add(head.timestamp_delta)
                    };
                    microseconds =
                        milliseconds.checked_mul(MICROSECONDS).ok_or_else(|| (overflow(milliseconds), offset))?;
                }
                self.columns.push(&record, offset, microseconds).map_err(|error| (Flaw::from(error), offset))?;
                *self.bytes += cost;
                self.sizes += size;
                self.position = offset + 1;
            }
            open.last_delta = delta;
            open.remaining -= 1;
            open.at = head.end;
        }
        if open.at != self.records.len() {
            let flaw = Flaw::corrupt("a record batch has bytes behind its last record");
            return Err((flaw, header.last_offset()));
        }
        // The rest of a compressed batch should be nothing, but a checksum.
        Ok(if open.ended { Stop::Finished } else { Stop::Starved })
    }

    /// Whether the record that cannot be read is only cut off here: more of the batch may be decompressed.
    #[cold]
    fn cut_off(&self, open: &OpenBatch, flaw: Flaw) -> Result<Stop, Flaw> {
        if open.ended {
            return Err(flaw);
        }
        let records = &self.records[open.at..];
        match record::size(records)? {
            Some(size) if size > self.limits.batch => Err(too_large(self.limits.batch)),
            Some(size) if size <= records.len() => Err(flaw),
            _ => Ok(Stop::Starved),
        }
    }
}

/// Whether a control batch holds an ABORT marker.
fn is_abort(header: &Header, batch: &[u8], codecs: &mut Codecs, plain: &mut Plain) -> Result<bool, Flaw> {
    let mut records = &batch[HEADER..];
    if header.codec() != codec::NONE {
        codecs.begin(header.codec(), plain)?;
        codecs.more(records, plain)?;
        records = plain.bytes();
    }
    let record = Head::parse(records, 0)?.record()?;
    match record.key {
        Some(&[_, _, high, low, ..]) => Ok(i16::from_be_bytes([high, low]) == ABORT_MARKER),
        _ => Err(Flaw::corrupt("a control record's key is shorter than its version and type")),
    }
}

#[cold]
fn out_of_order(delta: i32, last: i32, most: i32) -> Flaw {
    Flaw::corrupt(format!(
        "a record's offset delta {delta} is not after its predecessor's ({last}) or beyond its batch's last ({most})"
    ))
}

#[cold]
fn overflow(milliseconds: i64) -> Flaw {
    Flaw {
        kind: ErrorKind::Timestamp,
        message: format!("the timestamp {milliseconds} ms does not fit Spark's 64-bit microseconds"),
    }
}

#[cold]
fn too_large(most: usize) -> Flaw {
    Flaw::too_large(format!("a record takes more than {most} bytes"))
}

/// The limits keep every column within Arrow's 32-bit offsets.
fn unfit(error: &ArrowError) -> Flaw {
    match error {
        ArrowError::MemoryError(_) => Flaw::no_memory(),
        _ => Flaw::unsupported(format!("the records do not fit an Arrow record batch: {error}")),
    }
}
