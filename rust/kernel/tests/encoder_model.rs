//! Drawn rows, encoded and compared with a model of the encoder and with the codecs themselves.

mod support;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeBinaryArray, LargeListArray, ListArray, RecordBatch};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use record_kernel::{
    EncodeError, EncodedBatch, Encoder, EncoderSettings, HEADER_BYTES, Limits, OffsetRange, ProducerState,
    set_producer_state, split_batch,
};
use support::{GZIP, LZ4, Random, Record, SNAPPY, ZSTD, arrow_rows, body, decoder, encoded, feed, random_record};

const MAX_STICKY_BYTES: usize = 16 << 10;

type Row = (Record, Option<i32>);

/// What the encoder has to do with each row.
struct Model {
    settings: EncoderSettings,
    open: Vec<Vec<Record>>,
    sticky: i32,
    sticky_bytes: usize,
    full: Vec<(i32, Vec<Record>)>,
}

impl Model {
    fn add(&mut self, rows: &[Row]) -> Vec<(i32, Vec<Record>)> {
        for (record, partition) in rows {
            let key = record.key.as_ref().filter(|_| !self.settings.ignore_keys);
            let chosen = partition.or_else(|| key.map(|key| (murmur2(key) & i32::MAX) % self.settings.partitions));
            let partition = chosen.unwrap_or(self.sticky) as usize;
            let with = [self.open[partition].clone(), vec![record.clone()]].concat();
            if with.len() > 1 && relative_body(&with).len() > self.settings.batch_bytes {
                self.close(partition);
            }
            self.open[partition].push(record.clone());
            if relative_body(&self.open[partition]).len() >= self.settings.batch_bytes {
                self.close(partition);
            }
            if chosen.is_none() {
                self.sticky_bytes += content_size(record);
                if self.sticky_bytes >= self.settings.batch_bytes.min(MAX_STICKY_BYTES) {
                    self.sticky_bytes = 0;
                    self.sticky = (self.sticky + 1) % self.settings.partitions;
                }
            }
        }
        std::mem::take(&mut self.full)
    }

    fn flush(&mut self) -> Vec<(i32, Vec<Record>)> {
        let open = (0..self.open.len()).filter(|&partition| !self.open[partition].is_empty());
        open.collect::<Vec<_>>().into_iter().for_each(|partition| self.close(partition));
        std::mem::take(&mut self.full)
    }

    fn close(&mut self, partition: usize) {
        self.full.push((partition as i32, std::mem::take(&mut self.open[partition])));
    }

    fn open_bytes(&self) -> usize {
        self.open.iter().map(|records| relative_body(records).len()).sum()
    }
}

/// The hash of Kafka (`Utils.murmur2`).
fn murmur2(data: &[u8]) -> i32 {
    const MULTIPLIER: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let words = data.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let mut word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(MULTIPLIER);
        word ^= word >> 24;
        hash = hash.wrapping_mul(MULTIPLIER) ^ word.wrapping_mul(MULTIPLIER);
    }
    for (index, &byte) in rest.iter().enumerate() {
        hash ^= u32::from(byte) << (8 * index);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    (hash ^ hash >> 15) as i32
}

/// The records of a batch, whose timestamps are relative to the first one.
fn relative_body(records: &[Record]) -> Vec<u8> {
    let relative = |record: &Record| Record { time: record.time - records[0].time, ..record.clone() };
    body(&records.iter().map(relative).collect::<Vec<_>>())
}

/// The size of keys, values and headers with their lengths.
fn content_size(record: &Record) -> usize {
    let all = encoded(&Record { time: 0, ..record.clone() }, 0);
    let length = all.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
    all.len() - length - 3 // attributes, timestamp and offset
}

fn large(rows: &RecordBatch) -> RecordBatch {
    let column = |name: &str| rows.column_by_name(name).expect("a column").clone();
    let bytes = |name: &str| Arc::new(column(name).as_binary::<i32>().iter().collect::<LargeBinaryArray>()) as ArrayRef;
    let lists = column("headers");
    let lists = lists.as_list::<i32>();
    let ends = lists.value_offsets().iter().map(|&end| i64::from(end)).collect::<ScalarBuffer<i64>>();
    let element = Arc::new(Field::new("item", DataType::clone(lists.values().data_type()), true));
    let lists = LargeListArray::new(element, OffsetBuffer::new(ends), lists.values().clone(), lists.nulls().cloned());
    let mut columns: Vec<(&str, ArrayRef)> =
        vec![("key", bytes("key")), ("value", bytes("value")), ("headers", Arc::new(lists))];
    columns.extend(["partition", "timestamp"].map(|name| (name, column(name))));
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .expect("columns of one length")
}

