"""Fetching records of one partition: requests and responses encoded and decoded by hand, records not copied.

The library's decoder would copy the records (50 MB: 37 to 102 ms). Layout, after ``FetchRequest.json`` and
``FetchResponse.json`` of Kafka 4.3; versions in brackets, flexible (compact, tagged) encodings from version 12:

    request   [-14] INT32 replica id = -1
              INT32 max wait ms, INT32 min bytes, INT32 max bytes, INT8 isolation level
              [7+] INT32 session id = 0, INT32 session epoch = -1                        (no session, see below)
              ARRAY of topic:
                [-12] STRING name  [13+] UUID topic id
                ARRAY of partition:
                  INT32 partition
                  [9+] INT32 current leader epoch
                  INT64 fetch offset
                  [12+] INT32 last fetched epoch
                  [5+] INT64 log start offset = -1                                       (followers only)
                  INT32 partition max bytes
                  [12+] TAG_BUFFER
                [12+] TAG_BUFFER
              [7+] ARRAY of forgotten topics = empty
              [11+] STRING rack id
              [12+] TAG_BUFFER

    response  [12+] TAG_BUFFER of the response header
              INT32 throttle time ms
              [7+] INT16 error code, INT32 session id
              ARRAY of topic:
                [-12] STRING name  [13+] UUID topic id
                ARRAY of partition:
                  INT32 partition, INT16 error code, INT64 high watermark, INT64 last stable offset
                  [5+] INT64 log start offset
                  nullable ARRAY of aborted transaction: INT64 producer id, INT64 first offset, [12+] TAG_BUFFER
                  [11+] INT32 preferred read replica
                  nullable RECORDS
                  [12+] TAG_BUFFER: 0 diverging epoch: INT32 epoch, INT64 end offset, TAG_BUFFER
                                    1 current leader: INT32 leader id, INT32 leader epoch, TAG_BUFFER
                                    2 snapshot id: not for consumers
                [12+] TAG_BUFFER
              [12+] TAG_BUFFER: 0 [16+] node endpoints: the next metadata request tells the same

Versions 17 and 18 add fields for followers only, tagged, which we leave out.

Fetch sessions (KIP-227) spare a consumer of many partitions from naming them all in each request. A channel reads one
partition: the request takes about 100 bytes and the answer as many beside up to a MiB of records. A session would save
half of that and cost state that can be lost, so none is used.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.settings.fetch import ISOLATION_LEVELS
from pyspark_kafka_direct.wire._cursor import Cursor, MalformedError, unsigned_varint
from pyspark_kafka_direct.wire._versions import intersect
from pyspark_kafka_direct.wire.connection import MAX_FRAME
from pyspark_kafka_direct.wire.deadline import Deadline

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.connection import Connection

API_KEY = 1
OLDEST_VERSION = 4
NEWEST_VERSION = 18
_FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13

_DIVERGING_EPOCH = 0
_CURRENT_LEADER = 1

# Room for everything in a response that is not records.
_MOST_BYTES = MAX_FRAME - (1 << 20)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_LIMITS = struct.Struct(">iiib")
_NO_SESSION = struct.pack(">ii", 0, -1)
_NO_REPLICA = struct.pack(">i", -1)


class EpochEnd(NamedTuple):
    """Where the leader's log differs from what was read: the largest epoch both know, and where it ends (KIP-320)."""

    epoch: int
    end_offset: int


