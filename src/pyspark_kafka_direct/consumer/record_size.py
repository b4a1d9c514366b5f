"""Estimates the size of a partition's records from one small fetch."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.fetcher import ReadReplica
from pyspark_kafka_direct.planning.read_limits import RecordSizeSample
from pyspark_kafka_direct.records import scan_next_offset

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import PartitionLeader
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.config.client_settings import ConnectionSettings, FetchSettings
    from pyspark_kafka_direct.offsets import TopicPartition

_SAMPLE_BYTES = 64 << 10

# Every record batch, of any format, begins with its first offset and the number of bytes that follow:
#   int64 baseOffset, int32 batchLength
_BATCH_PREFIX = struct.Struct(">qi")


def sample_record_size(
    settings: ConnectionSettings,
    fetch: FetchSettings,
    partition: TopicPartition,
    offset: int,
    deadline: Deadline,
    *,
    topic_id: UUID | None = None,
    leader: PartitionLeader | None = None,
    pool: ConnectionPool = POOL,
) -> RecordSizeSample | None:
    """Measure the record batches of one fetch from ``offset`` on; None if it returned no complete batch."""
    # Planning must not wait for more records, as fetch.min.bytes could require.
    no_wait = replace(fetch, fetch_min_bytes=0, fetch_max_wait_ms=0)
    replica = ReadReplica(settings, no_wait, partition, topic_id, leader, pool)
    try:
        replica.send_fetch(offset, _SAMPLE_BYTES, deadline)
        return measure_batches(replica.receive_fetch(deadline).records, offset)
    finally:
        replica.release()


def measure_batches(records: memoryview | bytes, offset: int) -> RecordSizeSample | None:
    """Return the compressed size of the complete batches in a fetch response, and the number of their offsets."""
    if len(records) < _BATCH_PREFIX.size:
        return None
    # The first batch may start before the offset. The last one may be incomplete; `scan_next_offset` ignores it.
    base_offset, _ = _BATCH_PREFIX.unpack_from(records)
    covered_offsets = scan_next_offset(records, offset) - base_offset
    complete_bytes = 0
    while complete_bytes + _BATCH_PREFIX.size <= len(records):
        _, length = _BATCH_PREFIX.unpack_from(records, complete_bytes)
        if length < 0 or complete_bytes + _BATCH_PREFIX.size + length > len(records):
            break
        complete_bytes += _BATCH_PREFIX.size + length
    return RecordSizeSample(complete_bytes, covered_offsets) if complete_bytes and covered_offsets > 0 else None
