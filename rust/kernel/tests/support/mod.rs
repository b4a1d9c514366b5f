//! A writer of record batches, and something that damages them.

#![allow(dead_code)] // each test file uses a part

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use record_kernel::{AbortedTransaction, Decoder, Limits, Range};

pub const HEADER: usize = 61;
pub const GZIP: u8 = 1;
pub const SNAPPY: u8 = 2;
pub const LZ4: u8 = 3;
pub const ZSTD: u8 = 4;

/// All the columns there are.
pub fn schema() -> SchemaRef {
    let header =
        Fields::from(vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)]);
    let element = Arc::new(Field::new("element", DataType::Struct(header), true));
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("key", DataType::Binary),
        field("value", DataType::Binary),
        field("topic", DataType::Utf8),
        field("partition", DataType::Int32),
        field("offset", DataType::Int64),
        field("timestamp", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        field("timestampType", DataType::Int32),
        field("headers", DataType::List(element)),
        field("leaderEpoch", DataType::Int32),
    ]))
}

pub fn decoder(range: Range, limits: Limits) -> Decoder {
    Decoder::new(schema(), "topic".to_owned(), 3, range, limits, true).expect("the schema is right")
}

pub fn feed(decoder: &mut Decoder, bytes: &[u8], aborted: &[AbortedTransaction]) -> bool {
    decoder.input(bytes.len()).expect("there is memory").copy_from_slice(bytes);
    decoder.feed(bytes.len(), aborted.to_vec())
}

#[derive(Clone, Default)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub time: i64,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

pub fn record(key: &str, value: &str) -> Record {
    Record { key: Some(key.into()), value: Some(value.into()), ..Record::default() }
}

pub fn varint(out: &mut Vec<u8>, number: i64) {
    let mut raw = (number << 1 ^ number >> 63) as u64;
    while raw > 0x7f {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

fn sized(out: &mut Vec<u8>, data: Option<&[u8]>) {
    varint(out, data.map_or(-1, |data| data.len() as i64));
    out.extend_from_slice(data.unwrap_or_default());
}

/// The records as they are in a batch, one offset each.
pub fn body(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for (place, record) in records.iter().enumerate() {
        let mut fields = vec![0];
        varint(&mut fields, record.time);
        varint(&mut fields, place as i64);
        sized(&mut fields, record.key.as_deref());
        sized(&mut fields, record.value.as_deref());
        varint(&mut fields, record.headers.len() as i64);
        for (key, value) in &record.headers {
            sized(&mut fields, Some(key));
            sized(&mut fields, value.as_deref());
        }
        varint(&mut out, fields.len() as i64);
        out.extend(fields);
    }
    out
}

/// A batch of `count` records whose bytes are `packed`; the low bits of `attributes` say how.
pub fn batch(base_offset: i64, attributes: u8, producer_id: i64, count: i32, packed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(base_offset.to_be_bytes());
    out.extend(0i32.to_be_bytes());
    out.extend(5i32.to_be_bytes());
    out.push(2);
    out.extend(0u32.to_be_bytes());
    out.extend([0, attributes]);
    out.extend((count - 1).max(0).to_be_bytes());
    out.extend(1_700_000_000_000i64.to_be_bytes());
    out.extend(1_700_000_000_500i64.to_be_bytes());
    out.extend(producer_id.to_be_bytes());
    out.extend([0, 0, 0, 0, 0, 0]);
    out.extend(count.to_be_bytes());
    out.extend_from_slice(packed);
    put_right(&mut out);
    out
}

/// Makes the length and the CRC of a batch right.
pub fn put_right(batch: &mut [u8]) {
    if batch.len() >= HEADER {
        let length = (batch.len() - 12) as i32;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }
}

pub fn compress(codec: u8, plain: &[u8]) -> Vec<u8> {
    match codec {
        GZIP => {
            let mut out = Vec::with_capacity(plain.len() * 2 + 100);
            let mut deflater = flate2::Compress::new_gzip(flate2::Compression::fast(), 15);
            deflater.compress_vec(plain, &mut out, flate2::FlushCompress::Finish).expect("room enough");
            out
        }
        SNAPPY => snap::raw::Encoder::new().compress_vec(plain).expect("few bytes"),
        LZ4 => {
            let mut out = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x40];
            out.push((twox_hash::XxHash32::oneshot(0, &out[4..6]) >> 8) as u8);
            for piece in plain.chunks(64 << 10) {
                let block = lz4_flex::block::compress(piece);
                out.extend((block.len() as u32).to_le_bytes());
                out.extend(block);
            }
            out.extend([0; 4]);
            out
        }
        ZSTD => {
            let mut out = vec![0; plain.len() * 2 + 100];
            let length = zstd_safe::compress(&mut out[..], plain, 3).expect("room enough");
            out.truncate(length);
            out
        }
        _ => plain.to_vec(),
    }
}

/// xorshift64*: the same numbers everywhere.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }
}

const NASTY: [u8; 10] = [0, 1, 2, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xfe, 0xff];

/// Changes `data` from `from` on, somehow.
pub fn damage(chance: &mut Chance, data: &mut Vec<u8>, from: usize) {
    if data.len() <= from {
        data.push(NASTY[chance.below(NASTY.len())]);
        return;
    }
    let at = from + chance.below(data.len() - from);
    let end = (at + [1, 1, 2, 4, 8, 30][chance.below(6)]).min(data.len());
    match chance.below(6) {
        0 => data[at] ^= 1 << chance.below(8),
        1 => data[at] = NASTY[chance.below(NASTY.len())],
        2 => data[at..end].iter_mut().for_each(|byte| *byte = chance.next() as u8),
        3 => drop(data.drain(at..end)),
        4 => {
            let other = chance.below(data.len());
            let piece = data[other..(other + end - at).min(data.len())].to_vec();
            data.splice(at..at, piece);
        }
        _ => data.truncate(at),
    }
}
