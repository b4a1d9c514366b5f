"""Decoding and encoding of record batches by the native kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pyspark_kafka_direct.options.settings import COMPRESSION_TYPE_IDS, DEFAULT_MAX_RECORD_BATCH_BYTES
from pyspark_kafka_direct.records.columns import arrow_schema, strings_as_binary
from pyspark_kafka_direct.records.native_kernel import native
from pyspark_kafka_direct.records.record_errors import encode_error, record_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.errors import RecordError
    from pyspark_kafka_direct.options.settings import CompressionType

MAX_ROWS = 1 << 20
MAX_ARROW_BYTES = 1 << 30
"""Limits of one Arrow batch; within them no column exceeds Arrow's 32-bit offsets."""

MAX_BATCH_BYTES = (1 << 31) - 1
MAX_TOPIC_LENGTH = 249
"""Kafka's limit, in characters."""

COMPRESSION_LEVELS: Final[dict[CompressionType, tuple[int, int]]] = {
    "gzip": (1, 9),
    "lz4": (1, 17),
    "zstd": (-131_072, 22),
}
"""Compression levels as in the Java client. Those of lz4 are accepted and have no effect."""

WritableBytes: TypeAlias = bytearray | memoryview
"""The encoder returns views of its own memory, and reuses it when the last one is deleted."""


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


class EncodedBatch(NamedTuple):
    """A complete record batch of message format 2, still without its producer (see ``set_producer_state``)."""

    partition: int
    records: int
    uncompressed_bytes: int  # of the records
    data: WritableBytes  # base offset 0; producer id, epoch and base sequence -1; not transactional; with a valid CRC


