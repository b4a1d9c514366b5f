"""Estimates the size of a partition's records from one small fetch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica
from pyspark_kafka_direct.planning.read_limits import RecordSizeSample
from pyspark_kafka_direct.records import scan_batches

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import PartitionLeader
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings

_SAMPLE_BYTES = 64 << 10


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
    replica = ReadReplica(settings, no_wait, partition, topic_id, planned_leader=leader, pool=pool)
    try:
        replica.send_fetch(offset, _SAMPLE_BYTES, deadline)
        return measure_batches(replica.receive_fetch(deadline).records, offset)
    finally:
        replica.release()


def measure_batches(records: memoryview | bytes, offset: int) -> RecordSizeSample | None:
    """Return the compressed size of the complete batches in a fetch response, and the number of their offsets."""
    scanned = scan_batches(records, offset)
    if not scanned.batches:
        return None
    # The first batch may start before the offset.
    covered_offsets = scanned.next_offset - scanned.batches[0].base_offset
    return RecordSizeSample(scanned.batches[-1].end, covered_offsets) if covered_offsets > 0 else None
