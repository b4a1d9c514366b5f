"""Flights as Avro datums and Protobuf messages, with schemas of the same 14 fields, and values that are malformed."""

from __future__ import annotations

import io
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from bench.typed import flight_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

FIELDS = {
    "year": "int",
    "month": "int",
    "day": "int",
    "dep_time": "double",
    "dep_delay": "double",
    "arr_delay": "double",
    "carrier": "string",
    "flight": "long",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "air_time": "double",
    "distance": "long",
    "time_hour": "string",
}
FEW_FIELDS = ("carrier", "origin", "dep_delay")

_PROTOBUF_TYPES = {"int": "int32", "long": "int64"}
_NUMBERS: dict[str, Callable[[str], int | float]] = {"int": int, "long": int, "double": float}

SCHEMA_ID = 1
NEWER_SCHEMA_ID = 2
PREFIX = b"\0" + SCHEMA_ID.to_bytes(4, "big")
"""The header of Confluent's framing."""

HOSTILE_SCHEMA = json.dumps(
    {"type": "record", "name": "Hostile", "fields": [{"name": "items", "type": {"type": "array", "items": "null"}}]}
)
HOSTILE = PREFIX + bytes.fromhex("808080801000") + b"\0"  # an array of 2^31 items, which have no bytes


def flights(count: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield flights with the fields of the schemas; missing values are None."""
    for row in islice(flight_rows(), count):
        yield {name: _value(kind, row[name]) for name, kind in FIELDS.items()}


def ddl(names: Iterable[str]) -> str:
    """Return the Spark type of some fields."""
    kinds = {"long": "bigint"}
    return f"struct<{', '.join(f'{name}: {kinds.get(FIELDS[name], FIELDS[name])}' for name in names)}>"


def arrow_fields(names: Iterable[str]) -> pa.Schema:
    """Return the Arrow types of some fields."""
    import pyarrow as pa

    types = {"int": pa.int32(), "long": pa.int64(), "double": pa.float64(), "string": pa.string()}
    return pa.schema([(name, types[FIELDS[name]]) for name in names])


def avro_schema(*, newer: bool = False) -> str:
    """Return the schema of flights. A newer writer has one field more, and flight numbers of another type."""
    kinds = FIELDS | ({"flight": "int", "gate": "string"} if newer else {})
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in kinds.items()]
    return json.dumps({"type": "record", "name": "Flight", "fields": fields})


def avro_datums(rows: Iterable[dict[str, Any]], schema: str) -> list[bytes]:
    """Encode flights with fastavro, without a header."""
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema))
    datums = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, {"gate": "B12", **row} if "gate" in schema else row)
        datums.append(out.getvalue())
    return datums


def proto_schema() -> str:
    """Return a ``.proto`` file with the same fields, which tell a missing value from zero."""
    fields = [
        f"  optional {_PROTOBUF_TYPES.get(kind, kind)} {name} = {number};\n"
        for number, (name, kind) in enumerate(FIELDS.items(), 1)
    ]
    return f'syntax = "proto3";\nmessage Flight {{\n{"".join(fields)}}}\n'


def protobuf_type() -> Any:
    """Return the class of the messages in Google's library."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="flight.proto", syntax="proto3")
    message = file.message_type.add(name="Flight")
    for number, (name, kind) in enumerate(FIELDS.items(), 1):
        field = message.field.add(name=name, number=number, label=1, proto3_optional=True, oneof_index=number - 1)
        field.type = getattr(field, f"TYPE_{_PROTOBUF_TYPES.get(kind, kind).upper()}")
        message.oneof_decl.add(name=f"_{name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Flight"))


def protobuf_messages(rows: Iterable[dict[str, Any]]) -> list[bytes]:
    """Encode flights with Google's library, without a header."""
    kind = protobuf_type()
    return [
        kind(**{name: value for name, value in row.items() if value is not None}).SerializeToString() for row in rows
    ]


def damaged(value: bytes, number: int, share: float) -> bytes:
    """Truncate one of ``1 / share`` values, or give its first union a branch that the schema lacks."""
    if not share or number % (step := round(1 / share)):
        return value
    start = len(PREFIX)
    return value[: len(value) // 2] if number // step % 2 else value[:start] + b"\x08" + value[start + 1 :]


def _value(kind: str, text: str) -> Any:
    if text in ("", "NA"):
        return None
    return text if kind == "string" else _NUMBERS[kind](text)
