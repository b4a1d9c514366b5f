"""Schemas and values of Avro for tests: fastavro writes the datums, and is the oracle of what they contain."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

from pyspark_kafka_direct.payloads.avro.avro_types import (
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordType,
    UnionType,
    without_null,
)
from pyspark_kafka_direct.payloads.avro.avro_values import AvroDecoder
from pyspark_kafka_direct.payloads.avro.resolution import resolve
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.avro.spark_types import logical_type

if TYPE_CHECKING:
    import random

    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues

_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def decode(
    writer: Any, datums: list[bytes | None], reader: Any = None, fields: pa.Schema | None = None
) -> DecodedValues:
    """Decode datums; schemas are those of JSON."""
    writer_type = parse(writer)
    reader_type = writer_type if reader is None else parse(reader)
    fields = arrow_fields(reader_type) if fields is None else fields
    program = resolve(writer_type, reader_type, fields)
    decoder = AvroDecoder(fields)
    decoder.add_program(program)
    decoded = decoder.decode(pa.array(datums, pa.binary()))
    decoded.values.validate(full=True)
    return decoded


def malformed(decoded: DecodedValues) -> list[tuple[int, str] | None]:
    """Return position and reason of each row that is malformed."""
    if decoded.malformed is None:
        return [None] * len(decoded.values)
    reasons, positions = decoded.malformed.reasons.to_pylist(), decoded.malformed.positions.to_pylist()
    return [None if reason is None else (at, reason) for at, reason in zip(positions, reasons, strict=True)]


def encode(schema: Any, value: Any) -> bytes:
    """Return a datum that fastavro writes."""
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(schema), value)
    return output.getvalue()


def read(datum: bytes, writer: Any, reader: Any = None) -> Any:
    """Return what fastavro reads."""
    parsed_reader = None if reader is None else fastavro.parse_schema(reader)
    return fastavro.schemaless_reader(io.BytesIO(datum), fastavro.parse_schema(writer), parsed_reader)


def parse(schema: Any) -> AvroType:
    """Parse a schema of JSON."""
    return parse_avro_schema(json.dumps(schema)).root


def arrow_fields(record: AvroType) -> pa.Schema:
    """Return all fields of a record, with the Arrow types of Spark's types."""
    assert isinstance(record, RecordType)
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in record.fields])


def arrow_type(avro_type: AvroType) -> pa.DataType:
    """Return the Arrow type of the Spark type of an Avro type."""
    inner = without_null(avro_type).type
    logical = None if inner is None else logical_type(inner)
    if logical and logical.name == "decimal":
        return pa.decimal128(logical.precision, logical.scale)
    if logical and logical.name in _LOGICAL:
        return _LOGICAL[logical.name]
    match inner:
        case None:
            return pa.null()
        case PrimitiveType(name):
            return _PRIMITIVES[name]
        case FixedType():
            return pa.binary()
        case EnumType():
            return pa.string()
        case ArrayType(items):
            return pa.list_(pa.field("element", arrow_type(items)))
        case MapType(values):
            return pa.map_(pa.string(), pa.field("value", arrow_type(values)))
        case RecordType():
            return pa.struct(list(arrow_fields(inner)))
        case UnionType(branches):
            members = [pa.field(f"member{index}", arrow_type(branch)) for index, branch in enumerate(branches)]
            return pa.struct(members)


def spark_value(avro_type: AvroType, value: Any) -> Any:
    """Return a value that fastavro reads as one of Arrow's ``to_pylist``. Unions have branches of different classes."""
    if value is None:
        return None
    match without_null(avro_type).type:
        case ArrayType(items):
            return [spark_value(items, each) for each in value]
        case MapType(values):
            return [(key, spark_value(values, each)) for key, each in value.items()]
        case RecordType(_, _, fields):
            return {field.name: spark_value(field.type, value[field.name]) for field in fields}
        case UnionType(branches):
            index = next(index for index, branch in enumerate(branches) if type(value) is _python_class(branch))
            return {
                f"member{number}": spark_value(branch, value) if number == index else None
                for number, branch in enumerate(branches)
            }
    return value


def _python_class(avro_type: AvroType) -> type:
    match avro_type:
        case PrimitiveType("boolean"):
            return bool
        case PrimitiveType("int" | "long"):
            return int
        case PrimitiveType("float" | "double"):
            return float
        case PrimitiveType("bytes") | FixedType():
            return bytes
        case PrimitiveType("string") | EnumType():
            return str
        case ArrayType():
            return list
    return dict


class Typed(NamedTuple):
    """A schema, and a strategy of its values."""

    schema: Any
    values: st.SearchStrategy[Any]


