"""Values for the tables of messages, and the same values as the two oracles hold them."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import typing
import uuid
from typing import Any

from hypothesis import strategies as st
from kafka.protocol import admin, consumer, metadata, producer, sasl
from kio.schema.errors import ErrorCode

from pyspark_kafka_direct.wire.messages._fields import Api, Array, Field, Struct

_SIZES = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def values(of: Struct, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Any values that a struct can have in a version, as a mapping."""
    return st.fixed_dictionaries(
        {each.name: _values_of(each, version) for each in of.fields if each.versions.has(version)}
    )


def plain(value: Any) -> Any:
    """Named tuples and other objects as mappings, arrays as lists, to be compared."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def complete(of: Struct, given: dict[str, Any]) -> dict[str, Any]:
    """The values with the defaults of what is not given, at every depth."""
    return {each.name: _completed(each, given.get(each.name, each.default)) for each in of.fields}


def kafka_python(api: Api, side: str) -> Any:
    """The class of kafka-python."""
    name = f"{api.name}{side}"
    return next(getattr(room, name) for room in (admin, consumer, metadata, producer, sasl) if hasattr(room, name))


def as_kafka_python(data_class: Any, of: Struct, given: dict[str, Any], version: int) -> Any:
    """An object of kafka-python with these values."""
    held = {}
    for each in of.fields:
        default_tag = each.tag is not None and each.is_default(given.get(each.name, each.default))
        if each.name in given and not default_tag and not _is_bit_field(each):
            value = given[each.name]
            if isinstance(each.type, Array) and isinstance(each.type.of, Struct) and value is not None:
                inner = data_class._struct.fields[each.name].data_class
                value = [as_kafka_python(inner, each.type.of, one, version) for one in value]
            elif isinstance(each.type, Struct):
                value = as_kafka_python(data_class._struct.fields[each.name].data_class, each.type, value, version)
            held[each.name] = value
    return data_class(version=version, **held)


def kio(api: Api, side: str, version: int) -> Any:
    """The class of kio, or ``None`` where it does not have the version."""
    folder = "".join("_" + letter.lower() if letter.isupper() else letter for letter in api.name).lstrip("_")
    try:
        module = importlib.import_module(f"kio.schema.{folder}.v{version}.{side.lower()}")
    except ModuleNotFoundError:
        return None
    return getattr(module, f"{api.name}{side}")


def as_kio(data_class: Any, given: dict[str, Any]) -> Any:
    """An object of kio with these values."""
    types = typing.get_type_hints(data_class)
    held = {}
    for each in dataclasses.fields(data_class):
        name = each.name if each.name in given else f"{each.name}_ms"
        value = given[name]
        kind = each.metadata.get("kafka_type", "")
        if kind == "error_code":
            value = ErrorCode(value)
        elif kind.startswith("timedelta"):
            value = datetime.timedelta(milliseconds=value)
        elif kind.startswith("datetime"):
            value = datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
        elif isinstance(value, dict):
            value = as_kio(types[each.name], value)
        elif kind == "uuid":
            value = None if value == uuid.UUID(int=0) else value
        elif isinstance(value, list | tuple):
            inner = next((arg for arg in _arguments(types[each.name]) if dataclasses.is_dataclass(arg)), None)
            value = tuple(value if inner is None else (as_kio(inner, one) for one in value))
        held[each.name] = value
    return data_class(**held)


def _values_of(field: Field, version: int) -> st.SearchStrategy[Any]:
    found = _any(field, version)
    return st.none() | found if field.nullable.has(version) else found


def _any(field: Field, version: int) -> st.SearchStrategy[Any]:
    if isinstance(field.type, Array):
        of = field.type.of
        inner = values(of, version) if isinstance(of, Struct) else _primitive(of)
        return st.lists(inner, max_size=3)
    if isinstance(field.type, Struct):
        return values(field.type, version)
    if _is_bit_field(field):
        return st.just(field.default)
    if field.name.endswith("error_code"):
        return st.sampled_from([0, 3, 16, 58])  # an oracle knows codes, not numbers
    if field.name.endswith("_ms"):
        return st.integers(0, 2**31 - 1)
    return _primitive(field.type)


def _is_bit_field(field: Field) -> bool:
    """A number for us, a set of operations under another name for kafka-python."""
    return field.name.endswith("authorized_operations") and field.type == "int32"


def _primitive(kind: str) -> st.SearchStrategy[Any]:
    if kind in _SIZES:
        limit = 1 << (_SIZES[kind] - 1)
        return st.integers(-limit, limit - 1)
    if kind == "bool":
        return st.booleans()
    if kind == "uuid":
        return st.uuids() | st.just(uuid.UUID(int=0))
    return st.text(max_size=200) if kind == "string" else st.binary(max_size=300)


def _completed(field: Field, value: Any) -> Any:
    if isinstance(field.type, Array) and value is not None:
        of = field.type.of
        return [complete(of, each) if isinstance(of, Struct) else each for each in value]
    if isinstance(field.type, Struct):
        return complete(field.type, plain(value))
    return value


def _arguments(annotation: Any) -> list[Any]:
    found = [annotation]
    for each in typing.get_args(annotation):
        found += _arguments(each)
    return found
