"""What a record encoder is, whoever implements it: the mirror of ``_protocol.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.settings.produce import Codec


class EncodedBatch(NamedTuple):
    """One record batch of message format 2, as it is sent but for who sends it (see ``stamp``).

    Attributes:
        partition: Where its records belong.
        records: How many there are.
        raw_bytes: Their size before compression.
        data: The whole batch, header included, with base offset 0. Producer id, epoch and base sequence are -1, the
            transactional bit is clear, and the CRC is right for that.
    """

    partition: int
    records: int
    raw_bytes: int
    data: bytearray


class RecordEncoder(Protocol):
    """Turns rows into record batches of one topic.

    It keeps one open batch per partition, over any number of ``add`` calls, and hands it out when it holds
    ``batch_bytes``. Rows of one partition stay in their order.
    """

    def add(self, rows: pa.RecordBatch) -> list[EncodedBatch]:
        """Take rows; return the batches that are full now, in the order in which they were filled.

        Args:
            rows: Columns ``value`` (binary), and optionally ``key`` (binary), ``headers`` (list of struct with ``key``:
                string and ``value``: binary), ``partition`` (int32), all of which may hold nulls, and ``timestamp``
                (int64, milliseconds since 1970, no nulls).

        A row's partition is that of its column; else murmur2 of its key decides, as in the Java client; without a key
        (or with ``ignore_keys``) rows stick to one partition until its batch is full, then to another one.

        Raises:
            ColumnError: A partition that the topic does not have, or a header without a key. The message tells the row.
            RecordTooLargeError: A record beyond ``max_record_bytes``, uncompressed, as in its batch.
        """

    def flush(self) -> list[EncodedBatch]:
        """Return all open batches, by partition."""

    @property
    def open_bytes(self) -> int:
        """Bytes of the records in open batches."""


@dataclass(frozen=True, slots=True)
class EncodeRequest:
    """The arguments of ``create_encoder``, checked.

    Raises:
        ValueError: Something is out of its range.
    """

    topic: str
    partitions: int
    codec: Codec = "none"
    level: int | None = None
    batch_bytes: int = 524_288
    max_record_bytes: int = 1_048_576
    ignore_keys: bool = False
    first_sticky: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.partitions < 1 << 31:
            raise ValueError(f"a topic has 1 to 2147483647 partitions, not {self.partitions}")
        if not 1 <= self.batch_bytes <= 1 << 30:
            raise ValueError(f"batch_bytes must be from 1 to {1 << 30}, not {self.batch_bytes}")
        if not 1 <= self.max_record_bytes <= 1 << 30:
            raise ValueError(f"max_record_bytes must be from 1 to {1 << 30}, not {self.max_record_bytes}")
