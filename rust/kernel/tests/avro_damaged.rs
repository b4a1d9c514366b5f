//! Hostile Avro: programs that fit no columns, datums with false counts and lengths, and random damage.
//!
//! `AVRO_FUZZ_SEED` repeats a run, `AVRO_FUZZ_ROUNDS` sets the number of batches (2,000 by default).

mod support;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use record_kernel::{AvroDecoder, DecodedValues};
use support::{Random, varint};

const LIMIT: usize = 128 << 20;

// The numbers of operations, as of `pyspark_kafka_direct.payloads.avro.avro_values.Op`.
const SKIP_LENGTH: i64 = 2;
const SKIP_ITEMS: i64 = 5;
const BOOLEAN: i64 = 6;
const INT: i64 = 7;
const LONG: i64 = 8;
const DOUBLE: i64 = 16;
const BYTES: i64 = 17;
const FIXED: i64 = 18;
const MILLIS_TO_MICROS: i64 = 19;
const DECIMAL: i64 = 20;
const ENUM: i64 = 22;
const ITEMS: i64 = 23;
const GROUP: i64 = 24;
const UNION: i64 = 25;
const PRESENT: i64 = 26;
const INTEGER_CONSTANT: i64 = 27;
const ITEMS_CONSTANT: i64 = 30;
const FAIL: i64 = 31;
const ROUTINE: i64 = 32;
const CALL: i64 = 33;
const NULL_VALUE: i64 = 34;
const OPERATIONS: i64 = 35;
const NULL_FIRST: i64 = 256;
const NULL_LAST: i64 = 512;

fn field(name: &str, data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new(name, data_type, true))
}

fn list(element: DataType) -> DataType {
    DataType::List(field("element", element))
}

/// Fields with the columns 0 to 16.
fn fields() -> Fields {
    let inner = DataType::Struct(vec![field("x", DataType::Int32), field("s", DataType::Utf8)].into());
    let entry = vec![Arc::new(Field::new("key", DataType::Utf8, false)), field("value", DataType::Int64)];
    let entries = Arc::new(Field::new("entries", DataType::Struct(entry.into()), false));
    Fields::from(vec![
        field("boolean", DataType::Boolean),                                           // 0
        field("int", DataType::Int32),                                                 // 1
        field("double", DataType::Float64),                                            // 2
        field("bytes", DataType::Binary),                                              // 3
        field("string", DataType::Utf8),                                               // 4
        field("time", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))), // 5
        field("decimal", DataType::Decimal128(6, 2)),                                  // 6
        field("inner", inner.clone()),                                                 // 7, 8, 9
        field("list", list(inner)),                                                    // 10, 11, 12, 13
        field("map", DataType::Map(entries, false)),                                   // 14, 15, 16
        field("null", DataType::Null),                                                 // 17
    ])
}

/// A program for all fields, with a union and fields that are skipped.
fn program() -> (Vec<i64>, Vec<Box<[u8]>>) {
    let mut numbers = vec![BOOLEAN, 0, NULL_FIRST + INT, 1, NULL_LAST + DOUBLE, 2, FIXED, 3, 2];
    numbers.extend([ENUM, 4, 3, 0, -1, 1, MILLIS_TO_MICROS, 5, DECIMAL, 6, NULL_FIRST + GROUP, 6]);
    numbers.extend([PRESENT, 7, INT, 8, BYTES, 9, ITEMS, 10, 2, 6, PRESENT, 11, INT, 12, BYTES, 13]);
    numbers.extend([ITEMS, 14, 2, 4, BYTES, 15, LONG, 16, SKIP_LENGTH, SKIP_ITEMS, 1, 1, SKIP_LENGTH]);
    numbers.extend([UNION, 3, 0, 1, SKIP_LENGTH, 2, FAIL, 9]);
    numbers.extend([NULL_FIRST + ROUTINE, 3, SKIP_LENGTH, NULL_FIRST + CALL, 0]);
    (numbers, vec![Box::from(*b"RED"), Box::from(*b"a symbol of 20 bytes")])
}

fn decoder() -> AvroDecoder {
    let mut decoder = AvroDecoder::new(fields(), LIMIT).expect("the fields are supported");
    let (numbers, constants) = program();
    assert_eq!(decoder.add_program(&numbers, &constants).expect("the program is valid"), 0);
    decoder
}

fn bytes(out: &mut Vec<u8>, content: &[u8]) {
    varint(out, content.len() as i64);
    out.extend_from_slice(content);
}

