"""Single messages and the Protobuf decoder: what the types, flags and limits of a program do."""

from __future__ import annotations

import datetime
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.payloads.protobuf_data import ALL_TYPES, PROTO2, as_integers, decode, malformed, message_class
from tests.unit.payloads.random_messages import field, group, varint
from tests.unit.payloads.test_protobuf_decoders import EVERYTHING, LEGACY
from tests.unit.payloads.test_protobuf_encoders import encode

from pyspark_kafka_direct.payloads.protobuf.program import make_program
from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchemaError
from pyspark_kafka_direct.payloads.protobuf.schema import parse_protobuf_schema

VALUES_BY_NUMBER = pa.map_(pa.int32(), pa.struct({"numbers": pa.list_(pa.int32())}))


def one(data: bytes, *wanted: pa.Field, text: str = ALL_TYPES, **options: Any) -> Any:
    """Return the fields of a message."""
    decoded = decode(text, [data], list(wanted), **options)
    assert decoded.malformed is None
    values = [decoded.values.field(index).to_pylist()[0] for index in range(len(wanted))]
    return values[0] if len(values) == 1 else values


def test_other_types_may_be_wanted() -> None:
    message = EVERYTHING(a_uint32=2**32 - 1, a_uint64=2**64 - 1, a_fixed64=2**63, a_color=77, an_int32=-1)
    message.a_wrapped.value = 0
    message.wrapped_strings.add()
    message.wrapped_strings.add(value="x")
    data = message.SerializeToString()
    assert one(data, pa.field("a_uint32", pa.int64())) == 2**32 - 1
    assert one(data, pa.field("a_uint64", pa.decimal128(20))) == Decimal(2**64 - 1)
    assert one(data, pa.field("a_fixed64", pa.decimal128(20))) == Decimal(2**63)
    assert one(data, pa.field("a_color", pa.int32())) == 77
    assert one(data, pa.field("a_color", pa.string())) == "UNKNOWN_ENUM_VALUE_Color_77"
    assert one(data, pa.field("an_int32", pa.int64())) == -1
    assert one(data, pa.field("a_wrapped", pa.int64())) == 0
    assert one(data, pa.field("wrapped_strings", pa.list_(pa.string()))) == ["", "x"]
    assert one(data, pa.field("lacking", pa.int64())) is None


def test_missing_numbers_are_null_or_zero() -> None:
    wanted = [pa.field("an_int32", pa.int32()), pa.field("a_string", pa.string()), pa.field("an_optional", pa.int32())]
    zero = field(2, 0, b"\0") + field(14, 2, b"") + field(18, 0, b"\0")
    assert one(b"", *wanted) == [None, None, None]
    assert one(zero, *wanted) == [None, None, 0]
    assert one(b"", *wanted, emits_defaults=True) == [0, "", None]
    assert one(zero, *wanted, emits_defaults=True) == [0, "", 0]
    assert one(field(2, 0, b"\5") + field(2, 0, b"\0"), wanted[0]) is None


def test_defaults_of_proto2() -> None:
    wanted = [
        pa.field("name", pa.string()),
        pa.field("level", pa.string()),
        pa.field("ratio", pa.float64()),
        pa.field("flag", pa.bool_()),
        pa.field("data", pa.binary()),
        pa.field("infinite", pa.float32()),
    ]
    assert one(b"", *wanted, text=PROTO2) == ["nobody", "HIGH", -1500.0, True, b"\1\xffa", float("inf")]
    assert one(field(3, 0, b"\x63"), wanted[1], text=PROTO2) == "HIGH"  # an unknown number of a closed enum
    levels = pa.field("levels", pa.list_(pa.string()))
    assert one(field(4, 2, b"\1\x63\2"), levels, text=PROTO2) == ["LOW", "HIGH"]
    assert LEGACY.FromString(field(4, 2, b"\1\x63\2")).levels == [1, 2]


