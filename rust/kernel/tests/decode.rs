//! Tests of the decoder's API; Python's tests go deeper.

mod support;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use record_kernel::{AbortedTransaction, ErrorKind, Limits, OffsetRange, scan};
use support::{Record, batch, body, compress, decoder, feed, record};

const ALL: OffsetRange = OffsetRange { from: 0, until: 1 << 40 };
const LIMITS: Limits = Limits { rows: 65536, bytes: 4 << 20, batch: 1 << 30 };
const TRANSACTIONAL: u8 = 0x10;
const CONTROL: u8 = 0x30;

fn numbered_batch(base: i64, count: i32) -> Vec<u8> {
    let records: Vec<Record> = (0..count).map(|index| record("k", &format!("v{}", base + i64::from(index)))).collect();
    batch(base, 0, -1, count, &body(&records))
}

#[test]
fn every_codec_gives_the_same_rows() {
    let records = [record("key", "value"), Record::default(), Record { time: -5, ..record("", "") }];
    for codec in 0..=4 {
        let mut decoder = decoder(ALL, LIMITS);
        assert!(feed(&mut decoder, &batch(7, codec, -1, 3, &compress(codec, &body(&records))), &[]));
        let rows = decoder.read().expect("good records").expect("rows");
        let values = rows.column(1).as_binary::<i32>();
        assert_eq!((values.value(0), values.is_null(1), values.value(2)), (&b"value"[..], true, &b""[..]));
        assert_eq!(rows.column(2).as_string::<i32>().value(2), "topic");
        assert_eq!(rows.column(3).as_primitive::<Int32Type>().values(), &[3, 3, 3]);
        assert_eq!(rows.column(4).as_primitive::<Int64Type>().values(), &[7, 8, 9]);
        let microseconds = rows.column(5).as_primitive::<TimestampMicrosecondType>().value(2);
        assert_eq!(microseconds, 1_699_999_999_995_000);
        assert_eq!(decoder.read().expect("good records"), None);
        assert_eq!((decoder.next_offset(), decoder.position(), decoder.done()), (10, 10, false));
    }
}

#[test]
fn records_continue_across_chunks() {
    let records: Vec<Record> = (0..200i32).map(|n| record(&format!("k{n}"), &format!("{n} ").repeat(5000))).collect();
    let plain = body(&records);
    assert!(plain.len() > 3 << 20);
    for codec in 0..=4 {
        let mut decoder = decoder(ALL, LIMITS);
        assert!(feed(&mut decoder, &batch(0, codec, -1, 200, &compress(codec, &plain)), &[]));
        let mut values_read = Vec::new();
        while let Some(rows) = decoder.read().expect("good records") {
            let values = rows.column(1).as_binary::<i32>();
            values_read.extend((0..rows.num_rows()).map(|row| Some(values.value(row).to_vec())));
        }
        let sent: Vec<_> = records.iter().map(|record| record.value.clone()).collect();
        assert!(values_read == sent, "codec {codec}");
        assert_eq!(decoder.counts().bytes, plain.len() as i64);
    }
}

#[test]
fn bytes_after_the_records_of_a_large_batch_are_rejected() {
    let records: Vec<Record> = (0..300i32).map(|_| record("", &"v".repeat(10_000))).collect();
    for codec in 1..=4 {
        let mut plain = body(&records);
        plain.resize(plain.len() + (2 << 20), 0);
        let mut decoder = decoder(ALL, LIMITS);
        assert!(feed(&mut decoder, &batch(0, codec, -1, 300, &compress(codec, &plain)), &[]));
        assert_eq!(decoder.read().expect("good records").expect("rows").num_rows(), 300);
        let error = decoder.read().expect_err("excess bytes");
        assert_eq!((error.kind, error.offset), (ErrorKind::Corrupt, 299));
    }
}

