"""Conversion of a table's keys and values to bytes, and back; also of keys that are not hashable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from pyspark_kafka_direct.errors import RecordError, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


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


_BYTES: Final[Serde[Any]] = Serde(lambda data: data, lambda data: data)


class TableSerdes(Generic[K, V]):
    """The serdes of a table, whose errors name the key."""

    def __init__(self, topic: str, key_serde: Serde[K] | None, value_serde: Serde[V] | None) -> None:
        self._topic = topic
        self._key_serde: Serde[K] = _BYTES if key_serde is None else key_serde
        self._value_serde: Serde[V] = _BYTES if value_serde is None else value_serde
        self.serialize_key = self._key_serde.serialize
        self.serialize_value = self._value_serde.serialize

    def key(self, data: bytes) -> K:
        """Return the key that has these bytes."""
        try:
            return self._key_serde.deserialize(data)
        except Exception as error:
            raise self._error("key", "key_serde", data) from error

    def value(self, data: bytes, key: object) -> V:
        """Return the value of a key."""
        try:
            return self._value_serde.deserialize(data)
        except Exception as error:
            raise self._error("value of the key", "value_serde", key) from error

    def deserialize(self, raw: dict[bytes, bytes]) -> Mapping[K, V]:
        """Return a dictionary of the objects; if a key is not hashable, another mapping, which finds keys by bytes."""
        if self._key_serde is _BYTES and self._value_serde is _BYTES:
            return cast("dict[K, V]", raw)
        items = [(key := self.key(data), self.value(value, key)) for data, value in raw.items()]
        try:
            return dict(items)
        except TypeError:  # such as a list
            # The bytes in the topic may differ: another program may write the same JSON with spaces.
            return _BytesMapping({self.serialize_key(key): (key, value) for key, value in items}, self.serialize_key)

    def on_change_of_bytes(self, on_change: Callable[[K, V | None], None]) -> Callable[[bytes, bytes | None], None]:
        """Return a callback that gets bytes; it does not refer to the table, so that an abandoned one is collected."""

        def report(key: bytes, value: bytes | None) -> None:
            on_change(self.key(key), None if value is None else self.value(value, key))

        return report

    def _error(self, what: str, serde: str, key: object) -> RecordError:
        return RecordError(
            f"The {what} {printable(repr(key))} cannot be deserialized by {serde}. Write it again, or delete the key; "
            "raw_snapshot() has its bytes.",
            topic=self._topic,
        )


class _BytesMapping(Mapping[K, V]):
    """Keys and values by the bytes that the serde makes of the keys, which are not hashable themselves."""

    def __init__(self, items: dict[bytes, tuple[K, V]], serialize_key: Callable[[K], bytes]) -> None:
        self._items = items
        self._serialize_key = serialize_key

    def __getitem__(self, key: K) -> V:
        try:
            return self._items[self._serialize_key(key)][1]
        except KeyError:
            raise KeyError(key) from None

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self._items.values())

    def __eq__(self, other: object) -> bool:  # that of Mapping would hash the keys
        return isinstance(other, _BytesMapping) and self._items == other._items

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self.items()))


def _encode(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"this serde needs a str, got {type(text).__name__}")
    return text.encode()


def _dump(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