@pytest.mark.parametrize(
    ("declared", "data_type", "value"),
    [
        (r"""string v = 1 [default = "a\n\x41\101\?\"\\"]""", pa.string(), 'a\nAA?"\\'),
        (r"""string v = 1 [default = 'it\'s \u00e9 \U0001f600' " \303\251"]""", pa.string(), "it's é \U0001f600 é"),
        (r"""string v = 1 [default = "\q \u12 \xg"]""", pa.string(), r"\q \u12 \xg"),
        (r"""string v = 1 [default = "\ud83d\ude00\ud83d"]""", pa.string(), "\U0001f600?"),
        (r"""bytes v = 1 [default = "\?\377\X0a\x"]""", pa.binary(), b"?\xff\n\\x"),
        (r"""bytes v = 1 [default = "\1" '2' "\\" 'n' "\x4" "1"]""", pa.binary(), b"\x012\\n\x041"),
        (r"""string v = 1 [default = "\303" '\251"' "\ud83d" '\ude00']""", pa.string(), 'é"??'),
        ("int32 v = 1 [default = 010]", pa.int32(), 8),
        ("int32 v = 1 [default = -0x10]", pa.int32(), -16),
        ("double v = 1 [default = 010]", pa.float64(), 8.0),
        ("float v = 1 [default = -0x10]", pa.float32(), -16.0),
        ("uint64 v = 1 [default = 01777777777777777777777]", pa.int64(), -1),
    ],
)
def test_literals_of_defaults(declared: str, data_type: pa.DataType, value: Any) -> None:
    text = f"message M {{ optional {declared}; }}"
    assert one(b"", pa.field("v", data_type), text=text) == value


@pytest.mark.parametrize(
    ("declared", "data_type"),
    [
        ("int32 v = 1 [default = 2147483648]", pa.int32()),
        ("sint32 v = 1 [default = -0x80000001]", pa.int64()),
        ("uint32 v = 1 [default = 4294967296]", pa.int64()),
        ("fixed32 v = 1 [default = -1]", pa.int32()),
        ("sfixed64 v = 1 [default = 9223372036854775808]", pa.int64()),
        ("int64 v = 1 [default = -9223372036854775809]", pa.int64()),
        ("uint64 v = 1 [default = 18446744073709551616]", pa.int64()),
        ("fixed64 v = 1 [default = -1]", pa.decimal128(20, 0)),
        ("int32 v = 1 [default = x]", pa.int32()),
        ("bool v = 1 [default = 1]", pa.bool_()),
        ("E v = 1 [default = B]", pa.string()),
    ],
)
def test_a_default_that_the_type_does_not_have(declared: str, data_type: pa.DataType) -> None:
    text = f"message M {{ enum E {{ A = 1; }} optional {declared}; }}"
    with pytest.raises(ProtobufSchemaError, match="field v has an invalid default: "):
        one(b"", pa.field("v", data_type), text=text)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("int32 v = 1 [default = -2147483648]", -(2**31)),
        ("uint32 v = 1 [default = 4294967295]", 2**32 - 1),
        ("sint64 v = 1 [default = -9223372036854775808]", -(2**63)),
    ],
)
def test_the_extreme_defaults_of_a_type(declared: str, value: int) -> None:
    assert one(b"", pa.field("v", pa.int64()), text=f"message M {{ optional {declared}; }}") == value


def test_the_last_member_of_a_oneof_wins_even_if_it_is_not_wanted() -> None:
    first, third = field(27, 0, b"\1"), field(29, 2, field(1, 0, b"\7"))
    number = pa.field("first", pa.int32())
    inner = pa.field("third", pa.struct([("number", pa.int32()), ("numbers", pa.list_(pa.int64()))]))
    assert one(first, number) == 1
    assert one(first + third, number) is None
    assert one(third + first, inner) is None
    assert one(third + field(29, 2, field(3, 0, b"\2")), inner) == {"number": 7, "numbers": [1]}
    assert one(third + first + third, number, inner) == [None, {"number": 7, "numbers": []}]


def test_an_unknown_number_of_a_closed_enum_is_no_member_of_a_oneof() -> None:
    enums = "enum One { A = 0; } enum Two { C = 0; D = 5; }"
    oneofs = "oneof o { int32 n = 1; One one = 2; Two two = 3; } oneof p { int32 x = 4; One y = 5; }"
    text = f"syntax = 'proto2'; message M {{ {enums} {oneofs} }}"
    wanted = [pa.field("n", pa.int32()), pa.field("x", pa.int32())]
    cls = message_class(text, "M")
    numbers = field(1, 0, b"\1") + field(4, 0, b"\2")
    for number, value in ((2, 0), (2, 5), (3, 0), (3, 5), (3, 6), (5, 0), (5, 5)):
        data = numbers + field(number, 0, varint(value))
        message = cls.FromString(data)
        expected = [getattr(message, name) if message.HasField(name) else None for name in ("n", "x")]
        assert one(data, *wanted, text=text) == expected, (number, value)


