"""The Parsing Canonical Form of schemas, whose fingerprint identifies a schema in Avro's single-object encoding."""

from __future__ import annotations

import json
from typing import Any

from pyspark_kafka_direct.payloads.avro.avro_types import (
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordType,
    UnionType,
)
from pyspark_kafka_direct.payloads.framing import crc64_avro


def fingerprint(avro_type: AvroType) -> bytes:
    """Return the fingerprint of a schema: eight bytes, the least significant first."""
    return crc64_avro(canonical_form(avro_type).encode())


def canonical_form(avro_type: AvroType) -> str:
    """Return a schema without what does not matter to readers: full names, no logical types, docs and defaults."""
    return json.dumps(_canonical(avro_type, set()), separators=(",", ":"), ensure_ascii=False)


def _canonical(avro_type: AvroType, named: set[str]) -> Any:
    """Return the JSON of a type; ``named`` are the named types so far, of which only the names are written again."""
    match avro_type:
        case PrimitiveType():
            return avro_type.name
        case ArrayType(items):
            return {"type": "array", "items": _canonical(items, named)}
        case MapType(values):
            return {"type": "map", "values": _canonical(values, named)}
        case UnionType(branches):
            return [_canonical(branch, named) for branch in branches]
    if avro_type.name in named:
        return avro_type.name
    named.add(avro_type.name)
    match avro_type:
        case RecordType(name, _, fields):
            members = [{"name": field.name, "type": _canonical(field.type, named)} for field in fields]
            return {"name": name, "type": "record", "fields": members}
        case EnumType(name, _, symbols):
            return {"name": name, "type": "enum", "symbols": list(symbols)}
        case FixedType(name, _, size):
            return {"name": name, "type": "fixed", "size": size}
