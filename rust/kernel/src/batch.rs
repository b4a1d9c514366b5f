//! Headers of record batches, and where the complete batches of a fetch response end. The layout is in
//! [`crate::format`].

use crate::error::{DecodeError, Flaw};
use crate::format::{
    CODEC_BITS, CONTROL_BIT, HEADER, LEAST_OLD_LENGTH, LOG_APPEND_TIME_BIT, LOG_OVERHEAD, MAGIC, NO_LEADER_EPOCH,
    TRANSACTIONAL_BIT, UP_TO_LAST_OFFSET, UP_TO_MAGIC, at,
};

/// A format 2 header, without what nobody here needs.
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
    /// Reads a header; the batch starts `bytes`, which hold at least [`HEADER`] bytes.
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

    /// The last offset the batch occupies, compacted away or not.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// The codec's number, one of [`crate::format::codec`] or an unknown one.
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
    pub fn check_crc(&self, batch: &[u8]) -> Result<(), Flaw> {
        let computed = crc32c::crc32c(&batch[at::ATTRIBUTES..]);
        if computed == self.crc {
            return Ok(());
        }
        Err(Flaw::corrupt(format!(
            "the CRC of the record batch does not match its bytes: it says {:#010x}, the bytes give {computed:#010x}",
            self.crc
        )))
    }
}

/// What the headers of a fetch response say, without a look at the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where the complete, well-headed batches end.
    pub end: usize,
    /// The offset after the last of them, or the position scanned from.
    pub next_offset: i64,
    /// Leader epoch of the last of them; -1 if there is none, or if it has none, being of an older format than 2.
    pub leader_epoch: i32,
    /// Whether one of them has a message format older than 2.
    pub old_format: bool,
    /// What is wrong with the header at `end`, if that is not just cut off.
    pub failure: Option<DecodeError>,
}

/// Walks the headers in `bytes`, up to the first batch that is cut off or malformed, or until `until` is reached.
///
/// `position` is the next offset wanted.
pub fn scan(bytes: &[u8], position: i64, until: i64) -> Scan {
    scan_with(bytes.len(), |at, head| head.copy_from_slice(&bytes[at..at + head.len()]), position, until)
}

/// [`scan`] for `length` bytes that are not at hand: `copy` fetches a few of them, from an index on.
pub fn scan_with(length: usize, mut copy: impl FnMut(usize, &mut [u8]), position: i64, until: i64) -> Scan {
    let mut found =
        Scan { end: 0, next_offset: position, leader_epoch: NO_LEADER_EPOCH, old_format: false, failure: None };
    let mut head = [0; UP_TO_LAST_OFFSET];
    while found.next_offset < until {
        let rest = length - found.end;
        let head = &mut head[..rest.min(UP_TO_LAST_OFFSET)];
        copy(found.end, head);
        match extent(head, rest) {
            Ok(None) => break,
            Ok(Some(extent)) => {
                found.end += extent.size;
                found.next_offset = found.next_offset.max(extent.last_offset + 1);
                found.leader_epoch = extent.leader_epoch;
                found.old_format |= extent.old_format;
            }
            Err(flaw) => {
                found.failure = Some(flaw.at(found.next_offset));
                break;
            }
        }
    }
    found
}

struct Extent {
    size: usize,
    last_offset: i64,
    leader_epoch: i32,
    old_format: bool,
}

/// The extent of the batch that starts with `head`, or `None` when it is longer than the `rest` of the bytes.
fn extent(head: &[u8], rest: usize) -> Result<Option<Extent>, Flaw> {
    if head.len() < UP_TO_MAGIC {
        return Ok(None);
    }
    let base_offset = i64_at(head, at::BASE_OFFSET);
    let length = i32_at(head, at::LENGTH);
    let magic = head[at::MAGIC] as i8;
    if !(0..=MAGIC).contains(&magic) {
        return Err(Flaw::corrupt(format!("a record batch has the unknown message format {magic}")));
    }
    let least = if magic == MAGIC { HEADER - LOG_OVERHEAD } else { LEAST_OLD_LENGTH };
    let size = match usize::try_from(length) {
        Ok(length) if length >= least => LOG_OVERHEAD + length,
        _ => return Err(Flaw::corrupt(format!("a record batch claims an impossible length of {length} bytes"))),
    };
    if rest < size {
        return Ok(None);
    }
    let (leader_epoch, last_offset_delta) = if magic == MAGIC {
        (i32_at(head, at::LEADER_EPOCH), i32_at(head, at::LAST_OFFSET_DELTA))
    } else {
        (NO_LEADER_EPOCH, 0)
    };
    match base_offset.checked_add(i64::from(last_offset_delta)) {
        Some(last_offset) if base_offset >= 0 && last_offset_delta >= 0 && last_offset < i64::MAX => {
            Ok(Some(Extent { size, last_offset, leader_epoch, old_format: magic < MAGIC }))
        }
        _ => Err(Flaw::corrupt(format!(
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
