"""What Spark has no type for in an Avro schema: it matters only for a wanted field. fastavro writes the datums."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.payloads.avro_data import arrow_fields, decode, encode, malformed, parse

from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
from pyspark_kafka_direct.payloads.avro.avro_values import MESSAGES, Reason
from pyspark_kafka_direct.payloads.avro.encoder_program import compile_encoder
from pyspark_kafka_direct.payloads.avro.registry_schemas import new_fields
from pyspark_kafka_direct.payloads.avro.spark_types import spark_ddl
from pyspark_kafka_direct.payloads.avro.wanted_fields import check_wanted
from pyspark_kafka_direct.payloads.encoded_values import AvroEncoder, PayloadEncoding

DECIMAL: dict[str, Any] = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
FIXED: dict[str, Any] = {**DECIMAL, "type": "fixed", "name": "F", "size": 28}


def record(*fields: tuple[str, Any], name: str = "R", **defaults: Any) -> dict[str, Any]:
    members = [
        {"name": field, "type": avro_type} | ({"default": defaults[field]} if field in defaults else {})
        for field, avro_type in fields
    ]
    return {"type": "record", "name": name, "fields": members}


NODE = record(
    ("id", "long"),
    ("next", ["null", "Node"]),
    ("children", {"type": "array", "items": "Node"}),
    ("named", {"type": "map", "values": ["string", "Node", "null"]}),
    ("tail", "string"),
    name="Node",
)


def nodes() -> st.SearchStrategy[Any]:
    leaf = node(st.none(), st.just([]), st.just({}))
    return st.recursive(
        leaf,
        lambda inner: node(
            st.none() | inner,
            st.lists(inner, max_size=2),
            st.dictionaries(st.text(max_size=2), st.none() | st.text(max_size=2) | inner, max_size=2),
        ),
        max_leaves=8,
    )


def node(next_node: Any, children: Any, named: Any) -> st.SearchStrategy[Any]:
    values = {"next": next_node, "children": children, "named": named, "tail": st.text(max_size=3)}
    return st.fixed_dictionaries({"id": st.integers(-9, 1 << 40), **values})


@given(st.lists(nodes(), min_size=1, max_size=4))
@settings(max_examples=60)
def test_records_that_contain_themselves_are_skipped(values: list[Any]) -> None:
    chain = record(("text", "string"), ("next", ["null", "Chain"]), name="Chain")
    schema = record(
        ("tree", NODE),
        ("id", "int"),
        ("chain", chain),
        ("other", ["null", "Node"]),
        ("more", "Chain"),
        ("end", "string"),
    )
    links = {"text": "a", "next": {"text": "b", "next": None}}
    rows = [{"tree": value, "id": 7, "chain": links, "other": value, "more": links, "end": "x"} for value in values]
    datums: list[bytes | None] = [encode(schema, row) for row in rows]
    decoded = decode(schema, datums, fields=pa.schema({"id": pa.int32(), "end": pa.string()}))
    assert malformed(decoded) == [None] * len(rows)
    assert decoded.values.to_pylist() == [{"id": 7, "end": "x"}] * len(rows)


@pytest.mark.parametrize("outer", [("null", 1), (1, "null")])
@pytest.mark.parametrize("inner", [["null", "int"], ["int", "null"], ["null", "string"]])
def test_unions_with_null_within_others_are_skipped(outer: tuple[Any, Any], inner: list[str]) -> None:
    def nullable(avro_type: Any) -> list[Any]:
        return [avro_type if branch == 1 else branch for branch in outer]

    single = record(("v", inner), name="Single")
    schema = record(
        ("a", nullable(single)), ("b", nullable(record(("s", nullable("Single")), name="S"))), ("end", "int")
    )
    present = {"v": "x" if "string" in inner else 5}
    parts = [None, {"v": None}, present]
    rows = [{"a": a, "b": b, "end": 7} for a in parts for b in (None, *({"s": each} for each in parts))]
    decoded = decode(schema, [encode(schema, row) for row in rows], fields=pa.schema({"end": pa.int32()}))
    assert malformed(decoded) == [None] * len(rows)
    assert decoded.values.to_pylist() == [{"end": 7}] * len(rows)
    decoded = decode(schema, [encode(schema, row) for row in rows])
    assert decoded.values.to_pylist() == rows


@given(nodes())
@settings(max_examples=60)
def test_some_levels_of_a_record_that_contains_itself_are_read(value: Any) -> None:
    inner = pa.struct({"id": pa.int64(), "tail": pa.string()})
    fields = pa.schema({"children": pa.list_(inner), "next": inner, "tail": pa.string()})
    check_wanted(parse(NODE), fields)

    def shown(each: Any) -> Any:
        return None if each is None else {"id": each["id"], "tail": each["tail"]}

    decoded = decode(NODE, [encode(NODE, value)], fields=fields)
    assert malformed(decoded) == [None]
    assert decoded.values.to_pylist() == [
        {"children": [*map(shown, value["children"])], "next": shown(value["next"]), "tail": value["tail"]}
    ]


def test_the_depth_of_skipped_records_is_limited() -> None:
    schema = record(("next", ["null", "R"]), ("id", "int"))
    datums: list[bytes | None] = [b"\2" * depth + b"\0" + b"\2" * depth + b"\4" for depth in (1, 100, 101, 100_000)]
    decoded = decode(schema, datums, fields=pa.schema({"id": pa.int32()}))
    assert decoded.values.field("id").to_pylist() == [2, 2, None, None]
    assert [error and error[1] for error in malformed(decoded)] == [None, None, *[MESSAGES[Reason.DEPTH]] * 2]


def test_a_record_without_an_end_is_malformed_soon() -> None:
    """All records contain all others, so that no datum ends, and there are more paths than can be counted."""
    names = [f"N{number}" for number in range(9)]
    members = [record(*((name, name) for name in names), name=name) for name in names]
    schema = record(*((f"f{number}", ["null", member]) for number, member in enumerate(members)), ("id", "int"))
    started = time.process_time()
    decoded = decode(schema, [b"\0" * 9 + b"\2", b"\2" + b"\0" * 99], fields=pa.schema({"id": pa.int32()}))
    assert decoded.values.to_pylist() == [{"id": 1}, {"id": None}]
    with pytest.raises(
        AvroSchemaError, match=r"^field 'f0\.N0': the record N0 contains itself, for which Spark has no"
    ):
        spark_ddl(parse(schema))
    assert time.process_time() - started < 120


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_record_that_contains_itself_in_others_has_no_type(length: int) -> None:
    inner: Any = "N0"
    for number in reversed(range(length)):
        inner = record(("next", ["null", inner]), name=f"N{number}")
    path = ".".join(["f", *["next"] * length])
    with pytest.raises(AvroSchemaError, match=f"^field {path!r}: the record N0 contains itself".replace(".", "[.]")):
        spark_ddl(parse(record(("f", inner))))


def test_a_schema_has_more_types_than_a_column() -> None:
    shared = record(*((f"f{number}", "int") for number in range(100)), name="Shared")
    schema = record(("a0", shared), *((f"a{number}", "Shared") for number in range(1, 200)), ("id", "int"))
    datum = b"\2" * 200 * 100 + b"\4"
    assert decode(schema, [datum], fields=pa.schema({"id": pa.int32()})).values.to_pylist() == [{"id": 2}]
    inner = pa.schema({"a199": pa.struct({"f99": pa.int32()})})
    assert decode(schema, [datum], fields=inner).values.to_pylist() == [{"a199": {"f99": 1}}]
    with pytest.raises(AvroSchemaError, match=r"more than 20000 types, .*; name the wanted fields with \.schema\(\)$"):
        spark_ddl(parse(schema))


@pytest.mark.parametrize("decimal", [DECIMAL, FIXED], ids=["bytes", "fixed"])
def test_large_decimals_are_skipped_or_read(decimal: Any) -> None:
    schema = record(("id", "int"), ("amount", ["null", decimal]), ("all", {"type": "array", "items": decimal}))
    if decimal is FIXED:
        schema["fields"][2]["type"]["items"] = "F"
    values = [Decimal("12.34"), Decimal("-" + "9" * 36 + ".99"), Decimal("1" + "0" * 36 + ".00")]
    datums: list[bytes | None] = [encode(schema, {"id": 1, "amount": value, "all": [value]}) for value in values]
    assert decode(schema, datums, fields=pa.schema({"id": pa.int32()})).values.to_pylist() == [{"id": 1}] * 3
    fields = pa.schema({"amount": pa.decimal128(38, 2), "all": pa.list_(pa.binary())})
    check_wanted(parse(schema), fields)
    decoded = decode(schema, datums, fields=fields)
    assert decoded.values.field("amount").to_pylist() == [*values[:2], None]
    assert [int.from_bytes(each[0], signed=True) for each in decoded.values.field("all").to_pylist()[:2]] == [
        int(f"{value:f}".replace(".", "")) for value in values[:2]
    ]
    assert [error and error[1] for error in malformed(decoded)] == [None, None, MESSAGES[Reason.RANGE]]


def test_a_writer_may_have_more_digits_than_the_reader() -> None:
    reader = record(("amount", {**DECIMAL, "precision": 10}))
    writer = record(("amount", DECIMAL))
    datums: list[bytes | None] = [encode(writer, {"amount": Decimal(text)}) for text in ("1.50", "123456789012.00")]
    decoded = decode(writer, datums, reader)
    assert decoded.values.to_pylist() == [{"amount": Decimal("1.50")}, {"amount": None}]


@pytest.mark.parametrize(
    ("avro_type", "path", "reads"),
    [
        (DECIMAL, "a", "decimal(38,2), which reads the values that fit, or binary"),
        ({**FIXED, "scale": 40}, "a", "binary"),
        ({"type": "array", "items": ["null", DECIMAL]}, "a.element", "decimal(38,2)"),
        ({"type": "map", "values": record(("b", DECIMAL), name="S")}, "a.value.b", "decimal(38,2)"),
        (["null", "int", DECIMAL], "a.member1", "decimal(38,2)"),
    ],
)
def test_a_schema_with_a_large_decimal_has_no_type_but_names_the_field(avro_type: Any, path: str, reads: str) -> None:
    with pytest.raises(AvroSchemaError) as raised:
        spark_ddl(parse(record(("a", avro_type))))
    message = str(raised.value)
    assert message.startswith(f"field {path!r}: Spark's decimals have at most 38 digits, and this is decimal(64,")
    assert f"; name the wanted fields with .schema(), or read it as {reads}" in message


def test_the_advice_depends_on_the_caller() -> None:
    with pytest.raises(
        AvroSchemaError, match=r"^the schema: Spark's decimals .*; set avroSchema, or read it as decimal"
    ):
        spark_ddl(parse(DECIMAL), "set avroSchema")
    with pytest.raises(AvroSchemaError, match=r"^field 'next': the record Node contains itself.*; set avroSchema$"):
        spark_ddl(parse(NODE), "set avroSchema")


@pytest.mark.parametrize(
    ("precision", "data_type", "fits"),
    [
        (64, pa.decimal128(38, 2), True),
        (64, pa.decimal128(37, 2), False),
        (64, pa.decimal128(38, 3), False),
        (64, pa.string(), False),
        (64, pa.binary(), True),
        (10, pa.decimal128(10, 2), True),
        (10, pa.decimal128(12, 2), True),
        (10, pa.decimal128(9, 2), False),
        (10, pa.binary(), True),
    ],
)
def test_types_that_decimals_are_read_as(precision: int, data_type: pa.DataType, fits: bool) -> None:
    schema = parse(record(("p", record(("a", {**DECIMAL, "precision": precision}), name="P"))))
    wanted = pa.schema({"p": pa.struct({"a": data_type})})
    if fits:
        check_wanted(schema, wanted)
        return
    other = "decimal(38,2), which reads" if precision == 64 else "decimal(10,2) or binary"
    with pytest.raises(AvroSchemaError) as raised:
        check_wanted(schema, wanted)
    assert str(raised.value).startswith(
        f"field 'p.a' is bytes (decimal) in the Avro schema, which cannot be read as {data_type}, but as {other}"
    )


def test_defaults_of_fields_that_are_not_wanted_do_not_matter() -> None:
    reader = record(("a", "int"), ("b", "int"), ("n", ["null", "R"]), ("d", DECIMAL), b="x", d="\u1234", n=5)
    decoded = decode(record(("a", "int")), [b"\2"], reader, fields=pa.schema({"a": pa.int32()}))
    assert decoded.values.to_pylist() == [{"a": 1}]


def test_a_default_that_contains_itself_is_an_error() -> None:
    reader = record(("a", "int"), ("r", record(("x", "int"), ("r", "S"), name="S", x=1, r={})), r={})
    inner: pa.DataType = pa.struct({"x": pa.int32()})
    for _ in range(3):
        inner = pa.struct({"x": pa.int32(), "r": inner})
    assert decode(record(("a", "int")), [b"\2"], reader, fields=pa.schema({"r": inner})).malformed is None
    with pytest.raises(AvroSchemaError, match="default of field 'r'"):
        compile_encoder(parse(reader), pa.struct({"a": pa.int32()}), "value")


def test_new_fields_of_records_that_contain_themselves() -> None:
    wider = {**NODE, "fields": [*NODE["fields"], {"name": "more", "type": "int"}]}
    assert list(new_fields(parse(wider), parse(NODE))) == ["more"]
    assert list(new_fields(parse(NODE), parse(wider))) == []


@pytest.mark.parametrize("decimal", [DECIMAL, FIXED], ids=["bytes", "fixed"])
def test_decimals_are_written_with_a_schema_of_more_digits(decimal: Any) -> None:
    schema = record(("amount", ["null", decimal]))
    values = [Decimal("12.34"), Decimal("-" + "9" * 36 + ".99"), Decimal("9" * 36 + ".99"), None]
    structs = pa.StructArray.from_arrays([pa.array(values, pa.decimal128(38, 2))], ["amount"])
    program = compile_encoder(parse(schema), structs.type, "value")
    encoding = PayloadEncoding(program.numbers, program.constants, b"")
    datums = AvroEncoder(encoding).encode(structs)
    assert datums.to_pylist() == [encode(schema, {"amount": value}) for value in values]


def test_columns_are_written_with_a_schema_that_has_more() -> None:
    schema = parse(
        record(("id", "int"), ("amount", ["null", DECIMAL]), ("node", ["null", NODE]), amount=None, node=None)
    )
    assert compile_encoder(schema, pa.struct({"id": pa.int32()}), "value").numbers
    assert compile_encoder(schema, pa.struct({"id": pa.int32(), "amount": pa.decimal128(38, 2)}), "value").numbers


@pytest.mark.parametrize("is_first", [True, False])
def test_null_at_the_root_is_null(is_first: bool) -> None:
    point = record(("x", "int"), name="P")
    schema = ["null", point] if is_first else [point, "null"]
    null, value = (b"\0", b"\2") if is_first else (b"\2", b"\0")
    for fields in (arrow_fields(parse(point)), pa.schema([]), pa.schema({"y": pa.string()})):
        decoded = decode(schema, [null, value + b"\6", None, null, b"\4"], fields=fields)
        unknown = (0, MESSAGES[Reason.BRANCH])
        assert malformed(decoded) == [None, None, None, None, unknown]
        rows = decoded.values.to_pylist()
        assert rows[:4] == [None, {"x": 3} if "x" in fields.names else dict.fromkeys(fields.names), None, None]
    trailing = decode(schema, [null + b"\0"], fields=arrow_fields(parse(point)))
    assert malformed(trailing) == [(1, MESSAGES[Reason.TRAILING])]


def test_null_at_the_root_is_malformed_if_the_reader_has_no_null() -> None:
    point = record(("x", "int"), name="P")
    assert malformed(decode(["null", point], [b"\0", b"\2\6"], point)) == [(1, MESSAGES[Reason.UNREADABLE]), None]
    assert decode("null", [b""], ["null", point], arrow_fields(parse(point))).values.to_pylist() == [None]
    decoded = decode(["null", point, "string"], [b"\0", b"\2\6", b"\4\0"], ["null", point], arrow_fields(parse(point)))
    assert decoded.values.to_pylist() == [None, {"x": 3}, {"x": None}]
