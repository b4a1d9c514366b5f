"""Schema resolution against fastavro, and the conversions to Spark's types."""

from __future__ import annotations

import datetime
import itertools
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.payloads.avro_data import arrow_fields, decode, encode, malformed, parse, read, spark_value

from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
from pyspark_kafka_direct.payloads.avro.avro_values import MESSAGES, Reason, check_avro_fields
from pyspark_kafka_direct.payloads.avro.resolution import PROMOTIONS
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.avro.spark_types import spark_ddl
from pyspark_kafka_direct.payloads.avro.wanted_fields import check_wanted


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """Return a record with fields of a name, a type, and perhaps more."""
    members = [{"name": field[0], "type": field[1], **(field[2] if len(field) > 2 else {})} for field in fields]
    return {"type": "record", "name": name, "fields": members}


COLORS = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}
MORE_COLORS = {"type": "enum", "name": "Color", "symbols": ["GREEN", "UNKNOWN"], "default": "UNKNOWN"}
POINT = record(("x", "int"), ("y", "int"), name="P")
POINTS = ({"type": "array", "items": "P"}, {"type": "map", "values": "P"})
NESTED = record(("p", POINTS[0]), ("q", POINTS[1]), ("z", "int"), name="N")
POINT_3 = record(("z", "double", {"default": 1.5}), ("y", "long"), ("x", "double"), name="P")

EVOLUTIONS = {
    "promotions": (
        record(("a", "int"), ("b", "int"), ("c", "int"), ("d", "long"), ("e", "long"), ("f", "float")),
        record(("a", "long"), ("b", "float"), ("c", "double"), ("d", "float"), ("e", "double"), ("f", "double")),
        {"a": -5, "b": 16777217, "c": 1 << 30, "d": 16777217, "e": 1 << 60, "f": 0.1},
    ),
    "reordered": (record(("a", "int"), ("b", "string")), record(("b", "string"), ("a", "int")), {"a": 1, "b": "x"}),
    "removed": (record(("a", "int"), ("b", "string")), record(("b", "string")), {"a": 1, "b": "x"}),
    "alias": (record(("a", "int")), record(("b", "int", {"aliases": ["z", "a"]})), {"a": 7}),
    "a name precedes the alias of an earlier field": (
        record(("b", "int"), ("c", "int")),
        record(("a", "int", {"aliases": ["b"], "default": 5}), ("b", "int"), ("c", "int")),
        {"b": 7, "c": 8},
    ),
    "aliases of two fields": (
        record(("a", "int"), ("b", "int")),
        record(("c", "int", {"aliases": ["a"]}), ("d", "int", {"aliases": ["b"]})),
        {"a": 7, "b": 8},
    ),
    "defaults": (
        record(("a", "int")),
        record(
            ("a", "int"),
            ("b", "boolean", {"default": True}),
            ("c", "int", {"default": -3}),
            ("d", "long", {"default": 1 << 40}),
            ("e", "float", {"default": 1.25}),
            ("f", "double", {"default": 3}),
            ("g", "string", {"default": "é"}),
            ("h", ["null", "int"], {"default": None}),
            ("i", ["int", "null"], {"default": 4}),
            ("j", {"type": "array", "items": "int"}, {"default": [1, 2]}),
            ("k", {"type": "map", "values": "string"}, {"default": {"k": "v", "l": "w"}}),
            ("l", POINT, {"default": {"x": 1, "y": 2}}),
            ("m", COLORS, {"default": "GREEN"}),
            ("n", NESTED, {"default": {"p": [{"x": 3, "y": 4}], "q": {"a": {"x": 5, "y": 6}}, "z": 7}}),
            ("o", "string", {"default": "last"}),
        ),
        {"a": 1},
    ),
    "default symbol": (record(("c", COLORS)), record(("c", MORE_COLORS)), {"c": "RED"}),
    "known symbol": (record(("c", COLORS)), record(("c", MORE_COLORS)), {"c": "GREEN"}),
    "nested": (
        record(("p", POINT), ("l", {"type": "array", "items": "P"}), ("m", {"type": "map", "values": "int"})),
        record(("l", {"type": "array", "items": POINT_3}), ("p", "P"), ("m", {"type": "map", "values": "long"})),
        {"p": {"x": 1, "y": 2}, "l": [{"x": 3, "y": 4}, {"x": 5, "y": 6}], "m": {"a": 1}},
    ),
    "value to union": (record(("a", "int")), record(("a", ["null", "long"])), {"a": 9}),
    "union to value": (record(("a", ["null", "int"])), record(("a", "long")), {"a": 9}),
    "union of many": (
        record(("a", ["string", "int", "null"])),
        record(("a", ["null", "boolean", "double", "string"])),
        {"a": 9},
    ),
    "string to bytes": (record(("a", "string")), record(("a", "bytes")), {"a": "xyz"}),
    "bytes to string": (record(("a", "bytes")), record(("a", "string")), {"a": b"xyz"}),
}


