"""Requests and responses by the library ``kio``, whose message classes are generated from Kafka's definitions.

One per cent of the seeds use it, so that an error in the package's message tables, which otherwise are on both sides of
a simulated connection, does not go unnoticed. Here the tables give only the shape of the values: field names, and the
defaults of fields that a version lacks. ``kio`` gives order, types, versions, tags and the defaults of omitted fields.

``kio`` lacks version 5 of ApiVersions, which brokers of such a history do not support.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from pyspark_kafka_direct.protocol.schema import ArrayType, StructSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.protocol.schema import ApiMessageType, FieldSpec

    Convert = Callable[[Any], Any]

_ZERO_ID: Final = UUID(int=0)
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIME: Final = -1  # a timestamp that kio has as None

# By kio's name of the type; others have the same values in both.
_DECODE: Final[Mapping[str, Convert]] = {
    "error_code": lambda value: value.value,
    "timedelta_i32": lambda value: value // _MILLISECOND,
    "timedelta_i64": lambda value: value // _MILLISECOND,
    "datetime_i64": lambda value: _NO_TIME if value is None else (value - _EPOCH) // _MILLISECOND,
    "uuid": lambda value: _ZERO_ID if value is None else value,
}
_ENCODE: Final[Mapping[str, Convert]] = {
    "error_code": ErrorCode,
    "timedelta_i32": lambda value: timedelta(milliseconds=value),
    "timedelta_i64": lambda value: timedelta(milliseconds=value),
    "datetime_i64": lambda value: None if value == _NO_TIME else _EPOCH + timedelta(milliseconds=value),
    "uuid": lambda value: None if value == _ZERO_ID else value,
    "bytes": lambda value: None if value is None else bytes(value),
    "records": lambda value: None if value is None else bytes(value),
}
# Of a field without a default in Kafka's definition; kio requires a value.
_IMPLICIT_DEFAULTS: Final[Mapping[str, Any]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "error_code": ErrorCode(0),
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": _EPOCH,
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), 0),
}


def decode_body(api: ApiMessageType, version: int, body: bytes) -> Any:
    """Decode the body of a request to the named tuple that ``compile_reader`` gives."""
    return _cached("decode", _decoder, api, "Request", version)(body)


def encode_body(api: ApiMessageType, version: int, values: Mapping[str, Any]) -> bytes:
    """Encode the body of a response from its values by field name, as ``compile_writer`` takes them."""
    encoded: bytes = _cached("encode", _encoder, api, "Response", version)(values)
    return encoded


def encode_request(api: ApiMessageType, version: int, values: Mapping[str, Any]) -> bytes:
    """Encode the body of a request."""
    encoded: bytes = _cached("encode", _encoder, api, "Request", version)(values)
    return encoded


def decode_response(api: ApiMessageType, version: int, body: bytes) -> Any:
    """Decode the body of a response to the named tuple that ``compile_reader`` gives."""
    return _cached("decode", _decoder, api, "Response", version)(body)


_compiled: dict[tuple[str, str, str, int], Any] = {}


def _cached(operation: str, compile: Callable[..., Any], api: ApiMessageType, side: str, version: int) -> Any:
    key = (operation, api.name, side, version)
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = compile(api, side, version)
    return found


def _decoder(api: ApiMessageType, side: str, version: int) -> Callable[[bytes], Any]:
    entity_class = _entity_class(api, side, version)
    read = entity_reader(entity_class)
    convert = _to_named_tuple(_struct(api, side), entity_class)

    def decode(body: bytes) -> Any:
        entity, size = read(body, 0)
        assert size == len(body), f"{len(body) - size} bytes remain after {api.name}{side}"
        return convert(entity)

    return decode


def _encoder(api: ApiMessageType, side: str, version: int) -> Callable[[Mapping[str, Any]], bytes]:
    entity_class = _entity_class(api, side, version)
    write = entity_writer(entity_class)
    convert = _to_entity(_struct(api, side), entity_class)

    def encode(values: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        write(out, convert(values))
        return out.getvalue()

    return encode


def _struct(api: ApiMessageType, side: str) -> StructSpec:
    return api.request if side == "Request" else api.response


def _entity_class(api: ApiMessageType, side: str, version: int) -> Any:
    package = "".join("_" + each.lower() if each.isupper() else each for each in api.name).lstrip("_")
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{side.lower()}")
    return getattr(module, f"{api.name}{side}")


def _to_named_tuple(of: StructSpec, entity_class: Any) -> Convert:
    """Return a function that converts an entity to the named tuple of a struct."""
    entity_fields = {each.name: each for each in dataclasses.fields(entity_class)}
    build = partial(tuple.__new__, of.value_class)
    readers: list[Convert] = []
    for field in of.fields:
        entity_field = entity_fields.get(_kio_name(field, entity_fields))
        readers.append(_default_of(field) if entity_field is None else _attribute(field, entity_field))

    def convert(entity: Any) -> Any:
        return build([read(entity) for read in readers])

    return convert


def _default_of(field: FieldSpec) -> Convert:
    return lambda _: field.default


def _attribute(field: FieldSpec, entity_field: dataclasses.Field[Any]) -> Convert:
    get = attrgetter(entity_field.name)
    nested = _nested_struct(field)
    if nested is not None:
        convert = _to_named_tuple(nested, _nested_class(entity_field.type))
        if isinstance(field.type, StructSpec):
            return lambda entity: convert(get(entity))

        def convert_all(entity: Any) -> Any:
            elements = get(entity)
            return None if elements is None else tuple([convert(each) for each in elements])

        return convert_all
    decode = _DECODE.get(entity_field.metadata["kafka_type"])
    if decode is None or isinstance(field.type, ArrayType):
        return get
    return lambda entity: decode(get(entity))


def _to_entity(of: StructSpec, entity_class: Any) -> Convert:
    """Return a function that converts values by field name to an entity."""
    entity_fields = {each.name: each for each in dataclasses.fields(entity_class)}
    writers: dict[str, tuple[str, Convert]] = {}
    absent: dict[str, FieldSpec] = {}
    for field in of.fields:
        name = _kio_name(field, entity_fields)
        if name in entity_fields:
            writers[field.name] = (name, _argument(field, entity_fields[name]))
        else:
            absent[field.name] = field
    defaults = {
        name: _implicit_default(each)
        for name, each in entity_fields.items()
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    }

    def convert(values: Any) -> Any:
        given = values._asdict() if hasattr(values, "_asdict") else values
        arguments = dict(defaults)
        for name, value in given.items():
            if name in writers:
                kio_name, encode = writers[name]
                arguments[kio_name] = encode(value)
            elif name not in absent:
                raise ValueError(f"{of.name} has no field {name}")
            elif not absent[name].ignorable and not absent[name].is_default(value):
                raise ValueError(f"{entity_class.__module__} has no field {name}")
        return entity_class(**arguments)

    return convert


def _argument(field: FieldSpec, entity_field: dataclasses.Field[Any]) -> Convert:
    nested = _nested_struct(field)
    if nested is not None:
        convert = _to_entity(nested, _nested_class(entity_field.type))
        if isinstance(field.type, StructSpec):
            return convert
        return lambda elements: None if elements is None else tuple([convert(each) for each in elements])
    if isinstance(field.type, ArrayType):
        return lambda elements: None if elements is None else tuple(elements)
    return _ENCODE.get(entity_field.metadata["kafka_type"], _unchanged)


def _implicit_default(entity_field: dataclasses.Field[Any]) -> Any:
    nested = _nested_class(entity_field.type)
    if get_origin(entity_field.type) is tuple or any(get_origin(each) is tuple for each in get_args(entity_field.type)):
        return ()
    if nested is not None:
        fields = [each for each in dataclasses.fields(nested) if each.default is dataclasses.MISSING]
        return nested(**{each.name: _implicit_default(each) for each in fields})
    return _IMPLICIT_DEFAULTS[entity_field.metadata["kafka_type"]]


def _kio_name(field: FieldSpec, entity_fields: Mapping[str, Any]) -> str:
    """Return kio's name: it leaves the unit out, because its values have types of time."""
    return field.name if field.name in entity_fields else field.name.removesuffix("_ms")


def _nested_struct(field: FieldSpec) -> StructSpec | None:
    of = field.type.of if isinstance(field.type, ArrayType) else field.type
    return of if isinstance(of, StructSpec) else None


def _nested_class(annotation: Any) -> Any:
    """Return the class of entities in a type such as ``tuple[Topic, ...] | None``."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next((found for each in get_args(annotation) if (found := _nested_class(each)) is not None), None)


def _unchanged(value: Any) -> Any:
    return value
