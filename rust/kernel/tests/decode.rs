//! Tests of the decoder's API; Python's tests go deeper.

mod support;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use record_kernel::{
    AbortedTransaction, Decoder, ErrorKind, Limits, OffsetRange, ScannedBatch, is_abort_marker, is_valid_batch, scan,
    scan_with,
};
use support::{Record, batch, body, compress, decoder, feed, fix_length_and_crc, record, varint};

const ALL: OffsetRange = OffsetRange { from: 0, until: 1 << 40 };
const LIMITS: Limits = Limits { rows: 65536, bytes: 4 << 20, batch: 1 << 30 };
const LOG_APPEND_TIME: u8 = 0x08;
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
        feed(&mut decoder, &batch(7, codec, -1, 3, &compress(codec, &body(&records))), &[]);
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
        feed(&mut decoder, &batch(0, codec, -1, 200, &compress(codec, &plain)), &[]);
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
        feed(&mut decoder, &batch(0, codec, -1, 300, &compress(codec, &plain)), &[]);
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
            feed(&mut decoder, &batch(0, codec, -1, 2, &compress(codec, &plain)), &[]);
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
    assert_eq!((scanned.end, scanned.next_offset, scanned.failure), (complete, 10, None));
    assert_eq!((scanned.leader_epoch, scan(&bytes[..10], 0, 100).leader_epoch), (5, -1));
    assert_eq!(scan(&bytes, 0, 5).next_offset, 5);
    assert_eq!(scan(&bytes, 12, 100).next_offset, 12);
    let copy = |at: usize, out: &mut [u8]| out.copy_from_slice(&bytes[at..at + out.len()]);
    let mut batches = Vec::new();
    assert_eq!(scan_with(bytes.len(), copy, 0, 100, |batch| batches.push(batch)), scan(&bytes, 0, 100));
    let fields = |batch: &ScannedBatch| (batch.start, batch.end, batch.base_offset, batch.last_offset, batch.records);
    let expected = [(0, complete / 2, 0, 4, 5), (complete / 2, complete, 5, 9, 5)];
    assert_eq!(batches.iter().map(fields).collect::<Vec<_>>(), expected);
}

#[test]
fn whole_batches_are_counted_by_their_headers() {
    let bytes = [numbered_batch(0, 5), numbered_batch(5, 5), numbered_batch(10, 5)].concat();
    let (middle, last) = (bytes.len() / 2, bytes.len() - 1);
    for (range, damaged, expected) in [((2, 12), middle, Ok(10)), ((2, 12), last, Err(10)), ((0, 15), last, Ok(15))] {
        let mut bytes = bytes.clone();
        bytes[damaged] ^= 1;
        let range = OffsetRange { from: range.0, until: range.1 };
        let mut decoder = Decoder::new(support::schema(), "t".to_owned(), 0, range, LIMITS, true, true).expect("all");
        feed(&mut decoder, &bytes, &[]);
        let outcome = loop {
            match decoder.read() {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(decoder.counts().records),
                Err(error) => break Err(error.offset),
            }
        };
        assert_eq!(outcome, expected);
    }
}

#[test]
fn markers_that_abort() {
    for (kind, expected) in [(0, Ok(true)), (1, Ok(false))] {
        let key = Record { key: Some(vec![0, 0, 0, kind]), ..Record::default() };
        for codec in 0..=4 {
            let compressed = compress(codec, &body(std::slice::from_ref(&key)));
            assert_eq!(is_abort_marker(&batch(7, CONTROL | codec, 1, 1, &compressed), 1 << 20), expected);
        }
    }
    for bytes in [&numbered_batch(7, 1)[..], &batch(7, CONTROL, 1, 0, &[])] {
        assert_eq!(is_abort_marker(bytes, 1 << 20).expect_err("no marker").offset, 7);
    }
    assert!(is_abort_marker(&[0; 60], 1 << 20).is_err());
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
    feed(&mut decoder, &bytes, &[AbortedTransaction { producer_id: 1, first_offset: 0 }]);
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
    feed(&mut decoder, &bytes, &[]);
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
        assert!(record_kernel::Decoder::new(schema, "t".to_owned(), 0, ALL, LIMITS, true, false).is_err());
    }
}

