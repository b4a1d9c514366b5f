//! What is done to a record batch on its way: it gets its producer, or is cut in two.

use crate::batch::Header;
use crate::batch_writer::{BatchWriter, Content};
use crate::codecs::{Codecs, Compressor, Plain};
use crate::error::{ErrorKind, Flaw};
use crate::format::{HEADER, MAGIC, TRANSACTIONAL_BIT, at, codec};
use crate::record::Head;

/// CRC32C's, its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const X_TO_THE_8: u32 = 1 << (31 - 8);

/// The most bytes of a batch, decompressed.
const MOST_BYTES: usize = i32::MAX as usize;

/// Who sends a batch; -1 where there is none.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub producer_id: i64,
    pub epoch: i16,
    /// Sequence number of the first record.
    pub sequence: i32,
    pub transactional: bool,
}

/// Writes into a batch's header who sends it, and makes the CRC right; `records` are the bytes behind the header.
///
/// The records are not looked at: the CRC of all changes with that of the header alone. So a batch that was damaged
/// before stays one that everybody can tell.
pub fn stamp(header: &mut [u8; HEADER], records: usize, stamp: &Stamp) {
    let before = crc32c::crc32c(&header[at::ATTRIBUTES..]);
    let mut attributes = i16::from_be_bytes([header[at::ATTRIBUTES], header[at::ATTRIBUTES + 1]]) & !TRANSACTIONAL_BIT;
    if stamp.transactional {
        attributes |= TRANSACTIONAL_BIT;
    }
    put(header, at::ATTRIBUTES, &attributes.to_be_bytes());
    put(header, at::PRODUCER_ID, &stamp.producer_id.to_be_bytes());
    put(header, at::PRODUCER_EPOCH, &stamp.epoch.to_be_bytes());
    put(header, at::BASE_SEQUENCE, &stamp.sequence.to_be_bytes());
    let change = before ^ crc32c::crc32c(&header[at::ATTRIBUTES..]);
    let mut crc = header[at::CRC..].first_chunk().map_or(0, |&chunk| u32::from_be_bytes(chunk));
    crc ^= shifted(change, records);
    put(header, at::CRC, &crc.to_be_bytes());
}

/// Two batches with the first and the second half of a batch's records, in its codec at its default level, and with
/// nobody's stamp.
///
/// # Errors
/// There is one record only, or this is no batch, or a damaged one; the message says so.
pub fn split(data: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let Some(header) = Header::parse(data).filter(|_| data.len() >= HEADER) else {
        return Err(no_batch(data.len()));
    };
    let whole = data[at::MAGIC] as i8 == MAGIC && header.size == data.len();
    if !whole || header.check_crc(data).is_err() {
        return Err("The record batch to split is damaged: its length or its CRC is wrong.".to_owned());
    }
    if header.count < 2 {
        return Err("A record batch of one record cannot be split.".to_owned());
    }
    halves(&header, &data[HEADER..]).map_err(|flaw| match flaw.kind {
        ErrorKind::NoMemory => flaw.message,
        _ => format!("The record batch to split is damaged: {}.", flaw.message),
    })
}

/// What [`stamp`] and [`split`] say of what is too short.
pub fn no_batch(length: usize) -> String {
    format!("{length} bytes are no record batch: its header alone has {HEADER}.")
}

fn halves(header: &Header, packed: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Flaw> {
    let mut plain = Plain::new(MOST_BYTES);
    let mut all = Vec::new();
    let records = if header.codec() == codec::NONE {
        packed
    } else {
        let mut codecs = Codecs::default();
        codecs.begin(header.codec(), &mut plain)?;
        let mut ended = false;
        while !ended {
            ended = codecs.more(packed, &mut plain)?;
            let piece = plain.bytes();
            all.try_reserve(piece.len())?;
            all.extend_from_slice(piece);
            let length = piece.len();
            plain.consume(length);
        }
        &all
    };
    let mut compressor = Compressor::new(header.codec(), None)?;
    let mut scratch = Vec::new();
    let mut at = 0;
    let mut half = |count: i32| -> Result<Vec<u8>, Flaw> {
        let mut batch = BatchWriter::default();
        batch.begin(Vec::new())?;
        for _ in 0..count {
            let head = Head::parse(records, at)?;
            let content = Copied(head.rest());
            let timestamp = header.base_timestamp.wrapping_add(head.timestamp_delta);
            batch.append(&batch.place(timestamp, content.size()), &content)?;
            at = head.end;
        }
        Ok(batch.finish(&mut compressor, &mut scratch)?.0)
    };
    let first = header.count - header.count / 2;
    Ok((half(first)?, half(header.count - first)?))
}

/// A record's content as it was in another batch.
struct Copied<'a>(&'a [u8]);

impl Content for Copied<'_> {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

/// What a change of a CRC becomes `bytes` bytes later: its product with x to the power of 8 * `bytes`, as polynomials
/// modulo CRC32C's, by squaring.
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
