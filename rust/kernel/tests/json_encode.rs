//! Columns as JSON; Python's tests compare it with Spark's `to_json`.

mod support;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Date32Builder, Int32Builder, ListBuilder, MapBuilder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use record_kernel::{UtcOffsets, encode_json};
use support::named;

fn array<T: Array + 'static>(array: T) -> ArrayRef {
    Arc::new(array)
}

fn json(values: &dyn Array, data_type: &DataType, zones: &UtcOffsets) -> Vec<String> {
    let rows = encode_json(values, data_type, zones).expect("the type is supported");
    rows.iter().map(|row| String::from_utf8(row.unwrap_or(b"(null)").to_vec()).expect("UTF-8")).collect()
}

/// Each value in a list of its own.
fn each(values: ArrayRef, data_type: DataType) -> Vec<String> {
    let field = named("f", data_type);
    let structs = StructArray::from(vec![(named("f", values.data_type().clone()), values)]);
    let rows = json(&structs, &DataType::Struct(vec![field].into()), &HashMap::new());
    let value =
        |row: &String| row.strip_prefix("{\"f\":").and_then(|row| row.strip_suffix('}')).unwrap_or(row).to_owned();
    rows.iter().map(value).collect()
}

#[test]
fn numbers_are_written_as_in_java() {
    let integers = |values: ArrayRef| each(values.clone(), values.data_type().clone());
    assert_eq!(integers(array(Int8Array::from(vec![0, -128, 9]))), ["0", "-128", "9"]);
    assert_eq!(integers(array(Int16Array::from(vec![10, -100]))), ["10", "-100"]);
    assert_eq!(integers(array(Int32Array::from(vec![i32::MIN, 99]))), ["-2147483648", "99"]);
    let longs = ["-9223372036854775808", "9223372036854775807", "1000000"];
    assert_eq!(integers(array(Int64Array::from(vec![i64::MIN, i64::MAX, 1_000_000]))), longs);
    assert_eq!(integers(array(BooleanArray::from(vec![Some(true), Some(false), None]))), ["true", "false", "{}"]);
    for (value, expected) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (100.0, "100.0"),
        (123_456.789, "123456.789"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.25e22, "1.25E22"),
        (0.001, "0.001"),
        (0.0125, "0.0125"),
        (0.00099, "9.9E-4"),
        (1e-300, "1.0E-300"),
        (0.1 + 0.2, "0.30000000000000004"),
        (2e-323, "2.0E-323"),
        (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
        (4.9e-324, "4.9E-324"),
        (f64::MAX, "1.7976931348623157E308"),
        (f64::NAN, "\"NaN\""),
        (f64::INFINITY, "\"Infinity\""),
        (f64::NEG_INFINITY, "\"-Infinity\""),
    ] {
        assert_eq!(integers(array(Float64Array::from(vec![value]))), [expected]);
    }
    for (value, expected) in [(1.1f32, "1.1"), (16_777_216.0, "1.6777216E7"), (1.4e-45, "1.4E-45"), (-0.0, "-0.0")] {
        assert_eq!(integers(array(Float32Array::from(vec![value]))), [expected]);
    }
    for (unscaled, scale, expected) in [
        (0, 0, "0"),
        (-120, 0, "-120"),
        (12_345, 2, "123.45"),
        (-5, 2, "-0.05"),
        (5, 3, "0.005"),
        (1, 6, "0.000001"),
        (0, 2, "0.00"),
        (1, 7, "1E-7"),
        (12, 8, "1.2E-7"),
        (-12, -3, "-1.2E+4"),
    ] {
        let decimals =
            Decimal128Array::from(vec![unscaled]).with_precision_and_scale(20, scale).expect("a valid scale");
        assert_eq!(integers(array(decimals)), [expected]);
    }
}

