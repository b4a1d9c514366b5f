"""One Kafka record as an object: what the functions of an RDD of records see.

A record is two numbers' worth of work to make: it knows its Arrow batch and its row, and cuts its fields out of the
batch when they are asked for. A record that is kept thus keeps its batch; ``_task`` makes those batches small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    Decoder = Callable[[bytes], Any]
    """Makes something of a key's or value's bytes; is not called for null."""

    Headers = tuple[tuple[str, bytes | None], ...]

COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch")
"""The columns that ``records_of`` wants, in this order."""

_TIMESTAMP_TYPES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_NOT_READ: Final = object()


class KafkaRecord:
    """A record of a topic-partition; the fields are those of Java's ``ConsumerRecord``.

    Immutable. Pickles with its decoded key and value. Two are equal if all fields are.
    """

    __slots__ = ("_batch", "_key", "_row", "_value")

    def __init__(self, batch: _Batch, row: int) -> None:
        self._batch = batch
        self._row = row
        self._key: Any = _NOT_READ
        self._value: Any = _NOT_READ

    @property
    def topic(self) -> str:
        """The topic."""
        return self._batch.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._batch.partition

    @property
    def offset(self) -> int:
        """The record's offset in its partition."""
        return self._batch.offsets[self._row]

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970-01-01 UTC; -1 if it has none."""
        return self._batch.timestamps[self._row] // 1000

    @property
    def timestampType(self) -> str:  # noqa: N802 (Java's spelling)
        """Who set the timestamp: ``CreateTime``, ``LogAppendTime`` or ``NoTimestampType``, as Java names them."""
        return _TIMESTAMP_TYPES[self._batch.timestamp_types[self._row]]

    @property
    def key(self) -> Any:
        """The key: bytes, or what the key decoder makes of them; ``None`` if it is null.

        Raises:
            RecordError: The decoder failed.
        """
        if self._key is _NOT_READ:
            batch = self._batch
            self._key = self._decoded(batch.keys[self._row], batch.key_decoder, "key")
        return self._key

    @property
    def value(self) -> Any:
        """The value: bytes, or what the value decoder makes of them; ``None`` if it is null (a tombstone).

        Raises:
            RecordError: The decoder failed.
        """
        if self._value is _NOT_READ:
            batch = self._batch
            self._value = self._decoded(batch.values[self._row], batch.value_decoder, "value")
        return self._value

    @property
    def headers(self) -> Headers:
        """The headers, as pairs of name and value, in their order; a name may occur more than once."""
        return self._batch.headers[self._row]

    @property
    def leaderEpoch(self) -> int | None:  # noqa: N802 (Java's spelling)
        """The epoch of the leader that wrote it; ``None`` in records from before Kafka 0.11."""
        epoch = self._batch.leader_epochs[self._row]
        return None if epoch < 0 else epoch

    def _decoded(self, data: bytes | None, decode: Decoder | None, what: str) -> Any:
        if data is None or decode is None:
            return data
        try:
            return decode(data)
        except Exception as error:
            raise RecordError(
                f"The {what} decoder raised {type(error).__name__}: {error}. Let it return something for bytes that "
                "it cannot decode, or read without a decoder.",
                topic=self.topic,
                partition=self.partition,
                offset=self.offset,
            ) from error

    def _fields(self) -> tuple[Any, ...]:
        place = (self.topic, self.partition, self.offset)
        batch, row = self._batch, self._row
        times = (batch.timestamps[row], batch.timestamp_types[row])
        return (*place, *times, self.key, self.value, self.headers, batch.leader_epochs[row])

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, self._fields())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KafkaRecord) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        fields = (
            "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch",
        )  # fmt: skip
        return f"KafkaRecord({', '.join(f'{name}={getattr(self, name)!r}' for name in fields)})"


def records_of(
    batch: pa.RecordBatch,
    topic: str,
    partition: int,
    key_decoder: Decoder | None = None,
    value_decoder: Decoder | None = None,
) -> Iterator[KafkaRecord]:
    """The records of an Arrow batch.

    Args:
        batch: Has the columns ``COLUMNS``, in this order.
        topic: Their topic.
        partition: Their partition.
        key_decoder: Applied to keys that are not null, when they are asked for.
        value_decoder: The same for values.
    """
    keys, values, offsets, timestamps, types, headers, epochs = batch.columns
    of_batch = _Batch(
        topic,
        partition,
        _numbers(offsets, "q"),
        _numbers(timestamps, "q"),
        _numbers(types, "i"),
        _AllNull() if keys.null_count == len(keys) else _Binary(keys),
        _AllNull() if values.null_count == len(values) else _Binary(values),
        _NoHeaders() if headers.null_count == len(headers) else _Headers(headers),
        _numbers(epochs.fill_null(-1) if epochs.null_count else epochs, "i"),
        key_decoder,
        value_decoder,
    )
    return map(KafkaRecord, [of_batch] * batch.num_rows, range(batch.num_rows))


class _Batch:
    """The columns of the records that came together; each is a sequence by row."""

    __slots__ = (
        "headers",
        "key_decoder",
        "keys",
        "leader_epochs",
        "offsets",
        "partition",
        "timestamp_types",
        "timestamps",
        "topic",
        "value_decoder",
        "values",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offsets: Sequence[int],
        timestamps: Sequence[int],
        timestamp_types: Sequence[int],
        keys: _Column,
        values: _Column,
        headers: _Headers | _NoHeaders | tuple[Headers, ...],
        leader_epochs: Sequence[int],
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offsets = offsets
        self.timestamps = timestamps  # microseconds, as in Arrow
        self.timestamp_types = timestamp_types
        self.keys = keys
        self.values = values
        self.headers = headers
        self.leader_epochs = leader_epochs
        self.key_decoder = key_decoder
        self.value_decoder = value_decoder


class _Binary:
    """A column of bytes, cut from the buffers without Arrow's scalars, which cost more than all the rest."""

    __slots__ = ("_data", "_ends", "_valid")

    def __init__(self, column: pa.BinaryArray) -> None:
        if column.offset:
            column = column.take(range(len(column)))  # a slice; decoders hand out none
        valid, ends, data = column.buffers()
        self._ends = memoryview(ends).cast("i")
        self._data = data.to_pybytes() if data is not None else b""  # bytes: slices of a memoryview cost twice as much
        self._valid = valid.to_pybytes() if column.null_count else None

    def __getitem__(self, row: int) -> bytes | None:
        valid = self._valid
        if valid is not None and not valid[row >> 3] >> (row & 7) & 1:
            return None
        ends = self._ends
        return self._data[ends[row] : ends[row + 1]]


class _AllNull:
    __slots__ = ()

    def __getitem__(self, row: int) -> None:
        return None


class _Headers:
    __slots__ = ("_column",)

    def __init__(self, column: pa.ListArray) -> None:
        self._column = column

    def __getitem__(self, row: int) -> Headers:
        found = self._column[row].as_py()
        return tuple((header["key"], header["value"]) for header in found) if found else ()


class _NoHeaders:
    __slots__ = ()

    def __getitem__(self, row: int) -> Headers:
        return ()


_Column = _Binary | _AllNull


def _numbers(column: pa.Array, kind: str) -> Sequence[int]:
    numbers = memoryview(column.buffers()[1]).cast("b").cast(kind)  # type: ignore[call-overload]
    return numbers[column.offset : column.offset + len(column)]  # type: ignore[no-any-return]


def _restored(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: object,
    value: object,
    headers: Headers,
    leader_epoch: int,
) -> KafkaRecord:
    batch = _Batch(
        topic,
        partition,
        (offset,),
        (timestamp,),
        (timestamp_type,),
        _AllNull(),
        _AllNull(),
        (headers,),
        (leader_epoch,),
    )
    record = KafkaRecord(batch, 0)
    record._key = key
    record._value = value
    return record
