//! Tests of message formats 0 and 1; Python's tests go deeper.

mod support;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use record_kernel::{DecodeError, Decoder, ErrorKind, Limits, OffsetRange, scan};
use support::{GZIP, LZ4, SNAPPY, batch, body, compress, decoder, feed, message, record};

const ALL: OffsetRange = OffsetRange { from: 0, until: 1 << 40 };
const LIMITS: Limits = Limits { rows: 65536, bytes: 4 << 20, batch: 1 << 30 };
const LOG_APPEND_TIME: u8 = 0x08;

type Row = (i64, Option<Vec<u8>>, i64, i32);

/// Offsets, values, timestamps in milliseconds and timestamp types, and the error.
fn read(bytes: &[u8], range: OffsetRange, limits: Limits) -> (Vec<Row>, Option<DecodeError>, Decoder) {
    let mut decoder = decoder(range, limits);
    feed(&mut decoder, bytes, &[]);
    let mut rows = Vec::new();
    loop {
        match decoder.read() {
            Ok(Some(batch)) => {
                assert!(batch.num_rows() <= limits.rows);
                let values = batch.column(1).as_binary::<i32>();
                for row in 0..batch.num_rows() {
                    rows.push((
                        batch.column(4).as_primitive::<Int64Type>().value(row),
                        values.is_valid(row).then(|| values.value(row).to_vec()),
                        batch.column(5).as_primitive::<TimestampMicrosecondType>().value(row) / 1000,
                        batch.column(6).as_primitive::<Int32Type>().value(row),
                    ));
                }
            }
            Ok(None) => return (rows, None, decoder),
            Err(error) => return (rows, Some(error), decoder),
        }
    }
}

fn simple(offset: i64, magic: u8, value: &str) -> Vec<u8> {
    message(offset, magic, 0, 5, None, Some(value.as_bytes()))
}

fn wrapper(offset: i64, magic: u8, attributes: u8, inner: &[Vec<u8>]) -> Vec<u8> {
    message(offset, magic, attributes, 99, None, Some(&compress(attributes & 7, &inner.concat())))
}

fn row(offset: i64, value: &str, timestamp: i64, timestamp_type: i32) -> Row {
    (offset, Some(value.as_bytes().to_vec()), timestamp, timestamp_type)
}

#[test]
fn messages_of_both_formats() {
    let bytes = [simple(3, 0, "a"), simple(4, 1, "b"), message(6, 1, LOG_APPEND_TIME, 7, Some(b""), None)].concat();
    let (rows, error, decoder) = read(&bytes, OffsetRange { from: 3, until: 7 }, LIMITS);
    assert_eq!((rows, error), (vec![row(3, "a", -1, -1), row(4, "b", 5, 0), (6, None, 7, 1)], None));
    assert_eq!((decoder.counts().records, decoder.counts().gaps, decoder.next_offset()), (3, 1, 7));
    assert!(decoder.done());
}

#[test]
fn offsets_inside_wrappers() {
    let relative = [simple(0, 1, "a"), simple(1, 1, "b"), simple(4, 1, "c")];
    let absolute = [simple(10, 0, "a"), simple(11, 0, "b"), simple(14, 0, "c")];
    for codec in [GZIP, SNAPPY, LZ4] {
        for (magic, inner, time, kind) in [(1, &relative, 5, 0), (0, &absolute, -1, -1)] {
            let all = [row(10, "a", time, kind), row(11, "b", time, kind), row(14, "c", time, kind)];
            let bytes = [wrapper(14, magic, codec, inner), simple(15, 1, "after")].concat();
            for (from, until, wanted) in [(0, 15, 0..3), (11, 14, 1..2), (12, 15, 2..3), (0, 11, 0..1)] {
                for limit in [1, 2, 65536] {
                    let limits = Limits { rows: limit, ..LIMITS };
                    let (rows, error, decoder) = read(&bytes, OffsetRange { from, until }, limits);
                    assert_eq!((&rows[..], error), (&all[wanted.clone()], None));
                    assert!(decoder.done());
                }
            }
        }
    }
    let append_time = wrapper(1, 1, GZIP | LOG_APPEND_TIME, &[simple(0, 1, "a"), simple(1, 1, "b")]);
    assert_eq!(read(&append_time, ALL, LIMITS).0, [row(0, "a", 99, 1), row(1, "b", 99, 1)]);
}

