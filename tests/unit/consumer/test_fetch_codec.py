"""Fetch responses of one partition with all their fields, and malformed bytes, in every version."""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse
from tests.examples import examples, seeds

from pyspark_kafka_direct.consumer.fetch_channel import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    EpochEndOffset,
    FetchRequestPartition,
    FetchResponseData,
    FetchResponsePartition,
    LeaderIdAndEpoch,
    parse_fetch_response,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.primitives import MalformedError, encode_unsigned_varint

if TYPE_CHECKING:
    import random

VERSIONS = range(OLDEST_VERSION, NEWEST_VERSION + 1)
TOPIC_ID = uuid.UUID("6b949fb3-6933-4772-9d71-9fed58c2795e")

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text("abcdefghijklmnopqrstuvwxyzABC019._-", min_size=1, max_size=249)

Topic = FetchResponse.FetchableTopicResponse
Partition = Topic.PartitionData


def response_body(version: int, partition: Any, *, topic: str = "flights", **fields: Any) -> memoryview:
    """Return a response as kafka-python encodes it, without frame size and correlation id."""
    response = FetchResponse(
        version=version,
        throttle_time_ms=fields.pop("throttle_time_ms", 0),
        error_code=fields.pop("error_code", 0),
        session_id=fields.pop("session_id", 0),
        responses=[Topic(version=version, topic=topic, topic_id=TOPIC_ID, partitions=[partition])],
        **fields,
    )
    response.with_header(correlation_id=1)
    return memoryview(bytes(response.encode(header=True)))[4:]


def parse_response(
    body: memoryview | bytes | bytearray,
    version: int,
    *,
    topic: str = "flights",
    partition: int = 3,
    topic_id: uuid.UUID = TOPIC_ID,
) -> FetchResponseData:
    """Parse the response to a request of one partition."""
    return parse_fetch_response(memoryview(body), version, [FetchRequestPartition(topic, topic_id, partition, 0, 1)])


def parse(
    body: memoryview | bytes | bytearray, version: int, *, topic: str = "flights", partition: int = 3
) -> FetchResponsePartition:
    return parse_response(body, version, topic=topic, partition=partition).partitions[TopicPartition(topic, partition)]


def partition_data(version: int, **fields: Any) -> Any:
    values: dict[str, Any] = {
        "partition_index": 3,
        "error_code": 0,
        "high_watermark": 100,
        "last_stable_offset": 90,
        "log_start_offset": 5,
        "aborted_transactions": [Partition.AbortedTransaction(version=version, producer_id=7, first_offset=40)],
        "preferred_read_replica": 2,
        "records": b"records of any kind",
    }
    return Partition(version=version, **(values | fields))


def full_body(version: int) -> memoryview:
    """Return a response with everything that a version can have."""
    tags: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    if version >= 12:
        tags = {
            "current_leader": Partition.LeaderIdAndEpoch(version=version, leader_id=1, leader_epoch=9),
            "diverging_epoch": Partition.EpochEndOffset(version=version, epoch=4, end_offset=70),
            "snapshot_id": Partition.SnapshotId(version=version, end_offset=1, epoch=2),
        }
    if version >= 16:
        endpoint = FetchResponse.NodeEndpoint(version=version, node_id=1, host="broker-1", port=9092, rack="r")
        fields["node_endpoints"] = [endpoint]
    return response_body(version, partition_data(version, **tags), **fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_response_with_all_fields(version: int) -> None:
    fetched = parse(full_body(version), version)
    assert bytes(fetched.records) == b"records of any kind"
    assert fetched.aborted == ((7, 40),)
    if version >= 12:
        assert fetched.current_leader == LeaderIdAndEpoch(1, 9)
        assert fetched.diverging_epoch == EpochEndOffset(4, 70)


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_fetch_responses_are_malformed(version: int) -> None:
    body = full_body(version)
    for size in range(len(body)):
        with pytest.raises(MalformedError):
            parse(body[:size], version)


@pytest.mark.parametrize("version", VERSIONS)
def test_remaining_bytes_are_malformed(version: int) -> None:
    with pytest.raises(MalformedError, match="remain at the end"):
        parse(bytes(full_body(version)) + b"\0", version)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_fetch_responses_are_malformed_or_parsed(version: int) -> None:
    @seeds(100)
    def check(source: random.Random) -> None:
        body = bytearray(full_body(version))
        for _ in range(source.randint(1, 4)):
            body[source.randrange(len(body))] = source.randrange(256)
        try:
            response = parse_response(body, version)
        except MalformedError:
            return
        assert all(len(fetched.records) <= len(body) for fetched in response.partitions.values())

    check()


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@examples(20)
def test_random_bytes_are_malformed(version: int, data: st.DataObject) -> None:
    """Bytes without an error or a quota, which are unlikely to name the partition."""
    valid_start = valid_start_of(version)
    valid_parts = data.draw(st.integers(1, len(valid_start)), "parts of a valid response")
    zeros = st.integers(0, 60).map(bytes)  # most fields may be 0
    body = b"".join(valid_start[:valid_parts]) + data.draw(zeros | st.binary(max_size=200))
    with pytest.raises(MalformedError):
        parse_response(body, version)


@pytest.mark.parametrize("version", VERSIONS)
@given(throttle_ms=int32, error_code=int16)
@examples(10)
def test_response_without_topics_has_error_or_quota(version: int, throttle_ms: int, error_code: int) -> None:
    numbers = struct.pack(">ihi", throttle_ms, error_code, 0) if version >= 7 else struct.pack(">i", throttle_ms)
    body = b"\0" + numbers + b"\1\0" if version >= 12 else numbers + bytes(4)
    expected_code = error_code if version >= 7 else 0
    if not expected_code and throttle_ms <= 0:
        with pytest.raises(MalformedError, match="lacks the partition"):
            parse_response(body, version)
        return
    assert parse_response(body, version) == (expected_code, throttle_ms, {})


@pytest.mark.parametrize("version", VERSIONS)
def test_error_of_the_whole_response_is_returned(version: int) -> None:
    if version < 7:
        return  # these versions have no such field
    response = FetchResponse(version=version, throttle_time_ms=8, error_code=71, session_id=0, responses=[])
    response.with_header(correlation_id=1)
    assert parse_response(bytes(response.encode(header=True))[4:], version) == (71, 8, {})


def test_unknown_tags_are_skipped() -> None:
    body = bytes(response_body(12, partition_data(12)))
    assert body.endswith(b"\0\0\0")  # tag buffers of partition, topic and response, all empty
    future = b"\x01" + encode_unsigned_varint(900) + encode_unsigned_varint(3) + b"new"
    assert bytes(parse(body[:-3] + future * 3, 12).records) == b"records of any kind"


def test_records_are_not_copied() -> None:
    body = bytearray(full_body(16))
    records = parse(body, 16).records
    position = body.index(b"records of any kind")
    body[position : position + 7] = b"RECORDS"
    assert bytes(records).startswith(b"RECORDS")


def valid_start_of(version: int) -> list[bytes]:
    """Return a valid response up to its partition: no error and no quota; one topic; its name; one partition."""
    flexible = version >= 12
    producer_id = b"\2" if flexible else struct.pack(">i", 1)
    name = b"\x08flights" if flexible else b"\0\x07flights"
    nothing = bytes((1 if flexible else 0) + 4 + (6 if version >= 7 else 0))
    return [nothing, producer_id, TOPIC_ID.bytes if version >= 13 else name, producer_id]
