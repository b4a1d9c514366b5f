//! The bytes of VARIANTs, and damaged JSON. Those of Spark's `parse_json` are in tests/integration.
//!
//! `VARIANT_FUZZ_SEED` repeats a run, `VARIANT_FUZZ_ROUNDS` sets the number of batches (2,000 by default).

mod support;

use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray};
use record_kernel::{DecodedValues, Reason, VariantDecoder};
use support::Random;

fn new_decoder() -> VariantDecoder {
    VariantDecoder::new(128 << 20).expect("the limit is valid")
}

fn decode(values: &[&[u8]]) -> DecodedValues {
    new_decoder().decode(&BinaryArray::from_vec(values.to_vec())).expect("the values fit")
}

fn part(decoded: &DecodedValues, row: usize, part: usize) -> Vec<u8> {
    decoded.values.as_struct().column(part).as_binary::<i32>().value(row).to_vec()
}

/// The bytes of a valid value, and of its metadata.
fn variant(value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let decoded = decode(&[value]);
    assert!(decoded.malformed.is_none(), "{}", value.escape_ascii());
    (part(&decoded, 0, 0), part(&decoded, 0, 1))
}

fn scalar(value: &str) -> Vec<u8> {
    let (content, metadata) = variant(value.as_bytes());
    assert_eq!(metadata, [1, 0, 0]);
    content
}

/// Position and reason of a malformed value.
fn malformed(value: &[u8]) -> (i32, Reason) {
    let decoded = decode(&[value]);
    assert!(decoded.values.is_null(0));
    let malformed = decoded.malformed.unwrap_or_else(|| panic!("{} is valid", value.escape_ascii()));
    (malformed.positions.value(0), Reason::ALL[malformed.reasons.keys().value(0) as usize])
}

#[test]
fn numbers_have_the_smallest_type() {
    assert_eq!(scalar("7"), [3 << 2, 7]);
    assert_eq!(scalar("-128"), [3 << 2, 0x80]);
    assert_eq!(scalar("128"), [4 << 2, 0x80, 0]);
    assert_eq!(scalar("-32769"), [5 << 2, 0xff, 0x7f, 0xff, 0xff]);
    assert_eq!(scalar("9223372036854775807"), [&[6 << 2][..], &i64::MAX.to_le_bytes()].concat());
    assert_eq!(scalar("-9223372036854775808"), [&[6 << 2][..], &i64::MIN.to_le_bytes()].concat());
    assert_eq!(scalar("-0"), [3 << 2, 0]);
    assert_eq!(scalar("-1.50"), [8 << 2, 2, 0x6a, 0xff, 0xff, 0xff]);
    assert_eq!(scalar("0.000000000"), [8 << 2, 9, 0, 0, 0, 0]);
    assert_eq!(scalar("1234567890.5"), [&[9 << 2, 1][..], &12_345_678_905i64.to_le_bytes()].concat());
    assert_eq!(scalar("0.0000000001"), [&[9 << 2, 10][..], &1i64.to_le_bytes()].concat());
    assert_eq!(scalar("0.123456789012345678"), [&[9 << 2, 18][..], &123_456_789_012_345_678i64.to_le_bytes()].concat());
    let large = 99_999_999_999_999_999_999_999_999_999_999_999_999i128;
    assert_eq!(scalar(&large.to_string()), [&[10 << 2, 0][..], &large.to_le_bytes()].concat());
    assert_eq!(scalar(&format!("-0.{large}")), [&[10 << 2, 38][..], &(-large).to_le_bytes()].concat());
    assert_eq!(
        scalar("9223372036854775808"),
        [&[10 << 2, 0][..], &9_223_372_036_854_775_808i128.to_le_bytes()].concat()
    );
    for text in ["1e0", "-0e0", "1.5E-7", "1e400", "100000000000000000000000000000000000000", "1e-400"] {
        let value = text.parse::<f64>().expect("a number");
        assert_eq!(scalar(text), [&[7 << 2][..], &value.to_le_bytes()].concat(), "{text}");
    }
    assert_eq!(scalar(&format!("0.{}1", "0".repeat(38)))[0], 7 << 2);
}

