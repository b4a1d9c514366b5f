"""The interfaces of record decoders and encoders, and their arguments."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from pyspark_kafka_direct.config.client_settings import COMPRESSION_TYPE_IDS, DEFAULT_MAX_RECORD_BATCH_BYTES
from pyspark_kafka_direct.records.columns import check_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.config.client_settings import CompressionType

MAX_ROWS = 1 << 20
MAX_ARROW_BYTES = 1 << 30
"""Limits of one Arrow batch; within them no column exceeds Arrow's 32-bit offsets."""

MAX_BATCH_BYTES = (1 << 31) - 1
MAX_TOPIC_LENGTH = 249
"""Kafka's limit, in characters."""

MAX_STICKY_BYTES = 16 << 10
"""After this many bytes, rows without a key go to the next partition: ``batch.size`` of the Java client (KIP-794)."""


WritableBytes: TypeAlias = bytearray | memoryview
"""The native encoder returns views of its own memory, and reuses it when the last one is deleted."""


class AbortedTransaction(NamedTuple):
    """An entry of a fetch response's list of aborted transactions (KIP-98)."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class DecodeCounts:
    """Counters of a decoder, over all bytes fed so far."""

    records: int = 0  # returned
    bytes: int = 0  # size of the returned records in their batches, decompressed
    control: int = 0  # skipped transaction markers
    aborted: int = 0  # skipped records of aborted transactions, as their batches' headers count them
    gaps: int = 0  # offsets of the range without a record: compacted away, or never used


class RecordDecoder(Protocol):
    """Decodes the record bytes of one partition's fetch responses into Arrow, for one offset range."""

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Add the record bytes of one fetch response, once ``read()`` has returned None; else a RuntimeError is raised.

        The bytes may start with a batch from before the wanted offset, and end with an incomplete one. They are copied,
        so the caller may reuse the buffer. Only headers are read here, so ``next_offset`` is current before anything is
        decoded.
        """

    def read(self) -> pa.RecordBatch | None:
        """Return the next rows; None when all bytes fed were decoded.

        Rows before a bad record are returned first; the next call raises a RecordError, and so does every later one.
        """

    @property
    def next_offset(self) -> int:
        """The next offset to fetch: the offset after the last complete batch fed."""

    @property
    def done(self) -> bool:
        """Whether all records of the range were returned."""

    @property
    def counts(self) -> DecodeCounts: ...


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """The validated arguments of ``create_decoder``."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int
    columns: tuple[str, ...]
    check_crcs: bool
    max_rows: int
    max_bytes: int
    max_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES
    count_only: bool = False

    def __post_init__(self) -> None:
        check_columns(self.columns)
        if not 1 <= len(self.topic) <= MAX_TOPIC_LENGTH:
            raise ValueError(f"a topic name has 1 to {MAX_TOPIC_LENGTH} characters, not {len(self.topic)}")
        if not 0 <= self.partition < 1 << 31:
            raise ValueError(f"a partition is a number from 0 to 2147483647, not {self.partition}")
        if not 0 <= self.from_offset <= self.until_offset < 1 << 63:
            raise ValueError(f"offsets must be 0 <= from <= until, not {self.from_offset} and {self.until_offset}")
        if not 1 <= self.max_rows <= MAX_ROWS:
            raise ValueError(f"max_rows must be from 1 to {MAX_ROWS}, not {self.max_rows}")
        if not 1 <= self.max_bytes <= MAX_ARROW_BYTES:
            raise ValueError(f"max_bytes must be from 1 to {MAX_ARROW_BYTES}, not {self.max_bytes}")
        if not 1 <= self.max_batch_bytes <= MAX_BATCH_BYTES:
            raise ValueError(f"max_batch_bytes must be from 1 to {MAX_BATCH_BYTES}, not {self.max_batch_bytes}")


COMPRESSION_LEVELS: Final[dict[CompressionType, tuple[int, int]]] = {
    "gzip": (1, 9),
    "lz4": (1, 17),
    "zstd": (-131_072, 22),
}
"""Compression levels as in the Java client. Those of lz4 are accepted and have no effect."""


class EncodedBatch(NamedTuple):
    """A complete record batch of message format 2, still without its producer (see ``set_producer_state``)."""

    partition: int
    records: int
    uncompressed_bytes: int  # of the records
    data: WritableBytes  # base offset 0; producer id, epoch and base sequence -1; not transactional; with a valid CRC