@pytest.mark.parametrize("name", EVOLUTIONS)
def test_evolution(name: str) -> None:
    writer, reader, value = EVOLUTIONS[name]
    datum = encode(writer, value)
    decoded = decode(writer, [datum], reader)
    assert malformed(decoded) == [None]
    expected = spark_value(parse(reader), read(datum, writer, reader))
    if name == "promotions":
        expected["b"] = expected["d"] = 16777216.0  # fastavro has no numbers of 32 bits
    if name == "string to bytes":
        expected["a"] = b"xyz"
    elif name == "bytes to string":
        expected["a"] = "xyz"
    elif name == "union of many":
        expected["a"] = {"member0": None, "member1": 9.0, "member2": None}
    assert decoded.values.to_pylist() == [expected]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "position", "reason"),
    [
        (record(("a", "int")), record(("a", "int"), ("b", "int")), {"a": 1}, 0, Reason.NO_DEFAULT),
        (record(("a", "string")), record(("a", "int")), {"a": "x"}, 0, Reason.UNREADABLE),
        (
            record(("t", {"type": "long", "logicalType": "timestamp-nanos"})),
            record(("t", {"type": "long", "logicalType": "timestamp-micros"})),
            {"t": 1_000},
            0,
            Reason.UNREADABLE,
        ),
        (
            record(("t", ["null", {"type": "long", "logicalType": "local-timestamp-nanos"}])),
            record(("t", ["null", {"type": "long", "logicalType": "local-timestamp-millis"}])),
            {"t": 1_000},
            1,
            Reason.UNREADABLE,
        ),
        (record(("a", ["null", "int"])), record(("a", "int")), {"a": None}, 1, Reason.UNREADABLE),
        (record(("a", ["int", "string"])), record(("a", ["null", "int"])), {"a": "x"}, 1, Reason.UNREADABLE),
        (record(("c", MORE_COLORS)), record(("c", COLORS)), {"c": "UNKNOWN"}, 0, Reason.SYMBOL),
        (
            record(("f", {"type": "fixed", "name": "F", "size": 2})),
            record(("f", {"type": "fixed", "name": "F", "size": 3})),
            {"f": b"ab"},
            0,
            Reason.UNREADABLE,
        ),
    ],
)
def test_a_datum_that_cannot_be_read_is_malformed(
    writer: dict[str, Any], reader: dict[str, Any], value: Any, position: int, reason: Reason
) -> None:
    assert malformed(decode(writer, [encode(writer, value)], reader)) == [(position, MESSAGES[reason])]


def test_the_depth_of_skipped_records_does_not_grow_with_their_number() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    nodes = [{"next": {"next": None}}] * 300
    writer = record(("nodes", {"type": "array", "items": node}), ("a", "int"))
    decoded = decode(writer, [encode(writer, {"nodes": nodes, "a": 7})] * 2, record(("a", "int")))
    assert decoded.values.field("a").to_pylist() == [7, 7]
    assert malformed(decoded) == [None, None]


