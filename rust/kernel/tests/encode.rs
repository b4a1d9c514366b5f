//! Tests of the encoder's API; Python's tests go deeper.

mod support;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use record_kernel::{
    EncodeError, EncodedBatch, Encoder, EncoderSettings, HEADER_BYTES, Limits, OffsetRange, ProducerState,
    set_producer_state, split_batch,
};
use support::{Random, Record, arrow_rows, body, decoder, feed, random_record};

const SETTINGS: EncoderSettings = EncoderSettings {
    partitions: 3,
    codec: 0,
    level: None,
    batch_bytes: 1 << 19,
    max_record_bytes: 1 << 20,
    ignore_keys: false,
    first_sticky: 0,
};

fn arrow(records: &[Record], partition: Option<i32>) -> RecordBatch {
    let rows: Vec<_> = records.iter().map(|record| (record.clone(), partition)).collect();
    arrow_rows(&rows, |_| false)
}

fn values(batch: &[u8]) -> Vec<Option<Vec<u8>>> {
    let limits = Limits { rows: 65536, bytes: 64 << 20, batch: 1 << 30 };
    let mut decoder = decoder(OffsetRange { from: 0, until: 1 << 40 }, limits);
    feed(&mut decoder, batch, &[]);
    let mut decoded = Vec::new();
    while let Some(rows) = decoder.read().expect("good records") {
        let values = rows.column(1).as_binary::<i32>();
        decoded.extend((0..rows.num_rows()).map(|row| values.is_valid(row).then(|| values.value(row).to_vec())));
    }
    decoded
}

fn some_records(random: &mut Random) -> Vec<Record> {
    (0..1 + random.below(40)).map(|_| random_record(random, 9000)).collect()
}

fn crc_is_right(batch: &[u8]) -> bool {
    batch[17..21] == crc32c::crc32c(&batch[21..]).to_be_bytes()
}

#[test]
fn records_are_encoded_as_by_the_reference_writer() {
    let mut random = Random::new(3);
    for _ in 0..200 {
        let records = some_records(&mut random);
        let mut encoder = Encoder::new(SETTINGS).expect("good settings");
        assert_eq!(encoder.add(&arrow(&records, Some(2))), Ok(vec![]));
        let batches = encoder.flush().expect("enough memory");
        let [EncodedBatch { partition: 2, data, uncompressed_bytes, .. }] = batches.as_slice() else {
            panic!("{batches:?}")
        };
        let mut relative = records.clone();
        relative.iter_mut().for_each(|record| record.time -= records[0].time);
        assert_eq!(data[HEADER_BYTES..], body(&relative));
        assert_eq!(*uncompressed_bytes, data.len() - HEADER_BYTES);
        assert!(crc_is_right(data));
        assert_eq!(encoder.open_bytes(), 0);
    }
}

#[test]
fn every_codec_round_trips() {
    let mut random = Random::new(4);
    for codec in 0..=4 {
        let mut encoder =
            Encoder::new(EncoderSettings { codec, batch_bytes: 5000, ..SETTINGS }).expect("good settings");
        for _ in 0..20 {
            let records = some_records(&mut random);
            let mut batches = encoder.add(&arrow(&records, Some(1))).expect("good rows");
            batches.extend(encoder.flush().expect("enough memory"));
            let decoded: Vec<_> = batches.iter().flat_map(|batch| values(&batch.data)).collect();
            assert_eq!(decoded, records.iter().map(|record| record.value.clone()).collect::<Vec<_>>());
            batches.into_iter().for_each(|batch| encoder.recycle(batch.data));
        }
    }
}

#[test]
fn rows_that_cannot_be_encoded() {
    let record = Record { value: Some(vec![1; 100]), ..Record::default() };
    let mut encoder = Encoder::new(EncoderSettings { max_record_bytes: 108, ..SETTINGS }).expect("good settings");
    assert_eq!(encoder.add(&arrow(&[record], None)), Err(EncodeError::TooLarge { row: 0, size: 109 }));
    let mut encoder = Encoder::new(SETTINGS).expect("good settings");
    encoder.add(&arrow(&[Record::default()], None)).expect("a good row");
    let rejected = encoder.add(&arrow(&[Record::default()], Some(3)));
    assert_eq!(rejected, Err(EncodeError::Partition { row: 1, partition: 3 }));
    let without_timestamp = arrow(&[], None).project(&[0, 1]).expect("columns");
    assert_eq!(encoder.add(&without_timestamp), Err(EncodeError::Columns("there is no column timestamp".to_owned())));
    assert!(Encoder::new(EncoderSettings { codec: 5, ..SETTINGS }).is_err());
    assert!(Encoder::new(EncoderSettings { first_sticky: 3, ..SETTINGS }).is_err());
}

