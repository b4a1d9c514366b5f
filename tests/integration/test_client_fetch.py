"""Fetching from a real broker: every version, large records, error codes, aborted transactions, throttling."""

from __future__ import annotations

import struct
import uuid
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.partition_channel import PartitionChannel
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.consumer import fetch_channel
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTopic
    from tests.settings import TaskSettings

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.consumer.fetch_channel import FetchResponsePartition
    from pyspark_kafka_direct.options.settings import FetchSettings

    OpenChannel = Callable[..., PartitionChannel]


@pytest.fixture
def settings(kafka: EmbeddedKafka) -> TaskSettings:
    return parse_client_params({"bootstrap.servers": kafka.bootstrap_servers, "fetch.max.wait.ms": "100"})


@pytest.fixture
def open_channel(settings: TaskSettings) -> Iterator[OpenChannel]:
    """Open a channel to the leader of a topic's first partition, over a new connection."""
    connections: list[Connection] = []

    def open_it(
        topic: str, fetch: FetchSettings = settings.fetch, *, by_name: bool = False, **changes: object
    ) -> PartitionChannel:
        cluster = ClusterClient(settings.connection)
        leader = cluster.leader(TopicPartition(topic, 0))
        connections.append(Connection.open(settings.connection, leader.host, leader.port, soon()))
        values: dict[str, object] = {
            "topic_id": None if by_name else cluster.topics([topic])[topic].topic_id,
            "partition": 0,
        }
        return PartitionChannel(connections[-1], topic=topic, settings=fetch, **(values | changes))  # type: ignore[arg-type]

    yield open_it
    for connection in connections:
        connection.close()


def soon() -> Deadline:
    return Deadline.after(600)


def write(kafka: EmbeddedKafka, topic: str, values: list[bytes], **config: object) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **config})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(300) == 0


def fetch_once(
    channel: PartitionChannel, offset: int, epoch: int = -1, max_bytes: int | None = None
) -> FetchResponsePartition:
    channel.request(offset, epoch, max_bytes)
    return channel.response(soon())


def batches(records: memoryview) -> list[tuple[int, int, int]]:
    """Return first offset, next offset and size of each complete record batch (message format v2)."""
    complete_batches = []
    position = 0
    while position + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, position)
        if position + 12 + length > len(records):
            break
        (delta,) = struct.unpack_from(">i", records, position + 23)
        complete_batches.append((base, base + delta + 1, 12 + length))
        position += 12 + length
    return complete_batches


def read_all(channel: PartitionChannel, until: int, max_bytes: int | None = None) -> bytes:
    """Return every complete batch from offset 0 on, with the next request sent before a response is decoded."""
    position, received = 0, b""
    channel.request(0, -1, max_bytes)
    while True:
        fetched = channel.response(soon())
        assert fetched.error_code == 0
        complete_batches = batches(fetched.records)
        if complete_batches:
            position = complete_batches[-1][1]
        if position < until:
            channel.request(position, -1, max_bytes)
        received += bytes(fetched.records[: sum(size for _, _, size in complete_batches)])
        if position >= until:
            return received


def test_every_version_returns_the_same_records(
    kafka: EmbeddedKafka, make_topic: MakeTopic, open_channel: OpenChannel
) -> None:
    topic = make_topic()
    values = [b"%04d" % number * 50 for number in range(2000)]
    write(kafka, topic, values, **{"batch.num.messages": 100})
    read = {}
    for version in range(fetch_channel.OLDEST_VERSION, fetch_channel.NEWEST_VERSION + 1):
        channel = open_channel(topic, by_name=version < 13)
        assert channel.channel.connection.api_versions[fetch_channel.API_KEY][1] >= channel.version
        channel.version = version
        read[version] = read_all(channel, len(values), max_bytes=30_000)
    assert len(set(read.values())) == 1
    assert all(value in read[fetch_channel.NEWEST_VERSION] for value in values)


def test_the_newest_version_of_both_sides_is_used(make_topic: MakeTopic, open_channel: OpenChannel) -> None:
    topic = make_topic()
    assert open_channel(topic).version == fetch_channel.NEWEST_VERSION
    assert open_channel(topic, by_name=True).version == 12