/// Clients before 0.10 computed the checksum of the LZ4 frame's header over its magic as well.
#[test]
fn header_checksums_of_lz4() {
    for (magic, good) in [(0, true), (1, false)] {
        let mut frame = compress(LZ4, &simple(7, magic, "a"));
        frame[6] = (twox_hash::XxHash32::oneshot(0, &frame[..6]) >> 8) as u8;
        let (rows, error, _) = read(&message(7, magic, LZ4, 5, None, Some(&frame)), ALL, LIMITS);
        assert_eq!((rows.len() == 1, error.is_none()), (good, good), "format {magic}");
    }
}

#[test]
fn formats_change_within_a_response() {
    let new = batch(2, 0, -1, 2, &body(&[record("k", "new"), record("k", "newer")]));
    let bytes = [simple(0, 0, "old"), simple(1, 1, "older"), new, simple(4, 1, "last")].concat();
    let (rows, error, decoder) = read(&bytes, ALL, LIMITS_OF_ONE);
    assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!((error, decoder.counts().records, decoder.position()), (None, 5, 5));
    assert_eq!(scan(&bytes, 0, 100).leader_epoch, -1);
}

const LIMITS_OF_ONE: Limits = Limits { rows: 1, ..LIMITS };

#[test]
fn malformed_messages_are_reported_after_the_rows_before_them() {
    let damaged = |mut message: Vec<u8>| {
        *message.last_mut().expect("a value") ^= 1; // only its CRC is wrong
        message
    };
    let (bad_crc, inner_crc) = (damaged(simple(5, 1, "x")), damaged(simple(1, 1, "x")));
    let mut zero_size = simple(1, 1, "x");
    zero_size[8..12].fill(0);
    let mut huge_size = simple(1, 1, "x");
    huge_size[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    let nested = wrapper(0, 1, GZIP, &[simple(0, 1, "x")]);
    for (bad, rows) in [
        (bad_crc, 1),
        (message(5, 1, GZIP, 5, None, None), 1),
        (message(5, 1, GZIP, 5, None, Some(b"junk")), 1),
        (wrapper(5, 1, GZIP, &[]), 1),
        (wrapper(5, 1, GZIP, &[simple(0, 1, "a"), inner_crc]), 2),
        (wrapper(5, 1, GZIP, &[simple(0, 1, "a"), zero_size]), 1),
        (wrapper(5, 1, GZIP, &[simple(0, 1, "a"), huge_size]), 2),
        (wrapper(5, 1, GZIP, &[simple(0, 1, "a"), simple(1, 0, "b")]), 2),
        (wrapper(5, 1, GZIP, &[nested]), 1),
        (wrapper(5, 1, GZIP, &[simple(1, 1, "a"), simple(0, 1, "b")]), 1),
        (wrapper(5, 1, GZIP, &[simple(0, 1, "a"), simple(0, 1, "again")]), 2),
        (wrapper(5, 0, GZIP, &[simple(9, 0, "a")]), 1),
        (wrapper(5, 1, GZIP, &[simple(i64::MAX, 1, "a"), simple(i64::MIN, 1, "b")]), 1),
    ] {
        let (read_rows, error, decoder) = read(&[simple(0, 1, "good"), bad].concat(), ALL, LIMITS);
        let error = error.expect("a malformed message");
        assert_eq!((read_rows.len(), error.kind, error.offset), (rows, ErrorKind::Corrupt, 5));
        assert!(decoder.buffered() && !decoder.done());
    }
}

#[test]
fn sizes_and_timestamps_are_limited() {
    let value = "v".repeat(100);
    let inner = [simple(0, 1, &value), simple(1, 1, &value)];
    let size = inner[0].len();
    let wrapped = wrapper(1, 1, GZIP, &inner);
    for (limit, error) in [(2 * size, None), (2 * size - 1, Some(ErrorKind::TooLarge))] {
        let limits = Limits { batch: limit, ..LIMITS };
        assert_eq!(read(&wrapped, ALL, limits).1.map(|error| error.kind), error);
    }
    let limited = |batch: usize| read(&inner.concat(), ALL, Limits { batch, ..LIMITS }).1;
    assert_eq!(limited(size - 12), None);
    let error = limited(size - 13).expect("the message is too large");
    assert_eq!((error.kind, error.offset), (ErrorKind::TooLarge, 0));
    let late = [simple(0, 1, "a"), message(1, 1, 0, i64::MAX / 999, None, None)].concat();
    let (rows, error, _) = read(&late, ALL, LIMITS);
    let error = error.expect("the timestamp is too late");
    assert_eq!((rows.len(), error.kind, error.offset), (1, ErrorKind::Timestamp, 1));
}
