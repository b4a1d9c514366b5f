//! The values of Protobuf messages, kind by kind; Python's tests compare them with Google's library.

mod support;

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, DurationMicrosecondArray, Float32Array, Float64Array,
    Int32Array, Int64Array, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Fields};
use record_kernel::{InvalidReason, ProtobufDecoder, ProtobufEncoder};
use support::{children, named};

const LIMIT: usize = 1 << 20;

/// The position at which a message is malformed, and the number of the reason.
type Malformed = (i32, i8);
/// The messages, or the row, node and reason of an invalid value.
type Encoded = Result<Vec<Vec<u8>>, (usize, usize, i32)>;
const REPEATED: i64 = 64;
const IMPLICIT: i64 = 128;

/// Constants: the number 7, a string, a prefix, and names of enums.
const CONSTANTS: [&[u8]; 5] = [b"\x07\0\0\0\0\0\0\0", b"text", b"E_", b"RED", b"BLUE"];

/// Decodes messages by tables.
fn decode(fields: &[DataType], numbers: &[i64], message: &[u8]) -> Result<StructArray, Malformed> {
    let fields: Fields = fields.iter().map(|data_type| named("f", data_type.clone())).collect();
    let constants: Vec<Box<[u8]>> = CONSTANTS.iter().map(|&constant| constant.into()).collect();
    let mut decoder = ProtobufDecoder::new(fields, numbers, &constants, LIMIT).expect("the program is valid");
    let decoded = decoder.decode(&BinaryArray::from(vec![message, message]), None).expect("the messages fit");
    let structs = decoded.values.as_struct();
    assert_eq!(structs.slice(0, 1), structs.slice(1, 1));
    match decoded.malformed {
        Some(malformed) => Err((malformed.positions.value(1), malformed.reasons.keys().value(1))),
        None => Ok(structs.slice(0, 1)),
    }
}

/// Decodes the field 1 of a message, whose kind and flags are given, without enums.
fn value(data_type: &DataType, kind: i64, message: &[u8]) -> Result<ArrayRef, Malformed> {
    let fields = decode(std::slice::from_ref(data_type), &[1, 1, 1, kind, 0, 0, -1, -1, 0], message);
    fields.map(|fields| fields.column(0).clone())
}

fn array<T: Array + 'static>(array: T) -> ArrayRef {
    Arc::new(array)
}

fn int(value: impl Into<Option<i32>>) -> ArrayRef {
    array(Int32Array::from(vec![value.into()]))
}

fn long(value: i64) -> ArrayRef {
    array(Int64Array::from(vec![value]))
}

fn text(value: &str) -> ArrayRef {
    array(StringArray::from(vec![value]))
}

fn uint64(value: i128) -> ArrayRef {
    array(Decimal128Array::from(vec![value]).with_precision_and_scale(20, 0).expect("a valid precision"))
}

