"""Record batches for tests of staging, and their frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.records.encoding import Row, arrow

from pyspark_kafka_direct.producer.staged_frames import frame_start
from pyspark_kafka_direct.records import EncodedBatch, RecordEncoder

if TYPE_CHECKING:
    from collections.abc import Iterable

Pair = tuple[str, EncodedBatch]


def encoded(value: bytes) -> bytearray:
    """Return a record batch with one record."""
    limit = len(value) + 1024
    encoder = RecordEncoder(topic="flights", partitions=1, batch_bytes=limit, max_record_bytes=limit)
    (batch,) = (*encoder.add(arrow([Row(value=value)])), *encoder.flush())
    return bytearray(batch.data)


def staged_pair(number: int, size: int = 30) -> Pair:
    """Return a topic and a batch with a value of so many bytes."""
    return "flights", EncodedBatch(number, 3, size, encoded(bytes([number]) * size))


def frames(pairs: Iterable[Pair]) -> bytes:
    return b"".join(frame_start(topic, batch) + batch.data for topic, batch in pairs)
