"""Dead letters: copies of records that could not be processed, with headers that say where they come from, and why.

Names of the headers, which are text unless the table says otherwise:

    __connect.errors.*    Kafka Connect (DeadLetterQueueReporter), and dead_letters() of this package
    __streams.errors.*    Kafka Streams (KIP-1034)
    kafka_dlt-*           Spring (DeadLetterPublishingRecoverer); partition is an int32, offset an int64, big-endian
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice

REPLAYS_HEADER: Final = b"kafka-direct.replays"
"""The header of a replayed record with the number of replays, as decimal digits."""

_ERROR_HEADERS: Final = (b"__connect.errors.", b"__streams.errors.", b"kafka_dlt-")
_CONNECT, _STREAMS, _SPRING = _ERROR_HEADERS
_TOPIC: Final = (_CONNECT + b"topic", _STREAMS + b"topic", _SPRING + b"original-topic")
_PARTITION: Final = (_CONNECT + b"partition", _STREAMS + b"partition", _SPRING + b"original-partition")
_OFFSET: Final = (_CONNECT + b"offset", _STREAMS + b"offset", _SPRING + b"original-offset")
_ERROR: Final = (_CONNECT + b"exception.class.name", _STREAMS + b"exception", _SPRING + b"exception-fqcn")
_MESSAGE: Final = (_CONNECT + b"exception.message", _STREAMS + b"message", _SPRING + b"exception-message")

_MAX_DIGITS: Final = 19  # of an int64
_HEADER_BYTES: Final = 100  # about, of a header in memory without its name and value; in a record, it has two bytes
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")

Headers = list[tuple[bytes, bytes | None]]


class DeadLetter(NamedTuple):
    """A record of a topic of dead letters."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None  # that of the original record, unless the topic has the time of the broker
    has_broker_time: bool
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def place(self) -> str:
        """The partition and the offset of the dead letter."""
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def original_topic(self) -> str | None:
        """The topic of the record that could not be processed."""
        return _text(self._header(_TOPIC))

    @property
    def original_partition(self) -> int | None:
        """The partition of that record."""
        return _number(self._header(_PARTITION))

    @property
    def original_offset(self) -> int | None:
        """The offset of that record."""
        return _number(self._header(_OFFSET))

    @property
    def error(self) -> str | None:
        """The class of the error."""
        return _text(self._header(_ERROR))

    @property
    def message(self) -> str | None:
        """The text of the error."""
        return _text(self._header(_MESSAGE))

    @property
    def replays(self) -> int:
        """The number of times that the record was replayed before it became this dead letter."""
        return _number(self._header((REPLAYS_HEADER,))) or 0

    @property
    def size(self) -> int:
        """The bytes of the key, the value and the headers in memory, about."""
        headers = sum(_HEADER_BYTES + len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    def replayed_headers(self) -> Headers:
        """Return the original headers in their order, and the counter of replays."""
        originals = [
            header
            for header in self.headers
            if not header[0].startswith(_ERROR_HEADERS) and header[0] != REPLAYS_HEADER
        ]
        return [*originals, (REPLAYS_HEADER, b"%d" % (self.replays + 1))]

    def _header(self, names: Sequence[bytes]) -> bytes | None:
        """Return the last header with one of the names: a dead letter of a dead letter has the earlier ones, too."""
        return next((value for name, value in reversed(self.headers) if name in names), None)


def read_letters(letters: ArrowSlice) -> Iterator[DeadLetter]:
    """Yield the dead letters of a slice with the ``COLUMNS``."""
    for batch in letters:
        yield from _letters_of(batch)


def _letters_of(batch: pa.RecordBatch) -> Iterator[DeadLetter]:
    import pyarrow as pa
    import pyarrow.compute as pc

    times = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000).to_pylist()
    columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", "value")]
    types = batch.column("timestampType").to_pylist()
    lists = _header_lists(batch.column("headers"))
    for topic, partition, offset, key, value, time, kind, headers in zip(*columns, times, types, lists, strict=True):
        timestamp = None if time is None or time < 0 else time
        yield DeadLetter(topic, partition, offset, timestamp, kind == 1, key, value, headers)


def _header_lists(column: pa.ListArray) -> Iterator[Headers]:
    """Yield the headers of each record; the names are bytes, because they need not be UTF-8."""
    import pyarrow as pa
    import pyarrow.compute as pc

    items = column.flatten()
    names, values = items.field("key").view(pa.binary()), items.field("value")
    start = 0
    for length in pc.fill_null(pc.list_value_length(column), 0).to_pylist():  # all headers of a batch are too many
        of_record = slice(start, start + length)
        yield list(zip(names[of_record].to_pylist(), values[of_record].to_pylist(), strict=True))
        start += length


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None) -> int | None:
    if value is None:
        return None
    if value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value)
    return int.from_bytes(value, "big", signed=True) if len(value) in (4, 8) else None
