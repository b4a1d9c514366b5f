//! Damaged JSON: a decoder that has predicted keys must return the same as a new one for each value alone.
//!
//! `JSON_FUZZ_SEED` repeats a run, `JSON_FUZZ_ROUNDS` sets the number of batches (2,000 by default).

mod support;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::{Array, BinaryArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use record_kernel::{DecodedValues, JsonDecoder};
use support::Random;

const LIMIT: usize = 128 << 20;

fn fields() -> Fields {
    let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
    let inner =
        DataType::Struct(Fields::from(vec![field("x", DataType::Int8), field("long_key_of_20_bytes", DataType::Utf8)]));
    Fields::from(vec![
        field("origin", DataType::Utf8),
        field("delay", DataType::Float64),
        field("n", DataType::Int32),
        field("ok", DataType::Boolean),
        field("o", inner.clone()),
        field("list", DataType::List(field("element", inner))),
        field("a", DataType::List(field("element", DataType::Int64))),
        field("day", DataType::Date32),
        field("time", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        field("price", DataType::Decimal128(20, 2)),
        field("bytes", DataType::Binary),
        field("map", DataType::Map(entries(field("value", DataType::Decimal128(5, 1))), false)),
        field("corrupt", DataType::Utf8),
    ])
}

fn entries(value: Arc<Field>) -> Arc<Field> {
    let fields = vec![Arc::new(Field::new("key", DataType::Utf8, false)), value];
    Arc::new(Field::new("entries", DataType::Struct(fields.into()), false))
}

fn pick<'a>(random: &mut Random, choices: &[&'a str]) -> &'a str {
    choices[random.below(choices.len())]
}

fn value(random: &mut Random, depth: usize) -> String {
    if depth < 4 && random.one_in(4) {
        return object(random, depth + 1);
    }
    if depth < 4 && random.one_in(5) {
        let values: Vec<_> = (0..random.below(4)).map(|_| value(random, depth + 1)).collect();
        return format!("[{}]", values.join(pick(random, &[",", ", "])));
    }
    const SCALARS: [&str; 24] = [
        "\"2026-01-31\"",
        "\"2026-01-31T12:00:00.5+01:00\"",
        "\"QUJD QQ==\"",
        "\"1,000.5e2\"",
        "1",
        "-7",
        "0",
        "12345678",
        "3000000000",
        "99999999999999999999",
        "1.5",
        "-0.0",
        "1e5",
        "NaN",
        "-INF",
        "true",
        "false",
        "null",
        "\"\"",
        "\"JFK\"",
        "'q'",
        "\"a\\n\\ud83d\\ude00\"",
        "\"\u{e9}\u{4e2d}\"",
        "\"a long string of 33 characters ...\"",
    ];
    pick(random, &SCALARS).to_owned()
}

fn object(random: &mut Random, depth: usize) -> String {
    const KEYS: [&str; 15] = [
        "origin",
        "delay",
        "n",
        "ok",
        "o",
        "list",
        "a",
        "x",
        "long_key_of_20_bytes",
        "unwanted",
        "day",
        "time",
        "price",
        "bytes",
        "map",
    ];
    let (colon, comma) = (pick(random, &[":", ": "]), pick(random, &[",", ", "]));
    let mut fields = Vec::new();
    for key in KEYS {
        if random.one_in(2) {
            fields.push(format!("\"{key}\"{colon}{}", value(random, depth)));
        }
    }
    if !fields.is_empty() && random.one_in(3) {
        let (from, to) = (random.below(fields.len()), random.below(fields.len()));
        fields.swap(from, to);
        fields.push(fields[from].clone()); // a duplicate
    }
    format!("{{{}}}", fields.join(comma))
}

fn damaged(random: &mut Random) -> Vec<u8> {
    let mut bytes = object(random, 0).into_bytes();
    if random.one_in(2) {
        const BYTES: &[u8] = b"{}[]\",:'\\ 01.e-+ntf\x00\x1f\xff\xc3";
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() + 1);
            match random.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, BYTES[random.below(BYTES.len())]),
                2 if at < bytes.len() => bytes[at] = BYTES[random.below(BYTES.len())],
                3 if at < bytes.len() => drop(bytes.remove(at)),
                _ => {}
            }
        }
    }
    bytes
}

/// Where and why a value is malformed.
fn reason(decoded: &DecodedValues, row: usize) -> Option<(usize, usize)> {
    let malformed = decoded.malformed.as_ref()?;
    Some((malformed.positions.value(row) as usize, malformed.reasons.key(row)?))
}

#[test]
fn overflow_checks_are_enabled() {
    let max = std::hint::black_box(i32::MAX);
    assert!(std::panic::catch_unwind(|| max + 1).is_err(), "run the tests without --release");
}

#[test]
fn predictions_change_no_json_column() {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_nanos() as u64;
    let seed = number("JSON_FUZZ_SEED").unwrap_or(now);
    println!("JSON_FUZZ_SEED={seed}");
    let mut random = Random::new(seed);
    let mut decoder = JsonDecoder::new(fields(), "corrupt", &[], LIMIT).expect("the fields are supported");
    let (mut valid, mut malformed) = (0, 0);
    for _ in 0..number("JSON_FUZZ_ROUNDS").unwrap_or(2000) {
        let mut values: Vec<Vec<u8>> = Vec::new();
        for _ in 0..=random.below(8) {
            // Values of one shape follow one another, so that predictions hold.
            let value = if values.is_empty() || random.one_in(2) { damaged(&mut random) } else { values[0].clone() };
            values.push(value);
        }
        let array = BinaryArray::from_iter_values(&values);
        let together = decoder.decode(&array).expect("the values fit");
        for (row, value) in values.iter().enumerate() {
            let alone = JsonDecoder::new(fields(), "corrupt", &[], LIMIT)
                .expect("the fields are supported")
                .decode(&array.slice(row, 1));
            let alone = alone.expect("the value fits");
            assert_eq!(reason(&together, row), reason(&alone, 0), "{}", value.escape_ascii());
            let (one, other) = (together.values.slice(row, 1).to_data(), alone.values.to_data());
            assert_eq!(one, other, "{}", value.escape_ascii());
            match reason(&together, row) {
                Some((position, _)) => {
                    assert!(position <= value.len());
                    malformed += 1;
                }
                None => valid += 1,
            }
        }
    }
    assert!(valid > 0 && malformed > 0, "{valid} valid, {malformed} malformed");
}
