"""How large the records of a partition are, from one small fetch."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pyspark_kafka_direct.planning.limits import Sample
from pyspark_kafka_direct.reading._replica import Replica
from pyspark_kafka_direct.records import scan_next_offset
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.cluster import PartitionLeader
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.pool import ConnectionPool

SAMPLE_BYTES = 64 << 10

# Every record batch, of any format, begins with its first offset and the number of bytes that follow:
#   int64 baseOffset, int32 batchLength
_HEAD = struct.Struct(">qi")


def take_sample(
    settings: ConnectionSettings,
    fetch: FetchSettings,
    partition: TopicPartition,
    offset: int,
    deadline: Deadline,
    *,
    topic_id: UUID | None = None,
    leader: PartitionLeader | None = None,
    pool: ConnectionPool = POOL,
) -> Sample | None:
    """Return how large the batches from ``offset`` on are, on the wire: compressed, as the broker keeps them.

    Args:
        settings: How to reach the cluster.
        fetch: How to fetch.
        partition: The partition.
        offset: Where to look; there must be records.
        deadline: End of the wait.
        topic_id: The topic's id, if known.
        leader: The partition's leader, if known.
        pool: Has the connections.

    Returns:
        The sample, or ``None`` if no complete batch came.

    Raises:
        BrokerError: The leader could not be asked.
        TopicNotFoundError: There is no such partition any more.
    """
    replica = Replica(settings, fetch, partition, topic_id, leader, pool)
    try:
        replica.ask(offset, SAMPLE_BYTES, deadline)
        return measure(replica.answer(deadline).records, offset)
    finally:
        replica.drop()


def measure(records: memoryview | bytes, offset: int) -> Sample | None:
    """Return the size of the complete batches in the records of a fetch response.

    Args:
        records: They may begin with a batch that starts before ``offset``, and end with one that is cut off.
        offset: The offset that was asked for.
    """
    if len(records) < _HEAD.size:
        return None
    first, _ = _HEAD.unpack_from(records)
    covered = scan_next_offset(records, offset) - first
    complete = 0
    while complete + _HEAD.size <= len(records):
        _, length = _HEAD.unpack_from(records, complete)
        if length < 0 or complete + _HEAD.size + length > len(records):
            break
        complete += _HEAD.size + length
    return Sample(complete, covered) if complete and covered > 0 else None
