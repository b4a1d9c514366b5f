"""``KafkaRecord``, one Kafka record as an object, for the functions of an RDD of records.

Creating a record costs almost nothing: it holds its Arrow batch and row, and reads its fields from the batch on access.
A record therefore keeps its batch alive; the batches of ``kafka_rdd`` are small.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OptionError, RecordError
from pyspark_kafka_direct.records.columns import binary_values, integer_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    # Decodes the bytes of a key or value; not called for null.
    Decoder = Callable[[bytes], Any]

    HeaderPairs = tuple[tuple[str, bytes | None], ...]

RECORD_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch")
"""The columns of the batches passed to ``kafka_records``, in this order."""

_TIMESTAMP_TYPES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


class KafkaRecord:
    """A record of a topic-partition, with the fields of Java's ``ConsumerRecord``.

    Records are immutable, and are pickled with the decoded key and value. Two records are equal if all fields are.
    """

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: _RecordColumns, row: int) -> None:
        self._columns = columns
        self._row = row

    @property
    def topic(self) -> str:
        """The topic."""
        return self._columns.topic

    @property
    def partition(self) -> int:
        """The partition number."""
        return self._columns.partition

    @property
    def offset(self) -> int:
        """The offset of the record in its partition."""
        return self._columns.offsets[self._row]

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970-01-01 UTC; -1 if the record has no timestamp."""
        return self._columns.timestamps[self._row] // 1000

    @property
    def timestampType(self) -> str:  # noqa: N802 (Java's spelling)
        """The source of the timestamp: ``CreateTime``, ``LogAppendTime`` or ``NoTimestampType``, as in Java."""
        return _TIMESTAMP_TYPES[self._columns.timestamp_types[self._row]]

    @property
    def key(self) -> Any:
        """The key: bytes, or the result of the key decoder; ``None`` if it is null.

        Raises:
            RecordError: The decoder failed.
        """
        column = self._columns.keys
        data = (column.rows or column.load_rows())[self._row]
        return data if data is None or column.decoder is None else self._decoded(column, data)

    @property
    def value(self) -> Any:
        """The value: bytes, or the result of the value decoder; ``None`` if it is null (a tombstone).

        Raises:
            RecordError: The decoder failed.
        """
        column = self._columns.values
        data = (column.rows or column.load_rows())[self._row]
        return data if data is None or column.decoder is None else self._decoded(column, data)

    @property
    def headers(self) -> HeaderPairs:
        """The headers as pairs of name and value, in order; a name may occur more than once."""
        return self._columns.headers[self._row]

    @property
    def leaderEpoch(self) -> int | None:  # noqa: N802 (Java's spelling)
        """The epoch of the leader that wrote the record; ``None`` for records from before Kafka 0.11."""
        epoch = self._columns.leader_epochs[self._row]
        return None if epoch < 0 else epoch

    def _decoded(self, column: _DecodedColumn, data: bytes) -> Any:
        if self._row in column.decoded:
            return column.decoded[self._row]
        assert column.decoder is not None
        try:
            value = column.decoder(data)
        except Exception as error:
            failure = RecordError(
                f"The {column.name} decoder raised {type(error).__name__}: {error}. Return a value for bytes that the "
                "decoder can't decode, or read without a decoder.",
                topic=self.topic,
                partition=self.partition,
                offset=self.offset,
            )
            if (this_frame := error.__traceback__) is not None and this_frame.tb_next is not None:
                # Errors of this package are reported without their cause, but the user needs the decoder's traceback,
                # without the frame of this method.
                failure.add_note("".join(traceback.format_exception(error.with_traceback(this_frame.tb_next))).rstrip())
            raise failure from error
        column.decoded[self._row] = value
        return value

    def _fields(self) -> tuple[Any, ...]:
        """Return all fields, as ``_unpickle_record`` takes them: timestamp and leader epoch as in the columns."""
        position = (self.topic, self.partition, self.offset)
        columns, row = self._columns, self._row
        times = (columns.timestamps[row], columns.timestamp_types[row])
        return (*position, *times, self.key, self.value, self.headers, columns.leader_epochs[row])

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle_record, self._fields())

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
    """Raise OptionError for a decoder that cannot be called, before a task fails with it."""
    for name, decoder in (("keyDecoder", key_decoder), ("valueDecoder", value_decoder)):
        if decoder is not None and not callable(decoder):
            raise OptionError(f"{name} must be a function of bytes, such as bytes.decode, got {decoder!r}")


