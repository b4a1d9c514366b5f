"""Avro schemas, and their parser. Their texts may come from other hosts, so size, depth and names are limited."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from pyspark_kafka_direct.errors import printable
from pyspark_kafka_direct.payloads.avro.avro_types import (
    MAX_DEPTH,
    MAX_NAME_CHARACTERS,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_TYPES,
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
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAME: Final = re.compile(r"[^\W\d]\w*")
_FULL_NAME: Final = re.compile(r"\.?[^\W\d]\w*(\.[^\W\d]\w*)*")  # a name in the null namespace may begin with a dot
_NAMED: Final = ("record", "error", "enum", "fixed")
_MAX_INT: Final = (1 << 31) - 1
_STRING_OR_COMMENT: Final = re.compile(r"""("(?:[^"\\]|\\.)*"?)|/\*.*?(?:\*/|$)|//[^\n]*""", re.DOTALL)

_LOGICAL_TYPES: Final = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
    },
    "string": {"uuid"},
}


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema. It is pickled as its text, so tasks parse it again."""

    text: str
    references: tuple[str, ...]
    root: AvroType = field(compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return parse_avro_schema, (self.text, self.references)

    def __repr__(self) -> str:
        return f"AvroSchema({type_name(self.root)})"


def parse_avro_schema(text: str, references: Sequence[str] = ()) -> AvroSchema:
    """Parse a schema that may come from another host.

    What Spark has no type for is no error: it matters only for fields that a query reads.

    Args:
        text: The schema, as JSON.
        references: The schemas whose named types the text uses. A schema comes after those that it uses itself.

    Returns:
        The schema.

    Raises:
        AvroSchemaError: The text is not an Avro schema, or it is too large.
    """
    parser = _SchemaParser()
    for reference in references:
        parser.parse(reference)
    return AvroSchema(text, tuple(references), parser.parse(text))


class _SchemaParser:
    """Parses schemas that share named types."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[AvroType, int]] = {}  # by full name, with the number of types in it
        self._open: dict[str, RecordType] = {}  # the records around the current type
        self._definitions: dict[str, tuple[Mapping[str, Any], str]] = {}  # by full name, with their namespaces
        self._types = 0  # of the current schema
        self._bytes = 0  # of all schemas

    def parse(self, text: str) -> AvroType:
        """Parse a schema that may use the named types of earlier ones."""
        self._bytes += len(text.encode("utf-8", "surrogatepass"))
        if self._bytes > MAX_SCHEMA_BYTES:
            raise AvroSchemaError(
                f"an Avro schema may have at most {MAX_SCHEMA_BYTES >> 20} MiB, its references included"
            )
        try:
            content = _parse_json(text)
            for name, definition, namespace in _definitions(content, ""):  # first, for uses before a definition
                self._definitions.setdefault(name, (definition, namespace))
            self._types = 0
            return self._type(content, "", 0)
        except RecursionError:
            raise AvroSchemaError(f"an Avro schema may have {MAX_DEPTH} levels") from None

    def _type(self, content: Any, namespace: str, depth: int) -> AvroType:
        self._types += 1
        if depth > MAX_DEPTH:
            raise AvroSchemaError(f"an Avro schema may have {MAX_DEPTH} levels")
        self._check_types()
        match content:
            case str():
                return self._named_type(content, namespace, depth)
            case list():
                return self._union(content, namespace, depth)
            case {"type": dict() | list() as inner}:
                return self._type(inner, namespace, depth + 1)
            case {"type": str() as kind} if kind in _NAMED:
                return self._definition(kind, content, namespace, depth)
            case {"type": "array"}:
                return ArrayType(self._type(_required(content, "items"), namespace, depth + 1))
            case {"type": "map"}:
                return MapType(self._type(_required(content, "values"), namespace, depth + 2))  # PyArrow has two levels
            case {"type": str() as name} if name in _PRIMITIVES:
                return PrimitiveType(cast("PrimitiveName", name), _logical_type(content, name))
            case {"type": str() as name}:
                return self._named_type(name, namespace, depth)
            case _:
                return _fail("this is no type", content)

    def _check_types(self) -> None:
        if self._types > MAX_SCHEMA_TYPES:
            raise AvroSchemaError(
                f"an Avro schema may have {MAX_SCHEMA_TYPES} types, in which a named type counts as often as it is used"
            )

    def _named_type(self, name: str, namespace: str, depth: int) -> AvroType:
        """Return the type to which a name refers."""
        if name in _PRIMITIVES:
            return PrimitiveType(cast("PrimitiveName", name))
        candidates = [_in_namespace(name, namespace), name]
        for candidate in candidates:
            if candidate in self._open:  # the type is within this record
                record = self._open[candidate]
                object.__setattr__(record, "is_recursive", True)  # the class is frozen
                return record
            if candidate in self._named:
                avro_type, types = self._named[candidate]
                self._types += types
                self._check_types()
                return avro_type
        for candidate in candidates:
            if candidate in self._definitions:  # after its first use, as Java's parser allows
                definition, outer = self._definitions[candidate]
                return self._definition(definition["type"], definition, outer, depth)
        return _fail("there is no such type", name)

    def _definition(self, kind: str, content: Mapping[str, Any], namespace: str, depth: int) -> AvroType:
        name, aliases = _names(content, namespace)
        if self._definitions[name][0] != content:
            _fail("two types have the same name", name)
        if name in self._named or name in self._open:  # the same definition again, as Java's parser allows
            return self._named_type(name, "", depth)
        types_before = self._types
        avro_type: AvroType
        match kind:
            case "enum":
                avro_type = _enum(name, aliases, content)
                self._types += len(avro_type.symbols) // 8  # symbols need less memory than types, but some
            case "fixed":
                avro_type = _fixed(name, aliases, content)
            case _:
                avro_type = self._record(name, aliases, content, depth)
        self._named[name] = (avro_type, self._types - types_before)
        return avro_type

    def _union(self, content: list[Any], namespace: str, depth: int) -> UnionType:
        branches = tuple(self._type(branch, namespace, depth + 1) for branch in content)
        kinds = set()
        for branch in branches:
            if isinstance(branch, UnionType):
                _fail("a union may not contain a union", content)
            # A union may have several named types, but only one array, map, or primitive type of a name.
            is_named = isinstance(branch, RecordType | EnumType | FixedType)
            kind = type_name(branch) if is_named else _kind(branch)
            if kind in kinds:
                _fail(f"a union has two branches of the type {kind}", content)
            kinds.add(kind)
        return UnionType(branches)

    def _record(self, name: str, aliases: tuple[str, ...], content: Mapping[str, Any], depth: int) -> RecordType:
        namespace = name.rpartition(".")[0]
        members = _required(content, "fields")
        if not isinstance(members, list):
            _fail("the fields of a record are a list", members)
        record = self._open[name] = RecordType(name, aliases, fields=())
        fields = tuple(self._field(member, namespace, depth + 1) for member in members)
        del self._open[name]
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            _fail("a record has two fields of the same name", name)
        object.__setattr__(record, "fields", fields)  # they may contain the record
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


