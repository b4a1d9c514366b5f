//! The values of Avro datums, operation by operation; Python's tests compare them with other libraries.

mod support;

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Fields};
use record_kernel::{AvroDecoder, AvroEncoder, InvalidReason};
use support::{children, named};

const LIMIT: usize = 1 << 20;

/// The position at which a datum is malformed, and the number of the reason.
type Malformed = (i32, i8);
/// The rows, or the row, node and reason of an invalid value.
type Encoded = Result<Vec<Option<Vec<u8>>>, (usize, usize, i32)>;

/// Decodes one datum to the fields of a struct.
fn decode(fields: &[DataType], numbers: &[i64], constants: &[&[u8]], datum: &[u8]) -> Result<StructArray, Malformed> {
    let fields: Fields = fields.iter().map(|data_type| Field::new("f", data_type.clone(), true)).collect();
    let mut decoder = AvroDecoder::new(fields, LIMIT).expect("the fields are supported");
    let constants: Vec<Box<[u8]>> = constants.iter().map(|&constant| constant.into()).collect();
    decoder.add_program(numbers, &constants).expect("the program is valid");
    // The same datum last and between others: values are first read without a check of the datum's end.
    let decoded = decoder.decode(&BinaryArray::from(vec![datum, datum]), None, None).expect("the values fit");
    let structs = decoded.values.as_struct();
    assert_eq!(structs.slice(0, 1), structs.slice(1, 1));
    match decoded.malformed {
        Some(malformed) => Err((malformed.positions.value(1), malformed.reasons.keys().value(1))),
        None => Ok(structs.slice(0, 1)),
    }
}

fn value(data_type: &DataType, numbers: &[i64], constants: &[&[u8]], datum: &[u8]) -> Result<ArrayRef, Malformed> {
    decode(std::slice::from_ref(data_type), numbers, constants, datum).map(|structs| structs.column(0).clone())
}

fn array<T: Array + 'static>(array: T) -> ArrayRef {
    Arc::new(array)
}

