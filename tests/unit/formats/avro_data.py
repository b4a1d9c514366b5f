"""Schemas and values of Avro for tests: fastavro writes the datums, and is the oracle of what they contain."""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from pyspark_kafka_direct.formats.avro.avro_types import (
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
from pyspark_kafka_direct.formats.avro.resolution import resolve
from pyspark_kafka_direct.formats.avro.schema import parse_avro_schema
from pyspark_kafka_direct.formats.avro.spark_types import logical_type
from pyspark_kafka_direct.records import IMPLEMENTATION, DecodedValues
from pyspark_kafka_direct.records.avro_values import AvroDecoder, AvroRequest
from pyspark_kafka_direct.records.python.avro_decoder import PythonAvroDecoder

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


def decoders(fields: pa.Schema) -> list[AvroDecoder]:
    """Return the Python decoder, and the native one if it exists."""
    request = AvroRequest(fields)
    if IMPLEMENTATION == "python":
        return [PythonAvroDecoder(request)]
    from pyspark_kafka_direct.records.native_kernel import NativeAvroDecoder

    return [PythonAvroDecoder(request), NativeAvroDecoder(request)]


def decode(
    writer: Any, datums: list[bytes | None], reader: Any = None, fields: pa.Schema | None = None
) -> DecodedValues:
    """Decode datums with both decoders, which have to agree; schemas are those of JSON."""
    writer_type = parse(writer)
    reader_type = writer_type if reader is None else parse(reader)
    fields = arrow_fields(reader_type) if fields is None else fields
    program = resolve(writer_type, reader_type, fields)
    values = pa.array(datums, pa.binary())
    results = []
    for decoder in decoders(fields):
        decoder.add_program(program)
        results.append(decoder.decode(values))
    for result in results[1:]:
        result.values.validate(full=True)
        assert result.values.type == results[0].values.type
        # Not equals(): NaN is not equal to itself.
        assert repr(result.values.to_pylist()) == repr(results[0].values.to_pylist())
        assert malformed(result) == malformed(results[0])
    return results[-1]


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
            index = next(index for index, branch in enumerate(branches) if isinstance(value, _python_class(branch)))
            return {
                f"member{number}": spark_value(branch, value) if number == index else None
                for number, branch in enumerate(branches)
            }
    return value


def _python_class(avro_type: AvroType) -> type:
    match avro_type:
        case PrimitiveType("boolean"):
            return bool
        case PrimitiveType("string"):
            return str
        case PrimitiveType("double"):
            return float
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
_UNION = Typed(
    ["null", "boolean", "string", "double", {"type": "array", "items": "long"}],
    st.none()
    | st.booleans()
    | _text
    | st.floats(allow_nan=False)
    | st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
)


@st.composite
def records(draw: st.DrawFn) -> Typed:
    """Draw a record with nested types; each named type has a name of its own."""
    names = iter(f"T{number}" for number in range(1000))
    return _record(draw, names, 3)


def _type(draw: st.DrawFn, names: Any, depth: int) -> Typed:
    kinds = ["primitive"] * 3 + ["nullable"] * 3 + ["enum", "fixed", "union"]
    kind = draw(st.sampled_from(kinds + (["array", "map", "record"] if depth else [])))
    match kind:
        case "nullable":
            inner = _type(draw, names, depth - 1 if depth else 0)
            if inner.schema == "null" or isinstance(inner.schema, list):
                return inner
            order = draw(st.booleans())
            return Typed(["null", inner.schema] if order else [inner.schema, "null"], st.none() | inner.values)
        case "enum":
            schema = {"type": "enum", "name": next(names), "symbols": ["A", "B_long_symbol_of_an_enum", "C"]}
            return Typed(schema, st.sampled_from(schema["symbols"]))
        case "fixed":
            size = draw(st.sampled_from([0, 1, 5, 20]))
            return Typed({"type": "fixed", "name": next(names), "size": size}, st.binary(min_size=size, max_size=size))
        case "union":
            return _UNION
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


def _record(draw: st.DrawFn, names: Any, depth: int) -> Typed:
    name = next(names)
    fields = {f"f{number}": _type(draw, names, depth) for number in range(draw(st.integers(0, 5)))}
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": key, "type": field.schema} for key, field in fields.items()],
    }
    return Typed(schema, st.fixed_dictionaries({key: field.values for key, field in fields.items()}))
