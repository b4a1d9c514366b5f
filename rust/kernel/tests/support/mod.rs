//! A reference writer of record batches, and random damage.

#![allow(dead_code)] // each test file uses some of it

use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, BinaryBuilder, Int32Builder, ListBuilder, StructBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StructArray};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use record_kernel::{AbortedTransaction, Decoder, Limits, OffsetRange};

pub const HEADER: usize = 61;
pub const GZIP: u8 = 1;
pub const SNAPPY: u8 = 2;
pub const LZ4: u8 = 3;
pub const ZSTD: u8 = 4;

/// All columns.
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

pub fn decoder(range: OffsetRange, limits: Limits) -> Decoder {
    Decoder::new(schema(), "topic".to_owned(), 3, range, limits, true, false).expect("the schema is right")
}

/// A record as it has to be read; `record.time` is in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub offset: i64,
    pub record: Record,
    pub timestamp_type: i32,
    pub leader_epoch: Option<i32>,
}

/// The rows of all columns of a batch of [`decoder`].
pub fn rows(batch: &RecordBatch) -> Vec<Row> {
    assert_eq!(
        batch.column(2).as_string::<i32>().iter().flatten().filter(|name| *name == "topic").count(),
        batch.num_rows()
    );
    assert!(batch.column(3).as_primitive::<Int32Type>().values().iter().all(|&partition| partition == 3));
    let nullable = |column: &dyn Array, row: usize| {
        let cells = column.as_binary::<i32>();
        cells.is_valid(row).then(|| cells.value(row).to_vec())
    };
    let lists = batch.column(7).as_list::<i32>();
    let headers = |row: usize| {
        let list = lists.value(row);
        let pairs = list.as_struct();
        let key = |at: usize| pairs.column(0).as_string::<i32>().value(at).as_bytes().to_vec();
        (0..pairs.len()).map(|at| (key(at), nullable(pairs.column(1), at))).collect::<Vec<_>>()
    };
    let integers = |column: usize| batch.column(column).as_primitive::<Int32Type>();
    (0..batch.num_rows())
        .map(|row| {
            let time = batch.column(5).as_primitive::<TimestampMicrosecondType>().value(row);
            assert_eq!(time % 1000, 0);
            Row {
                offset: batch.column(4).as_primitive::<Int64Type>().value(row),
                record: Record {
                    key: nullable(batch.column(0), row),
                    value: nullable(batch.column(1), row),
                    time: time / 1000,
                    headers: if lists.is_null(row) { vec![] } else { headers(row) },
                },
                timestamp_type: integers(6).value(row),
                leader_epoch: integers(8).is_valid(row).then(|| integers(8).value(row)),
            }
        })
        .collect()
}

pub fn feed(decoder: &mut Decoder, bytes: &[u8], aborted: &[AbortedTransaction]) {
    decoder.input(bytes.len()).expect("there is memory").copy_from_slice(bytes);
    decoder.feed(bytes.len(), aborted.to_vec());
}

#[derive(Clone, Debug, Default, PartialEq)]
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
    unsigned_varint(out, (number << 1 ^ number >> 63) as u64);
}

pub fn unsigned_varint(out: &mut Vec<u8>, mut raw: u64) {
    while raw > 0x7f {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

fn nullable(out: &mut Vec<u8>, data: Option<&[u8]>) {
    varint(out, data.map_or(-1, |data| data.len() as i64));
    out.extend_from_slice(data.unwrap_or_default());
}

/// The encoded records of a batch, one offset each.
pub fn body(records: &[Record]) -> Vec<u8> {
    records.iter().enumerate().flat_map(|(index, record)| encoded(record, index as i64)).collect()
}

/// An encoded record with its length.
pub fn encoded(record: &Record, offset_delta: i64) -> Vec<u8> {
    let mut fields = vec![0];
    varint(&mut fields, record.time);
    varint(&mut fields, offset_delta);
    nullable(&mut fields, record.key.as_deref());
    nullable(&mut fields, record.value.as_deref());
    varint(&mut fields, record.headers.len() as i64);
    fields.extend(encoded_headers(record));
    let mut out = Vec::new();
    varint(&mut out, fields.len() as i64);
    out.extend(fields);
    out
}

/// The headers of a record, without their number.
pub fn encoded_headers(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in &record.headers {
        nullable(&mut out, Some(key));
        nullable(&mut out, value.as_deref());
    }
    out
}

/// A batch of `count` records with the bytes `compressed`; the low bits of `attributes` are the codec.
pub fn batch(base_offset: i64, attributes: u8, producer_id: i64, count: i32, compressed: &[u8]) -> Vec<u8> {
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
    out.extend_from_slice(compressed);
    fix_length_and_crc(&mut out);
    out
}

/// Corrects the length and the CRC of a batch.
pub fn fix_length_and_crc(batch: &mut [u8]) {
    if batch.len() >= HEADER {
        let length = (batch.len() - 12) as i32;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }
}

/// A message of format 0 or 1; the low bits of `attributes` are the codec of `value`.
pub fn message(
    offset: i64,
    magic: u8,
    attributes: u8,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(offset.to_be_bytes());
    out.extend([0; 8]);
    out.extend([magic, attributes]);
    if magic == 1 {
        out.extend(timestamp.to_be_bytes());
    }
    for field in [key, value] {
        out.extend(field.map_or(-1, |field| field.len() as i32).to_be_bytes());
        out.extend_from_slice(field.unwrap_or_default());
    }
    fix_size_and_crc(&mut out);
    out
}

/// Corrects the size and the CRC of a message.
pub fn fix_size_and_crc(message: &mut [u8]) {
    if message.len() >= 18 {
        let size = (message.len() - 12) as i32;
        message[8..12].copy_from_slice(&size.to_be_bytes());
        let mut crc = flate2::Crc::new();
        crc.update(&message[16..]);
        message[12..16].copy_from_slice(&crc.sum().to_be_bytes());
    }
}

pub fn compress(codec: u8, uncompressed: &[u8]) -> Vec<u8> {
    match codec {
        GZIP => {
            let mut out = Vec::with_capacity(uncompressed.len() * 2 + 100);
            let mut deflater = flate2::Compress::new_gzip(flate2::Compression::fast(), 15);
            deflater.compress_vec(uncompressed, &mut out, flate2::FlushCompress::Finish).expect("enough space");
            out
        }
        SNAPPY => snap::raw::Encoder::new().compress_vec(uncompressed).expect("few bytes"),
        LZ4 => {
            let mut out = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x40];
            out.push((twox_hash::XxHash32::oneshot(0, &out[4..6]) >> 8) as u8);
            for chunk in uncompressed.chunks(64 << 10) {
                let block = lz4_flex::block::compress(chunk);
                out.extend((block.len() as u32).to_le_bytes());
                out.extend(block);
            }
            out.extend([0; 4]);
            out
        }
        ZSTD => {
            let mut out = vec![0; uncompressed.len() * 2 + 100];
            let length = zstd_safe::compress(&mut out[..], uncompressed, 3).expect("enough space");
            out.truncate(length);
            out
        }
        _ => uncompressed.to_vec(),
    }
}

/// xorshift64*, reproducible on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }
}