#[test]
fn each_operation_reads_its_value() {
    let decimal = |value: i128| {
        array(Decimal128Array::from(vec![value]).with_precision_and_scale(9, 2).expect("a valid precision"))
    };
    let time = |micros: i64| array(TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC"));
    let text = |value: &str| array(StringArray::from(vec![value]));
    let double = |value: f64| array(Float64Array::from(vec![value]));
    let float = |value: f32| array(Float32Array::from(vec![value]));
    let cases: [(&[i64], &[u8], ArrayRef); 28] = [
        (&[6, 0], b"\x01", array(BooleanArray::from(vec![true]))),
        (&[7, 0], b"\x01", array(Int32Array::from(vec![-1]))),
        (&[7, 0], b"\xfe\xff\xff\xff\x0f", array(Int32Array::from(vec![i32::MAX]))),
        (&[7, 0], b"\xff\xff\xff\xff\x0f", array(Int32Array::from(vec![i32::MIN]))),
        (&[8, 0], b"\xac\x02", array(Int64Array::from(vec![150]))),
        (&[8, 0], b"\xad\x82\x04", array(Int64Array::from(vec![-32_919]))),
        (&[8, 0], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", array(Int64Array::from(vec![i64::MIN]))),
        (&[9, 0], b"\x03", array(Int64Array::from(vec![-2]))),
        (&[10, 0], b"\x03", float(-2.0)),
        (&[11, 0], b"\x03", double(-2.0)),
        (&[12, 0], b"\x80\x01", float(64.0)),
        (&[13, 0], b"\x80\x01", double(64.0)),
        (&[14, 0], &1.1f32.to_le_bytes(), float(1.1)),
        (&[15, 0], &1.5f32.to_le_bytes(), double(1.5)),
        (&[16, 0], &1.1f64.to_le_bytes(), double(1.1)),
        (&[17, 0], b"\x06abc", text("abc")),
        (&[18, 0, 2], b"ab", text("ab")),
        (&[19, 0], b"\x03", time(-2000)),
        (&[8, 0], b"\x03", time(-2)),
        (&[20, 0], b"\x04\xff\x00", decimal(-256)),
        (&[20, 0], b"\x04\x00\xff", decimal(255)),
        (&[21, 0, 3], b"\x00\x01\x02", decimal(258)),
        (&[22, 0, 2, 1, 0], b"\x02", text("RED")),
        (&[24, 2, 17, 0], b"\x02a", text("a")),
        (&[25, 2, 1, 34, 2, 17, 0], b"\x02\x02a", text("a")),
        (&[27, 0, -7], b"", array(Int64Array::from(vec![-7]))),
        (&[28, 0, 2], b"", double(2.5)),
        (&[29, 0, 1], b"", text("BLUE")),
    ];
    for (numbers, datum, expected) in cases {
        let constants: [&[u8]; 3] = [b"RED", b"BLUE", &2.5f64.to_le_bytes()];
        let constants = if numbers[0] == 22 { [constants[0], constants[1], constants[2]] } else { constants };
        let found = value(expected.data_type(), numbers, &constants, datum);
        let expected = if numbers[0] == 22 { text("RED") } else { expected };
        assert_eq!(found.as_ref(), Ok(&expected), "{numbers:?}");
    }
}

/// Each is skipped, and the value behind it is read.
#[test]
fn skipped_values_end_where_they_end() {
    let skipped: [(&[i64], &[u8]); 9] = [
        (&[0], b"\xff\xff\x03"),
        (&[1, 3], b"abc"),
        (&[2], b"\x04ab"),
        (&[3], b"\x01"),
        (&[4, 3], b"\x04"),
        (&[5, 1, 1, 0], b"\x04\x80\x01\x02\x02\x08\x00"),
        (&[5, 1, 1, 0], b"\x03\x06\x80\x01\x02\x00"),
        (&[256], b"\x00"),
        (&[258], b"\x02\x02a"),
    ];
    for (numbers, datum) in skipped {
        let (numbers, datum) = ([numbers, &[7, 0]].concat(), [datum, b"\x54"].concat());
        let found = value(&DataType::Int32, &numbers, &[], &datum);
        assert_eq!(found, Ok(array(Int32Array::from(vec![42]))), "{numbers:?}");
    }
    let last = value(&DataType::Int32, &[7, 0, 1, 3], &[], b"\x54abc");
    assert_eq!(last, Ok(array(Int32Array::from(vec![42]))), "a value of fixed size at the end of the datum");
}

#[test]
fn null_is_the_first_or_the_last_branch() {
    let some = |value| Ok(array(Int32Array::from(vec![value])));
    for (numbers, datum, expected) in [
        (&[256 + 7, 0], &b"\x00"[..], some(None)),
        (&[256 + 7, 0], b"\x02\x08", some(Some(4))),
        (&[512 + 7, 0], b"\x02", some(None)),
        (&[512 + 7, 0], b"\x00\x08", some(Some(4))),
        (&[256 + 7, 0], b"\x04\x08", Err((0, 5))),
        (&[512 + 7, 0], b"\x01\x08", Err((0, 5))),
    ] {
        assert_eq!(value(&DataType::Int32, numbers, &[], datum), expected, "{numbers:?} {datum:?}");
    }
    for null in 0..3 {
        let mut numbers = vec![25, 3];
        (0..3).for_each(|branch| numbers.extend(if branch == null { &[0][..] } else { &[2, 7, 0] }));
        for branch in 0..3u8 {
            let datum = if branch == null { vec![2 * branch] } else { vec![2 * branch, 8] };
            assert_eq!(value(&DataType::Int32, &numbers, &[], &datum), some((branch != null).then_some(4)));
        }
        assert_eq!(value(&DataType::Int32, &numbers, &[], b"\x06\x08"), Err((0, 5)));
    }
}

#[test]
fn arrays_maps_and_records() {
    let mut lists = ListBuilder::new(Int64Builder::new()).with_field(Field::new("element", DataType::Int64, true));
    lists.append_value([Some(1), None, Some(-3), Some(2)]);
    let lists = array(lists.finish());
    // A block of two, one of one with its size, and one of one.
    let datum = b"\x04\x02\x02\x00\x01\x04\x02\x05\x02\x02\x04\x00";
    assert_eq!(value(lists.data_type(), &[23, 0, 1, 2, 256 + 8, 1], &[], datum), Ok(lists.clone()));
    let found = value(lists.data_type(), &[30, 0, 2, 3, 27, 1, 5, 0], &[], b"").expect("a valid datum");
    assert_eq!(&found.as_list::<i32>().value(0), &array(Int64Array::from(vec![Some(5), None])));
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for (key, value) in [("a", 1), ("bc", -1)] {
        maps.keys().append_value(key);
        maps.values().append_value(value);
    }
    maps.append(true).expect("as many keys as values");
    let maps = array(maps.finish());
    let datum = b"\x04\x02a\x02\x04bc\x01\x00";
    let found = value(maps.data_type(), &[23, 0, 2, 4, 17, 1, 8, 2], &[], datum).expect("a valid datum");
    assert_eq!(found.as_map().value(0), maps.as_map().value(0));
    let record = DataType::Struct(vec![Field::new("a", DataType::Int32, true)].into());
    let found = decode(&[record, DataType::Int64], &[256 + 24, 4, 26, 0, 7, 1, 8, 2], &[], b"\x02\x02\x08");
    let found = found.expect("a valid datum");
    assert_eq!(found.column(0).as_struct().column(0), &array(Int32Array::from(vec![1])));
    assert_eq!(found.column(1), &array(Int64Array::from(vec![4])));
}

/// The positions are those where a value starts, and the reasons the indexes of their messages.
#[test]
fn malformed_datums_have_a_position_and_a_reason() {
    let cases: [(&[i64], &[u8], Malformed); 18] = [
        (&[7, 0], b"\x80", (0, 0)),
        (&[7, 0], b"", (0, 0)),
        (&[0, 17, 0], b"\x02\x06ab", (1, 0)),
        (&[0, 18, 0, 3], b"\x02ab", (1, 0)),
        (&[0, 16, 0], b"\x02\0\0\0\0\0\0\0", (1, 0)),
        (&[0, 14, 0], b"\x02\0\0\0", (1, 0)),
        (&[1, 3], b"ab", (0, 0)),
        (&[7, 0], b"\x02\x02", (1, 1)),
        (&[7, 0], b"\x80\x80\x80\x80\x10", (0, 2)),
        (&[8, 0], b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", (0, 2)),
        (&[0, 6, 0], b"\x02\x02", (1, 3)),
        (&[17, 0], b"\x01", (0, 4)),
        (&[5, 2, 1, 0], b"\x06\x02\x02\x02\x00", (0, 6)),
        (&[22, 0, 1, -1], b"\x00", (0, 7)),
        (&[4, 3], b"\x06", (0, 7)),
        (&[19, 0], b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", (0, 8)),
        (&[20, 0], b"\x0a\x7f\0\0\0\0", (0, 8)),
        (&[25, 1, 2, 31, 10], b"\x00", (1, 10)),
    ];
    let column = |numbers: &[i64]| match numbers[numbers.len() - 2..] {
        [6, _] => DataType::Boolean,
        [8, _] => DataType::Int64,
        [14, _] => DataType::Float32,
        [16, _] => DataType::Float64,
        [20, _] => DataType::Decimal128(9, 2),
        [17, _] | [_, 3] | [1, -1] => DataType::Utf8,
        [19, _] => DataType::Int64,
        _ => DataType::Int32,
    };
    for (numbers, datum, expected) in cases {
        assert_eq!(value(&column(numbers), numbers, &[], datum).err(), Some(expected), "{numbers:?} {datum:?}");
    }
}

/// Encodes a column by the numbers of its node; rows are bytes.
fn encoded(values: ArrayRef, numbers: &[i64], constants: &[&[u8]]) -> Encoded {
    let constants = constants.iter().map(|constant| constant.to_vec()).collect();
    let encoder = AvroEncoder::new(numbers.to_vec(), constants, b"\x09".to_vec(), LIMIT);
    match encoder.encode(&values).expect("the program fits the column") {
        Ok(rows) => {
            Ok(rows.iter().map(|row| row.map(|row| row.strip_prefix(b"\x09").expect("a prefix").to_vec())).collect())
        }
        Err(invalid) => Err((invalid.row, invalid.node, invalid.reason as i32)),
    }
}

#[test]
fn each_operation_writes_its_value() {
    let decimals = |value: i128| array(Decimal128Array::from(vec![value]));
    let bytes = |value: &'static [u8]| array(BinaryArray::from(vec![value]));
    let times = |micros: i64| array(TimestampMicrosecondArray::from(vec![micros]));
    let cases: [(ArrayRef, &[i64], &[u8]); 30] = [
        (array(BooleanArray::from(vec![true])), &[1], b"\x01"),
        (array(BooleanArray::from(vec![false])), &[1], b"\x00"),
        (array(Int8Array::from(vec![-1])), &[2], b"\x01"),
        (array(Int16Array::from(vec![300])), &[2], b"\xd8\x04"),
        (array(Int32Array::from(vec![i32::MIN])), &[2], b"\xff\xff\xff\xff\x0f"),
        (array(Int64Array::from(vec![i64::MAX])), &[2], b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (array(Date32Array::from(vec![63])), &[2], b"\x7e"),
        (array(Int32Array::from(vec![64])), &[2], b"\x80\x01"),
        (times(-2), &[2], b"\x03"),
        (times(-1), &[3], b"\x01"),
        (times(2999), &[3], b"\x04"),
        (array(Float32Array::from(vec![1.1])), &[4], &1.1f32.to_le_bytes()),
        (array(Float32Array::from(vec![1.5])), &[5], &1.5f64.to_le_bytes()),
        (array(Float64Array::from(vec![1.1])), &[5], &1.1f64.to_le_bytes()),
        (bytes(b"abc"), &[6], b"\x06abc"),
        (bytes(b"ab"), &[7, 2], b"ab"),
        (decimals(0), &[8], b"\x02\x00"),
        (decimals(127), &[8], b"\x02\x7f"),
        (decimals(128), &[8], b"\x04\x00\x80"),
        (decimals(-128), &[8], b"\x02\x80"),
        (decimals(-129), &[8], b"\x04\xff\x7f"),
        (decimals(-2), &[9, 3], b"\xff\xff\xfe"),
        (decimals(258), &[9, 3], b"\x00\x01\x02"),
        (decimals(-1), &[9, 18], &[0xff; 18]),
        (bytes(b"A"), &[10, 2, 1, 0], b"\x02"),
        (bytes(b"B"), &[10, 2, 1, 0], b"\x00"),
        (array(Int32Array::from(vec![None])), &[2, 1, 0], b"\x02"),
        (array(Int32Array::from(vec![5])), &[2, 1, 0], b"\x00\x0a"),
        (array(Int32Array::from(vec![5])), &[2, 0, 3], b"\x06\x0a"),
        (array(Int32Array::from(vec![5])), &[0, 4, -1], b""),
    ];
    for (column, node, expected) in cases {
        // A node is its operation, its branches (of its own, or none), and its arguments.
        let has_branches = matches!(node, [0 | 2, _, _]);
        let node = if has_branches { node.to_vec() } else { [&node[..1], &[-1, -1], &node[1..]].concat() };
        let root = array(StructArray::from(vec![(named("f", column.data_type().clone()), column)]));
        let found = encoded(root, &[&[13, -1, -1, 2, 0][..], &node, &[-1, 0]].concat(), &[b"A", b"B"]);
        assert_eq!(found, Ok(vec![Some([expected, b"A"].concat())]), "{node:?}");
    }
}

#[test]
fn nested_values_are_written() {
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(1), None]);
    lists.append_value([]);
    lists.append_null();
    let found = encoded(array(lists.finish()), &[11, -1, -1, 2, 0, 1], &[]);
    assert_eq!(found, Ok(vec![Some(b"\x04\x02\x02\x00\x00".to_vec()), Some(b"\0".to_vec()), None]));
    let mut maps = MapBuilder::new(None, arrow_array::builder::BinaryBuilder::new(), Int64Builder::new());
    maps.keys().append_value("ab");
    maps.values().append_value(-1);
    maps.append(true).expect("as many keys as values");
    assert_eq!(
        encoded(array(maps.finish()), &[12, -1, -1, 2, -1, -1], &[]),
        Ok(vec![Some(b"\x02\x04ab\x01\0".to_vec())])
    );
    let members = children(vec![
        array(Int64Array::from(vec![Some(1), None, None, Some(1)])),
        array(Int32Array::from(vec![None, Some(2), None, Some(2)])),
    ]);
    let union = [14, 0, 9, 2, 0, 2, -1, 1, 1, 2, -1, 2];
    let rows = [&b"\x02\x02"[..], b"\x04\x04", b"\x00"].map(|row| Some(row.to_vec())).to_vec();
    assert_eq!(encoded(array(members.slice(0, 3)), &union, &[]), Ok(rows));
    assert_eq!(encoded(array(members), &union, &[]), Err((3, 0, InvalidReason::Members as i32)));
}

#[test]
fn values_that_the_schema_does_not_allow() {
    let cases: [(ArrayRef, &[i64], InvalidReason); 5] = [
        (array(Int32Array::from(vec![Some(1), None])), &[2, -1, -1], InvalidReason::Null),
        (array(BinaryArray::from(vec![&b"RED"[..], b"x"])), &[10, -1, -1, 1, 0], InvalidReason::Symbol),
        (array(BinaryArray::from(vec![&b"ab"[..], b"x"])), &[7, -1, -1, 2], InvalidReason::Size),
        (array(Decimal128Array::from(vec![127, 128])), &[9, -1, -1, 1], InvalidReason::Size),
        (array(BinaryArray::from(vec![&[0; 9][..], &[0; LIMIT]])), &[6, -1, -1], InvalidReason::Limit),
    ];
    for (column, node, reason) in cases {
        let root = array(children(vec![column]));
        let found = encoded(root, &[&[13, -1, -1, 1, 0][..], node].concat(), &[b"RED"]);
        let node = if reason == InvalidReason::Limit { 0 } else { 1 };
        assert_eq!(found, Err((1, node, reason as i32)));
    }
}
