//! Fuzzes the decoder with damaged batches: it must return valid rows or an error for any bytes.
//!
//! Each run uses another seed, which a failure prints. `RECORD_FUZZ_SEED` repeats a run, `RECORD_FUZZ_ROUNDS` sets the
//! number of batches (20,000 by default).

mod support;

use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch, StructArray};
use record_kernel::{AbortedTransaction, Limits, OffsetRange, scan_with};
use support::{
    Random, Record, batch, body, compress, damage, decoder, feed, fix_length_and_crc, fix_size_and_crc, message, record,
};

const OFFSET: usize = 4;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    now.as_nanos() as u64
}

#[test]
fn overflow_checks_are_enabled() {
    let max = std::hint::black_box(i32::MAX);
    assert!(std::panic::catch_unwind(|| max + 1).is_err(), "run the tests without --release");
}

fn bodies() -> Vec<(Vec<u8>, i32)> {
    let rich = Record {
        key: None,
        value: Some((0..=200).collect()),
        time: -(1 << 40),
        headers: vec![(b"name".to_vec(), None), (b"\xff".to_vec(), Some(b"content".to_vec()))],
    };
    let text = (0..20).map(|n| record("UA", &format!("{{\"flight\": {n}, \"origin\": \"EWR\"}}")));
    let sets = [vec![Record::default(), record("", "")], vec![rich, record("k", "v")], text.collect()];
    sets.iter().map(|records| (body(records), records.len() as i32)).collect()
}

/// A damaged batch, mostly with correct length and CRC.
fn damaged(random: &mut Random, bodies: &[(Vec<u8>, i32)]) -> Vec<u8> {
    let (mut records, count) = bodies[random.below(bodies.len())].clone();
    let codec = random.below(5) as u8;
    let attributes = codec | if random.one_in(3) { (random.next() as u8) & 0x38 } else { 0 };
    if random.one_in(2) {
        damage(random, &mut records, 0);
    }
    let mut out = batch(20, attributes, random.below(3) as i64, count, &compress(codec, &records));
    for _ in 0..random.below(3) {
        let from = if random.one_in(3) { 0 } else { support::HEADER };
        damage(random, &mut out, from);
    }
    if !random.one_in(20) {
        fix_length_and_crc(&mut out);
    }
    out
}

/// A damaged message of format 0 or 1, or wrapper of some, mostly with correct sizes and CRCs.
fn damaged_message(random: &mut Random) -> Vec<u8> {
    let magic = random.below(2) as u8;
    let first = if magic == 0 { 20 } else { 0 };
    let one = |offset: i64| message(first + offset, magic, 0, 7, Some(b"key"), Some(b"some value"));
    let mut inner: Vec<Vec<u8>> = [0, 1, 4].map(one).into();
    if random.one_in(2) {
        let at = random.below(inner.len());
        damage(random, &mut inner[at], 0);
        if !random.one_in(10) {
            fix_size_and_crc(&mut inner[at]);
        }
    }
    let codec = random.below(4) as u8;
    let attributes = codec | if random.one_in(3) { (random.next() as u8) & 0xf8 } else { 0 };
    let mut out = message(24, magic, attributes, 99, None, Some(&compress(codec, &inner.concat())));
    for _ in 0..random.below(3) {
        let from = if random.one_in(3) { 0 } else { 18 };
        damage(random, &mut out, from);
    }
    if !random.one_in(20) {
        fix_size_and_crc(&mut out);
    }
    out
}

fn check(rows: &RecordBatch, range: OffsetRange, limits: Limits, last: &mut i64) {
    StructArray::from(rows.clone()).to_data().validate_full().expect("valid Arrow");
    assert!((1..=limits.rows).contains(&rows.num_rows()));
    for &offset in rows.column(OFFSET).as_primitive::<Int64Type>().values() {
        assert!(offset > *last && (range.from..range.until).contains(&offset));
        *last = offset;
    }
}

/// Batches follow each other, and end within the bytes.
fn check_scan(bytes: &[u8]) {
    let copy = |at: usize, out: &mut [u8]| out.copy_from_slice(&bytes[at..at + out.len()]);
    let mut end = 0;
    let scanned = scan_with(bytes.len(), copy, 0, i64::MAX, |batch| {
        assert!(batch.start == end && batch.end > end && batch.end <= bytes.len());
        assert!(0 <= batch.base_offset && batch.base_offset <= batch.last_offset);
        end = batch.end;
    });
    assert_eq!(scanned.end, end);
}

#[test]
fn damaged_batches_never_panic() {
    let seed = from_environment("RECORD_FUZZ_SEED").unwrap_or_else(fresh_seed);
    println!("RECORD_FUZZ_SEED={seed} repeats this run"); // cargo shows it where the test fails
    let mut random = Random::new(seed);
    let bodies = bodies();
    let good = batch(10, 0, -1, 20, &bodies[2].0);
    let (mut decoded, mut failed) = (0, 0);
    for _ in 0..from_environment("RECORD_FUZZ_ROUNDS").unwrap_or(20_000) {
        let mut bytes = if random.one_in(2) { good[..].to_vec() } else { Vec::new() };
        for _ in 0..2 {
            let legacy = random.one_in(3);
            bytes.extend(if legacy { damaged_message(&mut random) } else { damaged(&mut random, &bodies) });
        }
        let range = OffsetRange { from: random.below(30) as i64, until: 30 + random.below(40) as i64 };
        let limits = Limits {
            rows: [1, 3, 65536][random.below(3)],
            bytes: [1, 100, 1 << 20][random.below(3)],
            batch: [100, 1 << 20, 1 << 30][random.below(3)],
        };
        check_scan(&bytes);
        let mut decoder = decoder(range, limits);
        let mut last = -1;
        for _ in 0..2 {
            feed(&mut decoder, &bytes, &[AbortedTransaction { producer_id: 1, first_offset: 15 }]);
            let end = loop {
                match decoder.read() {
                    Ok(Some(rows)) => check(&rows, range, limits, &mut last),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            assert!(decoder.position() <= decoder.next_offset().max(range.until));
            let counts = decoder.counts();
            assert!(counts.records + counts.control + counts.aborted + counts.gaps <= range.until - range.from);
            match end {
                None => decoded += 1,
                Some(error) => {
                    assert_eq!(decoder.read().expect_err("the error stays"), error);
                    failed += 1;
                    break;
                }
            }
        }
    }
    assert!(decoded > 0 && failed > 0, "the damage must reach the records, and some of it must be harmless");
}