_text = st.text(max_size=40)
_PRIMITIVE_TYPES = [
    Typed("boolean", st.booleans()),
    Typed("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    Typed("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    Typed("float", st.floats(width=32, allow_nan=False)),
    Typed("double", st.floats(allow_nan=False)),
    Typed("bytes", st.binary(max_size=40)),
    Typed("string", _text),
    Typed("null", st.none()),
]
_KINDS_OF_CLASSES = ["boolean", "integer", "real", "text", "binary", "array", "object"]  # one Python class each


@st.composite
def records(draw: st.DrawFn, *, logical: bool = True) -> Typed:
    """Draw a record with nested types; each named type has a name of its own.

    Damaged datums need schemas without logical types, because Python's dates end in the year 9999.
    """
    return _record(draw, _Names(logical), 3)


class _Names:
    def __init__(self, logical: bool) -> None:
        self.logical = logical
        self._count = 0

    def __next__(self) -> str:
        self._count += 1
        return f"T{self._count}"


def _type(draw: st.DrawFn, names: _Names, depth: int) -> Typed:
    kinds = ["primitive"] * 3 + ["nullable"] * 3 + ["enum", "fixed", "union", "numbers"]
    kinds += ["logical", "decimal"] if names.logical else []
    kind = draw(st.sampled_from(kinds + (["array", "map", "record"] if depth else [])))
    match kind:
        case "nullable":
            inner = _type(draw, names, depth - 1 if depth else 0)
            if inner.schema == "null" or isinstance(inner.schema, list):
                return inner
            order = draw(st.booleans())
            return Typed(["null", inner.schema] if order else [inner.schema, "null"], st.none() | inner.values)
        case "enum":
            symbols = draw(st.permutations(["A", "B_long_symbol_of_an_enum", "C"]))[: draw(st.integers(1, 3))]
            return Typed({"type": "enum", "name": next(names), "symbols": symbols}, st.sampled_from(symbols))
        case "fixed":
            size = draw(st.sampled_from([0, 1, 5, 20]))
            return Typed({"type": "fixed", "name": next(names), "size": size}, st.binary(min_size=size, max_size=size))
        case "union":
            kinds = draw(st.lists(st.sampled_from(_KINDS_OF_CLASSES), min_size=1, max_size=4, unique=True))
            return _union(draw, [_branch(draw, names, depth, each) for each in kinds])
        case "numbers":  # which Spark reads as the wider type
            pairs = [[_PRIMITIVE_TYPES[1], _PRIMITIVE_TYPES[2]], [_PRIMITIVE_TYPES[3], _PRIMITIVE_TYPES[4]]]
            return _union(draw, draw(st.sampled_from(pairs).flatmap(st.permutations)))
        case "logical":
            temporal: Typed = draw(st.sampled_from(_TEMPORAL_TYPES))
            return temporal
        case "decimal":
            return _decimal(draw, names)
        case "array":
            inner = _type(draw, names, depth - 1)
            return Typed({"type": "array", "items": inner.schema}, st.lists(inner.values, max_size=4))
        case "map":
            inner = _type(draw, names, depth - 1)
            values = st.dictionaries(st.text(max_size=4), inner.values, max_size=4)
            return Typed({"type": "map", "values": inner.schema}, values)
        case "record":
            return _record(draw, names, depth - 1)
    primitive: Typed = draw(st.sampled_from(_PRIMITIVE_TYPES))
    return primitive


def _union(draw: st.DrawFn, branches: list[Typed]) -> Typed:
    """Draw a union of some types; null has any position, or none."""
    at = draw(st.integers(-1, len(branches)))
    all_branches = branches if at < 0 else [*branches[:at], _PRIMITIVE_TYPES[-1], *branches[at:]]
    return Typed([each.schema for each in all_branches], st.one_of(*(each.values for each in all_branches)))


def _branch(draw: st.DrawFn, names: _Names, depth: int, kind: str) -> Typed:
    choices: dict[str, tuple[str, ...]] = {
        "boolean": ("boolean",),
        "integer": ("int", "long"),
        "real": ("float", "double"),
        "binary": ("bytes",),
    }
    match kind:
        case "text" if draw(st.booleans()):
            return Typed({"type": "enum", "name": next(names), "symbols": ["A", "B"]}, st.sampled_from("AB"))
        case "text":
            return Typed("string", _text)
        case "array":
            inner = _type(draw, names, max(depth - 1, 0))
            return Typed({"type": "array", "items": inner.schema}, st.lists(inner.values, max_size=3))
        case "object" if draw(st.booleans()):
            return _record(draw, names, max(depth - 1, 0))
        case "object":
            inner = _type(draw, names, max(depth - 1, 0))
            return Typed({"type": "map", "values": inner.schema}, st.dictionaries(_text, inner.values, max_size=3))
    name = draw(st.sampled_from(choices[kind]))
    return next(each for each in _PRIMITIVE_TYPES if each.schema == name)


def _decimal(draw: st.DrawFn, names: _Names) -> Typed:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    schema: dict[str, Any] = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    if draw(st.booleans()):
        schema |= {"type": "fixed", "name": next(names), "size": draw(st.sampled_from([16, 17, 20]))}
    most = 10**precision - 1
    values = st.integers(-most, most) | st.sampled_from([-most, most, 0, -1])
    return Typed(schema, values.map(lambda value: Decimal(f"{value}e-{scale}")))


def _record(draw: st.DrawFn, names: _Names, depth: int) -> Typed:
    name = next(names)
    numbers = draw(st.permutations(range(draw(st.integers(0, 5)))))
    fields = {f"f{number}": _type(draw, names, depth) for number in numbers}
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": key, "type": field.schema} for key, field in fields.items()],
    }
    return Typed(schema, st.fixed_dictionaries({key: field.values for key, field in fields.items()}))


