"""Fetch requests over one connection, for one partition or many; the records of responses are not copied.

No fetch sessions (KIP-227) are used. With a session, a request omits unchanged partitions. Without one, a request has
about 100 bytes for one partition and 40 bytes for each of many, and a response the same plus records. A session would
save half of that, but adds state that can be lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_direct.client.api_versions import negotiate_version
from pyspark_kafka_direct.client.connection import MAX_FRAME_SIZE
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ISOLATION_LEVEL_IDS
from pyspark_kafka_direct.protocol.messages import FETCH, decode, encode_body
from pyspark_kafka_direct.protocol.primitives import MalformedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.options.settings import FetchSettings

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
                error_code=self.error_code,
                high_watermark=-1,
                last_stable_offset=-1,
                log_start_offset=-1,
                aborted=(),
                preferred_read_replica=-1,
                current_leader=None,
                diverging_epoch=None,
                throttle_ms=self.throttle_ms,
                records=_NO_RECORDS,
            )
        return response


API_KEY = 1

# Leaves space for the parts of a response that are not records.
_MAX_RESPONSE_BYTES = MAX_FRAME_SIZE - (1 << 20)


class FetchChannel:
    """Fetches one partition over one connection, one request at a time."""

    # To keep client and broker busy, request the next records before decoding the records of a response.

    def __init__(
        self,
        connection: Connection,  # not used by others
        *,
        topic: str,
        topic_id: UUID | None,  # None if the cluster has no topic ids; limits the request version to 12
        partition: int,
        settings: FetchSettings,
        follow_rack: bool = True,  # whether the broker may refer to the replica of this client's rack (KIP-392)
    ) -> None:
        self.connection = connection
        self.version = _negotiate_fetch_version(connection, topic_ids=topic_id is not None)
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition
        self._settings = _within_frame(settings)
        self._rack = settings.client_rack if follow_rack else ""
        self._requested_partition = FetchRequestPartition(  # of the last request
            topic, topic_id, partition, offset=0, max_bytes=0
        )
        connection.reserve_buffer(settings.max_partition_fetch_bytes)

    def request(
        self,
        offset: int,
        leader_epoch: int = -1,  # brokers with another epoch reject the request (KIP-320); -1 disables the check
        max_bytes: int | None = None,  # None: max.partition.fetch.bytes; one batch is returned even if larger (KIP-74)
        *,
        last_fetched_epoch: int = -1,  # of the last batch read: lets the broker detect log truncation (KIP-595)
        max_wait_ms: int | None = None,  # limited to fetch.max.wait.ms
        deadline: Deadline | None = None,  # for sending; None: after request.timeout.ms
    ) -> None:
        """Request records from ``offset`` on, without waiting for them."""
        settings = self._settings
        byte_limit = min(settings.max_partition_fetch_bytes if max_bytes is None else max_bytes, _MAX_RESPONSE_BYTES)
        wait_ms = _longest_wait_ms(self.connection, settings)
        if max_wait_ms is not None:
            wait_ms = min(max_wait_ms, wait_ms)
        self._requested_partition = FetchRequestPartition(
            topic=self._topic,
            topic_id=self._topic_id,
            partition=self._partition,
            offset=offset,
            max_bytes=byte_limit,
            leader_epoch=leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        _send(
            self.connection,
            self.version,
            (self._requested_partition,),
            settings=settings,
            max_wait_ms=wait_ms,
            deadline=deadline,
            rack=self._rack,
        )

    def response(self, deadline: Deadline) -> FetchResponsePartition:
        response = _receive(self.connection, self.version, (self._requested_partition,), deadline)
        return response.partition(TopicPartition(self._topic, self._partition))


class MultiPartitionFetchChannel:
    """Fetches many partitions over one connection, one request at a time."""

    def __init__(self, connection: Connection, settings: FetchSettings) -> None:
        self.connection = connection
        # The broker must wait for at least one byte, or fetches would busy-loop.
        self._settings = replace(_within_frame(settings), fetch_min_bytes=max(settings.fetch_min_bytes, 1))
        # By whether all partitions of a request have topic ids.
        self._versions = {
            topic_ids: _negotiate_fetch_version(connection, topic_ids=topic_ids) for topic_ids in (False, True)
        }
        self._version = 0  # of the last request, as the partitions
        self._requested_partitions: Sequence[FetchRequestPartition] = ()
        connection.reserve_buffer(settings.max_partition_fetch_bytes)

    def request(self, partitions: Sequence[FetchRequestPartition], deadline: Deadline) -> None:
        """Request records of distinct partitions, without waiting; brokers fill responses in their order."""
        settings = self._settings
        self._version = self._versions[all(partition.topic_id is not None for partition in partitions)]
        self._requested_partitions = partitions
        wait_ms = _longest_wait_ms(self.connection, settings)
        _send(self.connection, self._version, partitions, settings=settings, max_wait_ms=wait_ms, deadline=deadline)

    def response(self, deadline: Deadline) -> FetchResponseData:
        return _receive(self.connection, self._version, self._requested_partitions, deadline)


def _negotiate_fetch_version(connection: Connection, *, topic_ids: bool) -> int:
    newest_version = NEWEST_VERSION if topic_ids else FIRST_VERSION_WITH_TOPIC_IDS - 1
    return negotiate_version(
        API_KEY, "Fetch", (OLDEST_VERSION, newest_version), connection.api_versions, connection.broker
    )


def _within_frame(settings: FetchSettings) -> FetchSettings:
    """Return settings with which no response is larger than a frame may be."""
    return replace(settings, fetch_max_bytes=min(max(settings.fetch_max_bytes, 0), _MAX_RESPONSE_BYTES))


def _longest_wait_ms(connection: Connection, settings: FetchSettings) -> int:
    """Return how long a broker may wait for records: it must respond before ``request.timeout.ms``."""
    return min(settings.fetch_max_wait_ms, connection.settings.request_timeout_ms // 2)


def _send(
    connection: Connection,
    version: int,
    requested_partitions: Sequence[FetchRequestPartition],
    *,
    settings: FetchSettings,
    max_wait_ms: int,
    deadline: Deadline | None,
    rack: str = "",
) -> None:
    if deadline is None:
        deadline = Deadline.after(connection.settings.request_timeout_ms / 1000, system=connection.system)
    body = encode_fetch_request(version, requested_partitions, settings, max_wait_ms, rack)
    connection.send(API_KEY, version, "Fetch", body, flexible=version >= FIRST_FLEXIBLE_VERSION, deadline=deadline)


def _receive(
    connection: Connection, version: int, requested_partitions: Sequence[FetchRequestPartition], deadline: Deadline
) -> FetchResponseData:
    body = connection.receive(deadline)
    try:
        response = parse_fetch_response(body, version, requested_partitions)
    except MalformedError as error:
        connection.close()
        partition = requested_partitions[0] if len(requested_partitions) == 1 else None
        raise ProtocolError(
            f"The response to Fetch version {version} is malformed: {error}.",
            topic=None if partition is None else partition.topic,
            partition=None if partition is None else partition.partition,
            broker=connection.broker,
        ) from None
    connection.throttle(response.throttle_ms)
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
    has_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS  # then the response names topics only by id
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
    # Only a throttled response may lack partitions, and then it lacks all.
    if len(partition_responses) < len(requested_partitions) and (partition_responses or response.throttle_time_ms <= 0):
        raise MalformedError(f"it lacks the partition {min(requested_partitions - partition_responses.keys())}")
    return FetchResponseData(0, response.throttle_time_ms, partition_responses)


def _to_response_partition(response: Any, throttle_ms: int) -> FetchResponsePartition:
    (  # all fields in the order of the schema `FETCH`, which is faster than by name
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
        LeaderIdAndEpoch(*current_leader) if current_leader.leader_id >= 0 else None,  # tagged fields are -1 if absent
        EpochEndOffset(*diverging_epoch) if diverging_epoch.epoch >= 0 else None,
        throttle_ms,
        _NO_RECORDS if records is None else records,
    )
