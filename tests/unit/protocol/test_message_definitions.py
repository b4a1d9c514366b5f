"""The message schemas against Kafka's own definitions, which kafka-python includes: all fields of each message."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest
from tests.unit.protocol.message_values import ONLY_IN_KIO

from pyspark_kafka_direct.protocol import description_messages, messages
from pyspark_kafka_direct.protocol.messages import ApiMessageType
from pyspark_kafka_direct.protocol.schema import ArrayType, StructSpec, Versions

if TYPE_CHECKING:
    from collections.abc import Iterator

APIS = [
    each
    for each in (*vars(messages).values(), *vars(description_messages).values())
    if isinstance(each, ApiMessageType) and each.name not in ONLY_IN_KIO
]
EMPTY: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": UUID(int=0)}


class FieldRow(NamedTuple):
    """A field, limited to the supported versions."""

    path: str
    type: str
    versions: frozenset[int]
    nullable: frozenset[int]
    default: Any
    ignorable: bool
    tag: int | None


# Fields of versions that kafka-python lacks (Kafka 4.4).
NEWER_FIELDS = {
    "ApiVersionsRequest": [
        FieldRow("cluster_id", "string", frozenset({5}), frozenset({5}), None, ignorable=True, tag=None),
        FieldRow("node_id", "int32", frozenset({5}), frozenset(), -1, ignorable=True, tag=None),
    ]
}


@pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
def test_schemas_equal_kafkas_definitions(api: ApiMessageType) -> None:
    supported = frozenset(range(api.versions.lowest, api.versions.highest + 1))
    for side, schema in (("Request", api.request), ("Response", api.response)):
        expected = definition(f"{api.name}{side}")
        assert api.key == expected["apiKey"]
        flexible = frozenset(filter(api.is_flexible, supported))
        assert flexible == supported_versions(expected["flexibleVersions"], supported)
        newer = NEWER_FIELDS.get(f"{api.name}{side}", ())
        assert sorted(rows_of_schema(schema, "", supported)) == sorted(
            [*rows_of_kafka(expected["fields"], expected, "", supported), *newer]
        ), side


def definition(name: str) -> dict[str, Any]:
    """Read the definition of a message: JSON with comments."""
    text = (resources.files("kafka.protocol.schemas.resources") / f"{name}.json").read_text("utf-8")
    definition: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return definition


def supported_versions(versions: str, supported: frozenset[int]) -> frozenset[int]:
    """Return the versions of a range that are supported."""
    return frozenset(filter(Versions.parse("" if versions == "none" else versions).has, supported))


def rows_of_schema(of: StructSpec, prefix: str, supported: frozenset[int]) -> Iterator[FieldRow]:
    for each in of.fields:
        path = prefix + each.name
        inner = each.type.of if isinstance(each.type, ArrayType) else each.type
        field_type = ("[]" if isinstance(each.type, ArrayType) else "") + (
            "struct" if isinstance(inner, StructSpec) else inner
        )
        present = frozenset(filter(each.versions.has, supported))
        nullable = frozenset(filter(each.nullable.has, present))
        default = None if field_type == "struct" else each.default
        yield FieldRow(path, field_type, present, nullable, default, each.ignorable, each.tag)
        if isinstance(inner, StructSpec):
            yield from rows_of_schema(inner, path + ".", supported)


def rows_of_kafka(
    fields: list[dict[str, Any]], message: dict[str, Any], prefix: str, supported: frozenset[int]
) -> Iterator[FieldRow]:
    shared = {each["name"]: each["fields"] for each in message.get("commonStructs", ())}
    for each in fields:
        present = supported_versions(each["versions"], supported)
        if not present:
            continue
        path = prefix + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", each["name"]).lower()
        name = each["type"].removeprefix("[]")
        inner = each.get("fields") or shared.get(name)
        field_type = ("" if name == each["type"] else "[]") + ("struct" if inner else name)
        nullable = supported_versions(each.get("nullableVersions", "none"), present)
        tag = each.get("tag")
        ignorable = each.get("ignorable", tag is not None)  # tagged fields are hints, sent by brokers only
        yield FieldRow(path, field_type, present, nullable, default_of(each, field_type), ignorable, tag)
        if inner:
            yield from rows_of_kafka(inner, message, path + ".", supported)


def default_of(field: dict[str, Any], field_type: str) -> Any:
    if field.get("default") == "null" or field_type == "struct":
        return None
    if field_type.startswith("[]"):
        return ()
    if "default" not in field:
        return EMPTY.get(field_type, 0)
    if field_type == "string":
        return field["default"]
    return json.loads(str(field["default"])) if field_type == "bool" else int(str(field["default"]), 0)
