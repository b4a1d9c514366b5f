"""Avro schemas, and their parser. Their texts may come from other hosts, so size, depth and names are limited."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from pyspark_kafka_direct.errors import printable
from pyspark_kafka_direct.formats.avro.avro_types import (
    MAX_DEPTH,
    MAX_NAME_CHARACTERS,
    MAX_PRECISION,
    MAX_SCHEMA_BYTES,
    MAX_TYPES,
    NO_DEFAULT,
    ArrayType,
    AvroSchemaError,
    AvroType,
    EnumType,
    FixedType,
    LogicalType,
    MapType,
    PrimitiveName,
    PrimitiveType,
    RecordField,
    RecordType,
    UnionType,
    type_name,
    unqualified,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAME: Final = re.compile(r"[^\W\d]\w*")
_FULL_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_MAX_FIXED_BYTES: Final = 1 << 24

_LOGICAL_TYPES: Final = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    },
    "string": {"uuid"},
}


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema. It is pickled as its text, so tasks parse it again."""

    text: str
    references: tuple[str, ...]
    root: AvroType

    def __reduce__(self) -> tuple[object, ...]:
        return parse_avro_schema, (self.text, self.references)

    def __repr__(self) -> str:
        return f"AvroSchema({type_name(self.root)})"


def parse_avro_schema(text: str, references: Sequence[str] = ()) -> AvroSchema:
    """Parse a schema that may come from another host.

    Args:
        text: The schema, as JSON.
        references: The schemas whose named types the text uses. A schema comes after those that it uses itself.

    Returns:
        The schema.

    Raises:
        AvroSchemaError: The text is not an Avro schema, or it is too large, or a type contains itself.
    """
    parser = _SchemaParser()
    for reference in references:
        parser.parse(reference)
    return AvroSchema(text, tuple(references), parser.parse(text))


