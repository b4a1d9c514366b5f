"""The fields of a column that a JSON Schema requires: null is written if the schema allows it, or else an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.payloads.column_encoder import SchemaMismatchError
from pyspark_kafka_direct.payloads.json.json_schema import CHOICES, JsonSchema, Node, as_list, properties
from pyspark_kafka_direct.payloads.json.json_types import WRITES_NULLS

if TYPE_CHECKING:
    from collections.abc import Sequence

_ELEMENTS: Final = -1  # instead of the index of a field


class FieldLocation(NamedTuple):
    """The location of a field in a column: its name for errors, and how to find its array."""

    path: str
    steps: tuple[int, ...]  # from the column: indexes of fields, or _ELEMENTS of a list or map


class RequiredFields(NamedTuple):
    """A type whose fields are marked if their nulls are written, and the fields that may not be null."""

    data_type: pa.DataType
    not_null: tuple[FieldLocation, ...]


def required_fields(
    text: str, references: Sequence[tuple[str, str]], data_type: pa.DataType, column: str
) -> RequiredFields:
    """Return what a schema requires of a column; a SchemaMismatchError if a struct lacks a field.

    Args:
        text: A JSON Schema of any draft. What cannot be resolved in it requires nothing. If it is too deep, the error
            is a SchemaMismatchError, too.
        references: The names and texts of the schemas that it refers to.
        data_type: The type of the column.
        column: Its name, for errors.
    """
    schema = JsonSchema(text, references)
    marker = _Marker(schema)
    try:
        marked = marker.mark(data_type, [schema.root], FieldLocation(column, ()))
    except RecursionError:
        raise SchemaMismatchError(f"{column}: the JSON Schema refers from part to part too many times") from None
    return RequiredFields(marked, tuple(marker.not_null))


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


class _Marker:
    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._accepts_null: dict[int, bool] = {}  # by the id of a part of the schema, which may refer to itself
        self.not_null: list[FieldLocation] = []  # what mark() found

    def mark(self, data_type: pa.DataType, nodes: list[Node], location: FieldLocation) -> pa.DataType:
        """Return a type with marked fields; ``nodes`` are the schemas that hold for its values."""
        if not pa.types.is_nested(data_type):
            return data_type
        parts = list(self._schema.parts(nodes))
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

    def _mark_struct(self, struct: pa.StructType, parts: list[Node], location: FieldLocation) -> pa.StructType:
        required = dict.fromkeys(name for part in parts for name in _strings(part.schema.get("required")))
        missing = next((name for name in required if struct.get_field_index(name) < 0), None)
        if missing is not None:
            raise SchemaMismatchError(f"{location.path} lacks the field {missing}, which the JSON Schema requires")
        fields = []
        for index, field in enumerate(struct):
            inner = list(properties(parts, field.name))
            field_location = FieldLocation(f"{location.path}.{field.name}", (*location.steps, index))
            marked = field.with_type(self.mark(field.type, inner, field_location))
            if field.name in required:  # a null of another field is left out
                if all(map(self._allows_null, inner)):
                    marked = marked.with_metadata(WRITES_NULLS)
                else:
                    self.not_null.append(field_location)
            fields.append(marked)
        return pa.struct(fields)

    def _allows_null(self, node: Node) -> bool:
        """Return whether a null value is valid: each keyword of a schema can forbid it."""
        schema = node.schema
        if not isinstance(schema, dict):
            return schema is not False
        if id(schema) not in self._accepts_null:
            self._accepts_null[id(schema)] = True  # so that a reference to itself ends, and forbids nothing
            kinds = schema.get("type", "null")
            choices = (node.members(keyword) for keyword in CHOICES)
            self._accepts_null[id(schema)] = (
                (kinds == "null" or (isinstance(kinds, list) and "null" in kinds))
                and schema.get("const") is None
                and None in as_list(schema.get("enum"), [None])
                and all(map(self._allows_null, [*node.members("allOf"), *self._schema.references(node)]))
                and all(not choice or any(map(self._allows_null, choice)) for choice in choices)
            )
        return self._accepts_null[id(schema)]


def _strings(value: Any) -> list[str]:
    return [each for each in as_list(value) if isinstance(each, str)]