#[test]
fn batch_and_record_size_are_limited() {
    let records = [record("k", "value"), record("k", &"v".repeat(100))];
    let plain = body(&records);
    for codec in 0..=4 {
        // An uncompressed batch is in memory already: only the record size is limited.
        let limit = if codec == 0 { body(&records[1..]).len() } else { plain.len() };
        for (limit, rows) in [(limit, Some(2)), (limit - 1, None)] {
            let mut decoder = decoder(ALL, Limits { batch: limit, ..LIMITS });
            assert!(feed(&mut decoder, &batch(0, codec, -1, 2, &compress(codec, &plain)), &[]));
            let first = decoder.read();
            match rows {
                Some(rows) => assert_eq!(first.expect("not too large").expect("rows").num_rows(), rows),
                None => {
                    let error = first.and_then(|_| decoder.read()).expect_err("too large");
                    assert_eq!(error.kind, ErrorKind::TooLarge);
                }
            }
        }
    }
}

#[test]
fn scan_ends_at_an_incomplete_batch() {
    let mut bytes = numbered_batch(0, 5);
    bytes.extend(numbered_batch(5, 5));
    let complete = bytes.len();
    bytes.extend(&numbered_batch(10, 5)[..80]);
    let scanned = scan(&bytes, 0, 100);
    assert_eq!((scanned.end, scanned.next_offset, scanned.legacy_format, scanned.failure), (complete, 10, false, None));
    assert_eq!((scanned.leader_epoch, scan(&bytes[..10], 0, 100).leader_epoch), (5, -1));
    assert_eq!(scan(&bytes, 0, 5).next_offset, 5);
    assert_eq!(scan(&bytes, 12, 100).next_offset, 12);
}

#[test]
fn legacy_formats_are_not_fed() {
    let mut bytes = numbered_batch(0, 5);
    let mut legacy = vec![0; 26];
    legacy[7] = 5;
    legacy[11] = 14;
    legacy[16] = 1;
    bytes.extend(&legacy);
    let mut decoder = decoder(ALL, LIMITS);
    assert!(!feed(&mut decoder, &bytes, &[]));
    assert_eq!((decoder.next_offset(), decoder.buffered()), (0, false));
    decoder.advance_to(6);
    assert!(feed(&mut decoder, &numbered_batch(6, 2), &[]));
    assert_eq!(decoder.read().expect("good records").expect("rows").num_rows(), 2);
    assert_eq!((decoder.counts().records, decoder.counts().gaps), (2, 0));
}

#[test]
fn aborted_transactions_end_at_their_marker() {
    let marker = |base, kind: u8| {
        let key = Record { key: Some(vec![0, 0, 0, kind]), ..Record::default() };
        batch(base, CONTROL, 1, 1, &body(&[key]))
    };
    let data = body(&[record("k", "v")]);
    let mut bytes = batch(0, TRANSACTIONAL, 1, 1, &data);
    bytes.extend(marker(1, 0));
    bytes.extend(batch(2, TRANSACTIONAL, 1, 1, &data));
    bytes.extend(marker(3, 1));
    let mut decoder = decoder(OffsetRange { from: 0, until: 4 }, LIMITS);
    assert!(feed(&mut decoder, &bytes, &[AbortedTransaction { producer_id: 1, first_offset: 0 }]));
    let rows = decoder.read().expect("good records").expect("rows");
    assert_eq!(rows.column(4).as_primitive::<Int64Type>().values(), &[2]);
    assert_eq!(decoder.read().expect("good records"), None);
    let counts = decoder.counts();
    assert_eq!((counts.records, counts.aborted, counts.control, counts.gaps), (1, 1, 2, 0));
    assert!(decoder.done());
}

#[test]
fn rows_are_returned_before_a_later_error() {
    let mut bytes = numbered_batch(0, 5);
    bytes.extend(numbered_batch(5, 5));
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let mut decoder = decoder(ALL, LIMITS);
    assert!(feed(&mut decoder, &bytes, &[]));
    assert_eq!(decoder.read().expect("good records").expect("rows").num_rows(), 5);
    for _ in 0..2 {
        let error = decoder.read().expect_err("a wrong CRC");
        assert_eq!((error.kind, error.offset), (ErrorKind::Corrupt, 5));
    }
}

#[test]
fn a_wrong_schema_is_rejected() {
    use arrow_schema::{DataType, Field, Schema};
    for field in [Field::new("values", DataType::Binary, true), Field::new("value", DataType::Utf8, true)] {
        let schema = std::sync::Arc::new(Schema::new(vec![field]));
        assert!(record_kernel::Decoder::new(schema, "t".to_owned(), 0, ALL, LIMITS, true).is_err());
    }
}
