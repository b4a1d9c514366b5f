"""Schemas of Kafka's messages: one specification per field, as in Kafka's own message definitions.

One schema covers all versions of a message: each field has the versions in which it exists and is nullable, and its tag
if it is a tagged field (KIP-482). ``codec`` compiles a reader and a writer for each version in use.

Version ranges are written as in Kafka's definitions: ``"4+"`` from 4 on, ``"0-3"``, ``"8"`` only that one, ``""`` none.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias
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
        """Parse a range as written in the module's docstring."""
        if not notation:
            return cls(1, 0)
        lowest, separator, highest = notation.partition("-")
        if separator:
            return cls(int(lowest), int(highest))
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
        if isinstance(self.type, StructSpec) and not isinstance(value, tuple):
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
    request: StructSpec
    response: StructSpec
    # Whether a client sends it first, to learn the broker's versions. Its response header has no tag buffer in any
    # version, and brokers that do not support the request's version return an error in version 0 (KIP-511).
    is_version_request: bool = False
    _compiled: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    def with_max_version(self, version: int) -> ApiMessageType:
        """Return a copy whose highest version is at most ``version``."""
        return replace(self, versions=Versions(self.versions.lowest, min(version, self.versions.highest)))


def scalar(
    name: str,
    type: Primitive,
    versions: str = "0+",
    *,
    nullable: str = "",
    ignorable: bool = False,
    tag: int | None = None,
    **default: Any,
) -> FieldSpec:
    """Specify a field with one value; ``default`` is zero or empty unless given."""
    return FieldSpec(
        name,
        type,
        Versions.parse(versions),
        Versions.parse(nullable),
        default.get("default", _DEFAULTS[type]),
        ignorable,
        tag,
    )


def array(
    name: str,
    of: Primitive | StructSpec,
    versions: str = "0+",
    *,
    nullable: str = "",
    ignorable: bool = False,
    tag: int | None = None,
) -> FieldSpec:
    """Specify a field with an array."""
    return FieldSpec(name, ArrayType(of), Versions.parse(versions), Versions.parse(nullable), (), ignorable, tag)


def tagged_struct(name: str, of: StructSpec, versions: str, *, tag: int) -> FieldSpec:
    """Specify a tagged field with a struct, which has its defaults if it is not sent."""
    default = of.value_class(*[field_spec.default for field_spec in of.fields])
    return FieldSpec(name, of, Versions.parse(versions), Versions.parse(""), default, True, tag)


def struct(name: str, *fields: FieldSpec) -> StructSpec:
    return StructSpec(name, fields)


def message_type(
    name: str,
    key: int,
    versions: str,
    flexible: int | None,
    *,
    request: StructSpec,
    response: StructSpec,
    is_version_request: bool = False,
) -> ApiMessageType:
    return ApiMessageType(name, key, Versions.parse(versions), flexible, request, response, is_version_request)