#[test]
fn digits_are_bounded() {
    let digits = |count: usize| "3".repeat(count);
    for number in
        [digits(1000), format!("0.{}", digits(1000)), format!("1.{}", digits(999)), format!("1e-{}", digits(999))]
    {
        scalar(&number);
        let longer = format!("[{number}3]");
        assert_eq!(malformed(longer.as_bytes()), (1, Reason::Number), "{longer}");
    }
}

#[test]
fn strings_and_constants() {
    assert_eq!([scalar("null"), scalar(" true\n"), scalar("false")], [[0], [4], [8]]);
    assert_eq!(scalar("\"\""), [1]);
    assert_eq!(scalar("\"a\u{e9}\""), [3 << 2 | 1, b'a', 0xc3, 0xa9]);
    assert_eq!(scalar("\"\\ud83d\\ude00\\/\""), [5 << 2 | 1, 0xf0, 0x9f, 0x98, 0x80, b'/']);
    let long = "x".repeat(64);
    assert_eq!(scalar(&format!("\"{}\"", &long[1..])), [&[63 << 2 | 1][..], &long.as_bytes()[1..]].concat());
    assert_eq!(scalar(&format!("\"{long}\"")), [&[16 << 2, 64, 0, 0, 0][..], long.as_bytes()].concat());
    assert_eq!(variant(b"\"\xff\xe2\x82\"").0, "\x19\u{fffd}\u{fffd}".as_bytes());
}

