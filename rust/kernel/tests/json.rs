//! Columns and errors of the JSON decoder. Those of Spark's `from_json` are in tests/integration.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BinaryArray, StructArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use record_kernel::{DecodedValues, JsonDecoder, Reason};

const LIMIT: usize = 128 << 20;

fn field(name: &str, data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new(name, data_type, true))
}

fn list(element: DataType) -> DataType {
    DataType::List(field("element", element))
}

fn fields() -> Fields {
    let inner = DataType::Struct(Fields::from(vec![field("x", DataType::Int32), field("t", DataType::Utf8)]));
    Fields::from(vec![
        field("b", DataType::Boolean),
        field("y", DataType::Int8),
        field("i", DataType::Int32),
        field("l", DataType::Int64),
        field("d", DataType::Float64),
        field("s", DataType::Utf8),
        field("o", inner.clone()),
        field("a", list(DataType::Int32)),
        field("ao", list(inner)),
        field("corrupt", DataType::Utf8),
    ])
}

fn decoder() -> JsonDecoder {
    JsonDecoder::new(fields(), "corrupt", &[], LIMIT).expect("the fields are supported")
}

fn decode(decoder: &mut JsonDecoder, values: &[&[u8]]) -> DecodedValues {
    decoder.decode(&BinaryArray::from_vec(values.to_vec())).expect("the values fit")
}

fn structs(decoded: &DecodedValues) -> &StructArray {
    decoded.values.as_struct()
}

/// Decodes one value, which may not be malformed.
fn valid(value: &[u8]) -> StructArray {
    let decoded = decode(&mut decoder(), &[value]);
    assert_eq!(malformed(&decoded), [], "{}", value.escape_ascii());
    structs(&decoded).clone()
}

/// Row, position and reason of each malformed value.
fn malformed(decoded: &DecodedValues) -> Vec<(usize, usize, Reason)> {
    let Some(malformed) = &decoded.malformed else { return Vec::new() };
    assert_eq!(malformed.reasons.len(), decoded.values.len());
    let rows = (0..malformed.reasons.len()).filter(|&row| malformed.reasons.is_valid(row));
    let found: Vec<_> = rows
        .map(|row| {
            let reason = Reason::ALL[malformed.reasons.key(row).expect("a reason")];
            let messages = malformed.reasons.values().as_string::<i32>();
            assert_eq!(messages.value(malformed.reasons.key(row).expect("a reason")), reason.message());
            (row, malformed.positions.value(row) as usize, reason)
        })
        .collect();
    assert!(!found.is_empty());
    assert_eq!(malformed.positions.nulls(), malformed.reasons.nulls());
    found
}

fn only_malformed(value: &[u8]) -> (usize, Reason) {
    match malformed(&decode(&mut decoder(), &[value]))[..] {
        [(0, position, reason)] => (position, reason),
        ref others => panic!("{} is not malformed: {others:?}", value.escape_ascii()),
    }
}

fn column<'a>(structs: &'a StructArray, name: &str) -> &'a dyn Array {
    structs.column_by_name(name).expect("there is such a field").as_ref()
}

fn text(value: &[u8]) -> String {
    column(&valid(value), "s").as_string::<i32>().value(0).to_owned()
}

fn double(value: &str) -> f64 {
    let value = format!("{{\"d\":{value}}}");
    column(&valid(value.as_bytes()), "d").as_primitive::<Float64Type>().value(0)
}

