"""Encodes fetch requests and decodes their responses, for one partition or many; records are not copied.

The schema ``FETCH`` has the layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_direct.config.settings import ISOLATION_LEVEL_IDS
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.messages import FETCH, decode, encode_body
from pyspark_kafka_direct.protocol.primitives import MalformedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from pyspark_kafka_direct.config.settings import FetchSettings

OLDEST_VERSION, NEWEST_VERSION = FETCH.versions
FIRST_FLEXIBLE_VERSION = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13

_NO_RECORDS = memoryview(b"")


class FetchRequestPartition(NamedTuple):
    topic: str
    topic_id: UUID | None  # None if the cluster has no topic ids; limits the request version to 12
    partition: int
    offset: int
    max_bytes: int  # the first batch of the first partition with records is returned even if larger (KIP-74)
    leader_epoch: int = -1  # brokers with another epoch reject the request (KIP-320); -1 disables the check
    last_fetched_epoch: int = -1  # of the last batch read: lets the broker detect truncation (KIP-595); -1 disables it


class EpochEndOffset(NamedTuple):
    """The largest epoch that the leader and the reader share, and its end in the leader's log (KIP-320)."""

    epoch: int
    end_offset: int


class LeaderIdAndEpoch(NamedTuple):
    """The current leader as known to the broker, returned with an error (KIP-951)."""

    leader_id: int
    leader_epoch: int


class FetchResponsePartition(NamedTuple):
    error_code: int
    high_watermark: int  # -1 with most errors, and in the empty response to a throttled client
    last_stable_offset: int  # -1 if unknown
    log_start_offset: int  # -1 if unknown (Kafka before 1.0)
    aborted: tuple[tuple[int, int], ...]  # producer id and first offset of aborted transactions in records
    preferred_read_replica: int  # broker to fetch from instead (KIP-392), or -1
    current_leader: LeaderIdAndEpoch | None
    diverging_epoch: EpochEndOffset | None  # where the log was truncated below the reader's position
    throttle_ms: int
    # Record batches, the last one possibly partial. Part of the connection's receive buffer: valid until the next
    # response is awaited, also while the next request is in flight.
    records: memoryview


class FetchResponseData(NamedTuple):
    error_code: int  # of the whole response
    throttle_ms: int
    # Empty with an error of the whole response, or if a quota is exceeded (KIP-219); otherwise all requested ones.
    partitions: dict[TopicPartition, FetchResponsePartition]

    def partition(self, partition: TopicPartition) -> FetchResponsePartition:
        """Return the response for a requested partition; without records if the broker omitted the partition."""
        response = self.partitions.get(partition)
        if response is None:
            return FetchResponsePartition(
                self.error_code, -1, -1, -1, (), -1, None, None, self.throttle_ms, _NO_RECORDS
            )
        return response


def encode_fetch_request(
    version: int,
    requested: Sequence[FetchRequestPartition],
    settings: FetchSettings,
    max_wait_ms: int,  # how long the broker may wait for fetch.min.bytes
    rack: str = "",
) -> bytes:
    """Encode the body of a request; adjacent partitions of one topic are encoded together."""
    checks_last_epoch = version >= FIRST_FLEXIBLE_VERSION
    topics: list[dict[str, Any]] = []
    previous: tuple[str, UUID | None] | None = None
    for topic, topic_id, partition, offset, max_bytes, leader_epoch, last_fetched_epoch in requested:
        if (topic, topic_id) != previous:  # not grouped further: brokers fill responses in the order of the request
            previous = topic, topic_id
            topics.append({"topic": topic, "topic_id": topic_id, "partitions": []})
        topics[-1]["partitions"].append(
            {
                "partition": partition,
                "current_leader_epoch": leader_epoch,
                "fetch_offset": offset,
                "last_fetched_epoch": last_fetched_epoch if checks_last_epoch else -1,
                "partition_max_bytes": max_bytes,
            }
        )
    values = {
        "max_wait_ms": max_wait_ms,
        "min_bytes": settings.fetch_min_bytes,
        "max_bytes": settings.fetch_max_bytes,
        "isolation_level": ISOLATION_LEVEL_IDS[settings.isolation_level],
        "topics": topics,
        "rack_id": rack,
    }
    return encode_body(FETCH, version, values)


def parse_fetch_response(
    body: memoryview, version: int, requested: Sequence[FetchRequestPartition]
) -> FetchResponseData:
    """Parse the body of a response; raises ``MalformedError`` if it does not match the request."""
    response = decode(FETCH, version, body, copy=False)
    has_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
    topic_names = {entry.topic_id if has_ids else entry.topic: entry.topic for entry in requested}
    requested_partitions = {TopicPartition(entry.topic, entry.partition) for entry in requested}
    partition_responses: dict[TopicPartition, FetchResponsePartition] = {}
    for topic_response in response.responses:
        topic = topic_names.get(topic_response.topic_id if has_ids else topic_response.topic)
        if topic is None:
            raise MalformedError(f"it has a topic{' id' if has_ids else ''} that was not requested")
        for partition_response in topic_response.partitions:
            partition = TopicPartition(topic, partition_response.partition_index)
            if partition not in requested_partitions:
                raise MalformedError(f"it has the partition {partition}, which was not requested")
            if partition in partition_responses:
                raise MalformedError(f"it has the partition {partition} twice")
            partition_responses[partition] = _to_response_partition(partition_response, response.throttle_time_ms)
    if response.error_code:
        return FetchResponseData(response.error_code, response.throttle_time_ms, {})
    if len(partition_responses) < len(requested_partitions) and (partition_responses or response.throttle_time_ms <= 0):
        raise MalformedError(f"it lacks the partition {min(requested_partitions - partition_responses.keys())}")
    return FetchResponseData(0, response.throttle_time_ms, partition_responses)


def _to_response_partition(response: Any, throttle_ms: int) -> FetchResponsePartition:
    (
        _,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted,
        preferred_read_replica,
        records,
        diverging_epoch,
        current_leader,
        _,
    ) = response
    return FetchResponsePartition(
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted or (),
        preferred_read_replica,
        LeaderIdAndEpoch(*current_leader) if current_leader.leader_id >= 0 else None,
        EpochEndOffset(*diverging_epoch) if diverging_epoch.epoch >= 0 else None,
        throttle_ms,
        _NO_RECORDS if records is None else records,
    )