#[test]
fn each_kind_reads_its_value() {
    let cases: [(i64, &[u8], ArrayRef); 25] = [
        (0, b"\x08\x01", array(BooleanArray::from(vec![true]))),
        (0, b"\x08\x80\x02", array(BooleanArray::from(vec![true]))),
        (1, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", int(-1)),
        (1, b"\x08\xac\x02", int(300)),
        (2, b"\x08\xff\xff\xff\xff\x0f", long(0xffff_ffff)),
        (2, b"\x08\xff\xff\xff\xff\x0f", int(-1)),
        (3, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", long(-1)),
        (4, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", uint64(i128::from(u64::MAX))),
        (5, b"\x08\x03", int(-2)),
        (5, b"\x08\xff\xff\xff\xff\x0f", int(i32::MIN)),
        (6, b"\x08\x03", long(-2)),
        (6, b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", long(i64::MAX)),
        (7, b"\x0d\xfe\xff\xff\xff", long(0xffff_fffe)),
        (8, b"\x0d\xfe\xff\xff\xff", int(-2)),
        (9, b"\x09\xff\xff\xff\xff\xff\xff\xff\xff", uint64(i128::from(u64::MAX))),
        (10, b"\x09\xfe\xff\xff\xff\xff\xff\xff\xff", long(-2)),
        (11, b"\x0d\x00\x00\xc0\x3f", array(Float32Array::from(vec![1.5]))),
        (12, b"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f", array(Float64Array::from(vec![1.5]))),
        (13, b"\x0a\x02\xc3\xa9", text("é")),
        (14, b"\x0a\x02a\xff", text("a\u{fffd}")),
        (15, b"\x0a\x02a\xff", array(BinaryArray::from(vec![&b"a\xff"[..]]))),
        (1, b"\x08\x01\x08\x02", int(2)),
        (13, b"\x0a\x03abc\x0a\x01d", text("d")),
        (1, b"", int(None)),
        (1, b"\x08\x00", int(0)),
    ];
    for (kind, message, expected) in cases {
        assert_eq!(value(expected.data_type(), kind, message).as_ref(), Ok(&expected), "{kind} {message:?}");
    }
    for (kind, message, data_type) in [
        (1, &b"\x08\x00"[..], DataType::Int32),
        (11, b"\x0d\0\0\0\0", DataType::Float32),
        (12, b"\x09\0\0\0\0\0\0\0\0", DataType::Float64),
        (13, b"\x0a\0", DataType::Utf8),
        (1, b"\x08\x05\x08\x00", DataType::Int32),
    ] {
        let found = value(&data_type, kind | IMPLICIT, message).expect("a valid message");
        assert!(found.is_null(0), "{kind}: zero is the same as none");
    }
    let negative_zero = value(&DataType::Float32, 11 | IMPLICIT, b"\x0d\0\0\0\x80").expect("a valid message");
    assert!(negative_zero.is_valid(0));
}

#[test]
fn fields_without_a_column_are_skipped() {
    for skipped in [
        &b"\x10\xff\x01"[..],
        b"\x11\x08\0\0\0\0\0\0\x08",
        b"\x15\x08\x08\x08\x08",
        b"\x12\x02\x08\x08",
        b"\x13\x08\x63\x13\x14\x14",
        b"\x80\x80\x08\x08", // the number 16384
        b"\xf8\xff\xff\xff\x0f\x08",
    ] {
        let message = [skipped, b"\x08\x2a"].concat();
        assert_eq!(value(&DataType::Int32, 1, &message), Ok(int(42)), "{message:?}");
    }
    // The same number with another wire type is another field.
    assert_eq!(value(&DataType::Int32, 1, b"\x0d\x01\0\0\0"), Ok(int(None)));
    // Larger numbers are searched for.
    let numbers = [1, 3, 1, 1, 0, 0, -1, -1, 300, 1, 1, 0, -1, -1, 20_000, 1, 2, 0, -1, -1, 0];
    let message = b"\xe0\x12\x02\x80\xe2\x09\x03\x08\x01\xe8\x12\x09";
    let found = decode(&[DataType::Int32, DataType::Int32, DataType::Int32], &numbers, message);
    assert_eq!(found.map(|fields| fields.columns().to_vec()), Ok(vec![int(1), int(2), int(3)]));
}

#[test]
fn lists_and_packed_elements() {
    let mut lists = ListBuilder::new(Int64Builder::new()).with_field(named("element", DataType::Int64));
    lists.append_value([Some(1), Some(300), Some(-1), Some(2)]);
    let lists = array(lists.finish());
    let message = b"\x08\x01\x0a\x0c\xac\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x08\x02";
    assert_eq!(value(lists.data_type(), 3 | REPEATED, message), Ok(lists.clone()));
    let empty = value(lists.data_type(), 3 | REPEATED, b"").expect("a valid message");
    assert_eq!((empty.is_valid(0), empty.as_list::<i32>().value(0).len()), (true, 0));
    let fixed = value(lists.data_type(), 10 | REPEATED, b"\x0a\x08\x09\0\0\0\0\0\0\0").expect("a valid message");
    assert_eq!(&fixed.as_list::<i32>().value(0), &long(9));
    assert_eq!(value(lists.data_type(), 3 | REPEATED, b"\x08\x01\x0a\x02\x01\x80"), Err((2, 0)));
}

#[test]
fn the_last_value_of_a_key_counts() {
    // In the second round, the keys come in the same order, in the opposite one, or mixed.
    for (keys, factor) in [(2_i32, 1), (2, -1), (41, 1), (41, -1), (41, 7)] {
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
        let mut message = Vec::new();
        for round in 0..2 {
            for number in 0..keys {
                let key = if round == 0 { number } else { (number * factor).rem_euclid(keys) } as u8;
                message.extend([0x0a, 5, 0x0a, 1, b'0' + key, 0x10, key + 50 * round]);
                if round == 1 {
                    maps.keys().append_value(char::from(b'0' + key).to_string());
                    maps.values().append_value(i64::from(key + 50));
                }
            }
        }
        maps.append(true).expect("as many keys as values");
        let maps = array(maps.finish());
        let numbers = [2, 1, 1, 21 | REPEATED, 0, 1, -1, -1, 2, 1, 13, 1, 0, -1, 1, 2, 3, 2, 0, -1, 0, 0];
        let found = decode(std::slice::from_ref(maps.data_type()), &numbers, &message).expect("a valid message");
        assert_eq!(found.column(0).as_map().value(0), maps.as_map().value(0), "{keys} {factor}");
    }
}

#[test]
fn messages_oneofs_and_defaults() {
    let inner = DataType::Struct(vec![named("a", DataType::Int32), named("b", DataType::Int32)].into());
    let numbers = [2, 2, 1, 17, 0, 1, -1, -1, 2, 13, 3, 0, -1, 1, 2, 1, 1, 1, 0, -1, -1, 2, 1, 2, 0, -1, 0, 0];
    let found = decode(&[inner, DataType::Utf8], &numbers, b"\x0a\x02\x08\x01\x0a\x02\x10\x02").expect("valid");
    let (message, default) = (found.column(0).as_struct(), found.column(1));
    // The parts of a message are merged.
    assert_eq!((message.columns(), default), (&[int(1), int(2)][..], &text("text")));
    let found = decode(&[message.data_type().clone(), DataType::Utf8], &numbers, b"\x0a\x02\x08\x01").expect("valid");
    assert_eq!(found.column(0).as_struct().columns(), [int(1), int(7)]);
    let found = decode(&[message.data_type().clone(), DataType::Utf8], &numbers, b"").expect("valid");
    assert!(found.column(0).is_null(0));
    // Of a oneof, the last member counts.
    let numbers = [1, 3, 1, 1, 0, 0, 5, -1, 2, 1, 1, 0, 5, -1, 3, 1, 2, 0, -1, -1, 0];
    for (message, expected) in [
        (&b"\x08\x01\x18\x03\x10\x02"[..], [None, Some(2), Some(3)]),
        (b"\x10\x02\x08\x01", [Some(1), None, None]),
        (b"\x08\x01\x10\x02\x08\x04", [Some(4), None, None]),
    ] {
        let found = decode(&[DataType::Int32, DataType::Int32, DataType::Int32], &numbers, message);
        assert_eq!(found.map(|fields| fields.columns().to_vec()), Ok(expected.map(int).to_vec()), "{message:?}");
    }
}

/// Names of 1 and 5, or the numbers themselves.
#[test]
fn enums_that_are_closed_or_open() {
    for closed in [0, 1] {
        let numbers = [1, 1, 1, 16, 0, 0, -1, -1, 1, closed, 2, 2, 5, 4, 1, 3];
        for (message, name) in [
            (&b"\x08\x01"[..], Some("RED")),
            (b"\x08\x05", Some("BLUE")),
            (b"\x08\x02", if closed == 1 { None } else { Some("E_2") }),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", if closed == 1 { None } else { Some("E_-1") }),
            // An unknown number is an unknown field.
            (b"\x08\x01\x08\x02", if closed == 1 { Some("RED") } else { Some("E_2") }),
        ] {
            let found = decode(&[DataType::Utf8], &numbers, message).expect("a valid message");
            assert_eq!(found.column(0), &array(StringArray::from(vec![name])), "{closed} {message:?}");
        }
        let found = decode(&[DataType::Int32], &numbers, b"\x08\x02").expect("a valid message");
        assert_eq!(found.column(0), &int((closed == 0).then_some(2)));
    }
}

#[test]
fn well_known_types() {
    let micros = |value: i64| Ok(vec![array(TimestampMicrosecondArray::from(vec![value]).with_timezone("UTC"))]);
    let numbers = [2, 1, 1, 18, 0, 1, -1, -1, 2, 1, 19, 0, 0, -1, -1, 2, 20, 0, 0, -1, -1, 0];
    for (message, expected) in [
        (&b"\x0a\x05\x08\x02\x10\xe8\x07"[..], micros(2_000_001)),
        (b"\x0a\x03\x10\xd0\x0f", micros(2)),
        (b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", micros(-1_000_000)),
        (b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00", Err((2, 6))),
    ] {
        let zone = DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, Some("UTC".into()));
        let found = decode(&[zone], &numbers, message).map(|fields| fields.columns().to_vec());
        assert_eq!(found, expected, "{message:?}");
    }
}

/// The positions are those where a field starts, and the reasons the indexes of their messages.
#[test]
fn malformed_messages_have_a_position_and_a_reason() {
    let cases: [(i64, &[u8], Malformed); 13] = [
        (1, b"\x08", (0, 0)),
        (1, b"\x10\x01\x08\x80", (2, 0)),
        (13, b"\x0a\x03ab", (0, 0)),
        (13, b"\x12\x03ab", (0, 0)),
        (13, b"\x0d\x01\x02\x03", (0, 0)),
        (13, b"\x09\x01\x02\x03", (0, 0)),
        (13, b"\x0b\x10\x01", (0, 0)),
        (1, b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", (0, 1)),
        (1, b"\x00\x01", (0, 2)),
        (1, b"\x0f", (0, 2)),
        (1, b"\x0c", (0, 3)),
        (1, b"\x13\x1b\x14\x1c", (0, 3)), // a group ends in another one
        (13, b"\x0a\x01\xff", (0, 5)),
    ];
    for (kind, message, expected) in cases {
        let data_type = if kind == 13 { DataType::Utf8 } else { DataType::Int32 };
        assert_eq!(value(&data_type, kind, message).err(), Some(expected), "{message:?}");
    }
    for (levels, expected) in [(100, None), (101, Some((0, 4)))] {
        let message = [vec![0x13; levels], vec![0x14; levels]].concat();
        assert_eq!(value(&DataType::Int32, 1, &message).err(), expected, "{levels}");
    }
}

/// Encodes the only child of a struct as field 1; a row is the message.
fn encoded(column: ArrayRef, shape: i64, node: &[i64]) -> Encoded {
    encode(children(vec![column]), &[&[11, 1, 1, shape, -1, 0], node].concat())
}

fn encode(root: StructArray, numbers: &[i64]) -> Encoded {
    let constants = CONSTANTS.map(<[u8]>::to_vec).to_vec();
    let encoder = ProtobufEncoder::new(numbers.to_vec(), constants, b"\x09".to_vec(), LIMIT);
    match encoder.encode(&root).expect("the program fits the column") {
        Ok(rows) => {
            Ok(rows.iter().map(|row| row.expect("a row").strip_prefix(b"\x09").expect("a prefix").to_vec()).collect())
        }
        Err(invalid) => Err((invalid.row, invalid.node, invalid.reason as i32)),
    }
}

#[test]
fn each_operation_writes_its_value() {
    let bytes = |value: &'static [u8]| array(BinaryArray::from(vec![value]));
    let times = |micros: i64| array(TimestampMicrosecondArray::from(vec![micros]));
    let durations = |micros: i64| array(DurationMicrosecondArray::from(vec![micros]));
    let cases: [(ArrayRef, &[i64], &[u8]); 26] = [
        (array(BooleanArray::from(vec![true])), &[0], b"\x08\x01"),
        (int(300), &[1, 0], b"\x08\xac\x02"),
        (int(-1), &[1, 1], b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (int(-1), &[1, 2], b"\x08\xff\xff\xff\xff\x0f"),
        (long(127), &[1, 0], b"\x08\x7f"),
        (long(128), &[1, 2], b"\x08\x80\x01"),
        (uint64(i128::from(u64::MAX)), &[1, 3], b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (int(-2), &[2, 0], b"\x08\x03"),
        (long(i64::MIN), &[2, 0], b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (int(-2), &[3, 0], b"\x0d\xfe\xff\xff\xff"),
        (long(0xffff_fffe), &[3, 2], b"\x0d\xfe\xff\xff\xff"),
        (long(-2), &[4, 0], b"\x09\xfe\xff\xff\xff\xff\xff\xff\xff"),
        (array(Float32Array::from(vec![1.5])), &[5], b"\x0d\x00\x00\xc0\x3f"),
        (array(Float64Array::from(vec![1.5])), &[6], b"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"),
        (bytes(b"ab"), &[7], b"\x0a\x02ab"),
        (bytes(b"a\xff"), &[8], b"\x0a\x02a\xff"),
        (bytes(b"BLUE"), &[9, -1, 2, 5, 4, 1, 3], b"\x08\x05"),
        (bytes(b"E_7"), &[9, 2, 1, 5, 4], b"\x08\x07"),
        (int(5), &[10, 1, 5], b"\x08\x05"),
        (int(9), &[10, -1], b"\x08\x09"),
        (long(3), &[12, 1, 0], b"\x0a\x02\x08\x03"),
        (long(0), &[12, 1, 0], b"\x0a\x00"),
        (times(-1), &[13, 0], b"\x0a\x11\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x98\x8c\xeb\xdc\x03"),
        (times(2_000_001), &[13, 0], b"\x0a\x05\x08\x02\x10\xe8\x07"),
        (durations(-1), &[13, 1], b"\x0a\x0b\x10\x98\xf8\xff\xff\xff\xff\xff\xff\xff\x01"),
        (times(0), &[13, 0], b"\x0a\x00"),
    ];
    for (column, node, expected) in cases {
        assert_eq!(encoded(column, 0, node), Ok(vec![expected.to_vec()]), "{node:?}");
    }
}

#[test]
fn each_shape_decides_what_is_written() {
    let column = || array(Int32Array::from(vec![Some(0), None, Some(5)]));
    let rows = |rows: [&[u8]; 3]| Ok(rows.map(<[u8]>::to_vec).to_vec());
    assert_eq!(encoded(column(), 0, &[1, 0]), rows([b"\x08\x00", b"", b"\x08\x05"]));
    assert_eq!(encoded(column(), 1, &[1, 0]), rows([b"", b"", b"\x08\x05"]));
    assert_eq!(encoded(column(), 2, &[1, 0]), Err((1, 1, InvalidReason::Null as i32)));
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(1), Some(300)]);
    lists.append_value([]);
    lists.append_null();
    let lists = array(lists.finish());
    assert_eq!(encoded(lists.clone(), 3, &[1, 0]), rows([b"\x08\x01\x08\xac\x02", b"", b""]));
    assert_eq!(encoded(lists, 4, &[1, 0]), rows([b"\x0a\x03\x01\xac\x02", b"", b""]));
    let mut maps = MapBuilder::new(None, BinaryBuilder::new(), Int64Builder::new());
    maps.keys().append_value("k");
    maps.values().append_value(2);
    maps.append(true).expect("as many keys as values");
    assert_eq!(encoded(array(maps.finish()), 5, &[7, 1, 0]), Ok(vec![b"\x0a\x05\x0a\x01k\x10\x02".to_vec()]));
    // Lengths of more than one byte move what was written.
    for length in [127, 128, 20_000] {
        let text = vec![b'x'; length];
        let inner = array(children(vec![array(BinaryArray::from(vec![&text[..]]))]));
        let mut message = vec![0x0a];
        let varint = |length: usize, out: &mut Vec<u8>| support::unsigned_varint(out, length as u64);
        let mut field = vec![0x12];
        varint(length, &mut field);
        varint(field.len() + length, &mut message);
        let found = encoded(inner, 0, &[11, 1, 2, 0, -1, 0, 8]);
        assert_eq!(found, Ok(vec![[message, field, text].concat()]), "{length}");
    }
}

#[test]
fn values_that_the_type_does_not_allow() {
    let bytes = |value: &'static [u8]| array(BinaryArray::from(vec![value]));
    let cases: [(ArrayRef, &[i64], InvalidReason); 8] = [
        (long(1 << 31), &[1, 1], InvalidReason::Range),
        (long(-1), &[1, 2], InvalidReason::Range),
        (uint64(-1), &[1, 3], InvalidReason::Range),
        (bytes(b"\xff"), &[7], InvalidReason::Text),
        (bytes(b"E_07"), &[9, 2, 1, 5, 4], InvalidReason::Symbol),
        (bytes(b"E_7"), &[9, -1, 1, 5, 4], InvalidReason::Symbol),
        (int(9), &[10, 1, 5], InvalidReason::Symbol),
        (array(TimestampMicrosecondArray::from(vec![i64::MAX])), &[13, 0], InvalidReason::Range),
    ];
    for (column, node, reason) in cases {
        assert_eq!(encoded(column, 0, node), Err((0, 1, reason as i32)), "{node:?}");
    }
    let members = children(vec![
        array(Int32Array::from(vec![Some(1), None, Some(1)])),
        array(Int32Array::from(vec![None, Some(2), Some(2)])),
    ]);
    let oneof = [11, 2, 1, 0, 4, 0, 1, 0, 2, 0, 4, 1, 1, 0];
    assert_eq!(encode(members.slice(0, 2), &oneof), Ok(vec![b"\x08\x01".to_vec(), b"\x10\x02".to_vec()]));
    assert_eq!(encode(members, &oneof), Err((2, 1, InvalidReason::Members as i32)));
}

#[test]
fn values_start_behind_their_header() {
    let fields = Fields::from(vec![named("f", DataType::Int32)]);
    let numbers = [1, 1, 1, 1, 0, 0, -1, -1, 0];
    let mut decoder = ProtobufDecoder::new(fields.clone(), &numbers, &[], LIMIT).expect("the program is valid");
    let values = BinaryArray::from(vec![&b"\x08\x01"[..], b"\x00\x00\x08\x02", b"\x08\x03", b"\x08\x04"]);
    let starts = Int32Array::from(vec![Some(0), Some(2), None, Some(9)]);
    let decoded = decoder.decode(&values, Some(&starts)).expect("the values fit");
    let expected = Int32Array::from(vec![Some(1), Some(2), None, None]);
    assert_eq!(decoded.values.as_struct().column(0), &array(expected));
    assert!(decoded.malformed.is_none());
    assert!(decoder.decode(&values, Some(&starts.slice(0, 2))).is_err());
    // A message is in a table behind its own, and there is such a table.
    let inner = DataType::Struct(fields);
    for argument in [0, 1, 2] {
        let numbers = [2, 1, 1, 17, 0, argument, -1, -1, 0, 0];
        let fields = Fields::from(vec![named("f", inner.clone())]);
        assert_eq!(ProtobufDecoder::new(fields, &numbers, &[], LIMIT).is_ok(), argument == 1, "{argument}");
    }
}

#[test]
fn a_wrapper_without_a_value_has_its_default() {
    let numbers = [2, 1, 1, 18, 0, 1, -1, -1, 1, 1, 1, 0, 0, -1, 0, 0];
    for (message, expected) in [(&b"\x0a\x00"[..], Some(7)), (b"\x0a\x02\x08\x03", Some(3)), (b"", None)] {
        let found = decode(&[DataType::Int32], &numbers, message).expect("a valid message");
        assert_eq!(found.column(0), &int(expected), "{message:?}");
    }
}