def test_only_datums_with_a_part_that_cannot_be_read_are_malformed() -> None:
    writer = record(("a", ["null", "int", "string"]))
    decoded = decode(writer, [encode(writer, {"a": value}) for value in (1, "x", None)], record(("a", ["null", "int"])))
    assert decoded.values.to_pylist() == [{"a": 1}, {"a": None}, {"a": None}]
    assert [error and error[1] for error in malformed(decoded)] == [None, MESSAGES[Reason.UNREADABLE], None]


def logical(base: Any, name: str, **attributes: Any) -> dict[str, Any]:
    return {**(base if isinstance(base, dict) else {"type": base}), "logicalType": name, **attributes}


FIXED = {"type": "fixed", "name": "F", "size": 6}

LOGICAL_TYPES = [
    (logical("bytes", "decimal", precision=9, scale=2), Decimal("-1234567.89"), None, "decimal(9,2)"),
    (logical(FIXED, "decimal", precision=12, scale=3), Decimal("123456789.012"), None, "decimal(12,3)"),
    (logical("int", "date"), datetime.date(1969, 7, 20), None, "date"),
    (
        logical("long", "timestamp-millis"),
        datetime.datetime(2026, 1, 31, 12, 0, 0, 123000, datetime.UTC),
        None,
        "timestamp_ltz",
    ),
    (
        logical("long", "timestamp-micros"),
        datetime.datetime(1960, 1, 31, 12, 0, 0, 123456, datetime.UTC),
        None,
        "timestamp_ltz",
    ),
    (logical("long", "local-timestamp-millis"), datetime.datetime(2026, 1, 31, 12), None, "timestamp_ntz"),
    (logical("long", "local-timestamp-micros"), datetime.datetime(2026, 1, 31, 12), None, "timestamp_ntz"),
    (logical("int", "time-millis"), datetime.time(1, 2, 3), 3_723_000, "int"),
    (logical("long", "time-micros"), datetime.time(1, 2, 3, 4), 3_723_000_004, "bigint"),
    (logical("string", "uuid"), "6d37d6b0-6f4b-4d6c-9d0b-0f6a0f0b7a5e", None, "string"),
    (logical({"type": "fixed", "name": "D", "size": 12}, "duration"), b"\1" + b"\0" * 11, None, "binary"),
    (logical("bytes", "decimal", precision=0), b"xy", None, "binary"),  # not valid, so it does not count
]


@pytest.mark.parametrize(("avro_type", "value", "expected", "ddl"), LOGICAL_TYPES)
def test_logical_types(avro_type: Any, value: Any, expected: Any, ddl: str) -> None:
    schema = record(("a", avro_type))
    assert spark_ddl(parse(schema)) == f"struct<`a`: {ddl}>"
    # fastavro has no durations, and no decimals without digits.
    written = record(("a", {**avro_type, "logicalType": "none"})) if ddl == "binary" else schema
    datum = encode(written, {"a": value})
    decoded = decode(schema, [datum])
    assert decoded.values.field("a").to_pylist() == [value if expected is None else expected]


@pytest.mark.parametrize("prefix", ["", "local-"])
@pytest.mark.parametrize(("written", "read_as"), [*itertools.product(["millis", "micros"], ["millis", "micros", None])])
def test_the_unit_of_a_time_is_that_of_its_writer(prefix: str, written: str, read_as: str | None) -> None:
    units = {unit: logical("long", f"{prefix}timestamp-{unit}") for unit in ("millis", "micros")}
    time = datetime.datetime(2026, 1, 31, 12, 0, 0, 123000, None if prefix else datetime.UTC)
    writer = record(("a", units[written]), ("b", ["null", units[written]]))
    datum = encode(writer, {"a": time, "b": time})
    if read_as is None:  # a writer without a unit: that of the reader
        writer, read_as = record(("a", "long"), ("b", ["null", "long"])), written
    decoded = decode(writer, [datum], record(("a", units[read_as]), ("b", ["null", units[read_as]])))
    assert decoded.values.to_pylist() == [{"a": time, "b": time}]


