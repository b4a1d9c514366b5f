//! Message formats 0 and 1, which segments written before Kafka 0.11 still have.
//!
//! Brokers before 3.0 also wrote them if `log.message.format.version` said so. All later brokers return them unchanged, 4.x
//! too (KIP-724), and topics that are compacted or never deleted keep such segments.
//!
//! A message is a batch of one; a compressed one wraps a whole message set as its value. Big-endian:
//!
//! ```text
//!  0  offset      int64   of a wrapper: its last message's
//!  8  size        int32   bytes that follow this field
//! 12  crc         uint32  CRC-32 (not CRC32C) of everything from `magic` on
//! 16  magic       int8    0 or 1
//! 17  attributes  int8    bits 0-2 codec, 3 log-append time (format 1)
//! 18  timestamp   int64   format 1 only
//!     key         int32 length (-1: null), bytes
//!     value       int32 length (-1: null), bytes
//! ```
//!
//! In a wrapper of format 0 the inner offsets are absolute. In one of format 1 they are relative (KIP-31): the last message
//! has the wrapper's offset. Inner messages have the wrapper's timestamp if that is the broker's, else their own (KIP-32).
//! A wrapper contains no wrappers.

use flate2::Crc;

use crate::codecs::{Codecs, DecompressedBuffer};
use crate::error::KernelError;
use crate::format::{CODEC_BITS, CREATE_TIME, LOG_APPEND_TIME, LOG_APPEND_TIME_BIT, LOG_OVERHEAD, at, codec};

/// Up to and including the attributes.
const MESSAGE_HEADER: usize = 18;
const CRC_AT: usize = 12;
const ATTRIBUTES_AT: usize = 17;

const NO_TIMESTAMP: i64 = -1;
/// Spark's value of `timestampType` for messages of format 0.
const NO_TIMESTAMP_TYPE: i32 = -1;

/// A message, not yet decompressed.
pub(crate) struct Message<'a> {
    pub offset: i64,
    /// Milliseconds.
    pub timestamp: i64,
    pub timestamp_type: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// Bytes after the size field.
    pub size: usize,
    /// Where the next message starts.
    pub end: usize,
    magic: u8,
    codec: u8,
}

impl<'a> Message<'a> {
    /// Reads the message at `start`; its fields must fill its size.
    fn parse(bytes: &'a [u8], start: usize, check_crc: bool) -> Result<Message<'a>, KernelError> {
        let (offset, size) = offset_and_size(bytes, start)?;
        let end = start + LOG_OVERHEAD + size;
        let message = bytes.get(start..end).filter(|bytes| bytes.len() >= MESSAGE_HEADER).ok_or_else(truncated)?;
        let (magic, attributes) = (message[at::MAGIC], message[ATTRIBUTES_AT]);
        if magic > 1 {
            return Err(KernelError::corrupt(format!("a message has the unexpected format {}", magic as i8)));
        }
        if check_crc {
            let claimed = message[CRC_AT..].first_chunk().map_or(0, |&crc| u32::from_be_bytes(crc));
            let mut computed = Crc::new();
            computed.update(&message[at::MAGIC..]);
            if computed.sum() != claimed {
                let computed = computed.sum();
                return Err(KernelError::corrupt(format!(
                    "the CRC of a message does not match its bytes: it says {claimed:#010x}, the bytes give {computed:#010x}"
                )));
            }
        }
        let mut rest = &message[MESSAGE_HEADER..];
        let (timestamp, timestamp_type) = if magic == 0 {
            (NO_TIMESTAMP, NO_TIMESTAMP_TYPE)
        } else {
            let append_time = i16::from(attributes) & LOG_APPEND_TIME_BIT != 0;
            (i64::from_be_bytes(take_array(&mut rest)?), if append_time { LOG_APPEND_TIME } else { CREATE_TIME })
        };
        let key = take_nullable(&mut rest)?;
        let value = take_nullable(&mut rest)?;
        if !rest.is_empty() {
            return Err(KernelError::corrupt("a message's fields do not add up to its size"));
        }
        let codec = (i16::from(attributes) & CODEC_BITS) as u8;
        Ok(Message { offset, timestamp, timestamp_type, key, value, size, end, magic, codec })
    }
}

/// A message, or the messages inside a wrapper, and how far they have been read.
pub(crate) struct MessageSet {
    /// The last offset, which errors name if they belong to no message.
    pub last_offset: i64,
    /// Of a compressed set.
    wrapper: Option<Wrapper>,
    /// Where the next message starts, in the decompressed bytes or in the message's own.
    at: usize,
    /// The offset of the message before it.
    previous: i64,
}

struct Wrapper {
    magic: u8,
    /// What the offsets of the inner messages lack.
    offset_shift: i128,
    append_time: Option<i64>,
}

impl MessageSet {
    /// Opens a message, and decompresses it if it is a wrapper; `message` has no other bytes.
    ///
    /// A wrapper is decompressed as a whole, because its last message determines the offset of the first.
    pub fn open(
        message: &[u8],
        check_crcs: bool,
        codecs: &mut Codecs,
        decompressed: &mut DecompressedBuffer,
    ) -> Result<MessageSet, KernelError> {
        let (last_offset, _) = offset_and_size(message, 0)?;
        let mut set = MessageSet { last_offset, wrapper: None, at: 0, previous: -1 };
        if i16::from(message[ATTRIBUTES_AT]) & CODEC_BITS == 0 {
            return Ok(set);
        }
        let outer = Message::parse(message, 0, check_crcs)?;
        let compressed = outer.value.ok_or_else(|| KernelError::corrupt("a compressed message has no value"))?;
        codecs.begin(outer.codec, decompressed)?;
        if outer.magic == 0 {
            codecs.ignore_lz4_header_checksum();
        }
        while !codecs.decompress_more(compressed, decompressed)? {}
        let messages = decompressed.bytes();
        if messages.is_empty() {
            return Err(KernelError::corrupt("a compressed message holds no messages"));
        }
        let offset_shift =
            if outer.magic == 1 { i128::from(last_offset) - i128::from(last_offset_of(messages)?) } else { 0 };
        let append_time = (outer.timestamp_type == LOG_APPEND_TIME).then_some(outer.timestamp);
        set.wrapper = Some(Wrapper { magic: outer.magic, offset_shift, append_time });
        Ok(set)
    }

