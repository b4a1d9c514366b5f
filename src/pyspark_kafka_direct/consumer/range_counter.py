"""Counts the records of one offset range from the batch headers of fetch responses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.fetcher import Fetcher, ReadReplica
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.consumer.record_counter import RecordCounter

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings

_log = logging.getLogger("pyspark_kafka_direct.consumer")


def count_range(
    connection: ConnectionSettings,
    fetch: FetchSettings,
    task: RangeTask,
    *,
    limit: int | None = None,
    counts: ReadCounts | None = None,
    pool: ConnectionPool = POOL,
) -> int:
    """Count the records that ``read_range`` would read; stop after the fetch with which the count reaches ``limit``."""
    counts = counts if counts is not None else ReadCounts()
    offsets = task.offsets
    if limit is not None and limit <= 0:
        return 0
    replica = ReadReplica(
        connection, fetch, offsets.topic_partition, task.topic_id, planned_leader=task.leader, pool=pool
    )
    counter = RecordCounter(
        offsets.topic, offsets.partition, offsets.from_offset, offsets.until_offset, fetch.max_record_batch_bytes
    )
    # With a limit, the next fetch is often not needed, so it is not sent in advance.
    should_prefetch = limit is None
    started = pool.system.monotonic()
    try:
        fetcher = Fetcher(task, replica, counter, counts, prefetch=should_prefetch, system=pool.system)
        for _ in fetcher.run():
            if limit is not None and counter.records >= limit:
                break
    finally:
        replica.release()
        counts.records = counter.records
        counts.total_seconds = pool.system.monotonic() - started
        _log.info("%s [%d, %d) counted: %s", offsets.topic_partition, offsets.from_offset, offsets.until_offset, counts)
    return counter.records