/// Record, timestamp and offset deltas as they are, to show records that were compacted away.
fn raw_record(time: i64, offset: i64, rest: &[u8]) -> Vec<u8> {
    let mut fields = vec![0];
    varint(&mut fields, time);
    varint(&mut fields, offset);
    fields.extend(rest);
    let mut out = Vec::new();
    varint(&mut out, fields.len() as i64);
    [out, fields].concat()
}

#[test]
fn each_column_has_its_value() {
    let headers = vec![(b"a".to_vec(), Some(b"1".to_vec())), (b"a\xffb".to_vec(), None), (vec![], Some(vec![]))];
    let records = [Record { headers, time: 250, ..record("k", "v") }, Record { time: -1, ..Record::default() }];
    let mut first = batch(100, 0, -1, 2, &body(&records));
    first[12..16].copy_from_slice(&(-1i32).to_be_bytes()); // no leader epoch, which the CRC does not cover
    let mut second = batch(102, LOG_APPEND_TIME, -1, 2, &body(&records));
    second[12..16].copy_from_slice(&7i32.to_be_bytes());
    let mut decoder = decoder(ALL, LIMITS);
    feed(&mut decoder, &[first, second].concat(), &[]);
    let rows = decoder.read().expect("good records").expect("rows");
    let keys: Vec<_> = rows.column(0).as_binary::<i32>().iter().collect();
    assert_eq!(keys, [Some(&b"k"[..]), None, Some(b"k"), None]);
    assert_eq!(rows.column(4).as_primitive::<Int64Type>().values(), &[100, 101, 102, 103]);
    let micros = [1_700_000_000_250_000, 1_699_999_999_999_000, 1_700_000_000_500_000, 1_700_000_000_500_000];
    assert_eq!(rows.column(5).as_primitive::<TimestampMicrosecondType>().values(), &micros);
    assert_eq!(rows.column(6).as_primitive::<Int32Type>().values(), &[0, 0, 1, 1]);
    let epochs: Vec<_> = rows.column(8).as_primitive::<Int32Type>().iter().collect();
    assert_eq!(epochs, [None, None, Some(7), Some(7)]);
    let lists = rows.column(7).as_list::<i32>();
    assert_eq!((lists.is_valid(0), lists.is_null(1), lists.is_valid(2), lists.is_null(3)), (true, true, true, true));
    let pairs = lists.value(2);
    let pairs = pairs.as_struct();
    assert_eq!(
        pairs.column(0).as_string::<i32>().iter().collect::<Vec<_>>(),
        [Some("a"), Some("a\u{fffd}b"), Some("")]
    );
    let values: Vec<_> = pairs.column(1).as_binary::<i32>().iter().collect();
    assert_eq!(values, [Some(&b"1"[..]), None, Some(b"")]);
}

#[test]
fn only_the_range_is_returned() {
    // Offsets 10, 12 and 15 of a batch that ended with 17 before it was compacted.
    let records = [0, 2, 5].map(|offset| raw_record(offset, offset, b"\x01\x02v\x00")).concat();
    let mut compacted = batch(10, 0, -1, 3, &records);
    compacted[23..27].copy_from_slice(&7i32.to_be_bytes());
    fix_length_and_crc(&mut compacted);
    for (from, until, expected, gaps) in
        [(0, 40, &[10, 12, 15][..], 15), (11, 15, &[12], 3), (12, 16, &[12, 15], 2), (16, 18, &[], 2)]
    {
        let mut decoder = decoder(OffsetRange { from, until }, LIMITS);
        feed(&mut decoder, &compacted, &[]);
        let rows = decoder.read().expect("good records");
        let offsets = rows.map(|rows| rows.column(4).as_primitive::<Int64Type>().values().to_vec()).unwrap_or_default();
        assert_eq!(offsets, expected, "{from} to {until}");
        assert_eq!(decoder.position(), until.min(18));
        assert_eq!(
            (decoder.counts().records, decoder.counts().gaps),
            (expected.len() as i64, gaps),
            "{from} to {until}"
        );
        assert_eq!((decoder.next_offset(), decoder.done()), (18, until <= 18));
    }
}

