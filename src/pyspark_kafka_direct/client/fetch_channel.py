"""Fetch requests over one connection, for one partition or many; ``protocol.fetch_codec`` encodes them.

No fetch sessions (KIP-227) are used. With a session, a request omits unchanged partitions. Without one, a request has
about 100 bytes for one partition and 40 bytes for each of many, and a response the same plus records. A session would
save half of that, but adds state that can be lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.api_versions import negotiate_version
from pyspark_kafka_direct.client.connection import MAX_FRAME_SIZE
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.fetch_codec import (
    FIRST_FLEXIBLE_VERSION,
    FIRST_VERSION_WITH_TOPIC_IDS,
    NEWEST_VERSION,
    OLDEST_VERSION,
    EpochEndOffset,
    FetchRequestPartition,
    FetchResponseData,
    FetchResponsePartition,
    LeaderIdAndEpoch,
    encode_fetch_request,
    parse_fetch_response,
)
from pyspark_kafka_direct.protocol.primitives import MalformedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.config.settings import FetchSettings

__all__ = [
    "FIRST_VERSION_WITH_TOPIC_IDS",
    "NEWEST_VERSION",
    "OLDEST_VERSION",
    "EpochEndOffset",
    "FetchChannel",
    "FetchRequestPartition",
    "FetchResponseData",
    "FetchResponsePartition",
    "LeaderIdAndEpoch",
    "MultiPartitionFetchChannel",
]

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
        self._requested_partition = FetchRequestPartition(topic, topic_id, partition, 0, 0)
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
            self._topic, self._topic_id, self._partition, offset, byte_limit, leader_epoch, last_fetched_epoch
        )
        _send(
            self.connection,
            self.version,
            (self._requested_partition,),
            settings,
            wait_ms,
            deadline,
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
        self._version_by_topic_ids = {
            topic_ids: _negotiate_fetch_version(connection, topic_ids=topic_ids) for topic_ids in (False, True)
        }
        self._version = 0
        self._requested_partitions: Sequence[FetchRequestPartition] = ()
        connection.reserve_buffer(settings.max_partition_fetch_bytes)

    def request(self, partitions: Sequence[FetchRequestPartition], deadline: Deadline) -> None:
        """Request records of distinct partitions, without waiting; brokers fill responses in their order."""
        settings = self._settings
        self._version = self._version_by_topic_ids[all(partition.topic_id is not None for partition in partitions)]
        self._requested_partitions = partitions
        wait_ms = _longest_wait_ms(self.connection, settings)
        _send(self.connection, self._version, partitions, settings, wait_ms, deadline)

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
    settings: FetchSettings,
    max_wait_ms: int,
    deadline: Deadline | None,
    *,
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
