"""How many records one offset range holds: fetched like any read, but only batch headers are looked at."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.reading._fetch_loop import FetchLoop
from pyspark_kafka_direct.reading._replica import Replica
from pyspark_kafka_direct.reading.counts import ReadCounts
from pyspark_kafka_direct.records.counting import RecordCounter
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.pool import ConnectionPool

_log = logging.getLogger("pyspark_kafka_direct.reading")


def count_range(
    settings: ConnectionSettings,
    fetch: FetchSettings,
    request: RangeRequest,
    *,
    limit: int | None = None,
    counts: ReadCounts | None = None,
    pool: ConnectionPool = POOL,
) -> int:
    """Count the records that ``read_range`` would read.

    Args:
        settings: How to reach the cluster.
        fetch: How to fetch.
        request: What to read; its columns do not matter.
        limit: Stop when so many were counted; the number may then be larger, but is not the whole.
        counts: Filled while reading, if given.
        pool: Has the connections, and the system where the brokers are.

    Raises:
        KafkaDirectError: As ``read_range``.
    """
    counts = counts if counts is not None else ReadCounts()
    offsets = request.offsets
    if limit is not None and limit <= 0:
        return 0
    replica = Replica(settings, fetch, offsets.topic_partition, request.topic_id, request.leader, pool)
    counter = RecordCounter(
        offsets.topic, offsets.partition, offsets.from_offset, offsets.until_offset, request.max_batch_bytes
    )
    started = pool.system.monotonic()
    try:
        loop = FetchLoop(settings, fetch, request, replica, counter, counts, ahead=limit is None, system=pool.system)
        for _ in loop.run():
            if limit is not None and counter.records >= limit:
                break
    finally:
        replica.drop()
        counts.records = counter.records
        counts.total_seconds = pool.system.monotonic() - started
        _log.info("%s [%d, %d) counted: %s", offsets.topic_partition, offsets.from_offset, offsets.until_offset, counts)
    return counter.records