#[test]
fn records_that_contradict_their_batch_are_corrupt() {
    let good = b"\x01\x02v\x00";
    let cases = [
        (raw_record(0, 0, b"\x01\x02v\x00x"), 0),          // a byte behind the headers
        (raw_record(0, 0, b"\x01\x02v\x02\x02a\x01x"), 0), // a byte behind the last header
        (raw_record(0, 0, b"\x01\x04v\x00"), 0),           // a value beyond the record
        (raw_record(0, 0, b"\x01\x02v\x02\x01\x00"), 0),   // a header without a key
        (raw_record(0, 0, b"\x01\x02v\x01"), 0),           // a negative number of headers
        ([raw_record(0, 1, good), raw_record(0, 1, good)].concat(), 2), // an offset twice
        ([raw_record(0, 0, good), raw_record(0, 2, good)].concat(), 1), // an offset beyond the batch
        ([raw_record(0, 0, good), raw_record(0, 1, good), vec![0]].concat(), 1), // a byte behind the records
        ([raw_record(0, 0, good), raw_record(0, 1, good)[..5].to_vec()].concat(), 1), // an incomplete record
    ];
    for (index, (records, offset)) in cases.into_iter().enumerate() {
        let mut decoder = decoder(ALL, LIMITS);
        feed(&mut decoder, &batch(0, 0, -1, 2, &records), &[]);
        let error = match decoder.read() {
            Err(error) => error,
            Ok(_) => decoder.read().expect_err("a contradiction"),
        };
        assert_eq!((error.kind, error.offset), (ErrorKind::Corrupt, offset), "{index}");
    }
    let mut decoder = decoder(ALL, LIMITS);
    let time = raw_record(i64::MAX / 1000 - 1_700_000_000_000 + 1, 0, good);
    feed(&mut decoder, &batch(0, 0, -1, 1, &time), &[]);
    assert_eq!(decoder.read().expect_err("too late").kind, ErrorKind::Timestamp);
}

#[test]
fn headers_with_impossible_numbers_are_corrupt() {
    let good = numbered_batch(5, 2);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = good.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    for bytes in [
        with(16, &[3]),
        with(16, &[0xff]),
        with(8, &48i32.to_be_bytes()),
        with(8, &(-1i32).to_be_bytes()),
        with(0, &(-1i64).to_be_bytes()),
        with(0, &(i64::MAX - 1).to_be_bytes()),
        with(23, &(-1i32).to_be_bytes()),
    ] {
        let scanned = scan(&[numbered_batch(0, 5), bytes].concat(), 0, 100);
        let failure = scanned.failure.expect("an impossible header");
        assert_eq!((scanned.next_offset, failure.kind, failure.offset), (5, ErrorKind::Corrupt, 5));
    }
    let valid = |bytes: &[u8]| is_valid_batch(bytes.len(), |at, out| out.copy_from_slice(&bytes[at..at + out.len()]));
    let large = batch(0, 0, -1, 1, &body(&[record("k", &"v".repeat(40_000))]));
    assert!(valid(&good) && valid(&large) && !valid(&good[..60]) && !valid(&large[..40_000]));
    for at in [16, 17, 21, 61, 20_000, large.len() - 1] {
        let mut damaged = large.clone();
        damaged[at] ^= 1;
        assert!(!valid(&damaged), "{at}");
        let mut decoder = decoder(ALL, LIMITS);
        feed(&mut decoder, &damaged, &[]);
        assert!(decoder.read().is_err(), "{at}");
    }
}

#[test]
fn transactions_of_several_producers() {
    let marker = |base, producer, kind: u8| {
        let key = Record { key: Some(vec![0, 0, 0, kind]), ..Record::default() };
        batch(base, CONTROL, producer, 1, &body(&[key]))
    };
    let data = |base, producer| batch(base, TRANSACTIONAL, producer, 1, &body(&[record("k", "v")]));
    let plain = batch(4, 0, 1, 1, &body(&[record("k", "v")])); // of the same producer, but in no transaction
    let batches = [data(0, 1), data(1, 2), data(2, 1), data(3, 3), plain, marker(5, 2, 0), data(6, 2), marker(7, 1, 0)];
    let more = [data(8, 1), marker(9, 1, 1), marker(10, 3, 1), data(11, 3)];
    let aborted =
        [(3, 11), (1, 2), (2, 1)].map(|(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset });
    let mut decoder = decoder(OffsetRange { from: 0, until: 12 }, LIMITS);
    feed(&mut decoder, &[batches.concat(), more.concat()].concat(), &aborted);
    let rows = decoder.read().expect("good records").expect("rows");
    assert_eq!(rows.column(4).as_primitive::<Int64Type>().values(), &[0, 3, 4, 6, 8]);
    let counts = decoder.counts();
    assert_eq!((counts.records, counts.aborted, counts.control, counts.gaps), (5, 3, 4, 0));
}