def test_strings_of_proto2_may_have_any_bytes() -> None:
    text = "message M { optional string s = 1; repeated string r = 2; map<string, string> m = 3; }"
    types = {"s": pa.binary(), "r": pa.list_(pa.binary()), "m": pa.map_(pa.string(), pa.binary())}
    wanted = [pa.field(name, data_type) for name, data_type in types.items()]
    any_bytes = field(1, 2, b"\xff") + field(2, 2, b"a") + field(2, 2, b"\xff")
    data = any_bytes + field(3, 2, field(1, 2, b"k") + field(2, 2, b"\xff"))
    assert one(data, *wanted, text=text) == [b"\xff", [b"a", b"\xff"], [("k", b"\xff")]]
    checked = decode(
        text.replace("message", 'syntax = "proto3"; message'), [field(2, 2, b"a") + field(2, 2, b"\xff")], wanted
    )
    assert malformed(checked) == [("a string is not valid UTF-8", 3)]


def test_the_default_of_an_enum_is_its_first_symbol() -> None:
    text = "message M { enum E { B = 2; A = 0; C = 1; } map<string, E> m = 1; optional E e = 2; }"
    entry = field(1, 2, field(1, 2, b"k"))
    for data_type, value in ((pa.string(), "B"), (pa.int32(), 2)):
        wanted = [pa.field("m", pa.map_(pa.string(), data_type)), pa.field("e", data_type)]
        assert one(entry, *wanted, text=text) == [[("k", value)], None]


def test_the_last_entry_of_a_map_wins() -> None:
    def entry(key: int, value: bytes) -> bytes:
        return field(25, 2, field(1, 0, varint(key)) + field(2, 2, value))

    names = pa.field("names", pa.map_(pa.int64(), pa.string()))
    data = [
        entry(1, b"a") + entry(2, b"b") + entry(1, b"c"),
        b"".join(entry(key % 7, b"%d" % key) for key in range(20)),
    ]
    decoded = decode(ALL_TYPES, [*data, entry(1, b"d"), field(25, 2, b"")], [names])
    assert as_integers(decoded.values.field(0)) == [
        {2: "b", 1: "c"},
        {key % 7: str(key) for key in range(13, 20)},
        {1: "d"},
        {0: ""},
    ]
    assert decoded.values.field(0).to_pylist()[0] == [(2, "b"), (1, "c")]


def test_missing_fields_of_a_malformed_message_are_not_missing_in_the_next_one() -> None:
    text = """
        syntax = "proto3";
        message M { repeated V r = 1; map<int32, V> m = 2; }
        message V { optional int32 x = 1; repeated V inner = 2; }
    """
    inner = pa.struct({"x": pa.int32()})
    value = pa.struct({"x": pa.int32(), "inner": pa.list_(inner)})
    wanted = [pa.field("r", pa.list_(value)), pa.field("m", pa.map_(pa.int32(), value))]

    def message(content: bytes) -> bytes:
        each = content + field(2, 2, content) * 2
        return field(1, 2, each) * 3 + field(2, 2, field(1, 0, b"\1") + field(2, 2, each))

    present = {"x": 7, "inner": [{"x": 7}] * 2}
    rows: list[bytes | None] = [message(b"") + b"\x08", message(field(1, 0, b"\7"))] * 2
    expected = {"r": [present] * 3, "m": [(1, present)]}
    assert decode(text, rows, wanted).values.to_pylist() == [{"r": None, "m": None}, expected] * 2


def test_maps_have_no_groups() -> None:
    text = """
        edition = "2023";
        option features.message_encoding = DELIMITED;
        message M { map<int32, V> m = 1; map<int32, int32> n = 2; V v = 3; }
        message V { int32 x = 1; }
    """
    value = field(1, 0, b"\7")
    key = field(1, 0, b"\1")
    data = field(1, 2, key + field(2, 2, value)) + field(2, 2, key + field(2, 0, b"\2")) + group(3, value)
    wanted = [
        pa.field("m", pa.map_(pa.int32(), pa.struct({"x": pa.int32()}))),
        pa.field("n", pa.map_(pa.int32(), pa.int32())),
    ]
    assert one(data, *wanted, text=text) == [[(1, {"x": 7})], [(1, 2)]]


def test_a_malformed_message_removes_no_entries_of_later_ones() -> None:
    text = 'syntax = "proto3"; message M { repeated E maps = 1; } message E { map<int32, int32> m = 1; }'
    maps = pa.field("maps", pa.list_(pa.struct({"m": pa.map_(pa.int32(), pa.int32())})))

    def message(*keys: int) -> bytes:
        entries = [field(1, 0, varint(key)) + field(2, 0, varint(value)) for value, key in enumerate(keys)]
        return field(1, 2, b"".join(field(1, 2, entry) for entry in entries))

    repeated = message(1, 1, 2, 1, 2)
    rows = [
        repeated + b"\x08",
        message(1, 2, 3, 4, 5),
        repeated + message(3) + b"\x08",
        repeated + message(1, 2),
        b"",
        b"\x08",
    ]
    for values in (rows, rows[::-1], [*rows, *rows]):
        decoded = decode(text, [*values], [maps])
        assert decoded.values.to_pylist() == [decode(text, [value], [maps]).values.to_pylist()[0] for value in values]