/// The same rows, whose headers are no longer hidden.
fn without_null_lists(rows: &RecordBatch) -> RecordBatch {
    let lists = rows.column(0).as_list::<i32>();
    let DataType::List(element) = lists.data_type() else { panic!("headers are lists") };
    let shown = ListArray::new(element.clone(), lists.offsets().clone(), lists.values().clone(), None);
    let mut columns = rows.columns().to_vec();
    columns[0] = Arc::new(shown);
    RecordBatch::try_new(rows.schema(), columns).expect("columns of one length")
}

/// Rows in one of the types that the encoder takes, as a slice of more rows.
fn arrow(random: &mut Random, rows: &[Row]) -> RecordBatch {
    let (before, after) = (random.below(4), random.below(3));
    let other = |random: &mut Random| (random_record(random, 3), None);
    let mut all: Vec<Row> = (0..before).map(|_| other(random)).collect();
    all.extend_from_slice(rows);
    all.extend((0..after).map(|_| other(random)));
    let mut arrow = arrow_rows(&all, |_| random.one_in(3));
    if random.one_in(3) {
        arrow = large(&arrow);
    }
    arrow.slice(before, rows.len())
}

fn read(batch: &[u8]) -> Vec<Record> {
    let limits = Limits { rows: 65536, bytes: 64 << 20, batch: 1 << 30 };
    let mut decoder = decoder(OffsetRange { from: 0, until: 1 << 40 }, limits);
    feed(&mut decoder, batch, &[]);
    let mut records = Vec::new();
    while let Some(rows) = decoder.read().expect("good records") {
        records.extend(support::rows(&rows).into_iter().map(|row| row.record));
    }
    records
}

/// Checks a batch without a producer.
fn check_batch(data: &[u8], codec: u8, records: &[Record]) {
    let times = records.iter().map(|record| record.time);
    let header = [
        &0i64.to_be_bytes()[..],
        &(data.len() as i32 - 12).to_be_bytes(),
        &(-1i32).to_be_bytes(), // leader epoch
        &[2],
        &crc32c::crc32c(&data[21..]).to_be_bytes(),
        &[0, codec],
        &(records.len() as i32 - 1).to_be_bytes(),
        &records[0].time.to_be_bytes(),
        &times.max().expect("a record").to_be_bytes(),
        &[0xff; 8 + 2 + 4], // producer id, epoch and sequence
        &(records.len() as i32).to_be_bytes(),
    ]
    .concat();
    assert_eq!(&data[..HEADER_BYTES], header);
    if codec == 0 {
        assert_eq!(&data[HEADER_BYTES..], relative_body(records));
    }
    let as_read = |record: &Record| {
        let headers = record.headers.iter();
        let headers = headers.map(|(key, value)| (String::from_utf8_lossy(key).as_bytes().to_vec(), value.clone()));
        Record { headers: headers.collect(), ..record.clone() }
    };
    assert_eq!(read(data), records.iter().map(as_read).collect::<Vec<_>>());
}

/// Checks the batches, writes producers into them, splits them, and gives most of them back to the encoder.
fn check(
    random: &mut Random,
    encoder: &mut Encoder,
    codec: u8,
    batches: Vec<EncodedBatch>,
    expected: &[(i32, Vec<Record>)],
) {
    let partitions = |batch: &EncodedBatch| (batch.partition, batch.records as usize, batch.uncompressed_bytes);
    let of_model =
        |(partition, records): &(i32, Vec<Record>)| (*partition, records.len(), relative_body(records).len());
    assert_eq!(batches.iter().map(partitions).collect::<Vec<_>>(), expected.iter().map(of_model).collect::<Vec<_>>());
    for (mut batch, (_, records)) in batches.into_iter().zip(expected) {
        check_batch(&batch.data, codec, records);
        let original = batch.data.clone();
        for _ in 0..1 + random.below(2) {
            let state = ProducerState {
                producer_id: random.next() as i64,
                epoch: random.next() as i16,
                sequence: random.next() as i32,
                transactional: random.one_in(2),
            };
            let (header, rest) = batch.data.split_first_chunk_mut::<HEADER_BYTES>().expect("a header");
            set_producer_state(header, rest.len(), &state);
            let fields =
                [&state.producer_id.to_be_bytes()[..], &state.epoch.to_be_bytes(), &state.sequence.to_be_bytes()];
            assert_eq!(batch.data[43..57], fields.concat());
            assert_eq!(batch.data[21..23], [0, codec | if state.transactional { 0x10 } else { 0 }]);
            assert_eq!(batch.data[17..21], crc32c::crc32c(&batch.data[21..]).to_be_bytes());
            assert_eq!((&batch.data[..17], &batch.data[57..]), (&original[..17], &original[57..]));
            assert_eq!(batch.data[23..43], original[23..43]);
        }
        if records.len() > 1 {
            let (first, second) = split_batch(&batch.data).expect("a good batch");
            let middle = records.len().div_ceil(2);
            check_batch(&first, codec, &records[..middle]);
            check_batch(&second, codec, &records[middle..]);
        }
        if !random.one_in(4) {
            encoder.recycle(batch.data);
        }
    }
}