/// The Java client writes several blocks of Snappy in a frame, and others several members of gzip or frames of zstd.
#[test]
fn codecs_with_several_parts() {
    let plain = body(&[record("k", "first"), record("k", &"second".repeat(100))]);
    let parts: Vec<&[u8]> = plain.chunks(plain.len().div_ceil(5)).collect();
    let mut framed = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01".to_vec();
    for part in &parts {
        let block = compress(support::SNAPPY, part);
        framed.extend((block.len() as i32).to_be_bytes());
        framed.extend(block);
    }
    let all = |codec: u8| parts.iter().flat_map(|part| compress(codec, part)).collect::<Vec<u8>>();
    let (members, frames) = (all(support::GZIP), all(support::ZSTD));
    for (codec, bytes) in [(support::SNAPPY, &framed), (support::GZIP, &members), (support::ZSTD, &frames)] {
        let mut decoder = decoder(ALL, LIMITS);
        feed(&mut decoder, &batch(0, codec, -1, 2, bytes), &[]);
        let rows = decoder.read().expect("good records").expect("rows");
        assert_eq!(rows.column(1).as_binary::<i32>().value(1), "second".repeat(100).as_bytes());
        for length in [bytes.len() - 1, bytes.len() / 2, 18] {
            let mut decoder = self::decoder(ALL, LIMITS);
            feed(&mut decoder, &batch(0, codec, -1, 2, &bytes[..length]), &[]);
            assert!(decoder.read().and_then(|_| decoder.read()).is_err(), "{codec}, {length} bytes");
        }
    }
    let mut decoder = decoder(ALL, LIMITS);
    feed(&mut decoder, &batch(0, 5, -1, 2, &plain), &[]);
    assert_eq!(decoder.read().expect_err("no such codec").kind, ErrorKind::Unsupported);
}

/// What a frame may have; the writers of Kafka's clients use different parts of it.
#[test]
fn frames_of_lz4() {
    let plain = body(&[record("k", "value"), record("k", &"text ".repeat(30))]);
    let hash = |bytes: &[u8]| twox_hash::XxHash32::oneshot(0, bytes).to_le_bytes();
    let frame = |flags: u8, size: usize, blocks: &[(bool, &[u8])], content: &[u8]| {
        let mut descriptor = vec![0x40 | flags, 0x40];
        if flags & 0x08 != 0 {
            descriptor.extend((size as u64).to_le_bytes());
        }
        let check = hash(&descriptor)[1];
        let mut out = [&[0x04, 0x22, 0x4d, 0x18][..], &descriptor, &[check]].concat();
        for &(stored, block) in blocks {
            out.extend((block.len() as u32 | u32::from(stored) << 31).to_le_bytes());
            out.extend(block);
            if flags & 0x10 != 0 {
                out.extend(hash(block));
            }
        }
        out.extend([0; 4]);
        if flags & 0x04 != 0 {
            out.extend(hash(content));
        }
        out
    };
    let read = |compressed: &[u8]| {
        let mut decoder = decoder(ALL, LIMITS);
        feed(&mut decoder, &batch(0, support::LZ4, -1, 2, compressed), &[]);
        let rows = decoder.read()?.expect("rows");
        assert_eq!(rows.column(1).as_binary::<i32>().value(1), "text ".repeat(30).as_bytes());
        decoder.read().map(|rest| assert_eq!(rest, None))
    };
    let (one, other) = plain.split_at(40);
    let whole = lz4_flex::block::compress(&plain);
    let linked = lz4_flex::block::compress_with_dict(other, one);
    for flags in [0, 0x04, 0x08, 0x10, 0x1c] {
        let independent = frame(flags | 0x20, plain.len(), &[(false, &whole)], &plain);
        let stored = frame(flags | 0x20, plain.len(), &[(true, one), (true, other)], &plain);
        let dependent = frame(flags, plain.len(), &[(true, one), (false, &linked)], &plain);
        for good in [independent, stored, dependent] {
            assert_eq!(read(&good), Ok(()), "{flags:#x}");
            assert!(read(&[&good[..], b"x"].concat()).is_err(), "{flags:#x}: a byte after the frame");
            assert!(read(&good[..good.len() - 1]).is_err(), "{flags:#x}: truncated");
        }
    }
    for (bad, what) in [
        (frame(0x28, plain.len() + 1, &[(false, &whole)], &plain), "another size"),
        (frame(0x24, 0, &[(false, &whole)], one), "another checksum"),
        (frame(0x22, 0, &[(false, &whole)], &plain), "a reserved bit"),
        (frame(0x21, 0, &[(false, &whole)], &plain), "a dictionary"),
    ] {
        assert!(read(&bad).is_err(), "{what}");
    }
    let mut damaged = frame(0x30, 0, &[(true, &plain)], &plain);
    let last = damaged.len() - 5;
    damaged[last] ^= 1;
    assert!(read(&damaged).is_err(), "a block's checksum");
    damaged = frame(0x20, 0, &[(true, &plain)], &plain);
    damaged[6] ^= 1;
    assert!(read(&damaged).is_err(), "the header's checksum");
}