/// A record whose fields have 0, 1, 63, 64, 200 or `longest` bytes, or are null. Its time may be negative.
pub fn random_record(random: &mut Random, longest: usize) -> Record {
    let bytes = |random: &mut Random| {
        let length = [0, 1, 63, 64, 200, longest][random.below(6)];
        (!random.one_in(5)).then(|| (0..length).map(|_| random.next() as u8).collect::<Vec<u8>>())
    };
    let header = |random: &mut Random| (bytes(random).unwrap_or_default(), bytes(random));
    Record {
        key: bytes(random),
        value: bytes(random),
        time: (random.next() as i64 - (1 << 47)) >> random.below(48),
        headers: (0..random.below(4)).map(|_| header(random)).collect(),
    }
}

/// Rows to encode, and their partitions; `hides` says for which rows without headers a null list hides one, whose key is
/// beneath a null, too.
pub fn arrow_rows(rows: &[(Record, Option<i32>)], mut hides: impl FnMut(usize) -> bool) -> RecordBatch {
    let fields =
        Fields::from(vec![Field::new("key", DataType::Binary, true), Field::new("value", DataType::Binary, true)]);
    let pairs: Vec<Box<dyn ArrayBuilder>> = vec![Box::new(BinaryBuilder::new()), Box::new(BinaryBuilder::new())];
    let mut headers = ListBuilder::new(StructBuilder::new(fields, pairs));
    let (mut keys, mut values, mut partitions) = (BinaryBuilder::new(), BinaryBuilder::new(), Int32Builder::new());
    for (row, (record, partition)) in rows.iter().enumerate() {
        keys.append_option(record.key.as_ref());
        values.append_option(record.value.as_ref());
        partitions.append_option(*partition);
        let hidden = vec![(b"hidden".to_vec(), None)];
        let has_headers = !record.headers.is_empty();
        let pairs = if !has_headers && hides(row) { &hidden } else { &record.headers };
        for (key, value) in pairs {
            let pair = headers.values();
            pair.field_builder::<BinaryBuilder>(0).expect("a key").append_value(key);
            pair.field_builder::<BinaryBuilder>(1).expect("a value").append_option(value.as_ref());
            pair.append(has_headers);
        }
        headers.append(has_headers);
    }
    let times = rows.iter().map(|(record, _)| record.time);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("headers", Arc::new(headers.finish())),
        ("value", Arc::new(values.finish())),
        ("key", Arc::new(keys.finish())),
        ("partition", Arc::new(partitions.finish())),
        ("timestamp", Arc::new(times.collect::<Int64Array>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .expect("columns of one length")
}

const EDGE_CASES: [u8; 10] = [0, 1, 2, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xfe, 0xff];

/// Damages `data` at a random place from `from` on.
pub fn damage(random: &mut Random, data: &mut Vec<u8>, from: usize) {
    if data.len() <= from {
        data.push(EDGE_CASES[random.below(EDGE_CASES.len())]);
        return;
    }
    let at = from + random.below(data.len() - from);
    let end = (at + [1, 1, 2, 4, 8, 30][random.below(6)]).min(data.len());
    match random.below(6) {
        0 => data[at] ^= 1 << random.below(8),
        1 => data[at] = EDGE_CASES[random.below(EDGE_CASES.len())],
        2 => data[at..end].iter_mut().for_each(|byte| *byte = random.next() as u8),
        3 => drop(data.drain(at..end)),
        4 => {
            let other = random.below(data.len());
            let chunk = data[other..(other + end - at).min(data.len())].to_vec();
            data.splice(at..at, chunk);
        }
        _ => data.truncate(at),
    }
}

/// A nullable field.
pub fn named(name: &str, data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new(name, data_type, true))
}

/// A struct of columns.
pub fn children(columns: Vec<ArrayRef>) -> StructArray {
    columns.into_iter().map(|column| (named("f", column.data_type().clone()), column)).collect::<Vec<_>>().into()
}