@pytest.mark.parametrize("avro_type", [each for each, *_ in LOGICAL_TYPES if each["type"] in ("int", "long")])
def test_a_default_of_a_logical_type_is_read_as_the_same_written_number(avro_type: Any) -> None:
    fields = record(("b", avro_type))
    written = decode(fields, [encode(record(("b", avro_type["type"])), {"b": 18_000})])
    default = decode(record(("a", "int")), [b"\2"], record(("b", avro_type, {"default": 18_000})))
    assert default.values == written.values


@pytest.mark.parametrize(
    ("digits", "reason"),
    [
        (b"\x00\x00\x27\x0f", None),
        (b"\x27\x10", Reason.RANGE),
        (b"", Reason.RANGE),
        (b"\x80" + b"\0" * 16, Reason.RANGE),
    ],
)
def test_decimals_that_do_not_fit(digits: bytes, reason: Reason | None) -> None:
    schema = record(("a", logical("bytes", "decimal", precision=4)))
    decoded = decode(schema, [encode(record(("a", "bytes")), {"a": digits})])
    assert malformed(decoded) == [None if reason is None else (0, MESSAGES[reason])]


def test_unions_have_spark_types() -> None:
    schema = record(
        ("a", ["int", "long"]),
        ("b", ["double", "null", "float"]),
        ("c", ["null", "string"]),
        ("d", ["null", "string", "int"]),
        ("e", {"type": "array", "items": ["null", "int"]}),
        ("f", {"type": "map", "values": ["string", "int"]}),
        ("g", "null"),
    )
    assert spark_ddl(parse(schema)) == (
        "struct<`a`: bigint,`b`: double,`c`: string,`d`: struct<`member0`: string,`member1`: int>,"
        "`e`: array<int>,`f`: map<string,struct<`member0`: string,`member1`: int>>,`g`: void>"
    )
    value = {"a": 1, "b": 0.5, "c": None, "d": 5, "e": [None, 1], "f": {"k": "v"}, "g": None}
    assert decode(schema, [encode(schema, value)]).values.to_pylist() == [
        {
            **value,
            "d": {"member0": None, "member1": 5},
            "f": [("k", {"member0": "v", "member1": None})],
        }
    ]


@pytest.mark.parametrize("namespace", ["", "old.", "shop."])
@pytest.mark.parametrize("alias", ["Old", "old.Old", "a.b.Old"])
def test_an_alias_of_a_named_type_may_have_any_namespace(namespace: str, alias: str) -> None:
    for kind, datum, value in (
        ({"type": "enum", "symbols": ["A", "B"]}, b"\2", "B"),
        ({"type": "fixed", "size": 2}, b"xy", b"xy"),
    ):
        written = {**kind, "name": f"{namespace}Old"}
        for aliases in ([alias], ["Other", alias]):
            read_as = {**kind, "name": "shop.New", "aliases": aliases}
            decoded = decode(record(("v", written)), [datum], record(("v", read_as)))
            assert (malformed(decoded), decoded.values.to_pylist()) == ([None], [{"v": value}])
        (error,) = malformed(decode(record(("v", written)), [datum], record(("v", {**read_as, "aliases": ["Other"]}))))
        assert error == (0, MESSAGES[Reason.UNREADABLE])


