//! Headers of record batches (layout: [`crate::format`]), and a scan of those in a fetch response.

use crate::error::{DecodeError, KernelError};
use crate::format::{
    CODEC_BITS, CONTROL_BIT, HEADER, LOG_APPEND_TIME_BIT, LOG_OVERHEAD, MAGIC, MIN_LEGACY_LENGTH, NO_LEADER_EPOCH,
    TRANSACTIONAL_BIT, UP_TO_LAST_OFFSET, UP_TO_MAGIC, at,
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
    /// Reads a header; the batch starts `bytes`, which hold at min_length [`HEADER`] bytes.
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
    /// Whether one of them has a message format before 2.
    pub legacy_format: bool,
    /// The error of the header at `end`, unless it is just incomplete.
    pub failure: Option<DecodeError>,
}

/// Scans the headers in `bytes`, up to the first incomplete or malformed batch, or until the offset `until`.
///
/// `position` is the next wanted offset.
pub fn scan(bytes: &[u8], position: i64, until: i64) -> Scan {
    scan_with(bytes.len(), |at, prefix| prefix.copy_from_slice(&bytes[at..at + prefix.len()]), position, until)
}

/// [`scan`] for `length` bytes in other memory: `copy` copies a few of them, from an index on.
pub fn scan_with(length: usize, mut copy: impl FnMut(usize, &mut [u8]), position: i64, until: i64) -> Scan {
    let mut scanned =
        Scan { end: 0, next_offset: position, leader_epoch: NO_LEADER_EPOCH, legacy_format: false, failure: None };
    let mut prefix = [0; UP_TO_LAST_OFFSET];
    while scanned.next_offset < until {
        let available = length - scanned.end;
        let prefix = &mut prefix[..available.min(UP_TO_LAST_OFFSET)];
        copy(scanned.end, prefix);
        match extent(prefix, available) {
            Ok(None) => break,
            Ok(Some(extent)) => {
                scanned.end += extent.size;
                scanned.next_offset = scanned.next_offset.max(extent.last_offset + 1);
                scanned.leader_epoch = extent.leader_epoch;
                scanned.legacy_format |= extent.legacy_format;
            }
            Err(error) => {
                scanned.failure = Some(error.at(scanned.next_offset));
                break;
            }
        }
    }
    scanned
}

struct Extent {
    size: usize,
    last_offset: i64,
    leader_epoch: i32,
    legacy_format: bool,
}

/// The extent of the batch that starts with `prefix`, or `None` if it is longer than the `available` bytes.
fn extent(prefix: &[u8], available: usize) -> Result<Option<Extent>, KernelError> {
    if prefix.len() < UP_TO_MAGIC {
        return Ok(None);
    }
    let base_offset = i64_at(prefix, at::BASE_OFFSET);
    let length = i32_at(prefix, at::LENGTH);
    let magic = prefix[at::MAGIC] as i8;
    if !(0..=MAGIC).contains(&magic) {
        return Err(KernelError::corrupt(format!("a record batch has the unknown message format {magic}")));
    }
    let min_length = if magic == MAGIC { HEADER - LOG_OVERHEAD } else { MIN_LEGACY_LENGTH };
    let size = match usize::try_from(length) {
        Ok(length) if length >= min_length => LOG_OVERHEAD + length,
        _ => return Err(KernelError::corrupt(format!("a record batch claims an impossible length of {length} bytes"))),
    };
    if available < size {
        return Ok(None);
    }
    let (leader_epoch, last_offset_delta) = if magic == MAGIC {
        (i32_at(prefix, at::LEADER_EPOCH), i32_at(prefix, at::LAST_OFFSET_DELTA))
    } else {
        (NO_LEADER_EPOCH, 0)
    };
    match base_offset.checked_add(i64::from(last_offset_delta)) {
        Some(last_offset) if base_offset >= 0 && last_offset_delta >= 0 && last_offset < i64::MAX => {
            Ok(Some(Extent { size, last_offset, leader_epoch, legacy_format: magic < MAGIC }))
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