def encode_in_blocks(schema: Any, value: Any, source: random.Random) -> bytes:
    """Return a datum whose arrays and maps have several blocks, some with their size."""
    if isinstance(schema, list):
        datum = encode(schema, value)  # its first byte is the index of the branch
        return datum[:1] + encode_in_blocks(schema[datum[0] >> 1], value, source)
    match schema["type"] if isinstance(schema, dict) else schema:
        case "record":
            fields = schema["fields"]
            return b"".join(encode_in_blocks(each["type"], value[each["name"]], source) for each in fields)
        case "array":
            return _blocks([encode_in_blocks(schema["items"], each, source) for each in value], source)
        case "map":
            entries = [
                encode("string", key) + encode_in_blocks(schema["values"], each, source) for key, each in value.items()
            ]
            return _blocks(entries, source)
    return encode(schema, value)


def _blocks(items: list[bytes], source: random.Random) -> bytes:
    datum = b""
    while items:
        count = source.randint(1, len(items))
        block = b"".join(items[:count])
        items = items[count:]
        datum += encode("long", count) if source.random() < 0.5 else encode("long", -count) + encode("long", len(block))
        datum += block
    return datum + b"\0"


@st.composite
def reader_schemas(draw: st.DrawFn, schema: Any) -> Any:
    """Draw a schema that can read what was written with another one."""
    return _reader_schema(draw, schema)


def _reader_schema(draw: st.DrawFn, schema: Any) -> Any:
    if isinstance(schema, list):
        branches = draw(
            st.permutations([_reader_schema(draw, each) if isinstance(each, dict) else each for each in schema])
        )
        # If several branches can read a value, fastavro takes the first, and Avro the one of the same type.
        assume(not {"string", "bytes"} <= {str(branch) for branch in schema})
        numbers = iter([each for each in ("int", "long", "float", "double") if each in branches])
        return [next(numbers) if str(each) in ("int", "long", "float", "double") else each for each in branches]
    if isinstance(schema, str):
        return draw(st.sampled_from([schema, *_PROMOTIONS.get(schema, ())]))
    schema = dict(schema)
    match schema["type"]:
        case "record":
            fields = [{**each, "type": _reader_schema(draw, each["type"])} for each in schema["fields"]]
            added = {"name": "added", "type": ["int", "null"], "default": 7}
            fields = draw(st.permutations([*fields, added]))
            schema["fields"] = fields[: draw(st.integers(1, len(fields)))]
        case "array":
            schema["items"] = _reader_schema(draw, schema["items"])
        case "map":
            schema["values"] = _reader_schema(draw, schema["values"])
        case "enum":
            schema["symbols"] = draw(st.permutations([*schema["symbols"], "ADDED"]))
    return schema


_PROMOTIONS = {
    "int": ("long", "double", ["null", "int"], ["long", "null"]),
    "long": ("double", ["string", "null", "long"]),
    "float": ("double", ["boolean", "string", "null", "float"]),
    "string": ("bytes", ["long", "boolean", "string", "null"]),
    "boolean": (["string", "boolean"], ["boolean", "null"]),
}
_MOMENTS = st.datetimes(min_value=datetime.datetime(1, 1, 2), max_value=datetime.datetime(9999, 12, 30))
_UTC_MOMENTS = _MOMENTS.map(lambda moment: moment.replace(tzinfo=datetime.UTC))
_TEMPORAL_TYPES = [
    Typed({"type": "int", "logicalType": "date"}, st.dates()),
    Typed({"type": "long", "logicalType": "timestamp-millis"}, _UTC_MOMENTS),
    Typed({"type": "long", "logicalType": "timestamp-micros"}, _UTC_MOMENTS),
    Typed({"type": "long", "logicalType": "local-timestamp-millis"}, _MOMENTS),
    Typed({"type": "long", "logicalType": "local-timestamp-micros"}, _MOMENTS),
]