/// A valid datum of the program, unless its enum has a symbol, or its union a branch, that cannot be read.
fn datum(random: &mut Random) -> Vec<u8> {
    let mut out = vec![random.below(2) as u8];
    let number = |random: &mut Random| [0, 1, -1, 1 << 20, i64::from(i32::MAX)][random.below(5)];
    if random.one_in(3) {
        out.push(0);
    } else {
        out.push(2);
        varint(&mut out, number(random));
    }
    if random.one_in(3) {
        out.push(2);
    } else {
        out.push(0);
        out.extend(1.5f64.to_le_bytes());
    }
    out.extend(b"ab");
    varint(&mut out, if random.one_in(9) { 1 } else { 2 * random.below(2) as i64 });
    varint(&mut out, number(random));
    bytes(&mut out, &[0, 1, 2][..random.below(3) + 1]);
    if random.one_in(2) {
        out.push(0);
    } else {
        out.push(2);
        varint(&mut out, number(random));
        bytes(&mut out, "é a longer string than sixteen bytes".as_bytes());
    }
    for _ in 0..random.below(3) {
        let count = 1 + random.below(3);
        varint(&mut out, count as i64);
        for _ in 0..count {
            varint(&mut out, number(random));
            bytes(&mut out, b"item");
        }
    }
    out.push(0);
    for _ in 0..random.below(3) {
        varint(&mut out, -1);
        varint(&mut out, 3);
        bytes(&mut out, b"k");
        varint(&mut out, 7);
    }
    out.push(0);
    bytes(&mut out, b"skipped");
    varint(&mut out, 1);
    bytes(&mut out, b"skipped");
    out.push(0);
    match random.below(9) {
        0 => out.push(4),
        1 => {
            out.push(2);
            bytes(&mut out, b"skipped");
        }
        _ => out.push(0),
    }
    for _ in 0..random.below(3) {
        out.push(2);
        bytes(&mut out, b"level");
    }
    out.push(0);
    out
}

fn damage(random: &mut Random, datum: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        let at = random.below(datum.len() + 1);
        match random.below(4) {
            0 => datum.truncate(at),
            1 => datum.insert(at, [0, 1, 2, 0x7f, 0x80, 0xff][random.below(6)]),
            2 if at < datum.len() => datum[at] = random.below(256) as u8,
            3 if at < datum.len() => drop(datum.remove(at)),
            _ => {}
        }
    }
}