@pytest.mark.slow
def test_the_time_to_remove_entries_is_proportional_to_their_number() -> None:
    text = 'syntax = "proto3"; message M { map<int32, V> m = 1; } message V { repeated int32 numbers = 1; }'
    value = field(2, 2, field(1, 0, varint(1)))
    data = b"".join(field(1, 2, field(1, 0, varint(max(0, number))) + value) for number in range(-60_000, 60_000))
    start = time.process_time()
    assert len(one(data, pa.field("m", VALUES_BY_NUMBER), text=text)) == 60_000
    assert time.process_time() - start < 120  # instead of more than 280


@pytest.mark.slow
def test_entries_are_removed_from_many_small_maps_in_linear_time() -> None:
    text = """
        syntax = "proto3";
        message M { repeated E maps = 1; }
        message E { map<int32, V> m = 1; }
        message V { W w = 1; }
        message W { repeated int32 numbers = 1; }
    """
    value = pa.struct({"w": pa.struct({"numbers": pa.list_(pa.int32())})})
    maps = pa.field("maps", pa.list_(pa.struct({"m": pa.map_(pa.int32(), value)})))
    key = field(1, 0, varint(1))
    entries = [key + field(2, 2, field(1, 2, b"")), key + field(2, 2, b"")]  # the list of the second one is null
    data = field(1, 2, b"".join(field(1, 2, entry) for entry in entries)) * 80_000
    start = time.process_time()
    assert one(data, maps, text=text)[-1] == {"m": [(1, {"w": None})]}
    assert time.process_time() - start < 120  # instead of more than 250


def test_entries_are_removed_with_all_that_they_contain() -> None:
    text = 'syntax = "proto3"; message M { map<int32, V> m = 1; } message V { repeated int32 numbers = 1; }'
    entries = [(1, [1, 2]), (2, []), (1, []), (3, [3]), (2, [4, 5]), (4, [6])]
    data = b"".join(
        field(1, 2, field(1, 0, varint(key)) + field(2, 2, b"".join(field(1, 0, varint(each)) for each in numbers)))
        for key, numbers in entries
    )
    wanted = [(1, {"numbers": []}), (3, {"numbers": [3]}), (2, {"numbers": [4, 5]}), (4, {"numbers": [6]})]
    decoded = decode(text, [data, None, data], [pa.field("m", VALUES_BY_NUMBER)])
    assert decoded.values.field("m").to_pylist() == [wanted, None, wanted]


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00001, 0xFF800001, 0x7F800000])
def test_the_bits_of_a_number_that_is_not_a_number_are_those_of_the_message(bits: int) -> None:
    text = 'syntax = "proto3"; message M { optional float f = 1; optional double d = 2; }'
    double = (bits & 0x80000000) << 32 | 0x7FF0000000000001
    data = field(1, 5, bits.to_bytes(4, "little")) + field(2, 1, double.to_bytes(8, "little"))
    values = decode(text, [data, b"", field(1, 5, b"\0\0\0\x3f")]).values
    assert values.field("f").view(pa.uint32()).to_pylist() == [bits, None, 0x3F000000]
    assert values.field("d").view(pa.uint64()).to_pylist() == [double, None, None]
    assert encode(text, values)[0] == data


def test_timestamps_and_durations() -> None:
    time, duration = pa.field("a_time", pa.timestamp("us", tz="UTC")), pa.field("a_duration", pa.duration("us"))
    seconds, nanos = field(1, 0, varint(-5)), field(2, 0, varint(-1999))
    data = field(30, 2, seconds) + field(31, 2, nanos) + field(30, 2, nanos)
    assert one(data, duration) == datetime.timedelta(microseconds=-1)
    assert as_integers(decode(ALL_TYPES, [data, field(30, 2, b"")], [time]).values.field(0)) == [-5_000_001, 0]
    too_large = field(30, 2, field(1, 0, varint(1 << 62)))
    assert malformed(decode(ALL_TYPES, [too_large], [time])) == [("the value does not fit the type of its column", 3)]