    /// Whether the messages are in the decompressed bytes.
    pub fn compressed(&self) -> bool {
        self.wrapper.is_some()
    }

    /// Reads the next message, with its absolute offset and effective timestamp; `bytes` are those of all messages.
    pub fn peek<'a>(&self, bytes: &'a [u8], check_crcs: bool) -> Result<Option<Message<'a>>, KernelError> {
        if self.at >= bytes.len() {
            return Ok(None);
        }
        let mut message = Message::parse(bytes, self.at, check_crcs)?;
        let Some(wrapper) = &self.wrapper else { return Ok(Some(message)) };
        if message.magic != wrapper.magic || message.codec != codec::NONE {
            return Err(KernelError::corrupt(
                "a message inside a compressed one has another format, or is compressed itself",
            ));
        }
        message.offset = i64::try_from(i128::from(message.offset) + wrapper.offset_shift)
            .ok()
            .filter(|offset| (self.previous + 1..=self.last_offset).contains(offset))
            .ok_or_else(|| KernelError::corrupt("the offsets inside a compressed message are out of order"))?;
        if let Some(timestamp) = wrapper.append_time {
            (message.timestamp, message.timestamp_type) = (timestamp, LOG_APPEND_TIME);
        }
        Ok(Some(message))
    }

    /// Steps over the message that [`MessageSet::peek`] has returned.
    pub fn advance(&mut self, message: &Message<'_>) {
        self.previous = message.offset;
        self.at = message.end;
    }
}

/// The offset of the last message in a message set; a last one that is truncated counts.
fn last_offset_of(messages: &[u8]) -> Result<i64, KernelError> {
    let (mut at, mut last_offset) = (0, -1);
    while at < messages.len() {
        let (offset, size) = offset_and_size(messages, at)?;
        last_offset = offset;
        at += LOG_OVERHEAD + size;
    }
    Ok(last_offset)
}

/// The first two fields of the message at `start`, whose header is complete.
pub(crate) fn offset_and_size(bytes: &[u8], start: usize) -> Result<(i64, usize), KernelError> {
    let mut rest = bytes.get(start..).filter(|bytes| bytes.len() >= MESSAGE_HEADER).ok_or_else(truncated)?;
    let offset = i64::from_be_bytes(take_array(&mut rest)?);
    let size = usize::try_from(i32::from_be_bytes(take_array(&mut rest)?)).map_err(|_| truncated())?;
    Ok((offset, size))
}

/// Takes a length and that many bytes; `None` is a null.
fn take_nullable<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, KernelError> {
    let Ok(length) = usize::try_from(i32::from_be_bytes(take_array(rest)?)) else { return Ok(None) };
    let (taken, remaining) = rest.split_at_checked(length).ok_or_else(truncated)?;
    *rest = remaining;
    Ok(Some(taken))
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], KernelError> {
    let (&taken, remaining) = rest.split_first_chunk().ok_or_else(truncated)?;
    *rest = remaining;
    Ok(taken)
}

#[cold]
fn truncated() -> KernelError {
    KernelError::corrupt("a message is truncated inside its batch")
}