fn check_rows(seed: u64) {
    println!("seed {seed}"); // cargo shows the last one where the test fails
    let mut random = Random::new(seed);
    let partitions = 1 + random.below(4) as i32;
    let settings = EncoderSettings {
        partitions,
        codec: random.below(5) as u8,
        level: None,
        batch_bytes: [1, 40, 300, 1000, 1 << 19][random.below(5)],
        max_record_bytes: 1 << 20,
        ignore_keys: random.one_in(3),
        first_sticky: random.below(partitions as usize) as i32,
    };
    let mut encoder = Encoder::new(settings).expect("good settings");
    let mut model = Model {
        settings,
        open: vec![vec![]; partitions as usize],
        sticky: settings.first_sticky,
        sticky_bytes: 0,
        full: vec![],
    };
    for _ in 0..1 + random.below(4) {
        let partition = |random: &mut Random| (!random.one_in(2)).then(|| random.below(partitions as usize) as i32);
        let row = |random: &mut Random| (random_record(random, 8), partition(random));
        let rows: Vec<Row> = (0..random.below(16)).map(|_| row(&mut random)).collect();
        let batches = encoder.add(&arrow(&mut random, &rows)).expect("good rows");
        check(&mut random, &mut encoder, settings.codec, batches, &model.add(&rows));
        assert_eq!(encoder.open_bytes(), model.open_bytes());
        if random.one_in(3) {
            let batches = encoder.flush().expect("enough memory");
            check(&mut random, &mut encoder, settings.codec, batches, &model.flush());
            assert_eq!(encoder.open_bytes(), 0);
        }
    }
    let batches = encoder.flush().expect("enough memory");
    check(&mut random, &mut encoder, settings.codec, batches, &model.flush());
}

#[test]
fn rows_are_encoded_as_by_the_model() {
    (0..600).for_each(check_rows);
}

#[test]
fn errors_name_the_row_among_all_rows() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let size = 20 + random.below(100);
        let large = Record { value: Some(vec![7; size]), ..Record::default() };
        let max_record_bytes = encoded(&large, 0).len();
        let settings = EncoderSettings {
            partitions: 3,
            codec: 0,
            level: None,
            batch_bytes: [1, 1 << 19][random.below(2)],
            max_record_bytes,
            ignore_keys: random.one_in(2),
            first_sticky: 0,
        };
        let mut encoder = Encoder::new(settings).expect("good settings");
        let mut row = 0;
        for _ in 0..random.below(3) {
            let count = random.below(4);
            let good = vec![(Record::default(), Some(random.below(3) as i32)); count];
            encoder.add(&arrow(&mut random, &good)).expect("good rows");
            row += count as u64;
        }
        // A record of exactly the maximum is accepted, if it is the first of its batch.
        let mut rows = vec![(Record::default(), Some(0)); random.below(3)];
        rows.push((large.clone(), Some(2)));
        let mut check = |rows: &[Row], error: EncodeError| {
            assert_eq!(encoder.add(&arrow(&mut random, rows)), Err(error), "seed {seed}");
        };
        let bad = row + rows.len() as u64;
        match seed % 4 {
            0 => {
                let value = Some(vec![7; size + 1]);
                rows.push((Record { value, ..Record::default() }, Some(1)));
                check(&rows, EncodeError::TooLarge { row: bad, size: max_record_bytes + 1 });
            }
            1 => {
                rows.push((Record::default(), Some(3)));
                check(&rows, EncodeError::Partition { row: bad, partition: 3 });
            }
            2 => {
                rows.push((Record::default(), Some(-1)));
                check(&rows, EncodeError::Partition { row: bad, partition: -1 });
            }
            _ => {
                rows.push((Record::default(), Some(1)));
                let last = rows.len() - 1;
                let batch = without_null_lists(&arrow_rows(&rows, |row| row == last));
                assert_eq!(encoder.add(&batch), Err(EncodeError::Header { row: bad }), "seed {seed}");
            }
        }
    }
}

