"""What a record encoder is, whoever implements it: the mirror of ``_protocol.py``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pyspark_kafka_direct.settings.produce import CODECS

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.settings.produce import Codec

LEVELS: Final[dict[Codec, tuple[int, int]]] = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
"""The levels of the codecs that have some, as in the Java client. Those of lz4 make no difference: there is one."""


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

    It keeps one open batch per partition, over any number of ``add`` calls, and hands it out when the next record would
    take it beyond ``batch_bytes``, so a larger record comes alone. Rows of one partition stay in their order.
    """

    def add(self, rows: pa.RecordBatch) -> list[EncodedBatch]:
        """Take rows; return the batches that are full now, in the order in which they were filled.

        A row's partition is that of its column; else murmur2 of its key decides, as in the Java client; without a key
        (or with ``ignore_keys``) rows stick to one partition until its batch is full, then to the next one.

        Args:
            rows: Columns ``value``, ``timestamp`` (int64, milliseconds since 1970, no nulls), and optionally ``key``,
                ``headers`` (list of struct with ``key`` and ``value``) and ``partition`` (int32). All but the timestamp
                may hold nulls. Keys and values are binary or string, with 32-bit or 64-bit offsets, lists likewise.
                Other columns are passed over.

        Raises:
            ColumnError: A partition that the topic does not have, or a header without a key. The message tells the row,
                counted from 0 over all calls.
            RecordTooLargeError: A record beyond ``max_record_bytes``, uncompressed, as in its batch; or no memory for
                it. After any of these errors the encoder is of no more use.
            ValueError: A column is missing or has another type.
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
        ValueError: A codec is unknown, or something is out of its range.
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
        if self.first_sticky < 0:
            raise ValueError(f"first_sticky must not be negative, as {self.first_sticky} is")
        if self.codec not in CODECS:
            raise ValueError(f"a codec is one of {', '.join(CODECS)}, not {self.codec!r}")
        if self.level is not None:
            least, most = LEVELS.get(self.codec, (0, -1))
            if not least <= self.level <= most:
                raise ValueError(f"{self.codec} has no level {self.level}")


def text_as_bytes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with each string as the bytes that it consists of, which are not copied.

    Spark's strings may hold bytes that are no UTF-8, and Kafka does not mind.
    """
    schema = _bytes_schema(rows.schema)
    return rows if schema is None else rows.cast(schema)


@functools.lru_cache(maxsize=64)
def _bytes_schema(schema: pa.Schema) -> pa.Schema | None:
    """Return the schema without strings, ``None`` if there are none. Kept, as small batches come by the thousand."""
    import pyarrow as pa

    changed = pa.schema([field.with_type(_bytes_type(field.type)) for field in schema])
    return None if changed.equals(schema) else changed


def _bytes_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_bytes_type(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_bytes_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_bytes_type(field.type)) for field in kind])
    return kind