class _SchemaParser:
    """Parses schemas that share named types."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[AvroType, int]] = {}  # by full name, with the number of types
        self._open: list[str] = []  # the records around the current type
        self._types = 0
        self._bytes = 0

    def parse(self, text: str) -> AvroType:
        """Parse a schema that may use the named types of earlier ones."""
        self._bytes += len(text.encode("utf-8", "surrogatepass"))
        if self._bytes > MAX_SCHEMA_BYTES:
            raise AvroSchemaError(
                f"an Avro schema may have at most {MAX_SCHEMA_BYTES >> 20} MiB, its references included"
            )
        try:
            content = json.loads(text)
        except ValueError as error:
            raise AvroSchemaError(f"an Avro schema is JSON: {printable(str(error))}") from None
        except RecursionError:
            raise AvroSchemaError(f"an Avro schema may have {MAX_DEPTH} levels") from None
        self._types = 0
        return self._type(content, "", 0)

    def _type(self, content: Any, namespace: str, depth: int) -> AvroType:
        self._types += 1
        if depth > MAX_DEPTH:
            raise AvroSchemaError(f"an Avro schema may have {MAX_DEPTH} levels")
        self._check_types()
        match content:
            case str():
                return self._named_type(content, namespace)
            case list():
                return self._union(content, namespace, depth)
            case {"type": dict() | list() as inner}:
                return self._type(inner, namespace, depth + 1)
            case {"type": "record" | "error"}:
                return self._record(content, namespace, depth)
            case {"type": "enum"}:
                return self._enum(content, namespace)
            case {"type": "fixed"}:
                return self._fixed(content, namespace)
            case {"type": "array"}:
                return ArrayType(self._type(_required(content, "items"), namespace, depth + 1))
            case {"type": "map"}:
                return MapType(self._type(_required(content, "values"), namespace, depth + 2))  # PyArrow has two levels
            case {"type": str() as name} if name in _PRIMITIVES:
                return PrimitiveType(cast("PrimitiveName", name), _logical_type(content, name))
            case {"type": str() as name}:
                return self._named_type(name, namespace)
            case _:
                return _fail("this is no type", content)

    def _check_types(self) -> None:
        if self._types > MAX_TYPES:
            raise AvroSchemaError(
                f"an Avro schema may have {MAX_TYPES} types, in which a named type counts as often as it is used"
            )

    def _named_type(self, name: str, namespace: str) -> AvroType:
        if name in _PRIMITIVES:
            return PrimitiveType(cast("PrimitiveName", name))
        candidates = [name] if "." in name or not namespace else [f"{namespace}.{name}", name]
        for candidate in candidates:
            if candidate in self._open:
                raise AvroSchemaError(f"the record {printable(candidate)} contains itself, for which Spark has no type")
            if candidate in self._named:
                avro_type, types = self._named[candidate]
                self._types += types
                self._check_types()
                return avro_type
        return _fail("there is no such type", name)

    def _union(self, content: list[Any], namespace: str, depth: int) -> UnionType:
        branches = tuple(self._type(branch, namespace, depth + 1) for branch in content)
        kinds = set()
        for branch in branches:
            if isinstance(branch, UnionType):
                _fail("a union may not contain a union", content)
            is_named = isinstance(branch, RecordType | EnumType | FixedType)
            kind = type_name(branch) if is_named else _kind(branch)
            if kind in kinds:
                _fail(f"a union has two branches of the type {kind}", content)
            kinds.add(kind)
        if not branches:
            _fail("a union has no branches", content)
        return UnionType(branches)

    def _record(self, content: Mapping[str, Any], namespace: str, depth: int) -> RecordType:
        name, aliases = self._names(content, namespace)
        namespace = name.rpartition(".")[0]
        members = _required(content, "fields")
        if not isinstance(members, list):
            _fail("the fields of a record are a list", members)
        types = self._types
        self._open.append(name)
        fields = tuple(self._field(member, namespace, depth + 1) for member in members)
        self._open.pop()
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            _fail("a record has two fields of the same name", name)
        record = RecordType(name, aliases, fields)
        self._named[name] = (record, self._types - types)
        return record

    def _field(self, content: Any, namespace: str, depth: int) -> RecordField:
        if not isinstance(content, dict):
            _fail("a field is an object", content)
        name = _required(content, "name")
        if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(name):
            _fail("this is no name of a field", name)
        aliases = content.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            _fail("aliases are a list of names", aliases)
        # As in Java, a logical type beside the type of a field does not count.
        avro_type = self._type(_required(content, "type"), namespace, depth)
        return RecordField(name, tuple(aliases), avro_type, content.get("default", NO_DEFAULT))

    def _enum(self, content: Mapping[str, Any], namespace: str) -> EnumType:
        name, aliases = self._names(content, namespace)
        symbols = _required(content, "symbols")
        if not isinstance(symbols, list) or not symbols:
            _fail("the symbols of an enum are a list", symbols)
        for symbol in symbols:
            if not isinstance(symbol, str) or len(symbol) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(symbol):
                _fail("this is no symbol of an enum", symbol)
        if len(set(symbols)) < len(symbols):
            _fail("an enum has a symbol twice", name)
        default = content.get("default")
        if default is not None and default not in symbols:
            _fail("the default of an enum is none of its symbols", default)
        enum = EnumType(name, aliases, tuple(symbols), default)
        self._named[name] = (enum, len(symbols) // 8)
        return enum

    def _fixed(self, content: Mapping[str, Any], namespace: str) -> FixedType:
        name, aliases = self._names(content, namespace)
        size = _required(content, "size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_FIXED_BYTES:
            _fail(f"the size of a fixed type is at most {_MAX_FIXED_BYTES}", size)
        fixed = FixedType(name, aliases, size, _logical_type(content, "fixed", size))
        self._named[name] = (fixed, 0)
        return fixed

    def _names(self, content: Mapping[str, Any], namespace: str) -> tuple[str, tuple[str, ...]]:
        """Return the full name of a new type, and its aliases."""
        name = _required(content, "name")
        if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS or not _FULL_NAME.fullmatch(name):
            _fail("this is no name of a type", name)
        own = content.get("namespace", namespace)
        if not isinstance(own, str) or len(own) > MAX_NAME_CHARACTERS or not (own == "" or _FULL_NAME.fullmatch(own)):
            _fail("this is no namespace", own)
        full = name if "." in name or not own else f"{own}.{name}"
        if unqualified(full) in _PRIMITIVES and "." not in full:
            _fail("a type of Avro has this name", name)
        if full in self._named or full in self._open:
            _fail("two types have the same name", full)
        aliases = content.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            _fail("aliases are a list of names", aliases)
        own = full.rpartition(".")[0]
        return full, tuple(alias if "." in alias or not own else f"{own}.{alias}" for alias in aliases)


def _kind(avro_type: AvroType) -> str:
    match avro_type:
        case PrimitiveType(name):
            return name
        case ArrayType():
            return "array"
        case _:
            return "map"


def _logical_type(content: Mapping[str, Any], kind: str, size: int = 0) -> LogicalType | None:
    """Return the logical type, or None if it does not fit the type, as Avro demands."""
    name = content.get("logicalType")
    if not isinstance(name, str):
        return None
    if name == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(content, size if kind == "fixed" else None)
    if name == "duration" and kind == "fixed" and size == 12:
        return LogicalType(name)
    if name == "uuid" and kind == "fixed" and size == 16:
        return LogicalType(name)
    return LogicalType(name) if name in _LOGICAL_TYPES.get(kind, ()) else None


def _decimal(content: Mapping[str, Any], size: int | None) -> LogicalType | None:
    precision, scale = content.get("precision"), content.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        return None
    if size is not None and (size == 0 or precision > _digits(size)):
        return None
    if precision > MAX_PRECISION:
        _fail(f"Spark's decimals have at most {MAX_PRECISION} digits", precision)
    return LogicalType("decimal", precision, scale)


def _digits(size: int) -> int:
    """Return how many digits of any decimal fit into a number of bytes."""
    return len(str((1 << (8 * min(size, 64) - 1)) - 1)) - 1


def _required(content: Mapping[str, Any], name: str) -> Any:
    if name not in content:
        _fail(f"{name!r} is missing", content)
    return content[name]


def _fail(reason: str, content: object) -> NoReturn:
    text = content if isinstance(content, str) else json.dumps(content, default=str)
    raise AvroSchemaError(f"not an Avro schema: {reason}: {printable(text[:200])}")
