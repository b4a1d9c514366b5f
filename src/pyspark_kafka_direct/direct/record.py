"""One Kafka record as an object: what the functions of an RDD of records see.

A record is next to no work to make: it knows its Arrow batch and its row, and takes its fields from the batch when they
are asked for. A record that is kept thus keeps its batch; ``_task`` makes those batches small.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OptionError, RecordError
from pyspark_kafka_direct.records.values import binary_values, integers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    Decoder = Callable[[bytes], Any]
    """Makes something of a key's or value's bytes; is not called for null."""

    Headers = tuple[tuple[str, bytes | None], ...]

COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch")
"""The columns that ``records_of`` wants, in this order."""

_TIMESTAMP_TYPES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


class KafkaRecord:
    """A record of a topic-partition; the fields are those of Java's ``ConsumerRecord``.

    Immutable. Pickles with its decoded key and value. Two are equal if all fields are.
    """

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: _Batch, row: int) -> None:
        self._batch = batch
        self._row = row

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
        field = self._batch.key
        data = (field.rows or field.cut())[self._row]
        return data if data is None or field.decoder is None else self._decoded(field, data)

    @property
    def value(self) -> Any:
        """The value: bytes, or what the value decoder makes of them; ``None`` if it is null (a tombstone).

        Raises:
            RecordError: The decoder failed.
        """
        field = self._batch.value
        data = (field.rows or field.cut())[self._row]
        return data if data is None or field.decoder is None else self._decoded(field, data)

    @property
    def headers(self) -> Headers:
        """The headers, as pairs of name and value, in their order; a name may occur more than once."""
        return self._batch.headers[self._row]

    @property
    def leaderEpoch(self) -> int | None:  # noqa: N802 (Java's spelling)
        """The epoch of the leader that wrote it; ``None`` in records from before Kafka 0.11."""
        epoch = self._batch.leader_epochs[self._row]
        return None if epoch < 0 else epoch

    def _decoded(self, field: _Field, data: bytes) -> Any:
        if self._row in field.decoded:
            return field.decoded[self._row]
        assert field.decoder is not None
        try:
            value = field.decoder(data)
        except Exception as error:
            failure = RecordError(
                f"The {field.name} decoder raised {type(error).__name__}: {error}. Let it return something for bytes "
                "that it cannot decode, or read without a decoder.",
                topic=self.topic,
                partition=self.partition,
                offset=self.offset,
            )
            if (own := error.__traceback__) is not None and own.tb_next is not None:
                # An error of ours is told without its cause. This cause is somebody else's code.
                failure.add_note("".join(traceback.format_exception(error.with_traceback(own.tb_next))).rstrip())
            raise failure from error
        field.decoded[self._row] = value
        return value

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


def check_decoders(key_decoder: object, value_decoder: object) -> None:
    """Refuse a decoder that cannot be called, before a task fails with it.

    Raises:
        OptionError: One of them is neither a function nor ``None``.
    """
    for name, decoder in (("keyDecoder", key_decoder), ("valueDecoder", value_decoder)):
        if decoder is not None and not callable(decoder):
            raise OptionError(f"{name} must be a function of bytes, such as bytes.decode, got {decoder!r}")


def records_of(
    batch: pa.RecordBatch,
    topic: str,
    partition: int,
    key_decoder: Decoder | None = None,
    value_decoder: Decoder | None = None,
) -> Iterator[KafkaRecord]:
    """Yield the records of an Arrow batch.

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
        integers(offsets, "q"),
        integers(timestamps, "q"),
        integers(types, "i"),
        _Field("key", keys, key_decoder),
        _Field("value", values, value_decoder),
        _NoHeaders() if headers.null_count == len(headers) else _Headers(headers),
        integers(epochs.fill_null(-1) if epochs.null_count else epochs, "i"),
    )
    return map(KafkaRecord, [of_batch] * batch.num_rows, range(batch.num_rows))


class _Batch:
    """The columns of the records that came together; each is a sequence by row."""

    __slots__ = (
        "headers",
        "key",
        "leader_epochs",
        "offsets",
        "partition",
        "timestamp_types",
        "timestamps",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offsets: Sequence[int],
        timestamps: Sequence[int],
        timestamp_types: Sequence[int],
        key: _Field,
        value: _Field,
        headers: _Headers | _NoHeaders | tuple[Headers, ...],
        leader_epochs: Sequence[int],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offsets = offsets
        self.timestamps = timestamps  # microseconds, as in Arrow
        self.timestamp_types = timestamp_types
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epochs = leader_epochs


class _Field:
    """Keys or values: cut for all rows at once when the first is asked for, decoded one by one."""

    __slots__ = ("_column", "decoded", "decoder", "name", "rows")

    def __init__(self, name: str, column: pa.BinaryArray | None, decoder: Decoder | None) -> None:
        self.name = name
        self.decoder = decoder
        self.rows: Sequence[Any] | None = None
        self.decoded: dict[int, Any] = {}
        self._column = column

    @classmethod
    def of(cls, value: object) -> _Field:
        """Return the field of a single record, decoded already."""
        field = cls("", None, None)
        field.rows = (value,)
        return field

    def cut(self) -> Sequence[bytes | None]:
        """Return the bytes of all rows."""
        column = self._column
        if column is not None:  # else another thread was faster
            self.rows = binary_values(column)
            self._column = None
        assert self.rows is not None
        return self.rows


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
    of_one = _Batch(
        topic,
        partition,
        (offset,),
        (timestamp,),
        (timestamp_type,),
        _Field.of(key),
        _Field.of(value),
        (headers,),
        (leader_epoch,),
    )
    return KafkaRecord(of_one, 0)
