//! Headers of record batches (layout: [`crate::format`]), and a scan of those in a fetch response.

use crate::error::{DecodeError, KernelError};
use crate::format::{
    CODEC_BITS, CONTROL_BIT, HEADER, LOG_APPEND_TIME_BIT, LOG_OVERHEAD, MAGIC, MIN_LEGACY_LENGTH, NO_LEADER_EPOCH,
    NO_PRODUCER_ID, TRANSACTIONAL_BIT, UP_TO_MAGIC, at,
};

/// Bytes whose CRC is computed at once: they fit into the processor's first cache.
const CHUNK: usize = 16 << 10;

/// The used fields of a format 2 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub base_offset: i64,
    /// Bytes of the whole batch, header included.
    pub size: usize,
    pub leader_epoch: i32,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub count: i32,
}

impl Header {
    /// Reads a header; the batch starts `bytes`, if they hold at least [`HEADER`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.first_chunk::<HEADER>()?;
        Some(Header {
            base_offset: i64_at(bytes, at::BASE_OFFSET),
            size: LOG_OVERHEAD + usize::try_from(i32_at(bytes, at::LENGTH)).ok()?,
            leader_epoch: i32_at(bytes, at::LEADER_EPOCH),
            crc: i32_at(bytes, at::CRC) as u32,
            attributes: i16::from_be_bytes([bytes[at::ATTRIBUTES], bytes[at::ATTRIBUTES + 1]]),
            last_offset_delta: i32_at(bytes, at::LAST_OFFSET_DELTA),
            base_timestamp: i64_at(bytes, at::BASE_TIMESTAMP),
            max_timestamp: i64_at(bytes, at::MAX_TIMESTAMP),
            producer_id: i64_at(bytes, at::PRODUCER_ID),
            count: i32_at(bytes, at::COUNT),
        })
    }

    /// The last offset of the batch, even if that record was compacted away.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// The codec number, which [`crate::format::codec`] may not contain.
    pub fn codec(&self) -> u8 {
        (self.attributes & CODEC_BITS) as u8
    }

    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME_BIT != 0
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Checks the CRC of `batch`, the whole batch.
    pub fn check_crc(&self, batch: &[u8]) -> Result<(), KernelError> {
        let computed = crc32c::crc32c(&batch[at::ATTRIBUTES..]);
        if computed == self.crc {
            return Ok(());
        }
        Err(KernelError::corrupt(format!(
            "the CRC of the record batch does not match its bytes: it says {:#010x}, the bytes give {computed:#010x}",
            self.crc
        )))
    }
}

/// Whether `length` bytes in other memory are one batch of format 2 with a valid CRC: `copy` copies a few of them, from
/// an index on.
pub fn is_valid_batch(length: usize, mut copy: impl FnMut(usize, &mut [u8])) -> bool {
    if length < HEADER {
        return false;
    }
    let mut chunk = [0; CHUNK];
    let first = &mut chunk[..length.min(CHUNK)];
    copy(0, first);
    let Some(header) = Header::parse(first) else { return false };
    if first[at::MAGIC] as i8 != MAGIC || header.size != length {
        return false;
    }
    let mut crc = crc32c::crc32c(&first[at::ATTRIBUTES..]);
    let mut index = first.len();
    while index < length {
        let next = &mut chunk[..(length - index).min(CHUNK)];
        copy(index, next);
        crc = crc32c::crc32c_append(crc, next);
        index += next.len();
    }
    crc == header.crc
}

/// The result of scanning the headers of a fetch response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where the complete batches with valid headers end.
    pub end: usize,
    /// The offset after the last of them, or the position scanned from.
    pub next_offset: i64,
    /// Leader epoch of the last of them; -1 if there is none, or before format 2.
    pub leader_epoch: i32,
    /// The error of the header at `end`, unless it is just incomplete.
    pub failure: Option<DecodeError>,
}

/// Scans the headers in `bytes`, up to the first incomplete or malformed batch, or until the offset `until`.
///
/// `position` is the next wanted offset.
pub fn scan(bytes: &[u8], position: i64, until: i64) -> Scan {
    let copy = |at: usize, prefix: &mut [u8]| prefix.copy_from_slice(&bytes[at..at + prefix.len()]);
    scan_with(bytes.len(), copy, position, until, |_| ())
}