#[test]
fn rows_without_a_key_change_partitions() {
    // Content of 1 KiB: the value, and a byte each for the key and the headers, and two for the value's length.
    let record = Record { value: Some(vec![1; 1020]), ..Record::default() };
    let mut encoder = Encoder::new(EncoderSettings { first_sticky: 1, ..SETTINGS }).expect("good settings");
    assert_eq!(encoder.add(&arrow(&vec![record; 40], None)), Ok(vec![]));
    let batches = encoder.flush().expect("enough memory");
    assert_eq!(
        batches.iter().map(|batch| (batch.partition, batch.records)).collect::<Vec<_>>(),
        [(0, 8), (1, 16), (2, 16)]
    );
}

#[test]
fn producer_state_and_split() {
    let mut random = Random::new(5);
    for codec in 0..=4 {
        for _ in 0..20 {
            let mut encoder = Encoder::new(EncoderSettings { codec, ..SETTINGS }).expect("good settings");
            encoder.add(&arrow(&some_records(&mut random), Some(0))).expect("good rows");
            let mut data = encoder.flush().expect("enough memory").remove(0).data;
            let (header, records) = data.split_first_chunk_mut::<HEADER_BYTES>().expect("a header");
            let state = ProducerState {
                producer_id: random.next() as i64,
                epoch: 7,
                sequence: i32::MAX,
                transactional: codec > 1,
            };
            set_producer_state(header, records.len(), &state);
            assert!(crc_is_right(&data));
            assert_eq!(data[43..51], state.producer_id.to_be_bytes());
            let all = values(&data);
            if all.len() == 1 {
                assert!(split_batch(&data).is_err());
                continue;
            }
            let (first, second) = split_batch(&data).expect("a good batch");
            assert!(crc_is_right(&first) && crc_is_right(&second));
            assert_eq!([values(&first), values(&second)].concat(), all);
        }
    }
}

#[test]
fn damaged_batches_are_not_split_silently() {
    let mut random = Random::new(6);
    let mut encoder = Encoder::new(SETTINGS).expect("good settings");
    encoder.add(&arrow(&some_records(&mut random), Some(0))).expect("good rows");
    let good = encoder.flush().expect("enough memory").remove(0).data;
    for round in 0..5000 {
        let mut data = good.clone();
        support::damage(&mut random, &mut data, 0);
        if round % 2 == 0 {
            support::fix_length_and_crc(&mut data);
            let _ = split_batch(&data); // it only has to return
        } else if data[12..] != good[12..] {
            assert!(split_batch(&data).is_err() || data[21..] == good[21..]);
        }
    }
}

#[test]
fn the_header_describes_the_records() {
    let times = [1_000, 5_000, 500];
    let records = times.map(|time| Record { time, ..support::record("k", "v") });
    let mut encoder = Encoder::new(SETTINGS).expect("good settings");
    encoder.add(&arrow(&records, Some(0))).expect("good rows");
    let EncodedBatch { data, records, .. } = encoder.flush().expect("enough memory").remove(0);
    let header = [
        &0i64.to_be_bytes()[..],                 // base offset
        &(data.len() as i32 - 12).to_be_bytes(), // length
        &(-1i32).to_be_bytes(),                  // leader epoch
        &[2],                                    // magic
        &data[17..21],                           // CRC
        &[0, 0],                                 // attributes
        &2i32.to_be_bytes(),                     // last offset delta
        &1_000i64.to_be_bytes(),                 // first timestamp
        &5_000i64.to_be_bytes(),                 // largest timestamp
        &(-1i64).to_be_bytes(),                  // producer id
        &(-1i16).to_be_bytes(),                  // producer epoch
        &(-1i32).to_be_bytes(),                  // first sequence
        &3i32.to_be_bytes(),                     // records
    ]
    .concat();
    assert_eq!((records, &data[..HEADER_BYTES]), (3, &header[..]));
    let (first, second) = split_batch(&data).expect("a good batch");
    let numbers = |batch: &[u8]| (batch[23..43].to_vec(), batch[57..61].to_vec());
    let expected = |delta: i32, first: i64, largest: i64| {
        let times = [first.to_be_bytes(), largest.to_be_bytes()].concat();
        ([&delta.to_be_bytes()[..], &times].concat(), (delta + 1).to_be_bytes().to_vec())
    };
    assert_eq!((numbers(&first), numbers(&second)), (expected(1, 1_000, 5_000), expected(0, 500, 500)));
}