def test_an_alias_selects_the_branch_of_a_union() -> None:
    other, renamed = ({**record(("x", "int"), ("y", "int"), name=name), "aliases": ["Z", alias]} for name, alias in
                      (("Q", "O"), ("R2", "P")))  # fmt: skip
    writer = record(("u", POINT))
    for first, second in ((other, renamed), (renamed, POINT)):  # the same name precedes an alias
        decoded = decode(writer, [encode(writer, {"u": {"x": 1, "y": 2}})], record(("u", ["null", first, second])))
        assert decoded.values.to_pylist() == [{"u": {"member0": None, "member1": {"x": 1, "y": 2}}}]


@pytest.mark.parametrize("written", ["int", "long", "float", "string", "bytes", "boolean"])
def test_a_value_has_the_first_member_of_its_own_type_or_else_of_a_wider_one(written: str) -> None:
    values = {"int": 3, "long": 4, "float": 0.5, "string": "s", "bytes": b"b", "boolean": True}
    types = ("int", "long", "float", "double", "string", "bytes")
    value = values[written]
    for index, members in enumerate(itertools.permutations(types, 3)):
        branches = (*members[: index % 4], "null", *members[index % 4 :])
        readable = [branch for branch in members if branch in PROMOTIONS.get(written, ())]
        target = written if written in members else next(iter(readable), None)
        writer, reader = record(("u", written)), record(("u", list(branches)))
        decoded = decode(writer, [encode(writer, {"u": value})], reader)
        if target is None:
            assert malformed(decoded) == [(0, MESSAGES[Reason.UNREADABLE])]
        else:
            (row,) = decoded.values.to_pylist()
            number = members.index(target)
            found = row["u"].pop(f"member{number}")
            assert (found.encode() if isinstance(found, str) else found) == (
                value.encode() if isinstance(value, str) else value
            )
            assert set(row["u"].values()) <= {None}


def test_a_default_of_a_union_is_in_the_member_that_it_fits() -> None:
    values = {"null": None, "string": "s", "int": 5, "boolean": True}
    writer = record(("a", "int"))
    for branches in itertools.permutations(values):
        members = [branch for branch in branches if branch != "null"]
        for kind, default in values.items():
            reader = record(("a", "int"), ("u", list(branches), {"default": default}))
            (row,) = decode(writer, [encode(writer, {"a": 1})], reader).values.to_pylist()
            expected = {f"member{index}": values[name] if name == kind else None for index, name in enumerate(members)}
            assert row == {"a": 1, "u": None if kind == "null" else expected}


@pytest.mark.parametrize(
    ("avro_type", "default", "targets"),
    [
        ("int", -7, [pa.int32(), pa.int64(), pa.float32(), pa.float64()]),
        ("long", 1 << 40, [pa.int64(), pa.float32(), pa.float64()]),
        ("float", 0.25, [pa.float32(), pa.float64()]),
        ("double", 3, [pa.float64()]),
        ("string", "é", [pa.string(), pa.binary()]),
        ("bytes", "a\u00ff", [pa.binary(), pa.string()]),
    ],
)
def test_a_default_is_read_as_the_same_written_value(avro_type: str, default: Any, targets: list[pa.DataType]) -> None:
    value = default.encode("latin-1") if avro_type == "bytes" else default
    schema = record(("b", avro_type))
    for target in targets:
        fields = pa.schema({"b": target})
        check_wanted(parse(schema), list(fields))
        written = decode(schema, [encode(schema, {"b": value})], fields=fields)
        read_default = decode(
            record(("a", "int")), [b"\2"], record(("b", avro_type, {"default": default})), fields=fields
        )
        assert read_default.values == written.values
        assert read_default.values.field("b").null_count == 0


