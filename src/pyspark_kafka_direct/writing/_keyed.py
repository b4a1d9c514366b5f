"""Records of one key in one partition, as markers and staged batches are: made and read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.system import System


def rows_of(key: bytes, values: Sequence[bytes | None], partition: int, system: System) -> pa.RecordBatch:
    """Return rows for a ``RecordEncoder``: one for each value, with the time of now.

    Args:
        key: The key of all.
        values: The values.
        partition: Where they belong.
        system: Has the clock.
    """
    import pyarrow as pa

    now = int(system.wall_time() * 1000)
    count = len(values)
    return pa.record_batch(
        {
            "key": pa.array([key] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([partition] * count, pa.int32()),
            "timestamp": pa.array([now] * count, pa.int64()),
        }
    )


def values_of(key: bytes, cluster: Cluster, fetch: FetchSettings, request: RangeRequest) -> Iterator[bytes | None]:
    """Yield the values of the records that have a key, oldest first.

    Args:
        key: The key.
        cluster: Where to read.
        fetch: How to fetch.
        request: What to read: the columns ``key`` and ``value`` of an offset range.

    Raises:
        KafkaDirectError: The range can't be read to its end.
    """
    import pyarrow.compute as pc

    from pyspark_kafka_direct.reading.range_reader import read_range

    for batch in read_range(cluster.settings, fetch, request, pool=cluster.pool):
        values = batch.column("value").filter(pc.fill_null(pc.equal(batch.column("key"), key), False))
        yield from values.to_pylist()
