"""Differences of schemas: fields, symbols and types of a writer schema that a reader schema lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.payloads.avro.avro_types import (
    NULL,
    ArrayType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordType,
    UnionType,
    type_name,
    without_null,
)
from pyspark_kafka_direct.payloads.avro.resolution import PROMOTIONS, is_nanos, matching_branch, same_name
from pyspark_kafka_direct.payloads.avro.spark_types import logical_type
from pyspark_kafka_direct.payloads.avro.wanted_fields import find_field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.payloads.avro.avro_types import AvroType

    # Whether a field is new, or else a value; its path, or a description.
    _NewParts = Iterator[tuple[bool, str]]


def new_fields(writer: AvroType, reader: AvroType) -> Iterator[str]:
    """Yield the paths of fields that only the writer's schema has, such as ``address.street``.

    A field that has another name in the reader's schema is found by its aliases.
    """
    return (path for is_field, path in _Comparison().parts(writer, reader, "") if is_field)


def new_values(writer: AvroType, reader: AvroType) -> Iterator[str]:
    """Yield what a field of the writer can be that one of the reader cannot, such as ``color (symbol GREEN)``.

    Such a value would be read as a default, or make its datum malformed.
    """
    return (text for is_field, text in _Comparison().parts(writer, reader, "") if not is_field)


class _Comparison:
    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()  # pairs of records, which may contain themselves

    def parts(self, writer: AvroType, reader: AvroType, path: str) -> _NewParts:
        if isinstance(writer, UnionType):
            for branch in writer.branches:
                yield from self.parts(branch, reader, path)
            return
        wanted = without_null(reader)
        target = wanted.type
        if isinstance(target, UnionType):
            index = matching_branch(writer, target.branches)
            target = None if index is None else target.branches[index]
        if writer == NULL:
            is_known = wanted.nullable
        elif target is None:
            is_known = False
        else:
            is_known = _is_readable(writer, target)
        if not is_known:
            if path:  # the values of another root type are malformed
                instead = "" if writer == NULL or isinstance(wanted.type, UnionType) else f" instead of {_name(target)}"
                yield False, f"{path} ({_name(writer)}{instead})"
            return
        match writer, target:
            case ArrayType(items), ArrayType(reader_items):
                yield from self.parts(items, reader_items, path)
            case MapType(values), MapType(reader_values):
                yield from self.parts(values, reader_values, path)
            case EnumType(), EnumType():
                yield from ((False, f"{path} (symbol {each})") for each in writer.symbols if each not in target.symbols)
            case RecordType(), RecordType() if (writer.name, target.name) not in self._seen:
                self._seen.add((writer.name, target.name))
                prefix = f"{path}." if path else ""
                for field in writer.fields:
                    found = find_field(target, field.name)
                    if found is None:
                        yield True, f"{prefix}{field.name}"
                    else:
                        yield from self.parts(field.type, found.type, f"{prefix}{field.name}")


def _is_readable(writer: AvroType, target: AvroType) -> bool:
    """Return whether a type is read as the other one, with all values that are not in it."""
    match writer, target:
        case PrimitiveType(name), PrimitiveType(other):
            is_same = name == other or other in PROMOTIONS.get(name, ())
            has_unit = not is_nanos(writer) or is_nanos(target) or logical_type(target) is None
            return is_same and has_unit and _has_digits_of(writer, target)
        case FixedType(), FixedType():
            return same_name(writer, target) and writer.size == target.size and _has_digits_of(writer, target)
        case EnumType(), EnumType():
            return same_name(writer, target)
    return type(writer) is type(target)


def _has_digits_of(writer: AvroType, target: AvroType) -> bool:
    """Return whether a decimal of the reader has the scale of the writer's, and no less digits."""
    written, read = logical_type(writer), logical_type(target)
    if written is None or read is None or not written.name == read.name == "decimal":
        return True
    return written.scale == read.scale and written.precision <= read.precision


def _name(avro_type: AvroType | None) -> str:
    if avro_type is None:
        return "null"
    logical = logical_type(avro_type)
    return str(logical) if logical is not None and logical.name == "decimal" else type_name(avro_type)