class RecordEncoder(Protocol):
    """Encodes rows into record batches of one topic.

    It keeps one open batch for each partition, across ``add`` calls, and returns it when the next record would exceed
    ``batch_bytes``; a larger record gets its own batch. Rows of one partition keep their order.
    """

    def add(self, rows: pa.RecordBatch) -> list[EncodedBatch]:
        """Add rows; return the batches that are full now, in the order in which they were filled.

        Columns are ``value``, ``timestamp`` (int64, milliseconds since 1970, no nulls), and optionally ``key``,
        ``headers`` (list of struct with ``key`` and ``value``) and ``partition`` (int32). All but the timestamp may
        contain nulls. Keys and values are binary or string. Their Arrow offsets, and those of lists, have 32 or 64
        bits. Other columns are ignored.

        The partition column chooses a row's partition; else murmur2 of the key, as in the Java client. Rows without a
        key (or with ``ignore_keys``) go to one partition until they fill 16 KiB or ``batch_bytes``, whichever is less,
        and then to the next one.

        A ColumnError or RecordTooLargeError names the row, counted from 0 over all calls; the encoder is unusable
        afterwards.
        """

    def flush(self) -> list[EncodedBatch]:
        """Return all open batches, by partition."""

    @property
    def open_bytes(self) -> int:
        """The size of the records in open batches."""


@dataclass(frozen=True, slots=True)
class EncodeRequest:
    """The validated arguments of ``create_encoder``."""

    topic: str
    partitions: int
    codec: CompressionType = "none"
    level: int | None = None
    batch_bytes: int = 524_288
    max_record_bytes: int = 1_048_576
    ignore_keys: bool = False
    first_sticky_partition: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.partitions < 1 << 31:
            raise ValueError(f"a topic has 1 to 2147483647 partitions, not {self.partitions}")
        if not 1 <= self.batch_bytes <= 1 << 30:
            raise ValueError(f"batch_bytes must be from 1 to {1 << 30}, not {self.batch_bytes}")
        if not 1 <= self.max_record_bytes <= 1 << 30:
            raise ValueError(f"max_record_bytes must be from 1 to {1 << 30}, not {self.max_record_bytes}")
        if self.first_sticky_partition < 0:
            raise ValueError(f"first_sticky_partition must not be negative, but is {self.first_sticky_partition}")
        if self.codec not in COMPRESSION_TYPE_IDS:
            raise ValueError(f"a codec is one of {', '.join(COMPRESSION_TYPE_IDS)}, not {self.codec!r}")
        if self.level is not None:
            lowest, highest = COMPRESSION_LEVELS.get(self.codec, (0, -1))
            if not lowest <= self.level <= highest:
                raise ValueError(f"{self.codec} has no compression level {self.level}")


def strings_as_binary(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with strings cast to binary, without a copy: Spark's strings may contain invalid UTF-8."""
    import pyarrow as pa

    schema = _schema_without_strings(rows.schema)
    if schema is None:
        return rows
    if not any(_has_nested_nulls(field.type) for field in schema):
        return rows.cast(schema)
    columns = [_without_strings(*each) for each in zip(rows.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@functools.lru_cache(maxsize=64)
def _schema_without_strings(schema: pa.Schema) -> pa.Schema | None:
    """Return the schema with binary for strings; None if it has no strings. Cached, because batches may be small."""
    import pyarrow as pa

    changed = pa.schema([field.with_type(_type_without_strings(field.type)) for field in schema])
    return None if changed.equals(schema) else changed


def _type_without_strings(data_type: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_string(data_type):
        return pa.binary()
    if pa.types.is_large_string(data_type):
        return pa.large_binary()
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_type_without_strings(data_type.value_type)))
    if pa.types.is_large_list(data_type):
        return pa.large_list(data_type.value_field.with_type(_type_without_strings(data_type.value_type)))
    if pa.types.is_map(data_type):
        key, item = data_type.key_field, data_type.item_field
        return pa.map_(*(field.with_type(_type_without_strings(field.type)) for field in (key, item)))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_type_without_strings(field.type)) for field in data_type])
    return data_type


@functools.lru_cache(maxsize=64)
def _has_nested_nulls(data_type: pa.DataType) -> bool:
    """Return whether a type contains lists or maps of nulls, which PyArrow casts to invalid arrays."""
    import pyarrow as pa

    fields = [data_type.field(index).type for index in range(data_type.num_fields)]
    return any(pa.types.is_null(field) or _has_nested_nulls(field) for field in fields)


def _without_strings(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return an array with its nested arrays cast one by one, so that those of nulls are not cast."""
    import pyarrow as pa

    if array.type == data_type:
        return array
    if pa.types.is_struct(data_type):
        fields = list(data_type)
        children = [_without_strings(array.field(index), field.type) for index, field in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if not pa.types.is_nested(data_type):
        return array.cast(data_type)
    items = _without_strings(array.values, data_type.field(0).type)
    return pa.Array.from_buffers(data_type, len(array), array.buffers()[:2], -1, array.offset, [items])
