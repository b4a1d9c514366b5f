"""Schemas of Kafka's messages, parsed from tables with one line per group of fields.

One schema covers all versions of a message: each field has the versions in which it exists and is nullable, and its tag
if it is a tagged field (KIP-482). ``codec`` compiles a reader and a writer for each version in use.

A table has the message's name, API key, supported versions and first flexible version, then the fields of the request
and of the response in wire order. The fields of a struct follow it, indented. ``#`` starts a comment.

    NAME: key KEY, versions VERSIONS, flexible VERSION+ (or none)
    request
        NAME, NAME: TYPE VERSIONS = DEFAULT ignorable tag TAG

    TYPE        a primitive type or a struct's name; ``[TYPE]`` is an array, ``TYPE?`` nullable, ``TYPE?8+`` from 8 on;
                only arrays, strings, bytes and records can be nullable
    VERSIONS    as in Kafka's definitions: ``4+`` from 4 on, ``0-3``, ``8`` only that one; by default the struct's
    DEFAULT     of a field that is not sent: a number, ``true``, or ``null``; by default zero or empty
    ignorable   a version without the field drops its value; otherwise such a value is an error
"""

from __future__ import annotations

import re
from collections import namedtuple
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast
from uuid import UUID

# "records" are bytes too, but large ones: requests are sent without a copy of them.
Primitive: TypeAlias = Literal["bool", "int8", "int16", "int32", "int64", "uuid", "string", "bytes", "records"]

_DEFAULTS: Final[dict[str, Any]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uuid": UUID(int=0),
    "string": "",
    "bytes": b"",
    "records": b"",
}


class Versions(NamedTuple):
    """A range of versions, both ends included; empty if ``lowest`` is above ``highest``."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, notation: str) -> Versions:
        """Parse a range as written in a table; an empty notation is an empty range."""
        if not notation:
            return cls(1, 0)
        lowest, separator, highest = notation.partition("-")
        if separator:
            return cls(int(lowest), int(highest))
        # Versions are INT16, so none is higher than 1 << 15.
        return cls(int(notation[:-1]), 1 << 15) if notation.endswith("+") else cls(int(notation), int(notation))

    def has(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


@dataclass(frozen=True)
class StructSpec:
    """A sequence of fields: a message's body, or the element of an array."""

    name: str
    fields: tuple[FieldSpec, ...]  # of all versions, in wire order

    @cached_property
    def value_class(self) -> Any:
        """The class of decoded values: a named tuple with the fields of all versions."""
        return namedtuple(self.name, [field_spec.name for field_spec in self.fields])


@dataclass(frozen=True)
class ArrayType:
    of: StructSpec | Primitive


@dataclass(frozen=True)
class FieldSpec:
    name: str
    type: Primitive | ArrayType | StructSpec
    versions: Versions
    nullable: Versions
    default: Any  # of a field that is not sent; tagged fields with their default are not sent
    ignorable: bool = False  # whether a version without the field drops its value; otherwise such a value is an error
    tag: int | None = None  # of a tagged field, in all flexible versions

    def is_default(self, value: Any) -> bool:
        """Return whether a value is the default; an empty list equals the empty array."""
        if isinstance(self.type, ArrayType):
            return value is not None and tuple(value) == ()
        if isinstance(self.type, StructSpec) and not isinstance(value, tuple):  # a mapping by field name
            return all(
                field_spec.is_default(value.get(field_spec.name, field_spec.default)) for field_spec in self.type.fields
            )
        return bool(value == self.default)