@pytest.mark.parametrize("by_name", [False, True])
def test_response_has_the_log_offsets(
    kafka: EmbeddedKafka, make_topic: MakeTopic, open_channel: OpenChannel, by_name: bool
) -> None:
    topic = make_topic()
    write(kafka, topic, [b"a", b"b", b"c"])
    fetched = fetch_once(open_channel(topic, by_name=by_name), 3)
    assert (fetched.error_code, fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (
        0,
        3,
        3,
        0,
    )
    assert len(fetched.records) == 0
    assert fetched.aborted == ()
    assert fetched.preferred_read_replica == -1
    assert fetched.throttle_ms == 0


def test_record_larger_than_the_limits_is_returned(
    kafka: EmbeddedKafka, settings: TaskSettings, make_topic: MakeTopic, open_channel: OpenChannel
) -> None:
    topic = make_topic(max_message_bytes=20_000_000)
    large = uuid.uuid4().bytes * 600_000
    write(kafka, topic, [b"small", large, b"small"], **{"message.max.bytes": 20_000_000, "batch.num.messages": 1})
    small = replace(settings.fetch, fetch_max_bytes=1)
    with closing(open_channel(topic, small).channel.connection):
        assert large in read_all(open_channel(topic, small), 3, max_bytes=1)


def test_records_stay_valid_until_the_next_response(
    kafka: EmbeddedKafka, make_topic: MakeTopic, open_channel: OpenChannel
) -> None:
    topic = make_topic()
    write(kafka, topic, [b"first" * 100, b"second" * 100], **{"batch.num.messages": 1})
    channel = open_channel(topic)
    channel.request(0, -1, 1)
    first = channel.response(soon())
    before = bytes(first.records)
    channel.request(1, -1, 1)
    assert bytes(first.records) == before
    second = channel.response(soon())
    assert b"second" in bytes(second.records)


@pytest.mark.parametrize(
    ("offset", "epoch", "changes", "code"),
    [
        (7, -1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 1000, {}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, -1, {"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, -1, {"topic_id": uuid.uuid4()}, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_errors_are_returned_as_codes(
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    open_channel: OpenChannel,
    offset: int,
    epoch: int,
    changes: dict[str, object],
    code: ErrorCode,
) -> None:
    topic = make_topic()
    write(kafka, topic, [b"value"])
    channel = open_channel(topic, **changes)
    fetched = fetch_once(channel, offset, epoch)
    assert fetched.error_code == code
    assert len(fetched.records) == 0
    assert channel.channel.connection.idle


def test_aborted_transactions_are_listed_for_read_committed_only(
    kafka: EmbeddedKafka, settings: TaskSettings, make_topic: MakeTopic, open_channel: OpenChannel
) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(600)
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(300) == 0
        finish(30)
    # Offsets 0 to 2 and the commit marker, then 4 to 6 and the abort marker, which is written after the response.
    deadline = soon()
    while (uncommitted := fetch_once(open_channel(topic), 0)).last_stable_offset < 8:
        assert not deadline.expired
    committed = fetch_once(open_channel(topic, replace(settings.fetch, isolation_level="read_committed")), 0)
    ((producer_id, first_offset),) = committed.aborted
    assert first_offset == 4
    assert producer_id == struct.unpack_from(">q", committed.records, 43)[0]
    assert uncommitted.aborted == ()
    assert bytes(uncommitted.records) == bytes(committed.records)


def test_read_committed_ends_at_an_open_transaction(
    kafka: EmbeddedKafka, settings: TaskSettings, make_topic: MakeTopic, open_channel: OpenChannel
) -> None:
    topic = make_topic()
    write(kafka, topic, [b"before"])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(600)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(300) == 0
    fetched = fetch_once(open_channel(topic, replace(settings.fetch, isolation_level="read_committed")), 0)
    producer.abort_transaction(600)
    assert (fetched.high_watermark, fetched.last_stable_offset) == (2, 1)
    assert b"open" not in bytes(fetched.records)