def kafka_records(
    batch: pa.RecordBatch,
    topic: str,
    partition: int,
    key_decoder: Decoder | None = None,
    value_decoder: Decoder | None = None,
) -> Iterator[KafkaRecord]:
    """Yield the records of an Arrow batch with the columns ``RECORD_COLUMNS``."""
    keys, values, offsets, timestamps, timestamp_types, headers, leader_epochs = batch.columns
    columns = _RecordColumns(
        topic,
        partition,
        offsets=integer_values(offsets, "q"),
        timestamps=integer_values(timestamps, "q"),
        timestamp_types=integer_values(timestamp_types, "i"),
        keys=_DecodedColumn("key", keys, key_decoder),
        values=_DecodedColumn("value", values, value_decoder),
        headers=_NullHeadersColumn() if headers.null_count == len(headers) else _HeadersColumn(headers),
        # Python integers have no null, so -1 stands for an unknown epoch, as in Kafka.
        leader_epochs=integer_values(leader_epochs.fill_null(-1) if leader_epochs.null_count else leader_epochs, "i"),
    )
    return map(KafkaRecord, [columns] * batch.num_rows, range(batch.num_rows))


class _RecordColumns:
    """One batch as columns, indexed by row; topic and partition are the same for all rows."""

    __slots__ = (
        "headers",
        "keys",
        "leader_epochs",
        "offsets",
        "partition",
        "timestamp_types",
        "timestamps",
        "topic",
        "values",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        offsets: Sequence[int],
        timestamps: Sequence[int],
        timestamp_types: Sequence[int],
        keys: _DecodedColumn,
        values: _DecodedColumn,
        headers: _HeadersColumn | _NullHeadersColumn | tuple[HeaderPairs, ...],
        leader_epochs: Sequence[int],
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


class _DecodedColumn:
    """Keys or values: the bytes of all rows are extracted at the first access, and decoded one by one."""

    __slots__ = ("_column", "decoded", "decoder", "name", "rows")

    def __init__(self, name: str, column: pa.BinaryArray | None, decoder: Decoder | None) -> None:
        self.name = name
        self.decoder = decoder
        self.rows: Sequence[Any] | None = None
        self.decoded: dict[int, Any] = {}
        self._column = column

    @classmethod
    def of_value(cls, value: object) -> _DecodedColumn:
        """Return the column of a single decoded value."""
        column = cls("", column=None, decoder=None)  # only errors of a decoder need the name
        column.rows = (value,)
        return column

    def load_rows(self) -> Sequence[bytes | None]:
        """Return the bytes of all rows."""
        column = self._column
        if column is not None:  # otherwise another thread has loaded the rows
            self.rows = binary_values(column)
            self._column = None
        assert self.rows is not None
        return self.rows


class _HeadersColumn:
    """Headers, which are converted from Arrow at each access, because most functions do not need them."""

    __slots__ = ("_column",)

    def __init__(self, column: pa.ListArray) -> None:
        self._column = column

    def __getitem__(self, row: int) -> HeaderPairs:
        headers = self._column[row].as_py()
        return tuple((header["key"], header["value"]) for header in headers) if headers else ()


class _NullHeadersColumn:
    """The headers of a batch in which no record has any; its rows are faster than those of ``_HeadersColumn``."""

    __slots__ = ()

    def __getitem__(self, row: int) -> HeaderPairs:
        return ()


def _unpickle_record(  # noqa: PLR0917 - with the arguments of KafkaRecord.__reduce__
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,  # microseconds, as in the columns
    timestamp_type: int,
    key: object,
    value: object,
    headers: HeaderPairs,
    leader_epoch: int,
) -> KafkaRecord:
    """Return a record as the only row of new columns; key and value are already decoded."""
    columns = _RecordColumns(
        topic,
        partition,
        offsets=(offset,),
        timestamps=(timestamp,),
        timestamp_types=(timestamp_type,),
        keys=_DecodedColumn.of_value(key),
        values=_DecodedColumn.of_value(value),
        headers=(headers,),
        leader_epochs=(leader_epoch,),
    )
    return KafkaRecord(columns, 0)
