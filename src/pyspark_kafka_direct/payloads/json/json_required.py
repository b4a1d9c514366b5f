"""The fields of a column that a JSON Schema requires: null is written if the schema allows it, or else an error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urljoin

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.payloads.column_encoder import SchemaMismatchError
from pyspark_kafka_direct.payloads.json.json_types import WRITES_NULLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_CHOICES: Final = ("oneOf", "anyOf")
_ELEMENTS: Final = -1  # instead of the index of a field


class FieldLocation(NamedTuple):
    """The location of a field in a column: its name for errors, and how to find its array."""

    path: str
    steps: tuple[int, ...]  # from the column: indexes of fields, or _ELEMENTS of a list or map


class RequiredFields(NamedTuple):
    """A type whose fields are marked if their nulls are written, and the fields that may not be null."""

    data_type: pa.DataType
    not_null: tuple[FieldLocation, ...]


class _Node(NamedTuple):
    schema: Any
    document: Any  # in which its references are

    def inner(self, schema: Any) -> _Node:
        return _Node(schema, self.document)

    def members(self, keyword: str) -> list[_Node]:
        schemas = self.schema.get(keyword)
        return [self.inner(schema) for schema in schemas] if isinstance(schemas, list) else []


def required_fields(
    text: str, references: Sequence[tuple[str, str]], data_type: pa.DataType, column: str
) -> RequiredFields:
    """Return what a schema requires of a column; a SchemaMismatchError if a struct lacks a field.

    Args:
        text: A JSON Schema of any draft. What cannot be resolved in it requires nothing.
        references: The names and texts of the schemas that it refers to.
        data_type: The type of the column.
        column: Its name, for errors.
    """
    document = _parse(text)
    documents = {name: _parse(other) for name, other in references}
    schema = _JsonSchema(documents)
    root = _Node(document, document)
    marked = schema.mark(data_type, [root], FieldLocation(column, ()))
    return RequiredFields(marked, tuple(schema.not_null))


def first_null(values: pa.Array, steps: Sequence[int]) -> int | None:
    """Return the first row in which a field is null, although what contains it is not."""
    rows: pa.Array | None = None  # of the values that remain; None: each one is a row
    for step in steps:
        if values.null_count:
            valid = pc.indices_nonzero(values.is_valid())
            rows = valid if rows is None else rows.take(valid)
            values = values.take(valid)
        if step == _ELEMENTS:
            if pa.types.is_map(values.type):  # the steps lead to its items, not its keys
                values = pa.ListArray.from_arrays(values.offsets, values.items)
            parents = pc.list_parent_indices(values)
            rows = parents if rows is None else rows.take(parents)
            values = values.flatten()
        else:
            values = values.field(step)
    if not values.null_count:
        return None
    index = pc.index(values.is_null(), True).as_py()
    return int(index if rows is None else rows[index].as_py())


class _JsonSchema:
    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        # By the ids of parsed objects, all of which required_fields keeps alive.
        self._names: dict[int, Mapping[str, Any]] = {}  # of a document: its schemas by their names
        self._accepts_null: dict[int, bool] = {}  # of a schema, which may refer to itself
        self.not_null: list[FieldLocation] = []  # what mark() found

    def mark(self, data_type: pa.DataType, nodes: list[_Node], location: FieldLocation) -> pa.DataType:
        """Return a type with marked fields; ``nodes`` are the schemas that hold for its values."""
        if not pa.types.is_nested(data_type):
            return data_type
        parts = list(self._parts(nodes))
        if pa.types.is_struct(data_type):
            return self._mark_struct(data_type, parts, location)
        elements = location._replace(steps=(*location.steps, _ELEMENTS))
        if pa.types.is_map(data_type):
            inner = [part.inner(part.schema.get("additionalProperties")) for part in parts]
            item = data_type.item_field
            return pa.map_(data_type.key_field, item.with_type(self.mark(item.type, inner, elements)))
        inner = [part.inner(part.schema.get("items")) for part in parts]
        element = data_type.value_field
        return pa.list_(element.with_type(self.mark(element.type, inner, elements)))

    def _mark_struct(self, struct: pa.StructType, parts: list[_Node], location: FieldLocation) -> pa.StructType:
        required = dict.fromkeys(name for part in parts for name in _strings(part.schema.get("required")))
        missing = next((name for name in required if struct.get_field_index(name) < 0), None)
        if missing is not None:
            raise SchemaMismatchError(f"{location.path} lacks the field {missing}, which the JSON Schema requires")
        fields = []
        for index, field in enumerate(struct):
            inner = list(_properties(parts, field.name))
            field_location = FieldLocation(f"{location.path}.{field.name}", (*location.steps, index))
            marked = field.with_type(self.mark(field.type, inner, field_location))
            if field.name in required:  # a null of another field is left out
                if all(map(self._allows_null, inner)):
                    marked = marked.with_metadata(WRITES_NULLS)
                else:
                    self.not_null.append(field_location)
            fields.append(marked)
        return pa.struct(fields)

    def _parts(self, nodes: Iterable[_Node]) -> Iterator[_Node]:
        """Yield the objects of keywords that hold together for a value that is not null."""
        pending, seen = [*nodes], set()
        while pending:
            node = pending.pop()
            if not isinstance(node.schema, dict) or id(node.schema) in seen:
                continue
            seen.add(id(node.schema))
            yield node
            pending += [*node.members("allOf"), *self._references(node)]
            for keyword in _CHOICES:
                others = [each for each in node.members(keyword) if not _is_null(each.schema)]
                if len(others) == 1:  # of several ones, the schema does not say which one holds
                    pending += others

    def _allows_null(self, node: _Node) -> bool:
        """Return whether a null value is valid: each keyword of a schema can forbid it."""
        schema = node.schema
        if not isinstance(schema, dict):
            return schema is not False
        if id(schema) not in self._accepts_null:
            self._accepts_null[id(schema)] = True  # so that a reference to itself ends, and forbids nothing
            kinds = schema.get("type", "null")
            choices = (node.members(keyword) for keyword in _CHOICES)
            self._accepts_null[id(schema)] = (
                (kinds == "null" or (isinstance(kinds, list) and "null" in kinds))
                and schema.get("const") is None
                and None in _list(schema.get("enum"), [None])
                and all(map(self._allows_null, [*node.members("allOf"), *self._references(node)]))
                and all(not choice or any(map(self._allows_null, choice)) for choice in choices)
            )
        return self._accepts_null[id(schema)]

    def _references(self, node: _Node) -> Iterator[_Node]:
        """Yield the schema of ``$ref``: a name and a path such as ``order.json#/definitions/id``, or an anchor."""
        reference = node.schema.get("$ref")
        if not isinstance(reference, str):
            return
        name, _, fragment = reference.partition("#")
        document = self._document(name, node.document) if name else node.document
        if fragment and not fragment.startswith("/"):
            yield _Node(self._named(document).get(f"#{fragment}"), document)
            return
        target = document
        for key in fragment.split("/")[1:]:
            key = unquote(key).replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        yield _Node(target, document)

    def _document(self, name: str, document: Any) -> Any:
        """Return another document, or a part of this one that has an id."""
        if name in self._documents:
            return self._documents[name]
        names = self._named(document)
        base = document.get("$id") if isinstance(document, dict) else None
        return names.get(name, names.get(urljoin(base, name)) if isinstance(base, str) else None)

    def _named(self, document: Any) -> Mapping[str, Any]:
        """Return the schemas in a document by their ids, and by their anchors behind ``#``."""
        if id(document) not in self._names:
            named = self._names[id(document)] = {}
            pending = [document]
            while pending:
                part = pending.pop()
                if isinstance(part, dict):
                    anchors = (part.get("$anchor"), part.get("$dynamicAnchor"))
                    named |= {name: part for name in (part.get("$id"), part.get("id")) if isinstance(name, str)}
                    named |= {f"#{anchor}": part for anchor in anchors if isinstance(anchor, str)}
                pending += part.values() if isinstance(part, dict) else _list(part, [])
        return self._names[id(document)]


def _properties(parts: Iterable[_Node], name: str) -> Iterator[_Node]:
    """Yield the schemas of a property."""
    for part in parts:
        properties = part.schema.get("properties")
        if isinstance(properties, dict) and name in properties:
            yield part.inner(properties[name])
        elif "patternProperties" not in part.schema and isinstance(part.schema.get("additionalProperties"), dict):
            yield part.inner(part.schema["additionalProperties"])


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") in ("null", ["null"]) or schema.get("enum") == [None])


def _strings(value: Any) -> list[str]:
    return [each for each in _list(value, []) if isinstance(each, str)]


def _list(value: Any, otherwise: list[Any]) -> list[Any]:
    return value if isinstance(value, list) else otherwise


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return True
