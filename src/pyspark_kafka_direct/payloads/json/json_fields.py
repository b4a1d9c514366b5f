"""The fields of JSON that a JSON Schema describes, as the DDL of a column.

A type is a string of DDL, or a ``_Struct``, ``_Array`` or ``_Map`` as long as alternatives may be merged into it. If a
schema does not say what a value is, the type is a string, which has the text of any JSON.
"""

from __future__ import annotations

from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias

from pyspark_kafka_direct.errors import printable
from pyspark_kafka_direct.payloads.decoded_values import MAX_COLUMN_TYPES, MAX_SCHEMA_DEPTH
from pyspark_kafka_direct.payloads.json.json_schema import CHOICES, JsonSchema, as_list, properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark_kafka_direct.payloads.json.json_schema import Node

_MAX_LOOKUPS: Final = 1_000_000  # of the properties of one object in the schemas that hold for it
_NONE: Final[frozenset[int]] = frozenset()
_STRING: Final = "string"
_NULL: Final = "null"
# From the narrowest to the widest. Beside another type, a float is a double.
_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "decimal(20,0)", "float", "double")
_INTEGERS: Final = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint64": "decimal(20,0)",
}
_FLOATS: Final = {"float32": "float", "float": "float"}
_TEXTS: Final = {"date": "date", "date-time": "timestamp_ltz"}  # regardless of spark.sql.timestampType
_KINDS_OF_VALUES: Final = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
}


class JsonSchemaError(ValueError):
    """Spark has no type for a part of a JSON Schema."""


class _Struct(NamedTuple):
    fields: dict[str, _Type]


class _Array(NamedTuple):
    element: _Type


class _Map(NamedTuple):
    value: _Type


_Type: TypeAlias = str | _Struct | _Array | _Map


def json_schema_ddl(text: str, references: Sequence[tuple[str, str]], advice: str) -> str:
    """Return the DDL of the objects that a schema describes.

    Args:
        text: A JSON Schema of any draft.
        references: The names and texts of the schemas that it refers to.
        advice: What to do if Spark has no type for a field.

    Raises:
        JsonSchemaError: The schema does not describe an object with properties, refers to a schema that is missing,
            contains itself, or is too large.
    """
    schema = JsonSchema(text, references)
    try:
        found = _Fields(schema, advice).type_of([schema.root], (), _NONE)
    except RecursionError:
        raise JsonSchemaError(f"the JSON Schema has too many levels of alternatives; {advice}") from None
    if not isinstance(found, _Struct) or not found.fields:
        raise JsonSchemaError(f"the JSON Schema is not that of an object with properties; {advice}")
    return _ddl(found)


class _Fields:
    def __init__(self, schema: JsonSchema, advice: str) -> None:
        self._schema = schema
        self._advice = advice
        self._count = 0

    def type_of(
        self, nodes: Iterable[Node], path: tuple[str, ...], outer: frozenset[int], chosen: frozenset[int] = _NONE
    ) -> _Type | None:
        """Return the type of values for which some schemas hold together; None if these do not say what it is.

        ``outer`` has the ids of the schemas that contain the value: if one of them holds again, the type is infinite.
        ``chosen`` has those of the alternatives of this value: one that leads to itself adds nothing.
        """
        parts = list(self._schema.parts(nodes))
        self._check(parts, path, outer)
        inside = outer | {id(part.schema) for part in parts}
        kinds = _kinds(parts)
        found = [self._type_of_kind(kind, parts, path, inside) for kind in kinds]
        for choices in (part.choices(keyword) for part in parts for keyword in CHOICES):
            if len(choices) > 1:  # a single one is among the parts
                others = [each for each in choices if id(each.schema) not in chosen]
                types = [self.type_of([each], path, outer, chosen | {id(each.schema)}) for each in others]
                if None not in types or kinds:  # otherwise, a value can be anything
                    found += types
        known = [each for each in found if each is not None]
        return reduce(_merged, known) if known else None

    def _check(self, parts: Sequence[Node], path: tuple[str, ...], outer: frozenset[int]) -> None:
        self._count += max(len(parts), 1)
        if self._count > MAX_COLUMN_TYPES:
            self._fail(path, f"the column would have more than {MAX_COLUMN_TYPES} types")
        if len(path) > MAX_SCHEMA_DEPTH:
            self._fail(path, f"it has more than {MAX_SCHEMA_DEPTH} levels")
        for part in parts:
            if id(part.schema) in outer:
                self._fail(path, "the schema contains itself, for which Spark has no type")
            for target in self._schema.references(part):
                if target.schema is None:
                    self._fail(path, f"the schema lacks {printable(part.schema['$ref'])!r}, to which it refers")

    def _type_of_kind(
        self, kind: str, parts: Sequence[Node], path: tuple[str, ...], outer: frozenset[int]
    ) -> _Type | None:
        match kind:
            case "object":
                return self._object(parts, path, outer)
            case "array":
                return self._array(parts, path, outer)
            case "boolean":
                return "boolean"
            case "integer":
                return _integer(parts)
            case "number":
                return next((_FLOATS[name] for name in _formats(parts) if name in _FLOATS), "double")
            case "string":
                is_base64 = any(part.schema.get("contentEncoding") == "base64" for part in parts)
                if is_base64 or "bytes" in _formats(parts):
                    return "binary"
                return next((_TEXTS[name] for name in _formats(parts) if name in _TEXTS), _STRING)
        return None  # null, or no type of JSON

    def _object(self, parts: Sequence[Node], path: tuple[str, ...], outer: frozenset[int]) -> _Type | None:
        names = dict.fromkeys(name for part in parts for name in _members(part.schema.get("properties")))
        if len(names) * len(parts) > _MAX_LOOKUPS:
            self._fail(path, f"its {len(names)} properties are in too many schemas")
        fields: dict[str, _Type] = {}
        for name in names:
            inner = list(properties(parts, name))
            if any(each.schema is False for each in inner):  # no object has it
                continue
            if not name:
                self._fail(path, "a property has an empty name")
            fields[name] = self.type_of(inner, (*path, name), outer) or _STRING
        if fields:
            return _Struct(fields)
        values = [part.inner(part.schema.get("additionalProperties")) for part in parts]
        patterns = [
            part.inner(schema) for part in parts for schema in _members(part.schema.get("patternProperties")).values()
        ]
        others = [[each] for each in chain(values, patterns) if isinstance(each.schema, dict) and each.schema]
        types = [self.type_of(each, (*path, "value"), outer) or _STRING for each in others]
        return _Map(reduce(_merged, types)) if types else None

    def _array(self, parts: Sequence[Node], path: tuple[str, ...], outer: frozenset[int]) -> _Type:
        path = (*path, "element")
        elements = list(chain.from_iterable(_elements(part) for part in parts))
        types = [self.type_of([each], path, outer) or _STRING for each in elements]
        return _Array(reduce(_merged, types) if types else _STRING)

    def _fail(self, path: tuple[str, ...], why: str) -> NoReturn:
        what = f"field {printable('.'.join(path))!r}" if path else "the JSON Schema"
        raise JsonSchemaError(f"{what}: {why}; {self._advice}")