#[test]
fn only_wanted_fields_become_columns() {
    let row = valid(br#"{"unwanted": [1, {"i": 2}], "i": 3, "s": "text", "b": true}"#);
    assert_eq!(column(&row, "i").as_primitive::<Int32Type>().value(0), 3);
    assert_eq!(column(&row, "s").as_string::<i32>().value(0), "text");
    assert!(column(&row, "b").as_boolean().value(0));
    assert!(column(&row, "l").is_null(0) && column(&row, "o").is_null(0) && column(&row, "a").is_null(0));
}

/// Keys of many lengths, each the beginning of the next one, in another order in each value, with and without blanks.
#[test]
fn keys_may_have_another_order_in_each_value() {
    const NAMES: usize = 20;
    let names: Vec<String> = (1..=NAMES).map(|length| "abcdefghijklmnopqrst"[..length].to_owned()).collect();
    let wanted = Fields::from_iter(names.iter().map(|name| field(name, DataType::Int32)));
    let mut decoder = JsonDecoder::new(wanted, "corrupt", &[], LIMIT).expect("the fields are supported");
    let values: Vec<String> = (0..400)
        .map(|row| {
            let members = (0..NAMES).map(|place| {
                let index = (place * [1, 3, 7, 9][row % 4] + row) % NAMES;
                let blank = if row % 3 == 0 { "" } else { " " };
                format!("\"{}\":{blank}{}", names[index], row * NAMES + index)
            });
            format!(
                r#"{{{},"abcdefghijklmnop:7":0}}"#,
                members.collect::<Vec<_>>().join(if row % 2 == 0 { "," } else { ", " })
            )
        })
        .collect();
    let decoded = decode(&mut decoder, &values.iter().map(String::as_bytes).collect::<Vec<_>>());
    assert_eq!(malformed(&decoded), []);
    for (index, name) in names.iter().enumerate() {
        let found = column(structs(&decoded), name).as_primitive::<Int32Type>();
        let expected = (0..values.len()).map(|row| (row * NAMES + index) as i32);
        assert!(found.iter().eq(expected.map(Some)), "{name}");
    }
}

#[test]
fn the_last_duplicate_counts_unless_it_does_not_fit() {
    let row = valid(br#"{"i":1,"o":{"x":1},"s":"first","a":[1,2],"i":2,"o":{"t":"z"},"s":"","a":[3]}"#);
    assert_eq!(column(&row, "i").as_primitive::<Int32Type>().value(0), 2);
    assert_eq!(column(&row, "s").as_string::<i32>().value(0), "");
    assert_eq!(column(&row, "a").as_list::<i32>().value(0).as_primitive::<Int32Type>().values(), &[3]);
    let inner = column(&row, "o").as_struct();
    assert!(inner.column(0).is_null(0));
    assert_eq!(inner.column(1).as_string::<i32>().value(0), "z");

    let decoded = decode(&mut decoder(), &[br#"{"i":1,"i":"x"}"#]);
    assert_eq!(malformed(&decoded), [(0, 11, Reason::Type)]);
    assert_eq!(column(structs(&decoded), "i").as_primitive::<Int32Type>().value(0), 1);
}

#[test]
fn a_field_that_does_not_fit_costs_only_itself() {
    let value = br#"{"o":{"x":"bad","t":"q"},"i":1,"a":[1,"x"],"ao":[{"x":true},null]}"#;
    let decoded = decode(&mut decoder(), &[value]);
    let row = structs(&decoded);
    assert_eq!(malformed(&decoded), [(0, 10, Reason::Type)]);
    assert_eq!(column(row, "i").as_primitive::<Int32Type>().value(0), 1);
    let inner = column(row, "o").as_struct();
    assert!(inner.is_valid(0) && inner.column(0).is_null(0));
    assert_eq!(inner.column(1).as_string::<i32>().value(0), "q");
    assert!(column(row, "a").is_null(0));
    let elements = column(row, "ao").as_list::<i32>().value(0);
    assert!(elements.is_valid(0) && elements.is_null(1));
    assert_eq!(column(row, "corrupt").as_string::<i32>().value(0).as_bytes(), value);
}

#[test]
fn a_malformed_value_costs_only_its_row() {
    let values: [&[u8]; 5] =
        [br#"{"i":1,"s":"a"}"#, br#"{"i":2,"s":"b","a":[1,2"#, b" ", br#"{"s":"c","i":3}"#, b"null"];
    let decoded = decode(&mut decoder(), &values);
    let rows = structs(&decoded);
    assert_eq!(malformed(&decoded), [(1, 23, Reason::Truncated), (4, 0, Reason::NotObject)]);
    assert_eq!((0..5).map(|row| rows.is_null(row)).collect::<Vec<_>>(), [false, false, true, false, false]);
    let integers: Vec<_> = column(rows, "i").as_primitive::<Int32Type>().iter().collect();
    assert_eq!(integers, [Some(1), None, None, Some(3), None]);
    let strings: Vec<_> = column(rows, "s").as_string::<i32>().iter().collect();
    assert_eq!(strings, [Some("a"), None, None, Some("c"), None]);
    let corrupt: Vec<_> = column(rows, "corrupt").as_string::<i32>().iter().collect();
    assert_eq!(corrupt, [None, Some(r#"{"i":2,"s":"b","a":[1,2"#), None, None, Some("null")]);
}

#[test]
fn null_values_are_null_structs() {
    let values = BinaryArray::from(vec![Some(&b"{}"[..]), None]);
    let decoded = decoder().decode(&values).expect("the values fit");
    assert!(decoded.values.is_valid(0) && decoded.values.is_null(1));
    assert!(decoded.malformed.is_none());
}

#[test]
fn slices_of_arrays_are_decoded() {
    let values = BinaryArray::from_vec(vec![b"{\"i\":1}", b"{\"i\":2}", b"{\"i\":3}"]).slice(1, 2);
    let decoded = decoder().decode(&values).expect("the values fit");
    assert_eq!(column(structs(&decoded), "i").as_primitive::<Int32Type>().values(), &[2, 3]);
}

#[test]
fn numbers_are_those_of_the_text() {
    for text in ["0", "-1", "1.5", "-0.25", "12345678", "123456.7", "1234567.8", "0.1", "1e3", "1E-7", "2.5e+10"] {
        assert_eq!(double(text).to_bits(), text.parse::<f64>().expect("a number").to_bits(), "{text}");
    }
    for text in ["9007199254740993", "123456789012345678", "1234567890123456789012345", "0.12345678901234567", "1e400"]
    {
        assert_eq!(double(text).to_bits(), text.parse::<f64>().expect("a number").to_bits(), "{text}");
    }
    assert_eq!(double("-0").to_bits(), 0);
    assert_eq!(double("-0.0").to_bits(), (-0.0f64).to_bits());
    assert_eq!(
        [double("Infinity"), double("-INF"), double("\"+INF\"")],
        [f64::INFINITY, -f64::INFINITY, f64::INFINITY]
    );
    assert!(double("NaN").is_nan() && double("'NaN'").is_nan());
    let row = valid(br#"{"l":-9223372036854775808,"i":2147483647,"y":255}"#);
    assert_eq!(column(&row, "l").as_primitive::<Int64Type>().value(0), i64::MIN);
    assert_eq!(column(&row, "i").as_primitive::<Int32Type>().value(0), i32::MAX);
    assert_eq!(column(&row, "y").as_primitive::<Int8Type>().value(0), -1);
}

#[test]
fn numbers_that_do_not_fit_are_noted() {
    for (value, reason) in [
        (r#"{"i":2147483648}"#, Reason::Range),
        (r#"{"l":9223372036854775808}"#, Reason::Range),
        (r#"{"y":256}"#, Reason::Range),
        (r#"{"i":1.0}"#, Reason::Type),
        (r#"{"i":1e3}"#, Reason::Type),
        (r#"{"i":NaN}"#, Reason::Type),
        (r#"{"i":"1"}"#, Reason::Type),
        (r#"{"d":"1"}"#, Reason::Type),
        (r#"{"b":1}"#, Reason::Type),
        (r#"{"a":1}"#, Reason::Type),
        (r#"{"o":[]}"#, Reason::Type),
    ] {
        let position = value.find(':').expect("a colon") + 1;
        assert_eq!(only_malformed(value.as_bytes()), (position, reason), "{value}");
    }
}

#[test]
fn strings_are_unescaped() {
    assert_eq!(text(br#"{"s":"\u00e9\n\/\\\"'"}"#), "\u{e9}\n/\\\"'");
    assert_eq!(text(br#"{"s":"\ud83d\ude00 \ud83d \ude00\ud83d\u0041"}"#), "\u{1f600} ? ??A");
    assert_eq!(text(br#"{'s':'a"b\''}"#), "a\"b'");
    assert_eq!(text(b"{\"s\":\"a\xe2\x82b\xff\"}"), "a\u{fffd}b\u{fffd}");
    assert_eq!(text("{\"s\":\"\u{4e2d}\u{6587}\"}".as_bytes()), "\u{4e2d}\u{6587}");
    for length in [0, 7, 8, 15, 16, 17, 31, 32, 33, 100, 1000] {
        let expected = "abcdefghi".repeat(200)[..length].to_owned();
        assert_eq!(text(format!("{{\"s\":\"{expected}\"}}").as_bytes()), expected);
        assert_eq!(text(format!("{{\"s\":\"{expected}\\n\"}}").as_bytes()), expected + "\n");
    }
}

#[test]
fn a_character_that_two_values_share_is_invalid() {
    let decoded = decode(&mut decoder(), &[b"{\"s\":\"\xc3", b"\xa9\"}", "{\"s\":\"\u{e9}\"}".as_bytes()]);
    let corrupt: Vec<_> = column(structs(&decoded), "corrupt").as_string::<i32>().iter().collect();
    assert_eq!(corrupt, [Some("{\"s\":\"\u{fffd}"), Some("\u{fffd}\"}"), None]);
    assert_eq!(column(structs(&decoded), "s").as_string::<i32>().value(2), "\u{e9}");
}

#[test]
fn other_values_become_strings_as_they_are_written() {
    for value in ["1.50", "true", "[1 , 2]", "{\"a\" : {}}", "NaN"] {
        assert_eq!(text(format!("{{\"s\": {value} }}").as_bytes()), value);
    }
}

#[test]
fn malformed_values_have_a_position_and_a_reason() {
    for (value, position, reason) in [
        (&b"[]"[..], 0, Reason::NotObject),
        (b" 1", 1, Reason::NotObject),
        (b"\xef\xbb\xbf{}", 0, Reason::NotObject),
        (b"{\"i\":1", 6, Reason::Truncated),
        (b"{\"i\":1} x", 8, Reason::Trailing),
        (b"{\"i\":1,}", 7, Reason::Unexpected),
        (b"{\"i\" 1}", 5, Reason::Unexpected),
        (b"{i:1}", 1, Reason::Unexpected),
        (b"{\"z\":}", 5, Reason::Unexpected),
        (b"{\"z\":tru}", 5, Reason::Unexpected),
        (b"{\"z\":01}", 5, Reason::Number),
        (b"{\"z\":1.}", 7, Reason::Number),
        (b"{\"z\":-}", 5, Reason::Number),
        (b"{\"z\":\"a\tb\"}", 7, Reason::ControlCharacter),
        (b"{\"z\":\"\\x\"}", 6, Reason::Escape),
        (b"{\"z\":\"\\u12\"}", 6, Reason::Escape),
        (b"{\"s\":\"a\0\"}", 7, Reason::ControlCharacter),
        (b"{\"z\":[1,]}", 8, Reason::Unexpected),
        (b"{\"a\":[1,]}", 8, Reason::Unexpected),
        (b"{\"z\":{\"q\"}}", 9, Reason::Unexpected),
    ] {
        assert_eq!(only_malformed(value), (position, reason), "{}", value.escape_ascii());
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| format!("{{\"z\":{}{},\"i\":1}}", "[".repeat(levels), "]".repeat(levels));
    valid(nested(999).as_bytes());
    for levels in [1000, 10_000, 1_000_000] {
        assert_eq!(only_malformed(nested(levels).as_bytes()), (5 + 999, Reason::Depth));
    }
}

#[test]
fn schemas_are_checked() {
    let error = |fields: Vec<Arc<Field>>| {
        JsonDecoder::new(fields.into(), "corrupt", &[], LIMIT).err().map(|error| error.to_string())
    };
    assert!(error(vec![field("a", DataType::Date64)]).is_some_and(|message| message.contains("Date64")));
    assert!(error(vec![field("a", DataType::Int8), field("a", DataType::Int8)]).is_some());
    assert!(error(vec![field("corrupt", DataType::Int8)]).is_some());
    assert!(error(vec![Arc::new(Field::new("a", DataType::Int8, false))]).is_some());
    let deep = (0..100).fold(DataType::Int8, |inner, _| list(inner));
    assert!(error(vec![field("a", deep)]).is_some_and(|message| message.contains("levels")));
}

/// Absent fields of elements have memory, too. An array at the limit still fits.
#[test]
fn the_memory_of_arrays_is_bounded() {
    const WIDTH: usize = 4_000;
    let wide = (0..WIDTH).map(|number| field(&number.to_string(), DataType::Int8));
    let fields = Fields::from(vec![field("a", list(DataType::Struct(wide.collect())))]);
    let mut decoder = JsonDecoder::new(fields, "corrupt", &[], LIMIT).expect("the fields are supported");
    let value = |count: usize| format!("{{\"a\":[{}]}}", vec!["{}"; count].join(","));
    let most = LIMIT / (8 * (WIDTH + 1));
    let (largest, larger) = (value(most), value(most + 1));
    let decoded = decode(&mut decoder, &[larger.as_bytes()]);
    assert_eq!(malformed(&decoded), [(0, larger.len() - 4, Reason::Size)]);
    let decoded = decode(&mut decoder, &[largest.as_bytes(), b"{}"]);
    assert_eq!(decoded.values.len(), 1, "a batch has at most the limit");
    assert_eq!(structs(&decoded).column(0).as_list::<i32>().value_length(0), most as i32);
}

/// Decodes strings to a column of one type.
fn each(data_type: DataType, values: &[&str], zone: &[(i64, i32)]) -> ArrayRef {
    let fields = Fields::from(vec![field("f", data_type)]);
    let mut decoder = JsonDecoder::new(fields, "", zone, LIMIT).expect("the field is supported");
    let values: Vec<_> = values.iter().map(|value| format!("{{\"f\":{value}}}")).collect();
    let decoded = decoder.decode(&BinaryArray::from_iter_values(values)).expect("the values fit");
    structs(&decoded).column(0).clone()
}

#[test]
fn strings_become_dates_times_and_bytes() {
    let dates = [r#""1970-01-01""#, r#""2000-02-29""#, r#""2100-03-01T12""#, r#""1969-12""#, r#""2001-02-29""#];
    let days: Vec<_> = each(DataType::Date32, &dates, &[]).as_primitive::<Date32Type>().iter().collect();
    assert_eq!(days, [Some(0), Some(11_016), Some(47_541), Some(-31), None]);
    // UTC+1 until 1970-01-02, and then UTC-2; the times between 23:00 and 02:00 occur twice.
    let zone = [(i64::MIN / 2, 3600), (86_400, -7200), (1 << 40, -7200)];
    let times = [
        (r#""1970-01-01T00:00:00.5""#, Some(-3_599_500_000)),
        (r#""1970-01-01 00:00:00Z""#, Some(0)),
        (r#""1970-01-01T00:00:00.1234567+05:30""#, Some(-19_799_876_544)),
        (r#""1970-01-03""#, Some(180_000_000_000)),
        (r#""1970-01-01T24:00""#, None),
    ];
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    for (text, micros) in times {
        let found = each(utc.clone(), &[text], &zone);
        assert_eq!(found.as_primitive::<TimestampMicrosecondType>().iter().collect::<Vec<_>>(), [micros], "{text}");
    }
    for (offset, seconds) in [
        ("Z", Some(0)),
        ("+5", Some(18_000)),
        ("-5:30", Some(-19_800)),
        ("+0530", Some(19_800)),
        ("+05:3", Some(18_180)),
        ("-053015", Some(-19_815)),
        ("+05:30:15", Some(19_815)),
        ("UTC", Some(0)),
        ("GMT+1", Some(3_600)),
        ("EST", Some(-18_000)),
        ("HST", Some(-36_000)),
        ("+18:00", Some(64_800)),
        ("+18:01", None),
        ("+01:60", None),
        ("+05301", None),
        ("+", None),
    ] {
        let found = each(utc.clone(), &[&format!("\"1970-01-01T00:00:00{offset}\"")], &zone);
        let micros: Vec<_> = found.as_primitive::<TimestampMicrosecondType>().iter().collect();
        assert_eq!(micros, [seconds.map(|seconds: i64| -seconds * 1_000_000)], "{offset}");
    }
    // Numbers that are no years are days; those before 1582-10-15 are of the Julian calendar.
    let days = each(DataType::Date32, &["\"123\"", "\"-10000000\"", "\"-12345678\""], &[]);
    let days: Vec<_> = days.as_primitive::<Date32Type>().iter().collect();
    assert_eq!(days, [Some(123), Some(-9_999_807), Some(-12_345_437)]);
    let local = each(DataType::Timestamp(TimeUnit::Microsecond, None), &[times[0].0, times[1].0], &zone);
    let local: Vec<_> = local.as_primitive::<TimestampMicrosecondType>().iter().collect();
    assert_eq!(local, [Some(500_000), None]);
    let bytes =
        each(DataType::Binary, &[r#""Zg==""#, r#""Zm8=""#, r#""Zm9v+//+""#, r#""""#, r#""Zg""#, r#""Z!==""#], &[]);
    let bytes: Vec<_> = bytes.as_binary::<i32>().iter().collect();
    assert_eq!(bytes, [Some(&b"f"[..]), Some(b"fo"), Some(b"foo\xfb\xff\xfe"), Some(b""), None, None]);
}

#[test]
fn numbers_become_decimals_and_floats() {
    let decimals = ["1.5", "-0.015", "2", "1e3", "99999.994", "99999.995", "\"7\"", "1234567"];
    let found: Vec<_> =
        each(DataType::Decimal128(7, 2), &decimals, &[]).as_primitive::<Decimal128Type>().iter().collect();
    assert_eq!(found, [Some(150), Some(-2), Some(200), Some(100_000), Some(9_999_999), None, Some(700), None]);
    let found = each(DataType::Float32, &["1.1", "16777217", "1e39"], &[]);
    assert_eq!(found.as_primitive::<Float32Type>().values()[..2], [1.1, 16_777_216.0]);
    let found: Vec<_> =
        each(DataType::Int16, &["-32768", "65535", "65536"], &[]).as_primitive::<Int16Type>().iter().collect();
    assert_eq!(found, [Some(-32_768), None, None]);
}

#[test]
fn maps_have_the_entries_of_objects() {
    let entries =
        Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Int32, true)]);
    let map = DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false);
    let found = each(map, &[r#"{"a":1,"b":null,"c\u0041":3}"#, "{}", "null"], &[]);
    let maps = found.as_map();
    let keys: Vec<_> = maps.keys().as_string::<i32>().iter().collect();
    assert_eq!(keys, [Some("a"), Some("b"), Some("cA")]);
    assert_eq!(maps.values().as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
    assert_eq!((maps.value_offsets(), maps.is_null(2)), (&[0, 3, 3, 3][..], true));
}