#[test]
fn objects_are_sorted_and_share_a_dictionary() {
    let (value, metadata) = variant(br#"{"b": 1, "a": [null, {"b": true}], "": {}}"#);
    assert_eq!(metadata, [&[1, 3, 0, 1, 2, 2][..], b"ba"].concat());
    let inner = [2, 1, 0, 0, 1, 4];
    let array = [&[3, 2, 0, 1, 7, 0][..], &inner].concat();
    let header = [2, 3, 2, 1, 0, 14, 2, 0, 17];
    assert_eq!(value, [&header[..], &[12, 1], &array, &[2, 0, 0]].concat());
    assert_eq!(variant(b"{}"), (vec![2, 0, 0], vec![1, 0, 0]));
    assert_eq!(variant(b"[ ]"), (vec![3, 0, 0], vec![1, 0, 0]));
}

#[test]
fn names_are_sorted_as_in_java() {
    let (value, _) =
        variant("{\"\u{ffff}\":1,\"\u{10000}\":2,\"\u{e000}\":3,\"\u{d7ff}\":4,\"\u{d7ff}a\":5}".as_bytes());
    assert_eq!(value[2..7], [3, 4, 1, 2, 0]);
}

#[test]
fn large_containers_have_larger_headers() {
    for count in [255, 256, 70_000] {
        let (array, metadata) = variant(format!("[{}]", vec!["1"; count].join(",")).as_bytes());
        let (size, offset_size) = if count == 255 { (1, 2) } else { (4, if count == 256 { 2 } else { 3 }) };
        assert_eq!(array[0], (u8::from(size == 4) << 2 | (offset_size as u8 - 1)) << 2 | 3);
        assert_eq!(array[1..=size], (count as u32).to_le_bytes()[..size]);
        assert_eq!(array.len(), 1 + size + (count + 1) * offset_size + 2 * count);
        assert_eq!(metadata, [1, 0, 0]);

        let fields: Vec<_> = (0..count).map(|number| format!("\"k{number}\":{{}}")).collect();
        let (object, metadata) = variant(format!("{{{}}}", fields.join(",")).as_bytes());
        let id_size = if count == 70_000 { 3 } else { 1 };
        assert_eq!(object.len(), 1 + size + count * id_size + (count + 1) * offset_size + 3 * count);
        assert_eq!(metadata[0] & 0xf, 1);
        assert_eq!(usize::from(metadata[0] >> 6) + 1, if count == 70_000 { 3 } else { 2 });
    }
}

#[test]
fn malformed_values_are_null() {
    for (value, position, reason) in [
        (&b""[..], 0, Reason::Truncated),
        (b"  ", 2, Reason::Truncated),
        (b"\xef\xbb\xbf1", 0, Reason::Unexpected),
        (b"{\"a\":1,\"a\":2}", 12, Reason::DuplicateKey),
        (b"[{\"a\":1,\"\\u0061\":2}]", 18, Reason::DuplicateKey),
        (b"\"\\ud83d\"", 1, Reason::HalfPair),
        (b"{\"\\ude00\":1}", 2, Reason::HalfPair),
        (b"'a'", 0, Reason::Unexpected),
        (b"{'a':1}", 1, Reason::Unexpected),
        (b"\"\\'\"", 1, Reason::Escape),
        (b"NaN", 0, Reason::Unexpected),
        (b"-Infinity", 0, Reason::Number),
        (b"+INF", 0, Reason::Number),
        (b".5", 0, Reason::Number),
        (b"[1,]", 3, Reason::Unexpected),
        (b"[,1]", 1, Reason::Unexpected),
        (b"{,}", 1, Reason::Unexpected),
        (b"{\"a\":1,}", 7, Reason::Unexpected),
        (b"{\"a\"}", 4, Reason::Unexpected),
        (b"[1}", 2, Reason::Unexpected),
        (b"[1 2]", 3, Reason::Unexpected),
        (b"1 2", 2, Reason::Trailing),
        (b"[1", 2, Reason::Truncated),
        (b"{\"a\":", 5, Reason::Truncated),
        (b"tru", 0, Reason::Unexpected),
    ] {
        assert_eq!(malformed(value), (position, reason), "{}", value.escape_ascii());
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    variant(nested(1000).as_bytes());
    for levels in [1001, 10_000, 1_000_000] {
        assert_eq!(malformed(nested(levels).as_bytes()), (1000, Reason::Depth));
        let objects = "{\"a\":".repeat(levels);
        assert_eq!(malformed(objects.as_bytes()), (5000, Reason::Depth));
    }
}

#[test]
fn the_size_is_bounded() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    assert_eq!(scalar(&text((128 << 20) - 5)).len(), 128 << 20);
    assert_eq!(malformed(text((128 << 20) - 4).as_bytes()).1, Reason::Size);
    let array = format!("[{}0]", "0,".repeat(24 << 20)); // two bytes for each number, and four for its offset
    assert_eq!(malformed(array.as_bytes()), (array.len() as i32 - 1, Reason::Size));
}

#[test]
fn values_end_where_they_end() {
    let decoded = decode(&[b"1", b"2", b"34.5", b"e5", b"[6", b"7]", b"\"8", b"9\""]);
    assert_eq!([part(&decoded, 0, 0), part(&decoded, 1, 0)], [[12, 1], [12, 2]]);
    assert_eq!(part(&decoded, 2, 0), [8 << 2, 1, 89, 1, 0, 0]);
    let malformed = decoded.malformed.expect("there are malformed values");
    let positions: Vec<_> = malformed.positions.iter().collect();
    assert_eq!(positions, [None, None, None, Some(0), Some(2), Some(1), Some(2), Some(1)]);
}

#[test]
fn keys_are_forgotten() {
    let object = |first: usize| {
        let fields: Vec<_> = (first..first + 3000).map(|number| format!("\"key{number}\":1")).collect();
        format!("{{{}}}", fields.join(","))
    };
    let objects = [object(0), object(2000), object(0), "{".to_owned() + &object(5000), object(2000)];
    let mut decoder = new_decoder();
    let together = decoder.decode(&BinaryArray::from_iter_values(&objects)).expect("the values fit");
    for row in [0, 1, 2, 4] {
        assert_eq!((part(&together, row, 0), part(&together, row, 1)), variant(objects[row].as_bytes()));
    }
}

fn pick<'a>(random: &mut Random, choices: &[&'a str]) -> &'a str {
    choices[random.below(choices.len())]
}