def _kinds(parts: Sequence[Node]) -> list[str]:
    """Return the types of JSON that values can have besides null, or nothing if the schema does not say."""
    declared = [part.schema["type"] for part in parts if "type" in part.schema]
    if declared:
        allowed = [dict.fromkeys([each] if isinstance(each, str) else map(str, as_list(each))) for each in declared]
        for each in allowed:
            if "number" in each:
                each["integer"] = None
        kinds = [each for each in allowed[0] if each != _NULL and all(each in others for others in allowed)]
        return [each for each in kinds if each != "integer" or "number" not in kinds]
    keys = {key for part in parts for key in part.schema}
    if keys & {"properties", "additionalProperties", "patternProperties", "required"}:
        return ["object"]
    if keys & {"items", "prefixItems"}:
        return ["array"]
    values = [value for part in parts for value in (*as_list(part.schema.get("enum")), *_constant(part.schema))]
    kinds_of_values = {_KINDS_OF_VALUES.get(type(value), _NULL) for value in values} - {_NULL}
    if kinds_of_values:
        return sorted(kinds_of_values)
    return ["string"] if keys & {"format", "pattern", "minLength", "maxLength", "contentEncoding"} else []


def _constant(schema: dict[str, Any]) -> Iterator[Any]:
    if "const" in schema:
        yield schema["const"]


def _integer(parts: Sequence[Node]) -> str:
    named = next((_INTEGERS[name] for name in _formats(parts) if name in _INTEGERS), "bigint")
    limits = [part.schema.get("maximum") for part in parts]
    is_unsigned = any(isinstance(limit, int) and 1 << 63 <= limit < 1 << 64 for limit in limits)
    return "decimal(20,0)" if is_unsigned else named


def _formats(parts: Sequence[Node]) -> list[str]:
    """Return the formats of values, and the types that Kafka Connect gave them."""
    found = [part.schema.get(key) for part in parts for key in ("connect.type", "format")]
    return [each for each in found if isinstance(each, str)]


def _elements(part: Node) -> Iterator[Node]:
    """Yield the schemas of an array's elements: of all of them, or of one place each."""
    items = part.schema.get("items")
    for schema in (
        *as_list(items),
        *as_list(part.schema.get("prefixItems")),
        items,
        part.schema.get("additionalItems"),
    ):
        if isinstance(schema, dict):
            yield part.inner(schema)


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _merged(one: _Type, other: _Type) -> _Type:
    """Return the type of values that have one type or the other."""
    if one == other:
        return one
    match one, other:
        case _Struct(fields), _Struct(others):
            shared = {name: _merged(kind, others[name]) for name, kind in fields.items() if name in others}
            return _Struct({**fields, **others, **shared})
        case _Array(element), _Array(other_element):
            return _Array(_merged(element, other_element))
        case _Map(value), _Map(other_value):
            return _Map(_merged(value, other_value))
        case str(), str() if one in _NUMBERS and other in _NUMBERS:
            widest = max(one, other, key=_NUMBERS.index)
            return "double" if widest == "float" else widest
    return _STRING


def _ddl(data_type: _Type) -> str:
    match data_type:
        case _Struct(fields):
            shown = (f"`{name.replace('`', '``')}`: {_ddl(each)}" for name, each in fields.items())
            return f"struct<{','.join(shown)}>"
        case _Array(element):
            return f"array<{_ddl(element)}>"
        case _Map(value):
            return f"map<string,{_ddl(value)}>"
        case str():
            return data_type