#[test]
fn producer_state_is_written_into_the_header() {
    let mut encoder = Encoder::new(EncoderSettings { codec: 3, ..SETTINGS }).expect("good settings");
    encoder.add(&arrow(&[support::record("k", "v")], Some(0))).expect("good rows");
    let mut data = encoder.flush().expect("enough memory").remove(0).data;
    for (transactional, attributes) in [(true, 0x13), (false, 0x03)] {
        let (header, records) = data.split_first_chunk_mut::<HEADER_BYTES>().expect("a header");
        let state = ProducerState { producer_id: 70_000, epoch: 258, sequence: i32::MAX, transactional };
        set_producer_state(header, records.len(), &state);
        assert!(crc_is_right(&data));
        assert_eq!(data[21..23], [0, attributes]);
        assert_eq!(data[43..57], [&70_000i64.to_be_bytes()[..], &[1, 2], &[0x7f, 0xff, 0xff, 0xff]].concat());
    }
    data[70] ^= 1;
    assert!(split_batch(&data).is_err() && !crc_is_right(&data));
}

#[test]
fn batches_end_at_their_size() {
    // A record of 100 bytes of content, and the same for each partition.
    let record = Record { value: Some(vec![7; 92]), ..Record::default() };
    let mut encoder = Encoder::new(EncoderSettings { batch_bytes: 505, ..SETTINGS }).expect("good settings");
    let full = encoder.add(&arrow(&vec![record; 12], Some(2))).expect("good rows");
    let sizes: Vec<_> = full.iter().map(|batch| (batch.partition, batch.records, batch.data.len())).collect();
    assert_eq!(sizes, [(2, 5, 566), (2, 5, 566)]);
    assert!((100..300).contains(&encoder.open_bytes()));
    assert_eq!(encoder.flush().expect("enough memory").iter().map(|batch| batch.records).collect::<Vec<_>>(), [2]);
}

#[test]
fn keys_choose_their_partition() {
    // By Kafka's test vectors of the hash, which is made positive.
    let keys = ["21", "foobar", "a-little-bit-long-string", "a-little-bit-longer-string", "abc"];
    for (key, hash) in keys.into_iter().zip([-973932308, -790332482, -985981536, -1486304829, 479470107]) {
        let partition = (hash & i32::MAX) % SETTINGS.partitions;
        let mut encoder = Encoder::new(SETTINGS).expect("good settings");
        encoder.add(&arrow(&[support::record(key, "v")], None)).expect("a good row");
        assert_eq!(encoder.flush().expect("enough memory")[0].partition, partition, "{key}");
    }
}

#[test]
fn headers_and_large_columns_are_read_back() {
    use arrow_array::LargeBinaryArray;
    let pair = |key: &str, value: Option<&str>| (key.into(), value.map(Into::into));
    let headers = vec![pair("a", Some("1")), pair("", None), pair("long", Some(&"v".repeat(100)))];
    let records = [Record { headers, ..support::record("k", "v") }, Record::default()];
    let rows = arrow(&records, Some(0));
    let large = |name: &str| {
        let column = rows.column_by_name(name).expect("a column").as_binary::<i32>().iter();
        Arc::new(column.collect::<LargeBinaryArray>()) as ArrayRef
    };
    let mut columns: Vec<(&str, ArrayRef)> = vec![("key", large("key")), ("value", large("value"))];
    columns.extend(
        ["headers", "partition", "timestamp"].map(|name| (name, rows.column_by_name(name).expect("a column").clone())),
    );
    let large =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
            .expect("columns of one length");
    for rows in [&rows, &large] {
        let mut encoder = Encoder::new(SETTINGS).expect("good settings");
        encoder.add(rows).expect("good rows");
        assert_eq!(encoder.flush().expect("enough memory")[0].data[HEADER_BYTES..], body(&records));
    }
}

#[test]
fn batches_of_several_chunks_are_split() {
    let mut random = Random::new(7);
    let value = |random: &mut Random| (0..70_000).map(|_| b"abcdefgh"[random.below(8)]).collect::<Vec<u8>>();
    let records: Vec<_> =
        (0..25).map(|time| Record { value: Some(value(&mut random)), time, ..Record::default() }).collect();
    for codec in 0..=4 {
        let settings = EncoderSettings { codec, batch_bytes: 1 << 23, ..SETTINGS };
        let mut encoder = Encoder::new(settings).expect("good settings");
        encoder.add(&arrow(&records, Some(0))).expect("good rows");
        let data = encoder.flush().expect("enough memory").remove(0).data;
        let (first, second) = split_batch(&data).expect("a good batch");
        let sent: Vec<_> = records.iter().map(|record| record.value.clone()).collect();
        assert!(values(&first) == sent[..13] && values(&second) == sent[13..], "codec {codec}");
    }
}