@pytest.mark.parametrize("precision", [1, 2, 18, 19, 38])
@pytest.mark.parametrize("scale", [0, 1])
def test_a_decimal_has_no_more_digits_than_its_type(precision: int, scale: int) -> None:
    logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
    fixed = {"type": "fixed", "name": "F", "size": 17, **logical}
    largest = 10**precision - 1
    numbers = [largest, -largest, largest + 1, -largest - 1, 0, -1]
    datums: list[bytes | None] = [
        bytes([34]) + number.to_bytes(17, "big", signed=True) + number.to_bytes(17, "big", signed=True)
        for number in numbers
    ]
    decoded = decode(record(("b", {"type": "bytes", **logical}), ("f", fixed)), datums)
    expected = [
        Decimal(number).scaleb(-scale, Context(prec=40)) if abs(number) <= largest else None for number in numbers
    ]
    assert decoded.values.field("b").to_pylist() == decoded.values.field("f").to_pylist() == expected
    assert [error is None for error in malformed(decoded)] == [each is not None for each in expected]


def test_nulls_of_a_malformed_datum_are_not_those_of_the_next_one() -> None:
    inner = record(("v", ["null", "int"]), ("w", {"type": "array", "items": ["null", "string"]}), name="I")
    schema = record(("a", {"type": "array", "items": inner}), ("m", {"type": "map", "values": ["null", "int"]}))
    nulls = {"a": [{"v": None, "w": [None, None]}] * 3, "m": {"k": None, "l": None}}
    row = {"a": [{"v": 1, "w": ["x", "y"]}] * 3, "m": {"k": 1, "l": 2}}
    incomplete = encode(schema, nulls)[:-1]
    expected = {**row, "m": [("k", 1), ("l", 2)]}
    decoded = decode(schema, [incomplete, encode(schema, row), incomplete[:-4], encode(schema, row)])
    assert decoded.values.to_pylist() == [{"a": None, "m": None}, expected] * 2


def test_members_that_are_not_wanted_are_skipped() -> None:
    schema = record(("d", ["string", "int"]))
    fields = pa.schema({"d": pa.struct({"member1": pa.int32()})})
    decoded = decode(schema, [encode(schema, {"d": value}) for value in ("x", 5)], fields=fields)
    assert decoded.values.to_pylist() == [{"d": {"member1": None}}, {"d": {"member1": 5}}]


def test_all_fields_of_records_that_are_not_wanted_are_skipped() -> None:
    outer = record(("first", POINT), ("n", "int"), name="Q")
    schema = record(
        ("q", outer), ("p", "P"), ("o", ["string", "P"]), ("l", {"type": "array", "items": "P"}), ("a", "int")
    )
    point = {"x": 1, "y": 300}
    rows = [{"q": {"first": point, "n": 5}, "p": point, "o": other, "l": [point] * 2, "a": 7} for other in (point, "x")]
    decoded = decode(schema, [encode(schema, row) for row in rows], fields=pa.schema({"a": pa.int32()}))
    assert malformed(decoded) == [None, None]
    assert decoded.values.to_pylist() == [{"a": 7}] * 2


def test_a_wanted_field_that_the_schema_lacks_is_null() -> None:
    schema = record(("a", "int"))
    check_wanted(parse(schema), fields := pa.schema({"b": pa.string(), "a": pa.int64()}))
    decoded = decode(schema, [encode(schema, {"a": 3})], fields=fields)
    assert decoded.values.to_pylist() == [{"b": None, "a": 3}]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"a": pa.string()}, "'a' is int in the Avro schema, which cannot be read as string"),
        ({"p": pa.struct({"x": pa.bool_()})}, "'p.x' is int"),
        ({"p": pa.int32()}, "'p' is P"),
        ({"l": pa.list_(pa.string())}, "'l.element' is int"),
        ({"a": pa.int32(), "p": pa.struct({"x": pa.int32(), "y": pa.bool_()})}, "'p.y' is int"),
        ({"u": pa.struct({"member0": pa.int32(), "member1": pa.bool_()})}, "'u.member1' is string"),
    ],
)
def test_wanted_types_that_cannot_be_read(fields: dict[str, pa.DataType], message: str) -> None:
    schema = parse(
        record(("a", "int"), ("p", POINT), ("l", {"type": "array", "items": "int"}), ("u", ["int", "string"]))
    )
    with pytest.raises(AvroSchemaError, match=message):
        check_wanted(schema, pa.schema(fields))


