"""Random values for message schemas, and the same values as objects of two libraries."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import typing
import uuid
from typing import TYPE_CHECKING, Any

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kio.schema.errors import ErrorCode

from pyspark_kafka_direct.protocol.schema import (
    ApiMessageType,
    ArrayType,
    FieldSpec,
    StructSpec,
)

if TYPE_CHECKING:
    import random

_SIZES = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_LENGTHS = (0, 1, 2, 5, 42, 126, 127, 128, 300)  # of strings and bytes; a varint of two bytes begins at 127
_CHARACTERS = "a b\0.\x7fé€\uffff😀"

NEWER_THAN_LIBRARIES = [("ApiVersions", 5)]
"""Versions that kafka-python and kio lack (Kafka 4.4)."""

ONLY_IN_KIO = frozenset({"CreateDelegationToken", "RenewDelegationToken", "DescribeDelegationToken"})
"""Messages that kafka-python lacks."""


def random_values(of: StructSpec, version: int, source: random.Random) -> dict[str, Any]:
    """Return values that a struct can have in a version, as a mapping."""
    return {each.name: _value(each, version, source) for each in of.fields if each.versions.has(version)}


def random_integer(bits: int, source: random.Random) -> int:
    """Return an integer, of any number of bits with the same probability, or one of the largest."""
    limit = 1 << (bits - 1)
    value = source.choice([source.getrandbits(source.randrange(bits)), limit - 1])
    return source.choice([value, -value - 1])


def plain(value: Any) -> Any:
    """Convert named tuples and other objects to mappings, and arrays to lists, for comparison."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def complete(of: StructSpec, given: dict[str, Any]) -> dict[str, Any]:
    """Return the values with defaults for missing fields, at every depth."""
    return {each.name: _completed(each, given.get(each.name, each.default)) for each in of.fields}


def kafka_python(api: ApiMessageType, side: str) -> Any:
    """Return kafka-python's class."""
    name = f"{api.name}{side}"
    return next(
        getattr(module, name) for module in (admin, consumer, metadata, producer, sasl) if hasattr(module, name)
    )


def as_kafka_python(data_class: Any, of: StructSpec, given: dict[str, Any], version: int) -> Any:
    """Return an object of kafka-python with these values."""
    fields = {}
    for each in of.fields:
        default_tag = each.tag is not None and each.is_default(given.get(each.name, each.default))
        if each.name in given and not default_tag and not _is_bit_field(each):
            value = given[each.name]
            if isinstance(each.type, ArrayType) and isinstance(each.type.of, StructSpec) and value is not None:
                inner = data_class._struct.fields[each.name].data_class
                value = [as_kafka_python(inner, each.type.of, one, version) for one in value]
            elif isinstance(each.type, StructSpec):
                value = as_kafka_python(data_class._struct.fields[each.name].data_class, each.type, value, version)
            fields[each.name] = value
    return data_class(version=version, **fields)


def kio(api: ApiMessageType, side: str, version: int) -> Any:
    """Return kio's class, or ``None`` if it does not have the version."""
    package = "".join("_" + character.lower() if character.isupper() else character for character in api.name).lstrip(
        "_"
    )
    try:
        module = importlib.import_module(f"kio.schema.{package}.v{version}.{side.lower()}")
    except ModuleNotFoundError:
        return None
    return getattr(module, f"{api.name}{side}")


def as_kio(data_class: Any, given: dict[str, Any]) -> Any:
    """Return an object of kio with these values."""
    types = _type_hints(data_class)
    fields = {}
    for each in dataclasses.fields(data_class):
        name = each.name if each.name in given else f"{each.name}_ms"
        value = given[name]
        kafka_type = each.metadata.get("kafka_type", "")
        if kafka_type == "error_code":
            value = ErrorCode(value)
        elif kafka_type.startswith("timedelta"):
            value = datetime.timedelta(milliseconds=value)
        elif kafka_type.startswith("datetime"):
            value = datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
        elif isinstance(value, dict):
            value = as_kio(types[each.name], value)
        elif kafka_type == "uuid":
            value = None if value == uuid.UUID(int=0) else value
        elif isinstance(value, list | tuple):
            inner = next((arg for arg in _arguments(types[each.name]) if dataclasses.is_dataclass(arg)), None)
            value = tuple(value if inner is None else (as_kio(inner, one) for one in value))
        fields[each.name] = value
    return data_class(**fields)


_type_hints = functools.cache(typing.get_type_hints)


def _value(field: FieldSpec, version: int, source: random.Random) -> Any:
    if field.nullable.has(version) and source.random() < 0.3:
        return None
    if isinstance(field.type, ArrayType):
        of = field.type.of
        return [
            random_values(of, version, source) if isinstance(of, StructSpec) else _primitive(of, source)
            for _ in range(source.randrange(4))
        ]
    if isinstance(field.type, StructSpec):
        return random_values(field.type, version, source)
    if _is_bit_field(field):
        return field.default
    if field.name.endswith("error_code"):
        return source.choice([0, 3, 16, 58])  # kio has only known codes
    if field.name.endswith("_ms"):
        return random_integer(32, source) & 2**31 - 1
    return _primitive(field.type, source)


def _is_bit_field(field: FieldSpec) -> bool:
    """Whether it is a number here, but a set of operations with another name in kafka-python."""
    return field.name.endswith("authorized_operations") and field.type == "int32"


def _primitive(kafka_type: str, source: random.Random) -> Any:
    if kafka_type in _SIZES:
        return random_integer(_SIZES[kafka_type], source)
    if kafka_type == "bool":
        return source.choice([False, True])
    if kafka_type == "uuid":
        return uuid.UUID(int=source.choice([0, source.getrandbits(128)]))
    size = source.choice(_LENGTHS)
    return "".join(source.choices(_CHARACTERS, k=size)) if kafka_type == "string" else source.randbytes(size)


def _completed(field: FieldSpec, value: Any) -> Any:
    if isinstance(field.type, ArrayType) and value is not None:
        of = field.type.of
        return [complete(of, each) if isinstance(of, StructSpec) else each for each in value]
    if isinstance(field.type, StructSpec):
        return complete(field.type, plain(value))
    return value


def _arguments(annotation: Any) -> list[Any]:
    result = [annotation]
    for each in typing.get_args(annotation):
        result += _arguments(each)
    return result
