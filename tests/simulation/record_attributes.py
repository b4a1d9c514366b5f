"""The key, timestamp and headers of records, which follow from their values, so that checks notice if one is lost."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.cluster.stored_batch import BASE_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.cluster.stored_batch import Headers


class RecordAttributes(NamedTuple):
    """What a record has beside its value."""

    key: bytes | None
    timestamp: int
    headers: Headers


def attributes_of(value: bytes) -> RecordAttributes:
    """Return the attributes of a record that a scenario writes."""
    number = zlib.crc32(value)
    key = None if number % 3 == 0 else b"key of %s" % value
    return RecordAttributes(key, BASE_TIMESTAMP + number % 100_000, headers_of(value))


def headers_of(value: bytes) -> Headers:
    """Return the headers of a record; half of the records have none."""
    return () if zlib.crc32(value) % 2 else ((b"value", value), (b"null", None))


def arrow_headers(rows: Sequence[Mapping[str, bytes | str | None]] | None) -> Headers:
    """Return the headers of a row of Arrow's column ``headers``."""
    return tuple((str(each["key"]).encode(), _bytes(each["value"])) for each in rows or ())


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
