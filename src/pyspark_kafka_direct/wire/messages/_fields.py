"""How Kafka's messages are declared: a row for each field, as in Kafka's own message definitions.

A message is the same in most of its versions, so there is one table for all of them. Each row says in which versions
the field is there, in which it may be null, and where it is a tagged field (KIP-482). What a table says is compiled to
readers and writers, once for each version that is used (``_reading.py``, ``_writing.py``).

Versions are written as in the definitions: ``"4+"`` from 4 on, ``"0-3"``, ``"8"`` only that one, ``""`` none.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

Primitive: TypeAlias = Literal["bool", "int8", "int16", "int32", "int64", "uuid", "string", "bytes", "records"]
"""Records are bytes too, but large ones: a request is sent without a copy of them."""

_EMPTY: Final[dict[str, Any]] = {
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
    """A range of versions, both ends included; empty where ``lowest`` is above ``highest``."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read the notation of the module's docstring."""
        if not text:
            return cls(1, 0)
        lowest, separator, highest = text.partition("-")
        if separator:
            return cls(int(lowest), int(highest))
        return cls(int(text[:-1]), 1 << 15) if text.endswith("+") else cls(int(text), int(text))

    def has(self, version: int) -> bool:
        """Tell whether a version is one of these."""
        return self.lowest <= version <= self.highest


@dataclass(frozen=True)
class Struct:
    """Some fields in a row: a message's body, or the element of an array.

    Attributes:
        name: Name of the class that its values have.
        fields: The fields of all versions, in the order of the wire.
    """

    name: str
    fields: tuple[Field, ...]

    @cached_property
    def values(self) -> Any:
        """The class of decoded values: a named tuple with the fields of all versions."""
        return namedtuple(self.name, [each.name for each in self.fields])


@dataclass(frozen=True)
class Array:
    """An array of structs or of primitives."""

    of: Struct | Primitive


@dataclass(frozen=True)
class Field:
    """One field.

    Attributes:
        name: Its name, in Python's spelling.
        type: What it holds.
        versions: Where it is there.
        nullable: Where it may be null.
        default: What it is where it is not sent; what is this is not sent as a tagged field either.
        ignorable: Whether a value may be left out in a version that does not have the field.
        tag: Its number where it is a tagged field, in all flexible versions.
    """

    name: str
    type: Primitive | Array | Struct
    versions: Versions
    nullable: Versions
    default: Any
    ignorable: bool = False
    tag: int | None = None

    def is_default(self, value: Any) -> bool:
        """Tell whether a value is the default; an empty list is the empty array."""
        if isinstance(self.type, Array):
            return value is not None and tuple(value) == ()
        if isinstance(self.type, Struct) and not isinstance(value, tuple):
            return all(each.is_default(value.get(each.name, each.default)) for each in self.type.fields)
        return bool(value == self.default)


@dataclass(frozen=True)
class Api:
    """A request and its response.

    Attributes:
        name: Without "Request", as errors name it.
        key: Its API key.
        versions: The versions that are spoken here. Where the highest is below Kafka's own, the table says why.
        flexible: The first version with compact lengths and tag buffers (KIP-482); ``None`` if there is none.
        request: The request's body.
        response: The response's body.
        opens: Whether a client asks it first, to learn which versions the broker speaks. So the response's header has
            no tag buffer in any version, and a broker that does not know the request's version answers in version 0,
            with an error (KIP-511).
    """

    name: str
    key: int
    versions: Versions
    flexible: int | None
    request: Struct
    response: Struct
    opens: bool = False
    _compiled: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def is_flexible(self, version: int) -> bool:
        """Tell whether a version has compact lengths and tag buffers."""
        return self.flexible is not None and version >= self.flexible

    def up_to(self, version: int) -> Api:
        """Return the same without the versions above one: for what a newer version would say, and is not so."""
        return replace(self, versions=Versions(self.versions.lowest, min(version, self.versions.highest)))


def row(
    name: str,
    type: Primitive,
    versions: str = "0+",
    *,
    nullable: str = "",
    ignorable: bool = False,
    tag: int | None = None,
    **default: Any,
) -> Field:
    """Describe a field that holds one value; ``default=`` where it is not zero or empty."""
    return Field(
        name,
        type,
        Versions.parse(versions),
        Versions.parse(nullable),
        default.get("default", _EMPTY[type]),
        ignorable,
        tag,
    )


def rows(
    name: str,
    of: Primitive | Struct,
    versions: str = "0+",
    *,
    nullable: str = "",
    ignorable: bool = False,
    tag: int | None = None,
) -> Field:
    """Describe a field that holds an array."""
    return Field(name, Array(of), Versions.parse(versions), Versions.parse(nullable), (), ignorable, tag)


def nested(name: str, of: Struct, versions: str, *, tag: int) -> Field:
    """Describe a tagged field that holds a struct; where it is not sent, that has its defaults."""
    default = of.values(*[each.default for each in of.fields])
    return Field(name, of, Versions.parse(versions), Versions.parse(""), default, True, tag)


def struct(name: str, *fields: Field) -> Struct:
    """Describe fields in a row."""
    return Struct(name, fields)


def api(
    name: str,
    key: int,
    versions: str,
    flexible: int | None,
    *,
    request: Struct,
    response: Struct,
    opens: bool = False,
) -> Api:
    """Describe a request and its response."""
    return Api(name, key, Versions.parse(versions), flexible, request, response, opens)