/// The blocks of a frame may refer to bytes of blocks that were read and removed before.
#[test]
fn linked_blocks_of_lz4_refer_to_what_was_read() {
    let mut random = support::Random::new(3);
    let noise: String = (0..60_000).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
    let records: Vec<Record> = (0..60).map(|_| record("k", &noise)).collect();
    let plain = body(&records);
    let mut compressed = b"\x04\x22\x4d\x18\x40\x40".to_vec();
    compressed.push((twox_hash::XxHash32::oneshot(0, &compressed[4..]) >> 8) as u8);
    for start in (0..plain.len()).step_by(64 << 10) {
        let chunk = &plain[start..plain.len().min(start + (64 << 10))];
        let block = lz4_flex::block::compress_with_dict(chunk, &plain[start.saturating_sub(64 << 10)..start]);
        compressed.extend((block.len() as u32).to_le_bytes());
        compressed.extend(block);
    }
    compressed.extend([0; 4]);
    assert!(compressed.len() < 200_000, "most of it are references");
    let mut decoder = decoder(ALL, LIMITS);
    feed(&mut decoder, &batch(0, support::LZ4, -1, 60, &compressed), &[]);
    let mut read = 0;
    while let Some(rows) = decoder.read().expect("good records") {
        assert!(rows.column(1).as_binary::<i32>().iter().all(|value| value == Some(noise.as_bytes())));
        read += rows.num_rows();
    }
    assert_eq!(read, 60);
}

#[test]
fn rows_of_batches_of_any_size() {
    let mut decoder = decoder(ALL, LIMITS);
    let mut base = 0;
    for count in [1, 5000, 3, 9000, 20_000, 7] {
        let value = |index: i32| (index % 3 > 0).then(|| index.to_be_bytes().to_vec());
        let headers = |index: i32| if index % 5 == 0 { vec![(b"h".to_vec(), value(index))] } else { vec![] };
        let records: Vec<_> = (0..count)
            .map(|index| Record { key: value(index + 1), value: value(index), headers: headers(index), time: 0 })
            .collect();
        feed(&mut decoder, &batch(base, 0, -1, count, &body(&records)), &[]);
        let rows = decoder.read().expect("good records").expect("rows");
        let rows = support::rows(&rows);
        assert_eq!(rows.len(), records.len());
        for (index, (row, mut record)) in rows.into_iter().zip(records).enumerate() {
            record.time = 1_700_000_000_000;
            assert_eq!((row.offset, row.record), (base + index as i64, record));
        }
        assert_eq!(decoder.read().expect("good records"), None);
        base += i64::from(count);
    }
}

#[test]
fn the_position_follows_the_rows() {
    let mut decoder = decoder(ALL, Limits { rows: 2, ..LIMITS });
    feed(&mut decoder, &[numbered_batch(3, 3), numbered_batch(9, 2)].concat(), &[]);
    let mut positions = vec![decoder.position()];
    while let Some(rows) = decoder.read().expect("good records") {
        positions.extend([rows.num_rows() as i64, decoder.position()]);
    }
    assert_eq!(positions, [0, 2, 5, 2, 10, 1, 11]);
    assert_eq!((decoder.counts().records, decoder.counts().gaps), (5, 6));
}