def test_the_fields_of_a_record_select_the_branch_of_a_union_if_no_name_does() -> None:
    writer = record(("u", record(("a", "int"), ("c", "int"), name="W")))
    first = record(("a", "int"), ("b", "int"), name="B")
    for attributes in ({}, {"aliases": ["e", "c"]}, {"default": 3}):
        name = "c" if not attributes else "d"
        second = record(("a", "int"), (name, "int", attributes), name="D")
        third = record(("a", "int"), name="E")  # also fits, but is behind the second one
        value = {"a": 1, name: 3 if "default" in attributes else 2}
        for branches in ([first, second], ["null", first, second, third]):
            decoded = decode(writer, [b"\2\4"], record(("u", branches)))
            others = dict.fromkeys(["member0", "member2"][: len(branches) // 2])
            assert decoded.values.to_pylist() == [{"u": {**others, "member1": value}}]


def test_names_of_wanted_fields_are_unique() -> None:
    twice = [("x", pa.int32()), ("a", pa.int32()), ("a", pa.int32())]
    for fields, name in ((twice, "a"), ([("x", pa.int32()), ("s", pa.struct(twice))], "s.a")):
        with pytest.raises(ValueError, match=f"field '{name}' is named twice"):
            check_avro_fields(pa.schema(fields))


def test_each_child_of_a_wanted_field_has_a_type_of_avro() -> None:
    fields = pa.schema({"first": pa.int32(), "s": pa.struct({"a": pa.int32(), "b": pa.uint8()})})
    with pytest.raises(ValueError, match=r"field 's\.b' has the type uint8, which is not decoded from Avro"):
        check_avro_fields(fields)


@pytest.mark.parametrize(
    ("avro_type", "default"),
    [("int", "x"), ("int", 1 << 31), ("int", -(1 << 31) - 1), ("long", 1 << 63), ("long", -(1 << 63) - 1)],
)
def test_a_default_that_does_not_have_its_type_is_rejected(avro_type: str, default: Any) -> None:
    with pytest.raises(AvroSchemaError, match="default of field 'b'"):
        decode(record(("a", "int")), [b"\2"], record(("a", "int"), ("b", avro_type, {"default": default})))


@pytest.mark.parametrize(("size", "digits"), [(1, 2), (2, 4), (4, 9), (8, 18), (16, 38)])
def test_a_fixed_decimal_has_no_more_digits_than_its_bytes(size: int, digits: int) -> None:
    for precision in (digits, digits + 1):
        decimal = logical({"type": "fixed", "name": "F", "size": size}, "decimal", precision=precision)
        fits = precision == digits
        assert (
            spark_ddl(parse(record(("a", decimal)))) == f"struct<`a`: {f'decimal({digits},0)' if fits else 'binary'}>"
        )


def test_defaults_that_contain_others_are_limited() -> None:
    nested: Any = "int"
    for level in range(6):
        default: list[Any] = [{} if level else 1] * 20
        nested = record(("v", {"type": "array", "items": nested}, {"default": default}), name=f"R{level}")
    for wanted in (nested, ["null", "string", nested]):
        reader = record(("a", "int"), ("b", wanted, {"default": {}}))
        with pytest.raises(AvroSchemaError, match="the defaults of the fields that the writer schema lacks are too la"):
            decode(record(("a", "int")), [b"\2"], reader)


def test_references_are_schemas_of_named_types() -> None:
    reference = '{"type":"record","name":"org.P","fields":[{"name":"x","type":"int"}]}'
    schema = parse_avro_schema(
        '{"type":"record","name":"R","namespace":"org","fields":[{"name":"p","type":"P"}]}', [reference]
    )
    assert arrow_fields(schema.root) == pa.schema({"p": pa.struct({"x": pa.int32()})})
