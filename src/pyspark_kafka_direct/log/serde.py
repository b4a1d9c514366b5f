"""Conversion of a table's keys and values to bytes, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """A serializer and a deserializer, such as ``Serde(uuid.UUID.bytes.fget, lambda data: uuid.UUID(bytes=data))``.

    Equal keys must have the same bytes, because these decide the partition and what is compacted.

    Attributes:
        serialize: Returns the bytes of an object.
        deserialize: Returns the object; it may raise any error for bytes that other programs wrote.
    """

    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    @staticmethod
    def string() -> Serde[str]:
        """Return strings as UTF-8, as ``Serdes.String()`` in Java."""
        return Serde(_encode, bytes.decode)

    @staticmethod
    def json() -> Serde[Any]:
        """Return JSON values as UTF-8 without spaces, with sorted names."""
        return Serde(_dump, json.loads)


def _encode(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"this serde needs a str, got {type(text).__name__}")
    return text.encode()


def _dump(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
