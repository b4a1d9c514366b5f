"""What a record decoder is, whoever implements it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_kafka_direct.records._columns import check_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

MOST_ROWS = 1 << 20
MOST_BYTES = 1 << 30
"""Bounds of one Arrow batch; with them no column outgrows Arrow's 32-bit offsets."""

LARGEST_BATCH = (1 << 31) - 1
DEFAULT_LARGEST_BATCH = 1 << 30
"""Brokers refuse batches of more than a few megabytes, compressed: only damaged or hostile bytes come near."""

LONGEST_TOPIC = 249
"""Kafka's own limit, in characters."""


class AbortedTransaction(NamedTuple):
    """An entry of a fetch response's list of aborted transactions (KIP-98)."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class DecodeCounts:
    """What a decoder has dealt with so far.

    Attributes:
        records: Records handed out.
        bytes: Their size, decompressed, as in their batches.
        control: Control records passed over.
        aborted: Records of aborted transactions passed over, as their batches' headers count them.
        holes: Offsets of the range with no record: compacted away, or never used.
    """

    records: int = 0
    bytes: int = 0
    control: int = 0
    aborted: int = 0
    holes: int = 0

    def __add__(self, other: DecodeCounts) -> DecodeCounts:
        return DecodeCounts(
            self.records + other.records,
            self.bytes + other.bytes,
            self.control + other.control,
            self.aborted + other.aborted,
            self.holes + other.holes,
        )


class RecordDecoder(Protocol):
    """Turns the record bytes of one partition's fetch responses into Arrow, for one offset range."""

    def feed(self, records: memoryview | bytearray | bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Take the record bytes of one fetch response, once ``read()`` has returned None.

        They may begin with a batch that starts before the wanted offset, and end with one that is cut off. They are
        copied: the caller may re-use the buffer at once. Only headers are looked at here, so ``next_offset`` is up to
        date before anything is decoded.

        Args:
            records: The response's record bytes for this partition.
            aborted: The response's aborted transactions, with ``read_committed``; else nothing.

        Raises:
            RuntimeError: What was fed before has not been read to its end.
            RecordTooLargeError: There is no memory for a copy.
        """

    def read(self) -> pa.RecordBatch | None:
        """Return the next rows, at most ``max_rows`` and about ``max_bytes``; None when the bytes fed are used up.

        Rows in front of a bad record are handed out first; the error comes with the next call, and every later one.

        Raises:
            CorruptRecordError: Malformed bytes, or a checksum that does not match.
            UnsupportedRecordError: An unknown codec.
            RecordTooLargeError: A record or a batch beyond ``max_batch_bytes``, or no memory for it.
            TimestampError: A timestamp beyond 64-bit microseconds, if timestamps are wanted.
        """

    @property
    def next_offset(self) -> int:
        """The next offset to fetch: the one after the last complete batch fed. It stays when there was none."""

    @property
    def done(self) -> bool:
        """Whether the range has been handed out to its end."""

    @property
    def counts(self) -> DecodeCounts:
        """What has been dealt with so far."""


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """The arguments of ``create_decoder``, checked.

    Raises:
        ValueError: A column is unknown or named twice, or something is out of its range.
    """

    topic: str
    partition: int
    from_offset: int
    until_offset: int
    columns: tuple[str, ...]
    check_crcs: bool
    max_rows: int
    max_bytes: int
    max_batch_bytes: int = DEFAULT_LARGEST_BATCH

    def __post_init__(self) -> None:
        check_columns(self.columns)
        if not 1 <= len(self.topic) <= LONGEST_TOPIC:
            raise ValueError(f"a topic's name has 1 to {LONGEST_TOPIC} characters, not {len(self.topic)}")
        if not 0 <= self.partition < 1 << 31:
            raise ValueError(f"a partition is a number from 0 to 2147483647, not {self.partition}")
        if not 0 <= self.from_offset <= self.until_offset < 1 << 63:
            raise ValueError(f"offsets must be 0 <= from <= until, not {self.from_offset} and {self.until_offset}")
        if not 1 <= self.max_rows <= MOST_ROWS:
            raise ValueError(f"max_rows must be from 1 to {MOST_ROWS}, not {self.max_rows}")
        if not 1 <= self.max_bytes <= MOST_BYTES:
            raise ValueError(f"max_bytes must be from 1 to {MOST_BYTES}, not {self.max_bytes}")
        if not 1 <= self.max_batch_bytes <= LARGEST_BATCH:
            raise ValueError(f"max_batch_bytes must be from 1 to {LARGEST_BATCH}, not {self.max_batch_bytes}")