fn encoded_batches(codec: u8, level: Option<i32>, values: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let settings = EncoderSettings {
        partitions: 1,
        codec,
        level,
        batch_bytes: 1 << 20,
        max_record_bytes: 1 << 20,
        ignore_keys: false,
        first_sticky: 0,
    };
    let mut encoder = Encoder::new(settings).expect("good settings");
    let encode = |value: &Vec<u8>| {
        let record = Record { value: Some(value.clone()), ..Record::default() };
        encoder.add(&arrow_rows(&[(record, None)], |_| false)).expect("a good row");
        encoder.flush().expect("enough memory").remove(0).data.split_off(HEADER_BYTES)
    };
    values.iter().map(encode).collect()
}

fn plain(value: &[u8]) -> Vec<u8> {
    body(&[Record { value: Some(value.to_vec()), ..Record::default() }])
}

/// Text with 20,000 words, and noise.
fn values() -> Vec<Vec<u8>> {
    let mut random = Random::new(9);
    let words = ["delayed", "on time", "origin", "EWR", "SFO", "17", "carrier"];
    let text: String = (0..20_000).map(|_| format!("{} ", words[random.below(words.len())])).collect();
    let noise = (0..150_000).map(|_| random.next() as u8).collect();
    vec![text.into_bytes(), noise, b"short".to_vec()]
}

#[test]
fn levels_are_those_of_the_codec() {
    for (codec, level, effective) in [
        (GZIP, None, 6),
        (GZIP, Some(1), 1),
        (GZIP, Some(9), 9),
        (ZSTD, None, 3),
        (ZSTD, Some(-50), -50),
        (ZSTD, Some(1), 1),
        (ZSTD, Some(12), 12),
    ] {
        let values = values();
        for (value, compressed) in values.iter().zip(encoded_batches(codec, level, &values)) {
            let plain = plain(value);
            let mut expected = Vec::with_capacity(2 * plain.len() + 1000);
            if codec == GZIP {
                let mut deflater = flate2::Compress::new_gzip(flate2::Compression::new(effective as u32), 15);
                deflater.compress_vec(&plain, &mut expected, flate2::FlushCompress::Finish).expect("enough space");
            } else {
                expected.resize(2 * plain.len() + 1000, 0);
                let length = zstd_safe::compress(&mut expected[..], &plain, effective).expect("enough space");
                expected.truncate(length);
            }
            assert_eq!(compressed.len(), expected.len(), "codec {codec}, level {level:?}");
        }
    }
}

/// Kafka's clients in other languages rely on the sizes of blocks.
#[test]
fn blocks_are_those_of_the_java_client() {
    let values = values();
    for (value, compressed) in values.iter().zip(encoded_batches(SNAPPY, None, &values)) {
        let mut expected = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01".to_vec();
        for chunk in plain(value).chunks(32 << 10) {
            let block = snap::raw::Encoder::new().compress_vec(chunk).expect("few bytes");
            expected.extend((block.len() as i32).to_be_bytes());
            expected.extend(block);
        }
        assert!(compressed == expected);
    }
    for (value, compressed) in values.iter().zip(encoded_batches(LZ4, None, &values)) {
        let (header, mut rest) = compressed.split_at(7);
        assert_eq!(header, b"\x04\x22\x4d\x18\x60\x40\x82");
        for chunk in plain(value).chunks(64 << 10) {
            let (size, after) = rest.split_first_chunk::<4>().expect("a size");
            let size = u32::from_le_bytes(*size);
            let (block, after) = after.split_at((size & i32::MAX as u32) as usize);
            if size >> 31 == 1 {
                assert!(block == chunk);
            } else {
                assert!(block.len() < chunk.len());
                assert!(lz4_flex::block::decompress(block, chunk.len()).expect("a good block") == chunk);
            }
            rest = after;
        }
        assert_eq!(rest, [0; 4]);
    }
}
