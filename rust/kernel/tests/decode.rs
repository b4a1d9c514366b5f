//! The decoder from outside; Python's tests go deeper.

mod support;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use record_kernel::{AbortedTransaction, ErrorKind, Limits, Range, scan};
use support::{Record, batch, body, compress, decoder, feed, record};

const ALL: Range = Range { from: 0, until: 1 << 40 };
const LIMITS: Limits = Limits { rows: 65536, bytes: 4 << 20, batch: 1 << 30 };
const TRANSACTIONAL: u8 = 0x10;
const CONTROL: u8 = 0x30;

fn numbered(base: i64, count: i32) -> Vec<u8> {
    let records: Vec<Record> = (0..count).map(|place| record("k", &format!("v{}", base + i64::from(place)))).collect();
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
fn records_go_on_from_piece_to_piece() {
    let records: Vec<Record> = (0..200i32).map(|n| record(&format!("k{n}"), &format!("{n} ").repeat(5000))).collect();
    let plain = body(&records);
    assert!(plain.len() > 3 << 20);
    for codec in 0..=4 {
        let mut decoder = decoder(ALL, LIMITS);
        assert!(feed(&mut decoder, &batch(0, codec, -1, 200, &compress(codec, &plain)), &[]));
        let mut found = Vec::new();
        while let Some(rows) = decoder.read().expect("good records") {
            let values = rows.column(1).as_binary::<i32>();
            found.extend((0..rows.num_rows()).map(|row| Some(values.value(row).to_vec())));
        }
        let sent: Vec<_> = records.iter().map(|record| record.value.clone()).collect();
        assert!(found == sent, "codec {codec}");
        assert_eq!(decoder.counts().bytes, plain.len() as i64);
    }
}

#[test]
fn what_lies_behind_the_records_of_a_large_batch_is_looked_at() {
    let records: Vec<Record> = (0..300i32).map(|_| record("", &"v".repeat(10_000))).collect();
    for codec in 1..=4 {
        let mut plain = body(&records);
        plain.resize(plain.len() + (2 << 20), 0);
        let mut decoder = decoder(ALL, LIMITS);
        assert!(feed(&mut decoder, &batch(0, codec, -1, 300, &compress(codec, &plain)), &[]));
        assert_eq!(decoder.read().expect("good records").expect("rows").num_rows(), 300);
        let error = decoder.read().expect_err("bytes behind");
        assert_eq!((error.kind, error.offset), (ErrorKind::Corrupt, 299));
    }
}

#[test]
fn a_batch_and_a_record_have_a_largest_size() {
    let records = [record("k", "value"), record("k", &"v".repeat(100))];
    let plain = body(&records);
    for codec in 0..=4 {
        // What is not compressed is there already: only records count.
        let most = if codec == 0 { body(&records[1..]).len() } else { plain.len() };
        for (most, rows) in [(most, Some(2)), (most - 1, None)] {
            let mut decoder = decoder(ALL, Limits { batch: most, ..LIMITS });
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
fn headers_are_scanned_up_to_the_cut() {
    let mut bytes = numbered(0, 5);
    bytes.extend(numbered(5, 5));
    let whole = bytes.len();
    bytes.extend(&numbered(10, 5)[..80]);
    let found = scan(&bytes, 0, 100);
    assert_eq!((found.end, found.next_offset, found.old_format, found.failure), (whole, 10, false, None));
    assert_eq!((found.leader_epoch, scan(&bytes[..10], 0, 100).leader_epoch), (5, -1));
    assert_eq!(scan(&bytes, 0, 5).next_offset, 5);
    assert_eq!(scan(&bytes, 12, 100).next_offset, 12);
}

#[test]
fn old_formats_are_left_to_others() {
    let mut bytes = numbered(0, 5);
    let mut old = vec![0; 26];
    old[7] = 5;
    old[11] = 14;
    old[16] = 1;
    bytes.extend(&old);
    let mut decoder = decoder(ALL, LIMITS);
    assert!(!feed(&mut decoder, &bytes, &[]));
    assert_eq!((decoder.next_offset(), decoder.buffered()), (0, false));
    decoder.advance_to(6);
    assert!(feed(&mut decoder, &numbered(6, 2), &[]));
    assert_eq!(decoder.read().expect("good records").expect("rows").num_rows(), 2);
    assert_eq!((decoder.counts().records, decoder.counts().holes), (2, 0));
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
    let mut decoder = decoder(Range { from: 0, until: 4 }, LIMITS);
    assert!(feed(&mut decoder, &bytes, &[AbortedTransaction { producer_id: 1, first_offset: 0 }]));
    let rows = decoder.read().expect("good records").expect("rows");
    assert_eq!(rows.column(4).as_primitive::<Int64Type>().values(), &[2]);
    assert_eq!(decoder.read().expect("good records"), None);
    let counts = decoder.counts();
    assert_eq!((counts.records, counts.aborted, counts.control, counts.holes), (1, 1, 2, 0));
    assert!(decoder.done());
}

#[test]
fn rows_come_before_the_error_behind_them() {
    let mut bytes = numbered(0, 5);
    bytes.extend(numbered(5, 5));
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
fn a_wrong_schema_is_refused() {
    use arrow_schema::{DataType, Field, Schema};
    for field in [Field::new("values", DataType::Binary, true), Field::new("value", DataType::Utf8, true)] {
        let schema = std::sync::Arc::new(Schema::new(vec![field]));
        assert!(record_kernel::Decoder::new(schema, "t".to_owned(), 0, ALL, LIMITS, true).is_err());
    }
}
