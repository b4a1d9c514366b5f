"""Fetch requests over one connection, for one partition or many; the records of responses are not copied.

No fetch sessions (KIP-227) are used. With a session, a request omits unchanged partitions. Without one, a request has
about 100 bytes for one partition and 40 bytes for each of many, and a response the same plus records. A session would
save half of that, but adds state that can be lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.client.api_versions import negotiate_version
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import MAX_FRAME_SIZE
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.leader_requests import has_reliable_end
from pyspark_kafka_direct.client.metadata import topic_report
from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ISOLATION_LEVEL_IDS
from pyspark_kafka_direct.planning.data_loss import LeaderLogState, topic_error
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for
from pyspark_kafka_direct.protocol.messages import FETCH, decode, encode_body
from pyspark_kafka_direct.protocol.primitives import MalformedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import Node, PartitionLeader
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.witnesses import AbsenceCheck
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings

OLDEST_VERSION, NEWEST_VERSION = FETCH.versions
UNKNOWN_EPOCH: Final = -1

FIRST_FLEXIBLE_VERSION = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13

_NO_RECORDS = memoryview(b"")


class FetchRequestPartition(NamedTuple):
    topic: str
    topic_id: UUID | None  # None if the cluster has no topic ids; limits the request version to 12
    partition: int
    offset: int
    max_bytes: int  # the first batch of the first partition with records is returned even if larger (KIP-74)
    leader_epoch: int = UNKNOWN_EPOCH  # brokers with another epoch reject the request (KIP-320); -1 disables the check
    last_fetched_epoch: int = UNKNOWN_EPOCH  # of the last batch read, to detect a truncation (KIP-595); -1 disables it


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
    """Fetches partitions over one connection, one request at a time."""

    # To keep client and broker busy, request the next records before decoding the records of a response.

    def __init__(
        self,
        connection: Connection,  # not used by others
        settings: FetchSettings,
        *,
        follow_rack: bool = False,  # whether the broker may refer to the replica of this client's rack (KIP-392)
    ) -> None:
        self.connection = connection
        # With these settings, no response is larger than a frame may be.
        self._settings = replace(settings, fetch_max_bytes=min(max(settings.fetch_max_bytes, 0), _MAX_RESPONSE_BYTES))
        self._rack = settings.client_rack if follow_rack else ""
        # By whether all partitions of a request have topic ids.
        self.versions = {has_ids: _negotiate_version(connection, has_topic_ids=has_ids) for has_ids in (False, True)}
        self._version = 0  # of the last request, as the partitions
        self._requested_partitions: Sequence[FetchRequestPartition] = ()
        connection.reserve_buffer(settings.max_partition_fetch_bytes)

    @property
    def end_may_be_stale(self) -> bool:
        """Whether the broker is older than Kafka 2.2: its log end may be too low right after an election (KIP-207)."""
        return not has_reliable_end(self.connection)

    def request(
        self,
        partitions: Sequence[FetchRequestPartition],  # distinct; brokers fill responses in their order
        deadline: Deadline,  # for sending
        *,
        max_wait_ms: int | None = None,  # limited to fetch.max.wait.ms
    ) -> None:
        """Request records, without waiting for them."""
        self._version = self.versions[all(partition.topic_id is not None for partition in partitions)]
        self._requested_partitions = partitions
        # The broker must respond before request.timeout.ms.
        wait_ms = min(self._settings.fetch_max_wait_ms, self.connection.settings.request_timeout_ms // 2)
        if max_wait_ms is not None:
            wait_ms = min(max_wait_ms, wait_ms)
        body = encode_fetch_request(self._version, partitions, self._settings, wait_ms, self._rack)
        is_flexible = self._version >= FIRST_FLEXIBLE_VERSION
        self.connection.send(API_KEY, self._version, "Fetch", body, flexible=is_flexible, deadline=deadline)

    def response(self, deadline: Deadline) -> FetchResponseData:
        body, partitions = self.connection.receive(deadline), self._requested_partitions
        try:
            response = parse_fetch_response(body, self._version, partitions)
        except MalformedError as error:
            self.connection.close()
            partition = partitions[0] if len(partitions) == 1 else None
            raise ProtocolError(
                f"The response to Fetch version {self._version} is malformed: {error}.",
                topic=None if partition is None else partition.topic,
                partition=None if partition is None else partition.partition,
                broker=self.connection.broker,
            ) from None
        self.connection.throttle(response.throttle_ms)
        return response


class ReadReplica:
    """The broker that one task fetches from, and the connection to it, with at most one fetch in flight."""

    def __init__(
        self,
        connection_settings: ConnectionSettings,
        fetch_settings: FetchSettings,
        partition: TopicPartition,
        topic_id: UUID | None,
        *,
        planned_leader: PartitionLeader | None = None,
        pool: ConnectionPool = POOL,
    ) -> None:
        self.on_leader = True  # only the leader decides on data loss
        self.broker: str | None = None  # ``host:port`` of the last fetch
        self.end_may_be_stale = False  # the broker is older than Kafka 2.2, see KIP-207
        self._leader_epoch = UNKNOWN_EPOCH
        self.connection_settings = connection_settings
        self.fetch_settings = fetch_settings
        self._cluster = ClusterClient(connection_settings, retries=0, pool=pool)  # the caller retries
        self._partition = partition
        self._topic_id = topic_id
        # Possibly outdated: then the broker rejects the fetch because of its leader epoch or topic id.
        self._planned_leader = planned_leader
        if planned_leader is not None:
            self._cluster.raise_epoch_floor(partition, topic_id, planned_leader.epoch)
        self._channel: FetchChannel | None = None  # None: `send_fetch` connects
        self._in_flight_offset: int | None = None
        self._preferred_replica: int | None = None  # broker id, after the leader has chosen a replica (KIP-392)
        self._leader_only = not fetch_settings.client_rack  # then the leader chooses no other replica

    def send_fetch(
        self, offset: int, max_bytes: int, deadline: Deadline, *, last_fetched_epoch: int = UNKNOWN_EPOCH
    ) -> None:
        """Send the fetch request for ``offset``, unless that request is already in flight."""
        if self._in_flight_offset == offset:
            return
        if self._in_flight_offset is not None:  # another fetch, whose response would arrive first
            self.release()
        if self._channel is not None and self._channel.connection.certificates_changed:
            self.release()
        channel = self._channel or self._open_channel(deadline)
        # A leader may wait for records for half of the remaining time, so that it responds before the deadline. A
        # follower learns the high watermark up to half a second late; it responds at once, and the leader is used.
        max_wait_ms = int(deadline.remaining() * 500) if self.on_leader else 0
        requested = FetchRequestPartition(
            self._partition.topic,
            self._topic_id,
            self._partition.partition,
            offset,
            max_bytes,
            self._leader_epoch,
            last_fetched_epoch,  # KIP-320: the broker checks that its log has that batch
        )
        channel.request([requested], deadline, max_wait_ms=max_wait_ms)
        self._in_flight_offset = offset

    def receive_fetch(self, deadline: Deadline) -> FetchResponsePartition:
        """Return the response to the fetch in flight; its records are valid until the next call."""
        assert self._channel is not None
        response = self._channel.response(deadline)
        self._in_flight_offset = None
        return response.partition(self._partition)

    def fetch_log_state(self, deadline: Deadline) -> LeaderLogState:
        """Return the offsets of the leader's log, after requests to other brokers for a later leader.

        Raises:
            TopicNotFoundError: The topic was deleted or recreated.
        """
        self.release()
        start, end = self._cluster.log_bounds([self._partition], deadline)[self._partition]
        self._refresh_metadata(deadline)  # afterwards: ListOffsets has no topic id, and the topic may be another one
        return LeaderLogState(start, end, self._topic_id)

    def note_later_epoch(self, epoch: int, deadline: Deadline) -> None:
        """Release the connection; if a response has a later epoch (KIP-951), no longer accept earlier leaders."""
        self.release()
        if epoch > self._leader_epoch:
            self._cluster.note_later_epochs({self._partition: epoch}, deadline)

    def check_leader(self, deadline: Deadline) -> None:
        """Raise a transient error if a broker reports a later leader than the one that was fetched from."""
        self._cluster.check_leader(
            self._partition, self._topic_id, self._leader_epoch, broker=self.broker, deadline=deadline
        )

    def local_log_start(self, deadline: Deadline) -> int | None:
        """Return the first offset on the leader's own disk; earlier ones are in tiered storage, which is slow."""
        return self._cluster.local_log_start(self._partition, deadline=deadline)

    def absence_check(self) -> AbsenceCheck:
        """Return a check whether the partition, with the planned topic id, is missing."""
        return self._cluster.absence_check({self._partition: self._topic_id})

    def switch_to_replica(self, broker_id: int) -> None:
        self.release()
        self._preferred_replica = broker_id

    def switch_to_leader(self) -> None:
        """Fetch the rest of the range from the leader, because a follower did not return its records."""
        self.release()
        self._preferred_replica = None
        self._leader_only = True

    def release(self) -> None:
        """Release the connection and the fetch in flight; the next ``send_fetch`` refreshes metadata."""
        channel, self._channel, self._in_flight_offset = self._channel, None, None
        if channel is not None:
            self._cluster.release(channel.connection)  # closes it if a response is still outstanding

    def _open_channel(self, deadline: Deadline) -> FetchChannel:
        planned_leader, self._planned_leader = self._planned_leader, None  # used once: metadata is newer from then on
        if planned_leader is None:
            leader = self._refresh_metadata(deadline)
        else:
            leader, self._leader_epoch = planned_leader
        node = leader
        if self._preferred_replica is not None:
            node = self._cluster.nodes.get(self._preferred_replica, leader)
            self._leader_only = node.id == leader.id  # if the follower does not exist, ignore later preferences
        self.on_leader = node.id == leader.id
        self.broker = str(node)
        connection = self._cluster.connect(node, deadline)
        try:
            self._channel = FetchChannel(connection, self.fetch_settings, follow_rack=not self._leader_only)
        except BaseException:
            self._cluster.release(connection)
            raise
        self.end_may_be_stale = self._channel.end_may_be_stale
        has_topic_ids = self._channel.versions[self._topic_id is not None] >= FIRST_VERSION_WITH_TOPIC_IDS
        if planned_leader is not None and not has_topic_ids:
            # This Fetch version has no topic id to compare, but metadata has. Metadata may also name a later leader.
            self.release()
            return self._open_channel(deadline)
        return self._channel

    def _refresh_metadata(self, deadline: Deadline) -> Node:
        """Return the leader; raise TopicNotFoundError if the partition is missing or was recreated since planning."""
        topic, partition = self._partition
        metadata = self._cluster.topics([topic], deadline=deadline).get(topic)
        missing = topic_error(self._partition, self._topic_id, topic_report(metadata))
        if missing is not None:
            raise missing
        leader = self._cluster.leaders([self._partition], deadline)[self._partition]
        if leader is None:
            error = error_for(ErrorCode.LEADER_NOT_AVAILABLE, "finding its leader", topic=topic, partition=partition)
            # Longer while all leaders in metadata have lower epochs than before: the cluster may have lost its epochs.
            error.confirmation_seconds = self._cluster.confirmation_seconds(error)
            raise error
        self._leader_epoch = leader.epoch
        return leader.node


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


def _negotiate_version(connection: Connection, *, has_topic_ids: bool) -> int:
    newest = NEWEST_VERSION if has_topic_ids else FIRST_VERSION_WITH_TOPIC_IDS - 1
    return negotiate_version(API_KEY, "Fetch", (OLDEST_VERSION, newest), connection.api_versions, connection.broker)


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