class RecordDecoder:
    """Decodes the record bytes of one partition's fetch responses into Arrow, for one offset range.

    An argument out of its range is a ValueError.
    """

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        from_offset: int,
        until_offset: int,
        columns: Sequence[str],
        check_crcs: bool = True,
        max_rows: int = 65536,  # of an Arrow batch
        # Of an Arrow batch: its records' decompressed size, and the additional size of wanted headers as columns. A
        # single larger record is returned alone.
        max_bytes: int = 4 << 20,
        max_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES,  # of a decompressed record batch, and of a record
        # Whether record batches that are wholly in the range are counted by their headers: their records are not
        # returned, and their checksums not verified. Formats 0 and 1 have no counts, and are decoded.
        count_only: bool = False,
    ) -> None:
        if not 1 <= len(topic) <= MAX_TOPIC_LENGTH:
            raise ValueError(f"a topic name has 1 to {MAX_TOPIC_LENGTH} characters, not {len(topic)}")
        if not 0 <= from_offset <= until_offset < 1 << 63:
            raise ValueError(f"offsets must be 0 <= from <= until, not {from_offset} and {until_offset}")
        _check("partition", partition, 0, (1 << 31) - 1)
        _check("max_rows", max_rows, 1, MAX_ROWS)
        _check("max_bytes", max_bytes, 1, MAX_ARROW_BYTES)
        _check("max_batch_bytes", max_batch_bytes, 1, MAX_BATCH_BYTES)
        self._topic = topic
        self._partition = partition
        self._kernel = native.Decoder(
            arrow_schema(columns).__arrow_c_schema__(),
            topic,
            partition,
            from_offset,
            until_offset,
            check_crcs,
            max_rows,
            max_bytes,
            max_batch_bytes,
            count_only,
        )

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Add the record bytes of one fetch response, once ``read()`` has returned None; else a RuntimeError is raised.

        The bytes may start with a batch from before the wanted offset, and end with an incomplete one. They are copied,
        so the caller may reuse the buffer. Only headers are read here, so ``next_offset`` is current before anything is
        decoded.
        """
        try:
            self._kernel.feed(records, [(producer_id, first_offset) for producer_id, first_offset in aborted])
        except native.DecodeError as error:
            raise self._record_error(error) from None

    def read(self) -> pa.RecordBatch | None:
        """Return the next rows; None when all bytes fed were decoded.

        Rows before a bad record are returned first; the next call raises a RecordError, and so does every later one.
        """
        import pyarrow as pa

        try:
            rows = self._kernel.read()
        except native.DecodeError as error:
            raise self._record_error(error) from None
        return None if rows is None else pa.record_batch(rows)

    @property
    def next_offset(self) -> int:
        """The next offset to fetch: the offset after the last complete batch fed."""
        return self._kernel.next_offset

    @property
    def done(self) -> bool:
        """Whether all records of the range were returned."""
        return self._kernel.done

    @property
    def counts(self) -> DecodeCounts:
        return DecodeCounts(*self._kernel.counts)

    def _record_error(self, error: native.DecodeError) -> RecordError:
        kind, message, offset = error.args
        return record_error(kind, message, topic=self._topic, partition=self._partition, offset=offset)


class RecordEncoder:
    """Encodes rows into record batches of one topic.

    It keeps one open batch for each partition, across ``add`` calls, and returns it when the next record would exceed
    ``batch_bytes``; a larger record gets its own batch. Rows of one partition keep their order.

    An argument out of its range is a ValueError.
    """

    def __init__(
        self,
        *,
        topic: str,
        partitions: int,
        codec: CompressionType = "none",
        level: int | None = None,  # the codec's default
        batch_bytes: int = 524_288,  # of a batch's uncompressed records; a single larger record gets its own batch
        max_record_bytes: int = 1_048_576,  # uncompressed
        ignore_keys: bool = False,  # when a partition is chosen
        first_sticky_partition: int = 0,  # of rows without a key; any number, of which the modulo is used
    ) -> None:
        _check("partitions", partitions, 1, (1 << 31) - 1)
        _check("batch_bytes", batch_bytes, 1, 1 << 30)
        _check("max_record_bytes", max_record_bytes, 1, 1 << 30)
        if first_sticky_partition < 0:
            raise ValueError(f"first_sticky_partition must not be negative, but is {first_sticky_partition}")
        if codec not in COMPRESSION_TYPE_IDS:
            raise ValueError(f"a codec is one of {', '.join(COMPRESSION_TYPE_IDS)}, not {codec!r}")
        lowest, highest = COMPRESSION_LEVELS.get(codec, (0, -1))  # other codecs have no levels
        if level is not None and not lowest <= level <= highest:
            raise ValueError(f"{codec} has no compression level {level}")
        self._topic = topic
        self._partitions = partitions
        self._max_record_bytes = max_record_bytes
        self._kernel = native.Encoder(
            partitions,
            COMPRESSION_TYPE_IDS[codec],
            level,
            batch_bytes,
            max_record_bytes,
            ignore_keys,
            first_sticky_partition % partitions,  # callers may pass a task number
        )

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
        exported = strings_as_binary(rows).__arrow_c_array__()  # the kernel takes no strings
        return self._encoded(lambda: self._kernel.add(exported))

    def flush(self) -> list[EncodedBatch]:
        """Return all open batches, by partition."""
        return self._encoded(self._kernel.flush)

    @property
    def open_bytes(self) -> int:
        """The size of the records in open batches."""
        return self._kernel.open_bytes

    def _encoded(self, encode: Callable[[], list[tuple[int, int, int, memoryview]]]) -> list[EncodedBatch]:
        try:
            return [EncodedBatch(*batch) for batch in encode()]
        except native.EncodeError as error:
            kind, row, partition_or_size = error.args
        except MemoryError:
            kind, row, partition_or_size = "memory", 0, 0  # the message names no row
        raise encode_error(
            kind,
            row,
            partition_or_size,
            topic=self._topic,
            partitions=self._partitions,
            max_record_bytes=self._max_record_bytes,
        )


def _check(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ValueError(f"{name} must be from {lowest} to {highest}, not {value}")
