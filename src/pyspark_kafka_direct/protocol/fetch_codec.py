"""Encodes fetch requests and parses their responses, for one partition or many; records are not copied.

The general decoder would copy the records (50 MB: 37 to 102 ms). Layout, after ``FetchRequest.json`` and
``FetchResponse.json`` of Kafka 4.3; versions in brackets, flexible (compact, tagged) encodings from version 12:

    request   [-14] INT32 replica id = -1
              INT32 max wait ms, INT32 min bytes, INT32 max bytes, INT8 isolation level
              [7+] INT32 session id = 0, INT32 session epoch = -1                        (no fetch session)
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
              [12+] TAG_BUFFER: 0 [16+] node endpoints, which the next metadata request returns too

Versions 17 and 18 add tagged fields for followers only, which are omitted here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.primitives import BufferReader, MalformedError, encode_unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

OLDEST_VERSION = 4
NEWEST_VERSION = 18
FIRST_FLEXIBLE_VERSION = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13

_DIVERGING_EPOCH = 0
_CURRENT_LEADER = 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION_4 = struct.Struct(">iqi")
_PARTITION_5 = struct.Struct(">iqqi")
_PARTITION_9 = struct.Struct(">iiqqi")
_PARTITION_12 = struct.Struct(">iiqiqi")
_PARTITION_HEADER_4 = struct.Struct(">hqq")
_PARTITION_HEADER_5 = struct.Struct(">hqqq")
_EMPTY_PARTITION_12 = struct.Struct(">hqqqBiBB")
_LIMITS = struct.Struct(">iiib")
_NO_SESSION = struct.pack(">ii", 0, -1)
_NO_REPLICA = struct.pack(">i", -1)


class FetchRequestPartition(NamedTuple):
    topic: str
    topic_id: UUID | None  # None if the cluster has no topic ids; limits the request version to 12
    partition: int
    offset: int
    max_bytes: int  # the first batch of the first partition with records is returned even if larger (KIP-74)
    leader_epoch: int = -1  # brokers with another epoch reject the request (KIP-320); -1 disables the check
    last_fetched_epoch: int = -1  # of the last batch read: lets the broker detect truncation (KIP-595); -1 disables it


class FetchLimits(NamedTuple):
    """The fields of a request that apply to all its partitions."""

    max_wait_ms: int  # how long the broker may wait for min_bytes
    min_bytes: int
    max_bytes: int
    isolation_level: int  # 0 read_uncommitted, 1 read_committed
    rack: str = ""


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
                self.error_code, -1, -1, -1, (), -1, None, None, self.throttle_ms, memoryview(b"")
            )
        return response


def encode_fetch_request(version: int, requested: Sequence[FetchRequestPartition], limits: FetchLimits) -> bytes:
    """Encode the body of a request; adjacent partitions of one topic are encoded together."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    tags = b"\0" if flexible else b""
    topics = _group_by_topic(requested)
    parts = [
        b"" if version >= 15 else _NO_REPLICA,
        _LIMITS.pack(*limits[:4]),
        _NO_SESSION if version >= 7 else b"",
        _encode_count(len(topics), flexible),
    ]
    for partitions in topics:
        topic, topic_id = partitions[0][:2]
        parts.append(
            _encode_string(topic, flexible)
            if topic_id is None or version < FIRST_VERSION_WITH_TOPIC_IDS
            else topic_id.bytes
        )
        parts.append(_encode_count(len(partitions), flexible))
        parts += [_encode_partition(partition, version) for partition in partitions]
        parts.append(tags)
    if version >= 7:
        parts.append(_encode_count(0, flexible))
    if version >= 11:
        parts.append(_encode_string(limits.rack, flexible))
    parts.append(tags)
    return b"".join(parts)


