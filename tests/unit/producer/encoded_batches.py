"""Record batches of consecutive numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_kafka_direct.records import RecordEncoder

if TYPE_CHECKING:
    from pyspark_kafka_direct.records import EncodedBatch


def encoded(partition: int, first: int, records: int) -> EncodedBatch:
    """Return a batch whose values are so many numbers from the first one on."""
    rows = pa.record_batch(
        {
            "value": pa.array([b"%d" % (first + number) for number in range(records)], pa.binary()),
            "partition": pa.array([partition] * records, pa.int32()),
            "timestamp": pa.array([1_000] * records, pa.int64()),
        }
    )
    encoder = RecordEncoder(topic="t", partitions=partition + 1)
    (batch,) = (*encoder.add(rows), *encoder.flush())
    return batch
