"""The tables of messages against Kafka's own definitions, as kafka-python carries them: row by row, all of each."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest

from pyspark_kafka_direct.wire import messages
from pyspark_kafka_direct.wire.messages import Api
from pyspark_kafka_direct.wire.messages._fields import Array, Struct, Versions

if TYPE_CHECKING:
    from collections.abc import Iterator

APIS = [each for each in vars(messages).values() if isinstance(each, Api)]
EMPTY: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": UUID(int=0)}


class Row(NamedTuple):
    """A field, as far as it is there in the versions that are spoken."""

    path: str
    type: str
    versions: frozenset[int]
    nullable: frozenset[int]
    default: Any
    ignorable: bool
    tag: int | None


@pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
def test_rows_are_those_of_kafka(api: Api) -> None:
    spoken = frozenset(range(api.versions.lowest, api.versions.highest + 1))
    for side, ours in (("Request", api.request), ("Response", api.response)):
        theirs = definition(f"{api.name}{side}")
        assert api.key == theirs["apiKey"]
        flexible = frozenset(filter(api.is_flexible, spoken))
        assert flexible == among(theirs["flexibleVersions"], spoken)
        assert sorted(of_table(ours, "", spoken)) == sorted(of_kafka(theirs["fields"], theirs, "", spoken)), side


def definition(name: str) -> dict[str, Any]:
    """Read the definition of a message: JSON with comments."""
    text = (resources.files("kafka.protocol.schemas.resources") / f"{name}.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


def among(versions: str, spoken: frozenset[int]) -> frozenset[int]:
    """Return those of the versions that are spoken."""
    return frozenset(filter(Versions.parse("" if versions == "none" else versions).has, spoken))


def of_table(of: Struct, above: str, spoken: frozenset[int]) -> Iterator[Row]:
    for each in of.fields:
        path = above + each.name
        inner = each.type.of if isinstance(each.type, Array) else each.type
        kind = ("[]" if isinstance(each.type, Array) else "") + ("struct" if isinstance(inner, Struct) else inner)
        there = frozenset(filter(each.versions.has, spoken))
        nullable = frozenset(filter(each.nullable.has, there))
        default = None if kind == "struct" else each.default
        yield Row(path, kind, there, nullable, default, each.ignorable, each.tag)
        if isinstance(inner, Struct):
            yield from of_table(inner, path + ".", spoken)


def of_kafka(fields: list[dict[str, Any]], whole: dict[str, Any], above: str, spoken: frozenset[int]) -> Iterator[Row]:
    shared = {each["name"]: each["fields"] for each in whole.get("commonStructs", ())}
    for each in fields:
        there = among(each["versions"], spoken)
        if not there:
            continue
        path = above + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", each["name"]).lower()
        name = each["type"].removeprefix("[]")
        inner = each.get("fields") or shared.get(name)
        kind = ("" if name == each["type"] else "[]") + ("struct" if inner else name)
        nullable = among(each.get("nullableVersions", "none"), there)
        tag = each.get("tag")
        ignorable = each.get("ignorable", tag is not None)  # the tagged ones here are for hints, of brokers only
        yield Row(path, kind, there, nullable, default_of(each, kind), ignorable, tag)
        if inner:
            yield from of_kafka(inner, whole, path + ".", spoken)


def default_of(field: dict[str, Any], kind: str) -> Any:
    if field.get("default") == "null" or kind == "struct":
        return None
    if kind.startswith("[]"):
        return ()
    if "default" not in field:
        return EMPTY.get(kind, 0)
    if kind == "string":
        return field["default"]
    return json.loads(str(field["default"])) if kind == "bool" else int(str(field["default"]), 0)