def parse_fetch_response(
    body: memoryview, version: int, requested: Sequence[FetchRequestPartition]
) -> FetchResponseData:
    """Parse the body of a response; raises ``MalformedError`` if it does not match the request."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    reader = BufferReader(body)
    if flexible:
        reader.tags()
    throttle_ms = reader.int32()
    error_code = 0
    if version >= 7:
        error_code = reader.int16()
        reader.int32()
    topic_names = {_topic_key(entry, version): entry.topic for entry in requested}
    requested_partitions = {TopicPartition(entry.topic, entry.partition) for entry in requested}
    partition_responses: dict[TopicPartition, FetchResponsePartition] = {}
    for _ in range(reader.count(flexible, min_element_size=1)):
        topic = _parse_topic(reader, version, topic_names)
        for _ in range(reader.count(flexible, min_element_size=1)):
            partition = TopicPartition(topic, reader.int32())
            if partition not in requested_partitions:
                raise MalformedError(f"it has the partition {partition}, which was not requested")
            if partition in partition_responses:
                raise MalformedError(f"it has the partition {partition} twice")
            partition_responses[partition] = _parse_partition(reader, version, throttle_ms)
        if flexible:
            reader.tags()
    if flexible:
        reader.tags()
    if reader.remaining:
        raise MalformedError(f"{reader.remaining} bytes remain at the end")
    if error_code:
        return FetchResponseData(error_code, throttle_ms, {})
    if len(partition_responses) < len(requested_partitions) and (partition_responses or throttle_ms <= 0):
        raise MalformedError(f"it lacks the partition {min(requested_partitions - partition_responses.keys())}")
    return FetchResponseData(0, throttle_ms, partition_responses)


def _group_by_topic(requested: Sequence[FetchRequestPartition]) -> list[list[FetchRequestPartition]]:
    """Group adjacent partitions of one topic; brokers fill responses in the order of the request."""
    topics: list[list[FetchRequestPartition]] = []
    for partition in requested:
        if topics and topics[-1][0][:2] == partition[:2]:
            topics[-1].append(partition)
        else:
            topics.append([partition])
    return topics


def _encode_partition(requested: FetchRequestPartition, version: int) -> bytes:
    _, _, partition, offset, max_bytes, epoch, last_epoch = requested
    if version >= 12:
        return _PARTITION_12.pack(partition, epoch, offset, last_epoch, -1, max_bytes) + b"\0"
    if version >= 9:
        return _PARTITION_9.pack(partition, epoch, offset, -1, max_bytes)
    if version >= 5:
        return _PARTITION_5.pack(partition, offset, -1, max_bytes)
    return _PARTITION_4.pack(partition, offset, max_bytes)


def _topic_key(requested: FetchRequestPartition, version: int) -> str | bytes | None:
    """Return the topic's identifier in responses."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return requested.topic
    return None if requested.topic_id is None else requested.topic_id.bytes


def _parse_topic(reader: BufferReader, version: int, topic_names: dict[str | bytes | None, str]) -> str:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        topic = topic_names.get(bytes(reader.bytes(16)))
        if topic is None:
            raise MalformedError("it has a topic id that was not requested")
    else:
        topic = topic_names.get(reader.string(version >= FIRST_FLEXIBLE_VERSION))
        if topic is None:
            raise MalformedError("it has a topic that was not requested")
    return topic


def _parse_partition(reader: BufferReader, version: int, throttle_ms: int) -> FetchResponsePartition:
    flexible = version >= FIRST_FLEXIBLE_VERSION
    if flexible and reader.remaining >= _EMPTY_PARTITION_12.size:
        # Most partitions have no new records: no aborted transactions, no records, no tags.
        error_code, high_watermark, last_stable_offset, log_start_offset, aborted_count, replica, records_size, tags = (
            reader.unpack(_EMPTY_PARTITION_12)
        )
        if aborted_count <= 1 and records_size <= 1 and not tags:  # compact forms: 0 is null, 1 is empty
            header_fields = (error_code, high_watermark, last_stable_offset, log_start_offset)
            return FetchResponsePartition(*header_fields, (), replica, None, None, throttle_ms, reader.bytes(0))
        reader.position -= _EMPTY_PARTITION_12.size
    if version >= 5:
        error_code, high_watermark, last_stable_offset, log_start_offset = reader.unpack(_PARTITION_HEADER_5)
    else:
        (error_code, high_watermark, last_stable_offset), log_start_offset = reader.unpack(_PARTITION_HEADER_4), -1
    aborted = []
    for _ in range(reader.count(flexible, min_element_size=16)):
        aborted.append((reader.int64(), reader.int64()))
        if flexible:
            reader.tags()
    preferred_read_replica = reader.int32() if version >= 11 else -1
    records = reader.byte_string(flexible)
    leader, diverging = _parse_tagged_fields(reader) if flexible else (None, None)
    return FetchResponsePartition(
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


def _parse_tagged_fields(reader: BufferReader) -> tuple[LeaderIdAndEpoch | None, EpochEndOffset | None]:
    leader: LeaderIdAndEpoch | None = None
    diverging: EpochEndOffset | None = None

    def on_tag(tag: int, field: BufferReader) -> None:
        nonlocal leader, diverging
        if tag == _CURRENT_LEADER:
            current = LeaderIdAndEpoch(field.int32(), field.int32())
            leader = current if current.leader_id >= 0 else None
        elif tag == _DIVERGING_EPOCH:
            end = EpochEndOffset(field.int32(), field.int64())
            diverging = end if end.epoch >= 0 else None

    reader.tags(on_tag)
    return leader, diverging


def _encode_count(count: int, flexible: bool) -> bytes:
    if not flexible:
        return _INT32.pack(count)
    return bytes((count + 1,)) if count < 0x7F else encode_unsigned_varint(count + 1)


def _encode_string(value: str, flexible: bool) -> bytes:
    encoded = value.encode()
    return (encode_unsigned_varint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))) + encoded