#[test]
fn strings_are_escaped_and_bytes_are_base64() {
    for (value, expected) in [
        (&b""[..], r#""""#),
        (b"plain ~", r#""plain ~""#),
        (b"\"\\/", r#""\"\\/""#),
        (b"\x08\t\n\x0c\r", r#""\b\t\n\f\r""#),
        (b"\x00\x1f\x7f", "\"\\u0000\\u001F\u{7f}\""),
        ("é\u{1f600}".as_bytes(), "\"é\u{1f600}\""),
        (b"a\xffb", "\"a\u{fffd}b\""),
    ] {
        assert_eq!(each(array(BinaryArray::from(vec![value])), DataType::Utf8), [expected]);
    }
    for (value, expected) in [
        (&b""[..], r#""""#),
        (b"f", r#""Zg==""#),
        (b"fo", r#""Zm8=""#),
        (b"foo", r#""Zm9v""#),
        (b"\xfb\xff\xfe\x00", r#""+//+AA==""#),
    ] {
        assert_eq!(each(array(BinaryArray::from(vec![value])), DataType::Binary), [expected]);
    }
}

#[test]
fn dates_and_times() {
    let dates = [(0, "1970-01-01"), (-1, "1969-12-31"), (11_016, "2000-02-29"), (11_017, "2000-03-01")];
    let more =
        [(-719_528, "0000-01-01"), (-719_529, "-0001-12-31"), (2_932_896, "9999-12-31"), (2_932_897, "+10000-01-01")];
    for (days, expected) in dates.into_iter().chain(more).chain([(47_540, "2100-02-28"), (47_541, "2100-03-01")]) {
        assert_eq!(each(array(Date32Array::from(vec![days])), DataType::Date32), [format!("\"{expected}\"")]);
    }
    // UTC+1 until 1970-01-02, then UTC-02:30:15; the table ends after 400 years and is then repeated.
    let end = 146_097 * 86_400;
    let zones = HashMap::from([
        ("UTC".to_owned(), vec![(0, 0)]),
        ("A/B".to_owned(), vec![(0, 3600), (86_400, -9015), (end, -9015)]),
    ]);
    for (zone, micros, expected) in [
        (None, 1_700_000_000_123_999, "2023-11-14T22:13:20.123"),
        (None, -1, "1969-12-31T23:59:59.999"),
        (Some("UTC"), 45_000, "1970-01-01T00:00:00.045Z"),
        (Some("A/B"), 0, "1970-01-01T01:00:00.000+01:00"),
        (Some("A/B"), 86_399_999_999, "1970-01-02T00:59:59.999+01:00"),
        (Some("A/B"), 86_400_000_000, "1970-01-01T21:29:45.000-02:30:15"),
        (Some("A/B"), (end + 10) * 1_000_000, "2370-01-01T01:00:10.000+01:00"),
    ] {
        let values = TimestampMicrosecondArray::from(vec![micros]).with_timezone_opt(zone);
        let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        let field = Field::new("element", data_type.clone(), true);
        let list = arrow_array::ListArray::new(
            Arc::new(field.clone()),
            arrow_buffer::OffsetBuffer::from_lengths([1]),
            Arc::new(values),
            None,
        );
        assert_eq!(json(&list, &DataType::List(Arc::new(field)), &zones), [format!("[\"{expected}\"]")]);
    }
}

#[test]
fn nested_values() {
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value([Some(1), None, Some(-2)]);
    lists.append_value([]);
    lists.append_null();
    let lists = lists.finish();
    assert_eq!(json(&lists, lists.data_type(), &HashMap::new()), ["[1,null,-2]", "[]", "(null)"]);
    assert_eq!(json(&lists.slice(1, 1), lists.data_type(), &HashMap::new()), ["[]"]);
    let mut maps = MapBuilder::new(None, Date32Builder::new(), Int32Builder::new());
    for (key, value) in [(3, Some(1)), (4, None)] {
        maps.keys().append_value(key);
        maps.values().append_option(value);
    }
    maps.append(true).expect("as many keys as values");
    let maps = maps.finish();
    assert_eq!(json(&maps, maps.data_type(), &HashMap::new()), [r#"{"3":1,"4":null}"#]);
    let written = HashMap::from([("writes_nulls".to_owned(), "true".to_owned())]);
    let fields = Fields::from(vec![
        Field::new("a\"", DataType::Int32, true),
        Field::new("b", DataType::Int32, true).with_metadata(written),
        Field::new("c", DataType::Int32, true),
    ]);
    let column = |values: [Option<i32>; 2]| array(Int32Array::from(values.to_vec()));
    let columns = vec![column([Some(1), None]), column([None, None]), column([Some(3), None])];
    let structs = StructArray::new(fields, columns, None);
    assert_eq!(json(&structs, structs.data_type(), &HashMap::new()), [r#"{"a\"":1,"b":null,"c":3}"#, r#"{"b":null}"#]);
}