@pytest.mark.parametrize(
    ("data", "reason", "position"),
    [
        (b"\x08", "the message is incomplete", 0),
        (b"\x08\x01\x10" + b"\xff" * 10, "a number has more bytes than a varint can have", 2),
        (b"\x08" + b"\xff" * 3, "the message is incomplete", 0),
        (b"\x00\x01", "a field has no valid number or wire type", 0),
        (b"\x0f\x01", "a field has no valid number or wire type", 0),
        (b"\x0c", "a group ends that did not start", 0),
        (b"\x0b\x10\x01\x14", "a group ends that did not start", 0),
        (b"\x0b\x10\x01", "the message is incomplete", 0),
        (b"\x72\x02\xc3\x28", "a string is not valid UTF-8", 0),
        (b"\x8a\x01\x04\x12\x02\xc3\x28", "a string is not valid UTF-8", 3),
        (b"\x8a\x01\x05\x08\x01", "the message is incomplete", 0),
        (b"\x9a\x01\x02\x01\x80", "the message is incomplete", 0),
        (b"\xa2\x01\x03abc", "the message is incomplete", 0),
        (b"\x0b" * 101 + b"\x0c" * 101, "messages are nested more than 100 levels deep", 0),
    ],
)
def test_a_malformed_message_has_a_reason_and_a_position(data: bytes, reason: str, position: int) -> None:
    for wanted in (None, [pa.field("a_bool", pa.bool_())]):
        decoded = decode(ALL_TYPES, [b"\x08\x01", data, b"\x08\x01"], wanted)
        assert malformed(decoded) == [None, (reason, position), None]
        assert decoded.values.field(0).to_pylist() == [True, None, True]


def test_a_message_that_contains_itself_is_checked_to_a_limited_depth() -> None:
    data = b""
    for _ in range(99):
        data = field(4, 2, data)
    wanted = [pa.field("a_bool", pa.bool_())]
    deep = [field(17, 2, data), field(17, 2, field(4, 2, data)), field(17, 2, field(4, 2, field(4, 2, data)))]
    errors = malformed(decode(ALL_TYPES, [*deep], wanted))
    assert [each and each[0] for each in errors] == [
        None,
        "messages are nested more than 100 levels deep",
        "messages are nested more than 100 levels deep",
    ]


def test_unknown_groups_are_nested_as_deep_as_messages() -> None:
    wanted = [pa.field("a_bool", pa.bool_())]
    groups = [b"\x08\x01" + b"\x0b" * depth + b"\x0c" * depth for depth in (99, 100, 101)]
    errors = malformed(decode(ALL_TYPES, [*groups], wanted))
    assert [each is None for each in errors] == [True, True, False]


def test_headers_and_rows_that_are_not_decoded() -> None:
    wanted = [pa.field("a_bool", pa.bool_())]
    decoded = decode(ALL_TYPES, [b"\0\0\x08\x01", b"\xff", None, b"\x08\x01", b"\0\x08"], wanted, [2, None, 0, 0, 1])
    assert decoded.values.to_pylist() == [{"a_bool": True}, {"a_bool": None}, None, {"a_bool": True}, {"a_bool": None}]
    assert malformed(decoded) == [None, None, None, None, ("the message is incomplete", 1)]


def test_hostile_lists_are_limited() -> None:
    wide = [pa.field("inners", pa.list_(pa.struct([(f"missing{index}", pa.int64()) for index in range(1000)])))]
    data = field(23, 2, b"") * 20_000
    schema = parse_protobuf_schema(ALL_TYPES)
    from pyspark_kafka_direct.payloads.protobuf.protobuf_values import ProtobufDecoder

    decoder = ProtobufDecoder(pa.schema(wide), make_program(schema, schema.message(None), wide))
    decoded = decoder.decode(pa.array([data, b"\x08\x01"], pa.binary()))
    assert malformed(decoded)[0] is not None
    assert malformed(decoded)[0][0] == "the decoded value is too large"  # type: ignore[index]
    assert malformed(decoded)[1] is None


@pytest.mark.parametrize(
    ("name", "data_type", "message"),
    [
        ("a_bool", pa.int32(), "field a_bool is bool in the Protobuf schema, which cannot be read as int32"),
        ("int32s", pa.int32(), "field int32s is repeated int32 in the Protobuf schema"),
        ("names", pa.map_(pa.string(), pa.string()), "field names.key is int64 in the Protobuf schema"),
        ("an_inner", pa.struct([("text", pa.int32())]), "field an_inner.text is string in the Protobuf schema"),
        ("a_time", pa.int64(), "field a_time is google.protobuf.Timestamp in the Protobuf schema"),
    ],
)
def test_types_that_do_not_fit_are_rejected(name: str, data_type: pa.DataType, message: str) -> None:
    with pytest.raises(ProtobufSchemaError, match=message.replace(".", r"\.")):
        decode(ALL_TYPES, [], [pa.field(name, data_type)])