fn value(random: &mut Random, depth: usize) -> String {
    const SCALARS: [&str; 16] = [
        "1",
        "-7",
        "0",
        "12345678",
        "3000000000",
        "99999999999999999999",
        "1.5",
        "-0.0",
        "1e5",
        "true",
        "false",
        "null",
        "\"\"",
        "\"JFK\"",
        "\"a\\n\\ud83d\\ude00\"",
        "\"a string of more than 63 bytes, and so one that is called long here\u{e9}\"",
    ];
    const KEYS: [&str; 8] = ["origin", "a", "b", "", "\u{e9}", "a key of more than 16 bytes", "c", "\\u0061"];
    let (colon, comma) = (pick(random, &[":", ": "]), pick(random, &[",", ", "]));
    if depth < 4 && random.one_in(3) {
        let values: Vec<_> = (0..random.below(4)).map(|_| value(random, depth + 1)).collect();
        return format!("[{}]", values.join(comma));
    }
    if depth < 4 && random.one_in(2) {
        let mut fields = Vec::new();
        for key in KEYS {
            if random.one_in(3) {
                fields.push(format!("\"{key}\"{colon}{}", value(random, depth + 1)));
            }
        }
        if fields.len() > 1 && random.one_in(3) {
            let (from, to) = (random.below(fields.len()), random.below(fields.len()));
            fields.swap(from, to);
        }
        return format!("{{{}}}", fields.join(comma));
    }
    pick(random, &SCALARS).to_owned()
}

fn damaged(random: &mut Random) -> Vec<u8> {
    let mut bytes = value(random, 0).into_bytes();
    if random.one_in(3) {
        const BYTES: &[u8] = b"{}[]\",:'\\ 01.e-+ntf\x00\x1f\xff\xc3";
        let at = random.below(bytes.len() + 1);
        match random.below(3) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, BYTES[random.below(BYTES.len())]),
            _ if at < bytes.len() => bytes[at] = BYTES[random.below(BYTES.len())],
            _ => {}
        }
    }
    bytes
}

#[test]
fn predictions_change_no_variant() {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_nanos() as u64;
    let seed = number("VARIANT_FUZZ_SEED").unwrap_or(now);
    println!("VARIANT_FUZZ_SEED={seed}");
    let mut random = Random::new(seed);
    let mut decoder = new_decoder();
    let (mut valid, mut invalid) = (0, 0);
    for _ in 0..number("VARIANT_FUZZ_ROUNDS").unwrap_or(2000) {
        let mut values: Vec<Vec<u8>> = Vec::new();
        for _ in 0..=random.below(8) {
            // Values of one shape follow one another, so that predictions hold.
            let value = if values.is_empty() || random.one_in(2) { damaged(&mut random) } else { values[0].clone() };
            values.push(value);
        }
        let array = BinaryArray::from_iter_values(&values);
        let together = decoder.decode(&array).expect("the values fit");
        for (row, value) in values.iter().enumerate() {
            let alone = new_decoder().decode(&array.slice(row, 1)).expect("the value fits");
            let (one, other) = (together.values.slice(row, 1).to_data(), alone.values.to_data());
            assert_eq!(one, other, "{}", value.escape_ascii());
            let found = together.malformed.as_ref().filter(|found| found.positions.is_valid(row));
            let found = found.map(|found| (found.positions.value(row), found.reasons.keys().value(row)));
            let expected = alone.malformed.map(|found| (found.positions.value(0), found.reasons.keys().value(0)));
            assert_eq!(found, expected, "{}", value.escape_ascii());
            assert_eq!(together.values.is_null(row), found.is_some());
            assert!(found.is_none_or(|(position, _)| position as usize <= value.len()));
            if found.is_some() { invalid += 1 } else { valid += 1 }
        }
    }
    assert!(valid > 0 && invalid > 0, "{valid} valid, {invalid} malformed");
}