/// [`scan`] for `length` bytes in other memory: `copy` copies a few of them, from an index on. `each` gets the complete
/// batches.
pub fn scan_with(
    length: usize,
    mut copy: impl FnMut(usize, &mut [u8]),
    position: i64,
    until: i64,
    mut each: impl FnMut(ScannedBatch),
) -> Scan {
    let mut scanned = Scan { end: 0, next_offset: position, leader_epoch: NO_LEADER_EPOCH, failure: None };
    let mut prefix = [0; HEADER];
    while scanned.next_offset < until {
        let available = length - scanned.end;
        let prefix = &mut prefix[..available.min(HEADER)];
        copy(scanned.end, prefix);
        match scan_one(prefix, scanned.end, length) {
            Ok(None) => break,
            Ok(Some(batch)) => {
                scanned.end = batch.end;
                scanned.next_offset = scanned.next_offset.max(batch.last_offset + 1);
                scanned.leader_epoch = batch.leader_epoch;
                each(batch);
            }
            Err(error) => {
                scanned.failure = Some(error.at(scanned.next_offset));
                break;
            }
        }
    }
    scanned
}

/// A complete batch of a fetch response, from its header. Before format 2, a batch is one message, which may contain
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedBatch {
    /// Where it starts and ends in the response.
    pub start: usize,
    pub end: usize,
    pub base_offset: i64,
    pub last_offset: i64,
    pub magic: i8,
    /// -1 before format 2, like the producer id.
    pub leader_epoch: i32,
    pub producer_id: i64,
    pub is_transactional: bool,
    pub is_control: bool,
    /// The number of records that the header claims; -1 before format 2.
    pub records: i32,
}

/// The batch that starts with `prefix` at `start`, or `None` if it ends after the `length` bytes of the response.
fn scan_one(prefix: &[u8], start: usize, length: usize) -> Result<Option<ScannedBatch>, KernelError> {
    if prefix.len() < UP_TO_MAGIC {
        return Ok(None);
    }
    let base_offset = i64_at(prefix, at::BASE_OFFSET);
    let claimed = i32_at(prefix, at::LENGTH);
    let magic = prefix[at::MAGIC] as i8;
    if !(0..=MAGIC).contains(&magic) {
        return Err(KernelError::corrupt(format!("a record batch has the unknown message format {magic}")));
    }
    let min_length = if magic == MAGIC { HEADER - LOG_OVERHEAD } else { MIN_LEGACY_LENGTH };
    let size = match usize::try_from(claimed) {
        Ok(claimed) if claimed >= min_length => LOG_OVERHEAD + claimed,
        _ => {
            return Err(KernelError::corrupt(format!("a record batch claims an impossible length of {claimed} bytes")));
        }
    };
    if length - start < size {
        return Ok(None);
    }
    let header = if magic == MAGIC { Header::parse(prefix) } else { None };
    let last_offset_delta = header.map_or(0, |header| header.last_offset_delta);
    match base_offset.checked_add(i64::from(last_offset_delta)) {
        Some(last_offset) if base_offset >= 0 && last_offset_delta >= 0 && last_offset < i64::MAX => {
            Ok(Some(ScannedBatch {
                start,
                end: start + size,
                base_offset,
                last_offset,
                magic,
                leader_epoch: header.map_or(NO_LEADER_EPOCH, |header| header.leader_epoch),
                producer_id: header.map_or(NO_PRODUCER_ID, |header| header.producer_id),
                is_transactional: header.is_some_and(|header| header.is_transactional()),
                is_control: header.is_some_and(|header| header.is_control()),
                records: header.map_or(-1, |header| header.count),
            }))
        }
        _ => Err(KernelError::corrupt(format!(
            "a record batch claims impossible offsets: base {base_offset}, last offset delta {last_offset_delta}"
        ))),
    }
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    bytes[at..].first_chunk().map_or(0, |&chunk| i64::from_be_bytes(chunk))
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    bytes[at..].first_chunk().map_or(0, |&chunk| i32::from_be_bytes(chunk))
}