class CurrentLeader(NamedTuple):
    """The leader a broker knows of, told with an error (KIP-951)."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """A broker's answer for one partition.

    Attributes:
        error_code: See ``codes``; 0 is success. The reader decides what it means for the range.
        high_watermark: End of what is replicated; -1 with most errors, and in the empty answer to a throttled client.
        last_stable_offset: End of what ``read_committed`` may see; -1 if unknown.
        log_start_offset: First offset that exists; -1 if unknown (Kafka before 1.0).
        aborted: Producer id and first offset of the aborted transactions that touch ``records`` (``read_committed``).
        preferred_read_replica: Broker to fetch from instead (KIP-392), or -1.
        current_leader: The leader and its epoch, where the broker tells.
        diverging_epoch: Where the log was cut off under the reader, where the broker tells.
        throttle_ms: For how long a quota holds this client back.
        records: Record batches, the last one perhaps cut off. Part of the connection's receive buffer: valid until the
            next ``response`` of the channel, also while the next request is under way.
    """

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    preferred_read_replica: int
    current_leader: CurrentLeader | None
    diverging_epoch: EpochEnd | None
    throttle_ms: int
    records: memoryview


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
        newest = NEWEST_VERSION if topic_id is not None else TOPIC_IDS_FROM - 1
        self.connection = connection
        self.version = intersect(API_KEY, "Fetch", (OLDEST_VERSION, newest), connection.api_versions, connection.broker)
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition
        self._settings = settings
        self._rack = settings.client_rack if follow_rack else ""
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
        body = encode_request(
            self.version,
            topic=self._topic,
            topic_id=self._topic_id,
            partition=self._partition,
            offset=offset,
            leader_epoch=leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
            partition_max_bytes=most,
            max_bytes=min(max(settings.fetch_max_bytes, 0), _MOST_BYTES),
            min_bytes=settings.fetch_min_bytes,
            max_wait_ms=wait,
            isolation_level=ISOLATION_LEVELS[settings.isolation_level],
            rack=self._rack,
        )
        flexible = self.version >= _FLEXIBLE_FROM
        connection = self.connection
        timeout = connection.settings.request_timeout_ms / 1000
        deadline = deadline or Deadline.after(timeout, system=connection.system)
        self.connection.send(API_KEY, self.version, "Fetch", body, flexible=flexible, deadline=deadline)

    def response(self, deadline: Deadline) -> FetchedPartition:
        """Wait for the answer to ``request``.

        Raises:
            BrokerUnreachableError: The connection broke.
            BrokerTimeoutError: No answer in time.
            ProtocolError: The answer cannot be understood; the connection is closed.
        """
        body = self.connection.receive(deadline)
        try:
            fetched = parse_response(
                body, self.version, topic=self._topic, topic_id=self._topic_id, partition=self._partition
            )
        except MalformedError as error:
            self.connection.close()
            raise ProtocolError(
                f"The answer to Fetch version {self.version} is malformed: {error}.",
                topic=self._topic,
                partition=self._partition,
                broker=self.connection.broker,
            ) from None
        self.connection.throttle(fetched.throttle_ms)
        return fetched


def encode_request(
    version: int,
    *,
    topic: str,
    topic_id: UUID | None,
    partition: int,
    offset: int,
    leader_epoch: int,
    last_fetched_epoch: int,
    partition_max_bytes: int,
    max_bytes: int,
    min_bytes: int,
    max_wait_ms: int,
    isolation_level: int,
    rack: str,
) -> bytes:
    """Encode the body of a Fetch request for one partition, layout above."""
    flexible = version >= _FLEXIBLE_FROM
    one, none, tags = (b"\x02", b"\x01", b"\0") if flexible else (_INT32.pack(1), _INT32.pack(0), b"")
    parts = [
        b"" if version >= 15 else _NO_REPLICA,
        _LIMITS.pack(max_wait_ms, min_bytes, max_bytes, isolation_level),
        _NO_SESSION if version >= 7 else b"",
        one,
        _string(topic, flexible) if topic_id is None or version < TOPIC_IDS_FROM else topic_id.bytes,
        one,
        _INT32.pack(partition),
        _INT32.pack(leader_epoch) if version >= 9 else b"",
        _INT64.pack(offset),
        _INT32.pack(last_fetched_epoch) if version >= 12 else b"",
        _INT64.pack(-1) if version >= 5 else b"",
        _INT32.pack(partition_max_bytes),
        tags,
        tags,
        none if version >= 7 else b"",
        _string(rack, flexible) if version >= 11 else b"",
        tags,
    ]
    return b"".join(parts)


def parse_response(
    body: memoryview, version: int, *, topic: str, topic_id: UUID | None, partition: int
) -> FetchedPartition:
    """Parse the answer to a request for one partition, layout above.

    Args:
        body: What follows the correlation id.
        version: Version of the request.
        topic: Topic asked for.
        topic_id: Its id, which answers of version 13 and newer carry instead of the name.
        partition: Partition asked for.

    Raises:
        MalformedError: The bytes end early, go on too long, or answer another question.
    """
    flexible = version >= _FLEXIBLE_FROM
    cursor = Cursor(body)
    if flexible:
        cursor.tags()
    throttle_ms = cursor.int32()
    error_code = 0
    if version >= 7:
        error_code = cursor.int16()
        cursor.int32()
    fetched = None
    for _ in range(cursor.count(flexible, least=1)):
        _expect_topic(cursor, version, topic, topic_id)
        for _ in range(cursor.count(flexible, least=1)):
            if fetched is not None:
                raise MalformedError("it holds more than the one partition asked for")
            fetched = _parse_partition(cursor, version, partition, throttle_ms)
        if flexible:
            cursor.tags()
    if flexible:
        cursor.tags()
    if cursor.left:
        raise MalformedError(f"{cursor.left} bytes are left over")
    if error_code:
        return FetchedPartition(error_code, -1, -1, -1, (), -1, None, None, throttle_ms, body[:0])
    if fetched is None:
        if throttle_ms > 0:  # a quota is used up: the broker answers at once, with no topics at all (KIP-219)
            return FetchedPartition(0, -1, -1, -1, (), -1, None, None, throttle_ms, body[:0])
        raise MalformedError("it lacks the partition asked for")
    return fetched


def _expect_topic(cursor: Cursor, version: int, topic: str, topic_id: UUID | None) -> None:
    if version >= TOPIC_IDS_FROM:
        if topic_id is None or cursor.bytes(16) != topic_id.bytes:
            raise MalformedError("it names another topic id")
    elif cursor.string(version >= _FLEXIBLE_FROM) != topic:
        raise MalformedError("it names another topic")


def _parse_partition(cursor: Cursor, version: int, partition: int, throttle_ms: int) -> FetchedPartition:
    flexible = version >= _FLEXIBLE_FROM
    if cursor.int32() != partition:
        raise MalformedError("it names another partition")
    error_code = cursor.int16()
    high_watermark = cursor.int64()
    last_stable_offset = cursor.int64()
    log_start_offset = cursor.int64() if version >= 5 else -1
    aborted = []
    for _ in range(cursor.count(flexible, least=16)):
        aborted.append((cursor.int64(), cursor.int64()))
        if flexible:
            cursor.tags()
    preferred_read_replica = cursor.int32() if version >= 11 else -1
    records = cursor.byte_string(flexible)
    leaders: list[CurrentLeader] = []
    divergences: list[EpochEnd] = []

    def on_tag(tag: int, field: Cursor) -> None:
        if tag == _CURRENT_LEADER:
            leaders.append(CurrentLeader(field.int32(), field.int32()))
        elif tag == _DIVERGING_EPOCH:
            divergences.append(EpochEnd(field.int32(), field.int64()))

    if flexible:
        cursor.tags(on_tag)
    return FetchedPartition(
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        tuple(aborted),
        preferred_read_replica,
        leaders[-1] if leaders and leaders[-1].leader_id >= 0 else None,
        divergences[-1] if divergences and divergences[-1].epoch >= 0 else None,
        throttle_ms,
        records,
    )


def _string(text: str, flexible: bool) -> bytes:
    encoded = text.encode()
    return (unsigned_varint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))) + encoded
