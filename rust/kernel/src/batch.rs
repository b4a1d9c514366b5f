//! Headers of record batches, and where the complete batches of a fetch response end.
//!
//! Record batch, message format 2 (KIP-98; `DefaultRecordBatch` in Kafka), big-endian:
//!
//! ```text
//!  0  baseOffset            int64
//!  8  batchLength           int32   bytes that follow this field
//! 12  partitionLeaderEpoch  int32
//! 16  magic                 int8    2
//! 17  crc                   uint32  CRC32C of everything from `attributes` on
//! 21  attributes            int16   bits 0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 delete horizon
//! 23  lastOffsetDelta       int32
//! 27  baseTimestamp         int64   (the delete horizon where bit 6 is set; deltas count from it all the same)
//! 35  maxTimestamp          int64
//! 43  producerId            int64
//! 51  producerEpoch         int16
//! 53  baseSequence          int32
//! 57  recordsCount          int32
//! 61  records, compressed as a whole where there is a codec
//! ```
//!
//! Older formats share the first twelve bytes and have their magic at 16, too: offset int64, size int32, crc uint32,
//! magic int8. Those are not decoded here.

use crate::error::{DecodeError, Flaw};

/// Bytes before the length field counts: the offset and the length itself.
const LOG_OVERHEAD: usize = 12;
/// Bytes of a format 2 header.
pub const HEADER: usize = 61;
/// Bytes up to and including the magic byte.
const UP_TO_MAGIC: usize = 17;
/// Bytes up to and including the last offset delta.
const UP_TO_LAST_OFFSET: usize = 27;
/// The smallest length of the older formats: crc, magic, attributes, key length, value length.
const LEAST_OLD_LENGTH: usize = 14;
/// Where the bytes that the CRC covers begin.
const CRC_FROM: usize = 21;

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
            base_offset: i64_at(bytes, 0),
            size: LOG_OVERHEAD + usize::try_from(i32_at(bytes, 8)).ok()?,
            leader_epoch: i32_at(bytes, 12),
            crc: i32_at(bytes, 17) as u32,
            attributes: i16::from_be_bytes([bytes[21], bytes[22]]),
            last_offset_delta: i32_at(bytes, 23),
            base_timestamp: i64_at(bytes, 27),
            max_timestamp: i64_at(bytes, 35),
            producer_id: i64_at(bytes, 43),
            count: i32_at(bytes, 57),
        })
    }

    /// The last offset the batch occupies, compacted away or not.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    pub fn codec(&self) -> u8 {
        (self.attributes & 0x07) as u8
    }

    pub fn is_log_append_time(&self) -> bool {
        self.attributes & 0x08 != 0
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    /// Checks the CRC of `batch`, the whole batch.
    pub fn check_crc(&self, batch: &[u8]) -> Result<(), Flaw> {
        let computed = crc32c::crc32c(&batch[CRC_FROM..]);
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
    let mut found = Scan { end: 0, next_offset: position, leader_epoch: -1, old_format: false, failure: None };
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
    let base_offset = i64_at(head, 0);
    let length = i32_at(head, 8);
    let magic = head[16] as i8;
    if !(0..=2).contains(&magic) {
        return Err(Flaw::corrupt(format!("a record batch has the unknown message format {magic}")));
    }
    let least = if magic == 2 { HEADER - LOG_OVERHEAD } else { LEAST_OLD_LENGTH };
    let size = match usize::try_from(length) {
        Ok(length) if length >= least => LOG_OVERHEAD + length,
        _ => return Err(Flaw::corrupt(format!("a record batch claims an impossible length of {length} bytes"))),
    };
    if rest < size {
        return Ok(None);
    }
    let (leader_epoch, last_offset_delta) = if magic == 2 { (i32_at(head, 12), i32_at(head, 23)) } else { (-1, 0) };
    match base_offset.checked_add(i64::from(last_offset_delta)) {
        Some(last_offset) if base_offset >= 0 && last_offset_delta >= 0 && last_offset < i64::MAX => {
            Ok(Some(Extent { size, last_offset, leader_epoch, old_format: magic < 2 }))
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
