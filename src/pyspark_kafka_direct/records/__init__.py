"""Record batches to Arrow and back: a Protocol each way, two implementations, one line that chooses.

A decoder is made for one offset range of one partition, is fed the record bytes of fetch responses, and hands out
Arrow record batches with exactly the wanted columns::

    decoder = create_decoder(topic="flights", partition=0, from_offset=0, until_offset=1000, columns=("key", "value"))
    while not decoder.done:
        decoder.feed(fetch(decoder.next_offset))
        while (batch := decoder.read()) is not None:
            ...

An encoder is made for one topic, is given rows, and hands out record batches as they fill. Just before a batch is sent
it is stamped with its producer::

    encoder = create_encoder(topic="flights", partitions=6, codec="lz4")
    for batch in (*encoder.add(rows), *encoder.flush()):
        stamp(batch.data, producer_id, epoch, sequence, transactional=False)
        send(batch.partition, batch.data)

The native implementation (``rust/``) is used where it was built. The Python one does the same, much more slowly; it
serves where the native one is absent, is the oracle of its tests, and alone knows the message formats before 2.
``PYSPARK_KAFKA_DIRECT_DECODER`` (``native`` or ``python``) in the environment forces one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pyspark_kafka_direct.records._choice import choose
from pyspark_kafka_direct.records._columns import COLUMNS, arrow_schema
from pyspark_kafka_direct.records._encoding import EncodedBatch, EncodeRequest, RecordEncoder
from pyspark_kafka_direct.records._murmur2 import partition_of
from pyspark_kafka_direct.records._protocol import (
    DEFAULT_LARGEST_BATCH,
    AbortedTransaction,
    DecodeCounts,
    DecodeRequest,
    RecordDecoder,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.settings.produce import Codec

__all__ = [
    "COLUMNS",
    "IMPLEMENTATION",
    "NATIVE_ABSENT",
    "AbortedTransaction",
    "DecodeCounts",
    "EncodedBatch",
    "RecordDecoder",
    "RecordEncoder",
    "arrow_schema",
    "create_decoder",
    "create_encoder",
    "partition_of",
    "scan_leader_epoch",
    "scan_next_offset",
    "split",
    "stamp",
]

_chosen = choose()

IMPLEMENTATION: Final[Literal["native", "python"]] = _chosen.name
"""Which implementation serves in this process."""

NATIVE_ABSENT: Final[str] = _chosen.native_absent
"""Why the Python implementation serves although nobody asked for it; empty where that is not so."""

scan_next_offset = _chosen.scan_next_offset
scan_leader_epoch = _chosen.scan_leader_epoch
stamp = _chosen.stamp
split = _chosen.split


def create_decoder(
    *,
    topic: str,
    partition: int,
    from_offset: int,
    until_offset: int,
    columns: Sequence[str],
    check_crcs: bool = True,
    max_rows: int = 65536,
    max_bytes: int = 4 << 20,
    max_batch_bytes: int = DEFAULT_LARGEST_BATCH,
) -> RecordDecoder:
    """Make a decoder of one offset range.

    Args:
        topic: Topic, for its column and for errors.
        partition: Partition, likewise.
        from_offset: First wanted offset.
        until_offset: Offset after the last wanted one.
        columns: Wanted columns in the wanted order, some of ``COLUMNS``.
        check_crcs: Whether to check each record batch's CRC (``check.crcs`` of the Java client).
        max_rows: Most rows of one Arrow batch.
        max_bytes: Most bytes of one Arrow batch, counted as its records' decompressed size and what wanted headers
            take beyond it; a single larger record comes alone.
        max_batch_bytes: Most bytes that a record batch may decompress to, and that a record may take, counted in the
            same way; a larger one is an error.

    Raises:
        ValueError: A column is unknown or named twice, or a number is out of its range.
    """
    return _chosen.create(
        DecodeRequest(
            topic,
            partition,
            from_offset,
            until_offset,
            tuple(columns),
            check_crcs,
            max_rows,
            max_bytes,
            max_batch_bytes,
        )
    )


def create_encoder(
    *,
    topic: str,
    partitions: int,
    codec: Codec = "none",
    level: int | None = None,
    batch_bytes: int = 524_288,
    max_record_bytes: int = 1_048_576,
    ignore_keys: bool = False,
    first_sticky: int = 0,
) -> RecordEncoder:
    """Make an encoder of one topic's records.

    Args:
        topic: Topic, for errors.
        partitions: How many partitions it has.
        codec: How record batches are compressed.
        level: The codec's level; None: its default.
        batch_bytes: Most bytes of a batch's records, uncompressed; a single larger record comes alone.
        max_record_bytes: Most bytes of a record, uncompressed; a larger one is an error.
        ignore_keys: Whether keys have no say in the choice of a partition.
        first_sticky: The partition where rows without a key begin, modulo the number of partitions.

    Raises:
        ValueError: The codec is unknown, or a number is out of its range.
    """
    return _chosen.create_encoder(
        EncodeRequest(topic, partitions, codec, level, batch_bytes, max_record_bytes, ignore_keys, first_sticky)
    )