def _enum(name: str, aliases: tuple[str, ...], content: Mapping[str, Any]) -> EnumType:
    symbols = _required(content, "symbols")
    if not isinstance(symbols, list):
        _fail("the symbols of an enum are a list", symbols)
    for symbol in symbols:
        if not isinstance(symbol, str) or len(symbol) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(symbol):
            _fail("this is no symbol of an enum", symbol)
    if len(set(symbols)) < len(symbols):
        _fail("an enum has a symbol twice", name)
    default = _text(content, "default")
    if default is not None and default not in symbols:
        _fail("the default of an enum is none of its symbols", default)
    return EnumType(name, aliases, tuple(symbols), default)


def _fixed(name: str, aliases: tuple[str, ...], content: Mapping[str, Any]) -> FixedType:
    size = _required(content, "size")
    if type(size) is not int or not 0 <= size <= _MAX_INT:
        _fail(f"the size of a fixed type is at most {_MAX_INT}", size)
    return FixedType(name, aliases, size, _logical_type(content, "fixed", size))


def _names(content: Mapping[str, Any], namespace: str) -> tuple[str, tuple[str, ...]]:
    """Return the full name of a new type, and its aliases."""
    name = _required(content, "name")
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS or not _FULL_NAME.fullmatch(name):
        _fail("this is no name of a type", name)
    own_namespace = _text(content, "namespace") or ""
    if len(own_namespace) > MAX_NAME_CHARACTERS or not (own_namespace == "" or _FULL_NAME.fullmatch(own_namespace)):
        _fail("this is no namespace", own_namespace)
    full_name = _full_name(content, namespace)
    if full_name in _PRIMITIVES:
        _fail("a type of Avro has this name", name)
    aliases = content.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        _fail("aliases are a list of names", aliases)
    return full_name, tuple(_in_namespace(alias, full_name.rpartition(".")[0]) for alias in aliases)


def _full_name(content: Mapping[str, Any], namespace: str) -> str:
    own = _text(content, "namespace")
    return _in_namespace(content["name"], namespace if own is None else own)


def _in_namespace(name: str, namespace: str) -> str:
    return name.removeprefix(".") if "." in name or not namespace else f"{namespace}.{name}"


def _text(content: Mapping[str, Any], name: str) -> str | None:
    """Return an attribute; as in Java, one that is no string does not count."""
    value = content.get(name)
    return value if isinstance(value, str) else None


def _definitions(content: Any, namespace: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield the named types that are defined in a schema: their full names, and the namespaces around them."""
    match content:
        case list():
            inner = content
        case {"type": str() as kind, "name": str()} if kind in _NAMED:
            name = _full_name(content, namespace)
            yield name, content, namespace
            namespace = name.rpartition(".")[0]
            members = content.get("fields") if kind in ("record", "error") else None
            inner = (
                [each.get("type") for each in members if isinstance(each, dict)] if isinstance(members, list) else []
            )
        case {"type": "array", "items": items}:
            inner = [items]
        case {"type": "map", "values": values}:
            inner = [values]
        case {"type": named}:
            inner = [named]
        case _:
            return
    for each in inner:
        yield from _definitions(each, namespace)


def _parse_json(text: str) -> Any:
    """Parse JSON with comments, which Java's parser allows."""
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            return json.loads(_STRING_OR_COMMENT.sub(lambda found: found[1] or " ", text))
        except ValueError:
            raise AvroSchemaError(f"an Avro schema is JSON, not the path of a file: {printable(str(error))}") from None


def _kind(avro_type: AvroType) -> str:
    """Return the kind of an unnamed type."""
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
    """Return the logical type, or None if it is not valid; ``size`` is that of a fixed type, None for bytes."""
    precision, scale = content.get("precision"), content.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    if not 0 <= scale <= precision or not 0 < precision <= _MAX_INT:
        return None
    # A fixed type has to hold all numbers with this many digits, and a sign.
    if size is not None and (size == 0 or precision > int((8 * size - 1) * math.log10(2))):
        return None
    return LogicalType("decimal", precision, scale)


def _required(content: Mapping[str, Any], name: str) -> Any:
    if name not in content:
        _fail(f"{name!r} is missing", content)
    return content[name]


def _fail(reason: str, content: object) -> NoReturn:
    text = content if isinstance(content, str) else json.dumps(content, default=str)
    raise AvroSchemaError(f"not an Avro schema: {reason}: {printable(text[:200])}")