@dataclass(frozen=True)
class ApiMessageType:
    name: str  # without "Request"
    key: int
    versions: Versions  # supported here; a comment at the schema explains a maximum below Kafka's
    flexible: int | None  # first version with compact lengths and tag buffers (KIP-482), None if there is none
    request_table: str
    response_table: str
    # Writers and readers, by ("request" or "response", version); `messages` fills it.
    _compiled: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    # Parsed at the first use, because a process uses few of the messages.

    @cached_property
    def request(self) -> StructSpec:
        return StructSpec(f"{self.name}Request", _parse_fields(_lines(self.request_table), _ALL_VERSIONS))

    @cached_property
    def response(self) -> StructSpec:
        return StructSpec(f"{self.name}Response", _parse_fields(_lines(self.response_table), _ALL_VERSIONS))

    @property
    def is_version_request(self) -> bool:
        """Return whether a client sends it first, to learn the broker's versions.

        Its response header has no tag buffer in any version, and brokers that do not support the request's version
        return an error in version 0 (KIP-511).
        """
        return self.name == "ApiVersions"

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    def with_max_version(self, version: int) -> ApiMessageType:
        """Return a copy whose highest version is at most ``version``."""
        return replace(self, versions=Versions(self.versions.lowest, min(version, self.versions.highest)))


_LINE: Final = re.compile(
    r"(?P<names>[\w, ]+): (?P<array>\[)?(?P<type>\w+)\]?(?P<null>\?\S*)?(?: (?P<versions>\d\S*))?"
    r"(?: = (?P<default>\S+))?(?P<ignorable> ignorable)?(?: tag (?P<tag>\d+))?"
)
_PARTS: Final = re.compile(r"\n *(?:request|response)\n")
_HEADER: Final = re.compile(r"(\w+): key (\d+), versions (\S+), flexible (\S+)")
_ALL_VERSIONS: Final = Versions.parse("0+")


def message_type(table: str) -> ApiMessageType:
    """Parse the table of a message."""
    header, request, response = _PARTS.split(table.strip())
    name, key, versions, flexible = _match(_HEADER, header).groups()
    first_flexible = None if flexible == "none" else Versions.parse(flexible).lowest
    return ApiMessageType(name, int(key), Versions.parse(versions), first_flexible, request, response)


def _lines(table: str) -> list[str]:
    return [code for line in table.splitlines() if (code := line.partition("#")[0].rstrip())]


def _parse_fields(lines: list[str], struct_versions: Versions) -> tuple[FieldSpec, ...]:
    fields: list[FieldSpec] = []
    while lines:
        row = _match(_LINE, lines[0])
        siblings = (index for index in range(1, len(lines)) if _indentation(lines[index]) <= _indentation(lines[0]))
        next_sibling = next(siblings, len(lines))
        nested, lines = lines[1:next_sibling], lines[next_sibling:]
        versions = Versions.parse(row["versions"]) if row["versions"] else struct_versions
        nullable = Versions.parse("") if row["null"] is None else Versions.parse(row["null"][1:] or "0+")
        of = _element_type(row["type"], nested, versions)
        if row["null"] is not None and not row["array"] and row["type"] not in ("string", "bytes", "records"):
            raise ValueError(f"{row[0]!r}: only arrays, strings, bytes and records can be null")
        fields += (
            FieldSpec(
                name=name,
                type=ArrayType(of) if row["array"] else of,
                versions=versions,
                nullable=nullable,
                default=() if row["array"] else _default(of, row["default"]),
                ignorable=row["ignorable"] is not None,
                tag=None if row["tag"] is None else int(row["tag"]),
            )
            for name in row["names"].split(", ")
        )
    return tuple(fields)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _match(pattern: re.Pattern[str], line: str) -> re.Match[str]:
    match = pattern.fullmatch(line.strip())
    if match is None:
        raise ValueError(f"{line.strip()!r} is not a line of a message table")
    return match


def _element_type(name: str, fields: list[str], versions: Versions) -> StructSpec | Primitive:
    if name in _DEFAULTS:
        return cast("Primitive", name)
    return StructSpec(name, _parse_fields(fields, versions))


def _default(of: StructSpec | Primitive, notation: str | None) -> Any:
    if isinstance(of, StructSpec):
        return of.value_class(*[field_spec.default for field_spec in of.fields])
    if notation is None:
        return _DEFAULTS[of]
    return {"null": None, "true": True}[notation] if notation.isalpha() else int(notation)
