//! Changes of complete record batches: writing the producer state, and splitting.

use crate::batch::Header;
use crate::batch_writer::{BatchWriter, RecordContent};
use crate::codecs::{Codecs, Compressor, DecompressedBuffer};
use crate::error::{ErrorKind, KernelError};
use crate::format::{HEADER, MAGIC, TRANSACTIONAL_BIT, at, codec};
use crate::record::RecordPrefix;

/// The CRC32C polynomial, its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const X_TO_THE_8: u32 = 1 << (31 - 8);

/// The maximum size of a decompressed batch.
const MAX_BYTES: usize = i32::MAX as usize;

/// The producer of a batch; -1 if there is none.
#[derive(Clone, Copy, Debug)]
pub struct ProducerState {
    pub producer_id: i64,
    pub epoch: i16,
    /// Sequence number of the first record.
    pub sequence: i32,
    pub transactional: bool,
}

/// Writes the producer state into a batch's header and adjusts the CRC; `records` is the number of bytes after the
/// header.
///
/// The records are not read: the change of the CRC follows from the change of the header alone. So the CRC of a damaged
/// batch stays wrong.
pub fn set_producer_state(header: &mut [u8; HEADER], records: usize, state: &ProducerState) {
    let previous_crc = crc32c::crc32c(&header[at::ATTRIBUTES..]);
    let mut attributes = i16::from_be_bytes([header[at::ATTRIBUTES], header[at::ATTRIBUTES + 1]]) & !TRANSACTIONAL_BIT;
    if state.transactional {
        attributes |= TRANSACTIONAL_BIT;
    }
    put(header, at::ATTRIBUTES, &attributes.to_be_bytes());
    put(header, at::PRODUCER_ID, &state.producer_id.to_be_bytes());
    put(header, at::PRODUCER_EPOCH, &state.epoch.to_be_bytes());
    put(header, at::BASE_SEQUENCE, &state.sequence.to_be_bytes());
    let change = previous_crc ^ crc32c::crc32c(&header[at::ATTRIBUTES..]);
    let mut crc = header[at::CRC..].first_chunk().map_or(0, |&chunk| u32::from_be_bytes(chunk));
    crc ^= shifted(change, records);
    put(header, at::CRC, &crc.to_be_bytes());
}

/// Returns two batches without a producer, each with half of the records, in the same codec at its default level.
pub fn split_batch(data: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let Some(header) = Header::parse(data).filter(|_| data.len() >= HEADER) else {
        return Err(not_a_batch(data.len()));
    };
    let complete = data[at::MAGIC] as i8 == MAGIC && header.size == data.len();
    if !complete || header.check_crc(data).is_err() {
        return Err("The record batch to split is damaged: its length or its CRC is wrong.".to_owned());
    }
    if header.count < 2 {
        return Err("A record batch of one record cannot be split.".to_owned());
    }
    split_records(&header, &data[HEADER..]).map_err(|error| match error.kind {
        ErrorKind::NoMemory => error.message,
        _ => format!("The record batch to split is damaged: {}.", error.message),
    })
}

/// The error message of [`set_producer_state`] and [`split_batch`] for too few bytes.
pub fn not_a_batch(length: usize) -> String {
    format!("{length} bytes are too short for a record batch: its header has {HEADER}.")
}

fn split_records(header: &Header, compressed: &[u8]) -> Result<(Vec<u8>, Vec<u8>), KernelError> {
    let mut decompressed = DecompressedBuffer::new(MAX_BYTES);
    let mut all = Vec::new();
    let records = if header.codec() == codec::NONE {
        compressed
    } else {
        let mut codecs = Codecs::default();
        codecs.begin(header.codec(), &mut decompressed)?;
        let mut ended = false;
        while !ended {
            ended = codecs.decompress_more(compressed, &mut decompressed)?;
            let chunk = decompressed.bytes();
            all.try_reserve(chunk.len())?;
            all.extend_from_slice(chunk);
            let length = chunk.len();
            decompressed.consume(length);
        }
        &all
    };
    let mut compressor = Compressor::new(header.codec(), None)?;
    let mut scratch = Vec::new();
    let mut at = 0;
    let mut half = |count: i32| -> Result<Vec<u8>, KernelError> {
        let mut batch = BatchWriter::default();
        batch.begin(Vec::new())?;
        for _ in 0..count {
            let prefix = RecordPrefix::parse(records, at)?;
            let content = CopiedRecord(prefix.fields());
            let timestamp = header.base_timestamp.wrapping_add(prefix.timestamp_delta);
            batch.append(&batch.layout(timestamp, content.size()), &content)?;
            at = prefix.end;
        }
        Ok(batch.finish(&mut compressor, &mut scratch)?.0)
    };
    let first = header.count - header.count / 2;
    Ok((half(first)?, half(header.count - first)?))
}

/// The content of a record, copied from another batch.
struct CopiedRecord<'a>(&'a [u8]);

impl RecordContent for CopiedRecord<'_> {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

/// The change of a CRC after `bytes` more bytes: its product with x to the power of 8 * `bytes`, modulo CRC32C's
/// polynomial, by squaring.
fn shifted(change: u32, mut bytes: usize) -> u32 {
    let (mut product, mut power) = (change, X_TO_THE_8);
    while bytes > 0 {
        if bytes & 1 == 1 {
            product = multiplied(power, product);
        }
        power = multiplied(power, power);
        bytes >>= 1;
    }
    product
}

/// The product of two polynomials modulo CRC32C's; the highest bit belongs to x to the power of 0.
fn multiplied(mut one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    while one != 0 {
        product ^= if one & 1 << 31 != 0 { other } else { 0 };
        one <<= 1;
        other = other >> 1 ^ if other & 1 != 0 { POLYNOMIAL } else { 0 };
    }
    product
}

fn put(header: &mut [u8; HEADER], at: usize, bytes: &[u8]) {
    header[at..at + bytes.len()].copy_from_slice(bytes);
}
