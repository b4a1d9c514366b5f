"""How fetch requests and their answers are written, for one partition or many; records are not copied.

A general decoder would copy the records (50 MB: 37 to 102 ms). Layout, after ``FetchRequest.json`` and
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
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire._cursor import Cursor, MalformedError, unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

OLDEST_VERSION = 4
NEWEST_VERSION = 18
FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13

_DIVERGING_EPOCH = 0
_CURRENT_LEADER = 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION_4 = struct.Struct(">iqi")
_PARTITION_5 = struct.Struct(">iqqi")
_PARTITION_9 = struct.Struct(">iiqqi")
_PARTITION_12 = struct.Struct(">iiqiqi")
_ANSWERED_4 = struct.Struct(">hqq")
_ANSWERED_5 = struct.Struct(">hqqq")
_QUIET_12 = struct.Struct(">hqqqBiBB")
_LIMITS = struct.Struct(">iiib")
_NO_SESSION = struct.pack(">ii", 0, -1)
_NO_REPLICA = struct.pack(">i", -1)


class AskedPartition(NamedTuple):
    """What a request says of one partition.

    Attributes:
        topic: Topic name.
        topic_id: Topic id; ``None`` where the cluster has none (then the request's version is at most 12).
        partition: Partition number.
        offset: First offset wanted.
        max_bytes: About how many bytes to return; at least one batch of the first partition that has any comes all
            the same (KIP-74).
        leader_epoch: Epoch of the leader we believe in: a broker of another epoch refuses (KIP-320). -1: any.
        last_fetched_epoch: Leader epoch of the last batch read: lets the broker see that its log was cut off
            (KIP-595). -1: it need not look.
    """

    topic: str
    topic_id: UUID | None
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


class FetchLimits(NamedTuple):
    """What a request says of all its partitions.

    Attributes:
        max_wait_ms: How long the broker may wait for records.
        min_bytes: For how many bytes it waits.
        max_bytes: About how many bytes to return.
        isolation_level: As requests write it.
        rack: Our rack, or an empty text.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    rack: str = ""


class EpochEnd(NamedTuple):
    """Where the leader's log differs from what was read: the largest epoch both know, and where it ends (KIP-320)."""

    epoch: int
    end_offset: int


class CurrentLeader(NamedTuple):
    """The leader a broker knows of, told with an error (KIP-951)."""

    leader_id: int
    leader_epoch: int


class FetchedPartition(NamedTuple):
    """A broker's answer for one partition.

    Attributes:
        error_code: See ``codes``; 0 is success. The reader decides what it means.
        high_watermark: End of what is replicated; -1 with most errors, and in the empty answer to a throttled client.
        last_stable_offset: End of what ``read_committed`` may see; -1 if unknown.
        log_start_offset: First offset that exists; -1 if unknown (Kafka before 1.0).
        aborted: Producer id and first offset of the aborted transactions that touch ``records`` (``read_committed``).
        preferred_read_replica: Broker to fetch from instead (KIP-392), or -1.
        current_leader: The leader and its epoch, where the broker tells.
        diverging_epoch: Where the log was cut off under the reader, where the broker tells.
        throttle_ms: For how long a quota holds this client back.
        records: Record batches, the last one perhaps cut off. Part of the connection's receive buffer: valid until the
            next answer of the channel is awaited, also while the next request is under way.
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


class FetchAnswer(NamedTuple):
    """A broker's answer.

    Attributes:
        error_code: Of the answer as a whole.
        throttle_ms: For how long a quota holds this client back.
        partitions: All that were asked for; none with an error of the whole, and none where a quota is used up: then
            the broker answers at once, with no topics at all (KIP-219).
    """

    error_code: int
    throttle_ms: int
    partitions: dict[TopicPartition, FetchedPartition]

    def of(self, partition: TopicPartition) -> FetchedPartition:
        """Return what it says of a partition that was asked for."""
        found = self.partitions.get(partition)
        if found is None:
            return FetchedPartition(self.error_code, -1, -1, -1, (), -1, None, None, self.throttle_ms, memoryview(b""))
        return found


def encode_request(version: int, asked: Sequence[AskedPartition], limits: FetchLimits) -> bytes:
    """Encode the body of a request, layout above. Neighbours of one topic are written as one."""
    flexible = version >= FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    topics = _neighbours(asked)
    parts = [
        b"" if version >= 15 else _NO_REPLICA,
        _LIMITS.pack(*limits[:4]),
        _NO_SESSION if version >= 7 else b"",
        _count(len(topics), flexible),
    ]
    for partitions in topics:
        topic, topic_id = partitions[0][:2]
        parts.append(_string(topic, flexible) if topic_id is None or version < TOPIC_IDS_FROM else topic_id.bytes)
        parts.append(_count(len(partitions), flexible))
        parts += [_partition(each, version) for each in partitions]
        parts.append(tags)
    if version >= 7:
        parts.append(_count(0, flexible))
    if version >= 11:
        parts.append(_string(limits.rack, flexible))
    parts.append(tags)
    return b"".join(parts)


def parse_response(body: memoryview, version: int, asked: Sequence[AskedPartition]) -> FetchAnswer:
    """Parse an answer, layout above.

    Args:
        body: What follows the correlation id.
        version: Version of the request.
        asked: What the request named.

    Raises:
        MalformedError: The bytes end early, go on too long, or answer another question.
    """
    flexible = version >= FLEXIBLE_FROM
    cursor = Cursor(body)
    if flexible:
        cursor.tags()
    throttle_ms = cursor.int32()
    error_code = 0
    if version >= 7:
        error_code = cursor.int16()
        cursor.int32()
    names = {_key(each, version): each.topic for each in asked}
    wanted = {TopicPartition(each.topic, each.partition) for each in asked}
    found: dict[TopicPartition, FetchedPartition] = {}
    for _ in range(cursor.count(flexible, least=1)):
        topic = _read_topic(cursor, version, names)
        for _ in range(cursor.count(flexible, least=1)):
            partition = TopicPartition(topic, cursor.int32())
            if partition not in wanted:
                raise MalformedError(f"it names another partition, {partition}")
            if partition in found:
                raise MalformedError(f"it holds {partition} twice")
            found[partition] = _parse_partition(cursor, version, throttle_ms)
        if flexible:
            cursor.tags()
    if flexible:
        cursor.tags()
    if cursor.left:
        raise MalformedError(f"{cursor.left} bytes are left over")
    if error_code:
        return FetchAnswer(error_code, throttle_ms, {})
    if len(found) < len(wanted) and (found or throttle_ms <= 0):
        raise MalformedError(f"it lacks the partition {min(wanted - found.keys())}")
    return FetchAnswer(0, throttle_ms, found)


def _neighbours(asked: Sequence[AskedPartition]) -> list[list[AskedPartition]]:
    """Put neighbours of one topic together; their order is the order in which a broker fills its answer."""
    topics: list[list[AskedPartition]] = []
    for each in asked:
        if topics and topics[-1][0][:2] == each[:2]:
            topics[-1].append(each)
        else:
            topics.append([each])
    return topics


def _partition(asked: AskedPartition, version: int) -> bytes:
    _, _, partition, offset, max_bytes, epoch, last_epoch = asked
    if version >= 12:
        return _PARTITION_12.pack(partition, epoch, offset, last_epoch, -1, max_bytes) + b"\0"
    if version >= 9:
        return _PARTITION_9.pack(partition, epoch, offset, -1, max_bytes)
    if version >= 5:
        return _PARTITION_5.pack(partition, offset, -1, max_bytes)
    return _PARTITION_4.pack(partition, offset, max_bytes)


def _key(asked: AskedPartition, version: int) -> str | bytes | None:
    """Return what an answer calls the topic by."""
    if version < TOPIC_IDS_FROM:
        return asked.topic
    return None if asked.topic_id is None else asked.topic_id.bytes


def _read_topic(cursor: Cursor, version: int, names: dict[str | bytes | None, str]) -> str:
    if version >= TOPIC_IDS_FROM:
        topic = names.get(bytes(cursor.bytes(16)))
        if topic is None:
            raise MalformedError("it names another topic id")
    else:
        topic = names.get(cursor.string(version >= FLEXIBLE_FROM))
        if topic is None:
            raise MalformedError("it names another topic")
    return topic


def _parse_partition(cursor: Cursor, version: int, throttle_ms: int) -> FetchedPartition:
    flexible = version >= FLEXIBLE_FROM
    if flexible and cursor.left >= _QUIET_12.size:
        # Most of many partitions have nothing new: no aborted transactions, no records, no tags.
        error_code, high_watermark, last_stable_offset, log_start_offset, aborts, replica, size, tags = cursor.unpack(
            _QUIET_12
        )
        if aborts <= 1 and size <= 1 and not tags:
            ends = (error_code, high_watermark, last_stable_offset, log_start_offset)
            return FetchedPartition(*ends, (), replica, None, None, throttle_ms, cursor.bytes(0))
        cursor.position -= _QUIET_12.size
    if version >= 5:
        error_code, high_watermark, last_stable_offset, log_start_offset = cursor.unpack(_ANSWERED_5)
    else:
        (error_code, high_watermark, last_stable_offset), log_start_offset = cursor.unpack(_ANSWERED_4), -1
    aborted = []
    for _ in range(cursor.count(flexible, least=16)):
        aborted.append((cursor.int64(), cursor.int64()))
        if flexible:
            cursor.tags()
    preferred_read_replica = cursor.int32() if version >= 11 else -1
    records = cursor.byte_string(flexible)
    leader, diverging = _read_tags(cursor) if flexible else (None, None)
    return FetchedPartition(
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        tuple(aborted),
        preferred_read_replica,
        leader,
        diverging,
        throttle_ms,
        records,
    )


def _read_tags(cursor: Cursor) -> tuple[CurrentLeader | None, EpochEnd | None]:
    leader: CurrentLeader | None = None
    diverging: EpochEnd | None = None

    def on_tag(tag: int, field: Cursor) -> None:
        nonlocal leader, diverging
        if tag == _CURRENT_LEADER:
            told = CurrentLeader(field.int32(), field.int32())
            leader = told if told.leader_id >= 0 else None
        elif tag == _DIVERGING_EPOCH:
            end = EpochEnd(field.int32(), field.int64())
            diverging = end if end.epoch >= 0 else None

    cursor.tags(on_tag)
    return leader, diverging


def _count(number: int, flexible: bool) -> bytes:
    if not flexible:
        return _INT32.pack(number)
    return bytes((number + 1,)) if number < 0x7F else unsigned_varint(number + 1)


def _string(text: str, flexible: bool) -> bytes:
    encoded = text.encode()
    return (unsigned_varint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))) + encoded