fn reason(decoded: &DecodedValues, row: usize) -> Option<(usize, usize)> {
    let malformed = decoded.malformed.as_ref()?;
    Some((malformed.positions.value(row) as usize, malformed.reasons.key(row)?))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn new_random() -> Random {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_nanos() as u64;
    let seed = number("AVRO_FUZZ_SEED").unwrap_or(now);
    println!("AVRO_FUZZ_SEED={seed}");
    Random::new(seed)
}

#[test]
fn a_damaged_datum_changes_no_other_row() {
    let mut random = new_random();
    let mut decoder = decoder();
    let (mut valid, mut malformed) = (0, 0);
    for _ in 0..number("AVRO_FUZZ_ROUNDS").unwrap_or(2000) {
        let values: Vec<_> = (0..=random.below(8))
            .map(|_| {
                let mut datum = datum(&mut random);
                if random.one_in(2) {
                    damage(&mut random, &mut datum);
                }
                datum
            })
            .collect();
        let array = BinaryArray::from_iter_values(&values);
        let together = decoder.decode(&array, None, None).expect("the values fit");
        together.values.to_data().validate_full().expect("the arrays are valid");
        for (row, value) in values.iter().enumerate() {
            let alone = self::decoder().decode(&array.slice(row, 1), None, None).expect("the value fits");
            assert_eq!(reason(&together, row), reason(&alone, 0), "{}", value.escape_ascii());
            let (one, other) = (together.values.slice(row, 1), alone.values);
            assert_eq!(&one as &dyn Array, &other as &dyn Array, "{}", value.escape_ascii());
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

#[test]
fn headers_and_programs_of_rows() {
    let mut decoder =
        AvroDecoder::new(vec![field("a", DataType::Int32)].into(), LIMIT).expect("the field is supported");
    for numbers in [&[INT, 0][..], &[SKIP_LENGTH, INT, 0]] {
        decoder.add_program(numbers, &[]).expect("the program is valid");
    }
    let values = BinaryArray::from(vec![&b"\x02"[..], b"\0\0\0\0\x01\x04", b"\x06ignored", b"\x02x\x08", b"\0\0"]);
    let starts = Int32Array::from(vec![0, 5, 0, 0, 99]);
    let programs = Int32Array::from(vec![Some(0), Some(0), None, Some(1), Some(0)]);
    let decoded = decoder.decode(&values, Some(&starts), Some(&programs)).expect("the values fit");
    let expected: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None, Some(4), None]));
    assert_eq!(decoded.values.to_data().child_data()[0], expected.to_data());
    assert_eq!(reason(&decoded, 4).map(|(position, _)| position), Some(2)); // a header that is longer than its value
    for numbers in [vec![2; 5], vec![-1; 5], vec![0; 4]] {
        assert!(decoder.decode(&values, Some(&starts), Some(&Int32Array::from(numbers))).is_err());
    }
}

/// A routine skips a record that contains itself, which may be 100 levels deep.
#[test]
fn routines_call_themselves() {
    let mut decoder =
        AvroDecoder::new(vec![field("a", DataType::Int32)].into(), LIMIT).expect("the field is supported");
    let numbers = [NULL_FIRST + ROUTINE, 2, NULL_FIRST + CALL, 0, INT, 0];
    decoder.add_program(&numbers, &[]).expect("the program is valid");
    let datum = |depth: usize| [&vec![2; depth][..], &[0, 4]].concat();
    let values = BinaryArray::from_iter_values([0, 1, 100, 101, 1 << 20].map(datum));
    let decoded = decoder.decode(&values, None, None).expect("the values fit");
    let expected: ArrayRef = Arc::new(Int32Array::from(vec![Some(2), Some(2), Some(2), None, None]));
    assert_eq!(decoded.values.to_data().child_data()[0], expected.to_data());
    assert_eq!(reason(&decoded, 3), Some((101, 12)));
}

/// The operation makes the whole struct null, unless the datum is malformed.
#[test]
fn a_whole_value_is_null() {
    let mut decoder =
        AvroDecoder::new(vec![field("a", DataType::Int32)].into(), LIMIT).expect("the field is supported");
    decoder.add_program(&[UNION, 2, 1, NULL_VALUE, 2, INT, 0], &[]).expect("the program is valid");
    let values = BinaryArray::from(vec![&b"\0"[..], b"\x02\x04", b"\0\0", b"\0"]);
    let decoded = decoder.decode(&values, None, None).expect("the values fit");
    let nulls: Vec<_> = (0..4).map(|row| decoded.values.is_null(row)).collect();
    assert_eq!(nulls, [true, false, false, true]);
    assert_eq!(reason(&decoded, 2), Some((1, 1)));
}

#[test]
fn programs_that_are_not_valid_are_rejected() {
    let mut decoder = decoder();
    let constants: Vec<Box<[u8]>> = vec![Box::from(*b"short")];
    let mut nested = vec![SKIP_LENGTH];
    for _ in 0..300 {
        nested = [vec![GROUP, nested.len() as i64], nested].concat();
    }
    for numbers in [
        &[OPERATIONS][..],
        &[-1],
        &[i64::MIN],
        &[NULL_FIRST | NULL_LAST],
        &[1024 + INT, 1],
        &[INT],
        &[INT, -1],
        &[INT, 18],
        &[INT, i64::MAX],
        &[INT, 17],                  // a column of nulls
        &[INT, 0],                   // a column of booleans
        &[LONG, 1],                  // a column of 32 bits
        &[PRESENT, 10],              // a list
        &[ITEMS, 7, 1, 0],           // a struct
        &[FIXED, 3, -1],             // a negative size
        &[FIXED, 3, i64::MAX],       // a size of more than 32 bits
        &[ENUM, 4, 1, 1],            // a constant that does not exist
        &[ENUM, 4, u32::MAX as i64], // more symbols than there are
        &[ITEMS, 10, 1, 5, INT, 12], // a body that is longer than the program
        &[GROUP, i64::MAX],
        &[UNION, u32::MAX as i64],
        &[UNION, 2, 0],
        &[28, 2, 0], // a constant of less than eight bytes
        &[ITEMS_CONSTANT, 10, 1],
        &[INTEGER_CONSTANT, 2, 0], // a column of doubles
        &[FAIL, 0],                // a reason that no program may have
        &[CALL, 0],                // a routine that does not exist
        &[ROUTINE, 2, CALL, 1],
        &[CALL, -1],
        &[ROUTINE, 3, CALL, 0],
        &nested,
    ] {
        assert!(decoder.add_program(numbers, &constants).is_err(), "{numbers:?}");
    }
}

/// Any program is rejected, or it decodes: it does not panic, and its arrays are valid.
#[test]
fn random_programs_do_no_harm() {
    let mut random = new_random();
    let (mut accepted, mut decoded) = (0, 0);
    for _ in 0..number("AVRO_FUZZ_ROUNDS").unwrap_or(2000) * 5 {
        let (mut numbers, constants) = program();
        for _ in 0..=random.below(3) {
            let at = random.below(numbers.len());
            match random.below(3) {
                0 => {
                    numbers[at] = random.below(OPERATIONS as usize) as i64 + [0, NULL_FIRST, NULL_LAST][random.below(3)]
                }
                1 => numbers.swap(at, 0),
                _ => numbers[at] = random.below(18) as i64,
            }
        }
        let mut decoder = AvroDecoder::new(fields(), LIMIT).expect("the fields are supported");
        if decoder.add_program(&numbers, &constants).is_err() {
            continue;
        }
        accepted += 1;
        let values: Vec<_> = (0..4).map(|_| datum(&mut random)).collect();
        if let Ok(result) = decoder.decode(&BinaryArray::from_iter_values(&values), None, None) {
            result.values.to_data().validate_full().unwrap_or_else(|error| panic!("{numbers:?}: {error}"));
            decoded += 1;
        }
    }
    assert!(accepted > 0 && decoded > 0, "{accepted} accepted, {decoded} decoded");
}

/// Few bytes that claim many items, or much memory, are rejected before memory is allocated for them.
#[test]
fn claims_cost_nothing() {
    let of = |element: DataType, body: &[i64], min_size: i64| {
        let mut decoder =
            AvroDecoder::new(vec![field("a", list(element))].into(), LIMIT).expect("the field is supported");
        let numbers = [&[ITEMS, 0, min_size, body.len() as i64][..], body].concat();
        decoder.add_program(&numbers, &[]).expect("the program is valid");
        decoder
    };
    let claim = |count: i64| {
        let mut bytes = Vec::new();
        varint(&mut bytes, count);
        bytes
    };
    for count in [1 << 16 | 1, 1 << 31, i64::MAX, i64::MIN, -(1 << 40)] {
        for (mut decoder, name) in [
            (of(DataType::Null, &[], 0), "nulls"),
            (of(DataType::Int32, &[INT, 1], 1), "numbers"),
            (of(DataType::Binary, &[BYTES, 1], 1), "bytes"),
        ] {
            let mut value = claim(count);
            value.extend(claim(1 << 40));
            let started = Instant::now();
            let decoded = decoder.decode(&BinaryArray::from(vec![&value[..]; 1000]), None, None).expect("a column");
            assert_eq!(decoded.malformed.map(|found| found.reasons.len()), Some(1000), "{count} {name}");
            assert!(started.elapsed().as_millis() < 500, "{count} {name} took {:?}", started.elapsed());
        }
    }
    // Blocks without bytes: 65,536 items in all, however many blocks there are.
    let mut decoder = of(DataType::Null, &[], 0);
    let blocks = |count: usize| {
        let mut value = claim(1 << 15).repeat(count);
        value.push(0);
        value
    };
    let decoded = decoder.decode(&BinaryArray::from(vec![&blocks(2)[..], &blocks(3)]), None, None).expect("a column");
    assert_eq!((reason(&decoded, 0), reason(&decoded, 1).is_some()), (None, true));
    // Items of one byte whose columns need 100 times that.
    let wide: Vec<_> = (0..1000).map(|number| field(&format!("f{number}"), DataType::Int64)).collect();
    let mut decoder = of(DataType::Struct(wide.into()), &[PRESENT, 1, INTEGER_CONSTANT, 2, 5, SKIP_LENGTH], 1);
    let mut value = claim(1 << 20);
    value.extend(vec![0; (1 << 20) + 1]);
    let started = Instant::now();
    let decoded = decoder.decode(&BinaryArray::from(vec![&value[..]]), None, None).expect("a column");
    assert_eq!(decoded.malformed.map(|found| found.reasons.len()), Some(1));
    assert!(started.elapsed().as_millis() < 500, "took {:?}", started.elapsed());
}
