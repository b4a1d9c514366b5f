"""Fetching records over one connection: of one partition, or of many at once.

How requests and answers are written is in ``_fetch_format``.

Fetch sessions (KIP-227) spare a consumer of many partitions from naming them all in each request. A channel of one
partition asks with about 100 bytes and is answered with as many beside up to some MiB of records; of many, with about
40 bytes each. A session would save half of that and cost state that can be lost, so none is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.fetch import ISOLATION_LEVELS
from pyspark_kafka_direct.wire._cursor import MalformedError
from pyspark_kafka_direct.wire._fetch_format import (
    FLEXIBLE_FROM,
    NEWEST_VERSION,
    OLDEST_VERSION,
    TOPIC_IDS_FROM,
    AskedPartition,
    CurrentLeader,
    EpochEnd,
    FetchAnswer,
    FetchedPartition,
    FetchLimits,
    encode_request,
    parse_response,
)
from pyspark_kafka_direct.wire._versions import intersect
from pyspark_kafka_direct.wire.connection import MAX_FRAME
from pyspark_kafka_direct.wire.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.connection import Connection

__all__ = [
    "NEWEST_VERSION",
    "OLDEST_VERSION",
    "TOPIC_IDS_FROM",
    "AskedPartition",
    "CurrentLeader",
    "EpochEnd",
    "FetchAnswer",
    "FetchChannel",
    "FetchedPartition",
    "ManyFetchChannel",
]

API_KEY = 1

# Room for everything in a response that is not records.
_MOST_BYTES = MAX_FRAME - (1 << 20)


class FetchChannel:
    """Fetches one partition over one connection, one request at a time.

    The order that keeps both sides busy: ``request``, then again and again ``response``, ``request`` for what follows,
    decode the records of the response.

    Args:
        connection: Used by nobody else meanwhile.
        topic: Topic name.
        topic_id: Topic id; ``None`` where the cluster has none (then the request's version is at most 12).
        partition: Partition number.
        settings: Isolation level, rack, waiting time and sizes.
        follow_rack: Whether the broker may send us to the replica of our rack instead of serving us itself (KIP-392).

    Raises:
        UnsupportedBrokerError: No version of the request suits both sides.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        topic: str,
        topic_id: UUID | None,
        partition: int,
        settings: FetchSettings,
        follow_rack: bool = True,
    ) -> None:
        self.connection = connection
        self.version = _version(connection, topic_ids=topic_id is not None)
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition
        self._settings = settings
        self._rack = settings.client_rack if follow_rack else ""
        self._asked = AskedPartition(topic, topic_id, partition, 0, 0)
        connection.keep_room(settings.max_partition_fetch_bytes)

    def request(
        self,
        offset: int,
        leader_epoch: int = -1,
        max_bytes: int | None = None,
        *,
        last_fetched_epoch: int = -1,
        max_wait_ms: int | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Ask for the records from ``offset`` on; does not wait for them.

        Args:
            offset: First offset wanted.
            leader_epoch: Epoch of the leader we believe in: a broker of another epoch refuses (KIP-320). -1: any.
            max_bytes: About how many bytes to return, by default ``max.partition.fetch.bytes``; at least one batch
                comes all the same (KIP-74).
            last_fetched_epoch: Leader epoch of the last batch read: lets the broker see that its log was cut off
                (KIP-595).
            max_wait_ms: How long the broker may wait for records, by default and at most ``fetch.max.wait.ms``.
            deadline: End of the wait until the socket took the bytes, by default ``request.timeout.ms``.
        """
        settings = self._settings
        most = min(settings.max_partition_fetch_bytes if max_bytes is None else max_bytes, _MOST_BYTES)
        wait = settings.fetch_max_wait_ms if max_wait_ms is None else min(max_wait_ms, settings.fetch_max_wait_ms)
        self._asked = AskedPartition(
            self._topic, self._topic_id, self._partition, offset, most, leader_epoch, last_fetched_epoch
        )
        _send(self.connection, self.version, (self._asked,), _limits(settings, wait, self._rack), deadline)

    def response(self, deadline: Deadline) -> FetchedPartition:
        """Wait for the answer to ``request``.

        Raises:
            BrokerUnreachableError: The connection broke.
            BrokerTimeoutError: No answer in time.
            ProtocolError: The answer cannot be understood; the connection is closed.
        """
        answer = _receive(self.connection, self.version, (self._asked,), deadline)
        return answer.of(TopicPartition(self._topic, self._partition))


class ManyFetchChannel:
    """Fetches many partitions over one connection, one request at a time; see ``FetchChannel`` for the order.

    It waits at the broker for one byte at least, whatever the settings say: else it would ask without a pause. And it
    waits there for less than ``request.timeout.ms``, after which a broker is given up.

    Args:
        connection: Used by nobody else meanwhile.
        settings: Isolation level, waiting time and sizes.

    Raises:
        UnsupportedBrokerError: No version of the request suits both sides.
    """

    def __init__(self, connection: Connection, settings: FetchSettings) -> None:
        self.connection = connection
        self._settings = settings
        self._versions = {ids: _version(connection, topic_ids=ids) for ids in (False, True)}
        self._version = 0
        self._asked: Sequence[AskedPartition] = ()
        connection.keep_room(settings.max_partition_fetch_bytes)

    def request(self, asked: Sequence[AskedPartition], deadline: Deadline) -> None:
        """Ask for records; does not wait for them.

        Args:
            asked: Each partition once. A broker fills its answer in this order, so the first ones get most.
            deadline: End of the wait until the socket took the bytes.
        """
        settings = self._settings
        self._version = self._versions[all(each.topic_id is not None for each in asked)]
        self._asked = asked
        wait = min(settings.fetch_max_wait_ms, self.connection.settings.request_timeout_ms // 2)
        limits = _limits(settings, wait, "")
        _send(self.connection, self._version, asked, limits._replace(min_bytes=max(limits.min_bytes, 1)), deadline)

    def response(self, deadline: Deadline) -> FetchAnswer:
        """Wait for the answer to ``request``.

        Raises:
            BrokerUnreachableError: The connection broke.
            BrokerTimeoutError: No answer in time.
            ProtocolError: The answer cannot be understood; the connection is closed.
        """
        return _receive(self.connection, self._version, self._asked, deadline)


def _version(connection: Connection, *, topic_ids: bool) -> int:
    newest = NEWEST_VERSION if topic_ids else TOPIC_IDS_FROM - 1
    return intersect(API_KEY, "Fetch", (OLDEST_VERSION, newest), connection.api_versions, connection.broker)


def _limits(settings: FetchSettings, max_wait_ms: int, rack: str) -> FetchLimits:
    most = min(max(settings.fetch_max_bytes, 0), _MOST_BYTES)
    return FetchLimits(max_wait_ms, settings.fetch_min_bytes, most, ISOLATION_LEVELS[settings.isolation_level], rack)


def _send(
    connection: Connection,
    version: int,
    asked: Sequence[AskedPartition],
    limits: FetchLimits,
    deadline: Deadline | None,
) -> None:
    if deadline is None:
        deadline = Deadline.after(connection.settings.request_timeout_ms / 1000, system=connection.system)
    body = encode_request(version, asked, limits)
    connection.send(API_KEY, version, "Fetch", body, flexible=version >= FLEXIBLE_FROM, deadline=deadline)


def _receive(connection: Connection, version: int, asked: Sequence[AskedPartition], deadline: Deadline) -> FetchAnswer:
    body = connection.receive(deadline)
    try:
        answer = parse_response(body, version, asked)
    except MalformedError as error:
        connection.close()
        one = asked[0] if len(asked) == 1 else None
        raise ProtocolError(
            f"The answer to Fetch version {version} is malformed: {error}.",
            topic=None if one is None else one.topic,
            partition=None if one is None else one.partition,
            broker=connection.broker,
        ) from None
    connection.throttle(answer.throttle_ms)
    return answer
