"""Fetch requests and responses of many partitions, byte for byte against two libraries, and malformed bytes."""

from __future__ import annotations

import datetime
import importlib
import io
import uuid
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from tests.examples import seeds
from tests.unit.protocol.message_values import random_integer

from pyspark_kafka_direct.consumer.fetch_channel import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    FetchRequestPartition,
    FetchResponsePartition,
    encode_fetch_request,
    parse_fetch_response,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.protocol.primitives import MalformedError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from pyspark_kafka_direct.options.settings import IsolationLevel

VERSIONS = range(OLDEST_VERSION, NEWEST_VERSION + 1)
IDS = {name: uuid.UUID(int=index + 1) for index, name in enumerate(("flights", "ships", "trains"))}


def random_settings(source: random.Random) -> FetchSettings:
    min_bytes, max_bytes = (random_integer(32, source) for _ in range(2))
    level: IsolationLevel = source.choice(("read_uncommitted", "read_committed"))
    return FetchSettings(level, fetch_min_bytes=min_bytes, fetch_max_bytes=max_bytes)


def random_partitions(source: random.Random, least: int = 0) -> list[FetchRequestPartition]:
    partitions = [_random_partition(source) for _ in range(source.randint(least, 8))]
    return list({(each.topic, each.partition): each for each in partitions}.values())


def _random_partition(source: random.Random) -> FetchRequestPartition:
    topic = source.choice(sorted(IDS))
    numbers = [random_integer(bits, source) for bits in (32, 64, 32, 32, 32)]
    return FetchRequestPartition(topic, IDS[topic], *numbers)


def by_topic(requested: Sequence[FetchRequestPartition]) -> list[tuple[str, list[FetchRequestPartition]]]:
    return [(topic, list(group)) for topic, group in groupby(requested, key=lambda each: each.topic)]


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_equal_kafka_python(version: int) -> None:
    @seeds(20)
    def check(source: random.Random) -> None:
        requested, settings, wait_ms = random_partitions(source), random_settings(source), random_integer(32, source)
        topic_class = FetchRequest.FetchTopic
        topics = [
            topic_class(
                topic=topic,
                topic_id=IDS[topic],
                partitions=[
                    topic_class.FetchPartition(
                        partition=each.partition,
                        current_leader_epoch=each.leader_epoch,
                        fetch_offset=each.offset,
                        last_fetched_epoch=each.last_fetched_epoch,
                        log_start_offset=-1,
                        partition_max_bytes=each.max_bytes,
                    )
                    for each in group
                ],
            )
            for topic, group in by_topic(requested)
        ]
        theirs = FetchRequest(
            version=version,
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=int(settings.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=topics,
            forgotten_topics_data=[],
            rack_id="a-rack",
        )
        assert encode_fetch_request(version, requested, settings, wait_ms, "a-rack") == bytes(theirs.encode())

    check()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_requests_equal_kio(version: int) -> None:
    @seeds(20)
    def check(source: random.Random) -> None:
        requested, settings = random_partitions(source), random_settings(source)
        module = importlib.import_module(f"kio.schema.fetch.v{version}.request")
        topics = tuple(
            with_known_fields(
                module.FetchTopic,
                topic=topic,
                topic_id=IDS[topic],
                partitions=tuple(
                    with_known_fields(
                        module.FetchPartition,
                        partition=each.partition,
                        current_leader_epoch=each.leader_epoch,
                        fetch_offset=each.offset,
                        last_fetched_epoch=each.last_fetched_epoch,
                        partition_max_bytes=each.max_bytes,
                    )
                    for each in group
                ),
            )
            for topic, group in by_topic(requested)
        )
        theirs = with_known_fields(
            module.FetchRequest,
            replica_id=-1,
            max_wait=datetime.timedelta(milliseconds=500),
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=int(settings.read_committed),
            topics=topics,
            forgotten_topics_data=(),
            rack_id="a-rack",
        )
        out = io.BytesIO()
        entity_writer(module.FetchRequest)(out, theirs)
        assert encode_fetch_request(version, requested, settings, 500, "a-rack") == out.getvalue()

    check()


def random_fields(source: random.Random) -> dict[str, Any]:
    """Return the fields of a partition in a response."""

    def integer(bits: int) -> int:
        return random_integer(bits, source)

    aborted = [(integer(64), integer(64)) for _ in range(source.randrange(4))]
    return {
        "error_code": source.choice([0, 1, 3, 6, 29, 74]),
        "high_watermark": integer(64),
        "last_stable_offset": integer(64),
        "log_start_offset": integer(64),
        "aborted": source.choice([None, aborted]),
        "preferred_read_replica": integer(32),
        "records": source.choice([None, source.randbytes(source.choice([0, 1, 126, 127, 128, 300]))]),
        "leader": source.choice([None, (integer(32) & 2**31 - 1, integer(32))]),
        "diverging": source.choice([None, (integer(32) & 2**31 - 1, integer(64))]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_responses_of_kafka_python_are_parsed(version: int) -> None:
    assert_random_responses_are_parsed(version, encoded_by_kafka_python)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_responses_of_kio_are_parsed(version: int) -> None:
    assert_random_responses_are_parsed(version, encoded_by_kio)


def assert_random_responses_are_parsed(version: int, encode: Callable[..., bytes]) -> None:
    @seeds(20)
    def check(source: random.Random) -> None:
        requested = random_partitions(source, least=1)
        throttle_ms = random_integer(32, source) & 2**31 - 1
        fields_by_partition = {(each.topic, each.partition): random_fields(source) for each in requested}
        order = source.sample(requested, len(requested))
        body = encode(version, order, fields_by_partition, throttle_ms)
        assert_parsed(version, requested, fields_by_partition, body, throttle_ms)

    check()


def assert_parsed(
    version: int,
    requested: list[FetchRequestPartition],
    fields_by_partition: dict[tuple[str, int], dict[str, Any]],
    body: bytes,
    throttle_ms: int,
) -> None:
    response = parse_fetch_response(memoryview(body), version, requested)
    assert (response.error_code, response.throttle_ms) == (0, throttle_ms)
    assert response.partitions.keys() == fields_by_partition.keys()
    for topic_partition, fields in fields_by_partition.items():
        fetched = response.partition(TopicPartition(*topic_partition))
        assert fetched == FetchResponsePartition(
            error_code=fields["error_code"],
            high_watermark=fields["high_watermark"],
            last_stable_offset=fields["last_stable_offset"],
            log_start_offset=fields["log_start_offset"] if version >= 5 else -1,
            aborted=tuple(fields["aborted"] or ()),
            preferred_read_replica=fields["preferred_read_replica"] if version >= 11 else -1,
            current_leader=fields["leader"] if version >= 12 else None,
            diverging_epoch=fields["diverging"] if version >= 12 else None,
            throttle_ms=throttle_ms,
            records=memoryview(fields["records"] or b""),
        )


def encoded_by_kafka_python(
    version: int,
    order: Sequence[FetchRequestPartition],
    fields_by_partition: dict[tuple[str, int], dict[str, Any]],
    throttle_ms: int = 0,
) -> bytes:
    topic_class = FetchResponse.FetchableTopicResponse
    data_class = topic_class.PartitionData

    def partition(each: FetchRequestPartition) -> Any:
        fields = fields_by_partition[each.topic, each.partition]
        tags = {}
        if version >= 12 and fields["leader"] is not None:
            leader, epoch = fields["leader"]
            tags["current_leader"] = data_class.LeaderIdAndEpoch(version=version, leader_id=leader, leader_epoch=epoch)
        if version >= 12 and fields["diverging"] is not None:
            epoch, end = fields["diverging"]
            tags["diverging_epoch"] = data_class.EpochEndOffset(version=version, epoch=epoch, end_offset=end)
        aborted = fields["aborted"]
        return data_class(
            version=version,
            partition_index=each.partition,
            **{name: fields[name] for name in fields.keys() - {"aborted", "leader", "diverging"}},
            aborted_transactions=None
            if aborted is None
            else [
                data_class.AbortedTransaction(version=version, producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in aborted
            ],
            **tags,
        )

    topics = [
        topic_class(version=version, topic=topic, topic_id=IDS[topic], partitions=[partition(each) for each in group])
        for topic, group in by_topic(order)
    ]
    response = FetchResponse(
        version=version, throttle_time_ms=throttle_ms, error_code=0, session_id=0, responses=topics
    )
    response.with_header(correlation_id=1)
    return bytes(response.encode(header=True))[4:]


def encoded_by_kio(
    version: int,
    order: Sequence[FetchRequestPartition],
    fields_by_partition: dict[tuple[str, int], dict[str, Any]],
    throttle_ms: int,
) -> bytes:
    module = importlib.import_module(f"kio.schema.fetch.v{version}.response")

    def partition(each: FetchRequestPartition) -> Any:
        fields = fields_by_partition[each.topic, each.partition]
        tags = {}
        if version >= 12 and fields["leader"] is not None:
            leader, epoch = fields["leader"]
            tags["current_leader"] = module.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if version >= 12 and fields["diverging"] is not None:
            epoch, end = fields["diverging"]
            tags["diverging_epoch"] = module.EpochEndOffset(epoch=epoch, end_offset=end)
        aborted = fields["aborted"]
        return with_known_fields(
            module.PartitionData,
            partition_index=each.partition,
            error_code=ErrorCode(fields["error_code"]),
            **{name: fields[name] for name in fields.keys() - {"error_code", "aborted", "leader", "diverging"}},
            aborted_transactions=None
            if aborted is None
            else tuple(
                module.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in aborted
            ),
            **tags,
        )

    topics = tuple(
        with_known_fields(
            module.FetchableTopicResponse,
            topic=topic,
            topic_id=IDS[topic],
            partitions=tuple(partition(each) for each in group),
        )
        for topic, group in by_topic(order)
    )
    theirs = with_known_fields(
        module.FetchResponse,
        throttle_time=datetime.timedelta(milliseconds=throttle_ms),
        error_code=ErrorCode(0),
        session_id=0,
        responses=topics,
    )
    out = io.BytesIO()
    entity_writer(module.FetchResponse)(out, theirs)
    return (b"\0" if version >= 12 else b"") + out.getvalue()


def with_known_fields(data_class: Any, **fields: Any) -> Any:
    """Return an object of kio with the fields that its version has."""
    return data_class(**{name: value for name, value in fields.items() if name in data_class.__dataclass_fields__})


THREE = [
    FetchRequestPartition(topic, IDS[topic], number, 0, 1)
    for topic, number in (("flights", 0), ("flights", 1), ("ships", 0))
]
NO_RECORDS = {
    "error_code": 0,
    "high_watermark": 5,
    "last_stable_offset": 5,
    "log_start_offset": 0,
    "aborted": None,
    "preferred_read_replica": -1,
    "records": None,
    "leader": None,
    "diverging": None,
}
FIELDS = {(each.topic, each.partition): NO_RECORDS for each in THREE} | {
    ("flights", 1): NO_RECORDS | {"records": b"some records"}
}


@pytest.mark.parametrize("version", VERSIONS)
def test_response_must_have_each_partition_once(version: int) -> None:
    """Otherwise records of one partition could be read as those of another."""
    for order, message in [
        (THREE[:2], "lacks the partition ships-0"),
        ([*THREE, THREE[1]], "has the partition flights-1 twice"),
        ([*THREE, FetchRequestPartition("flights", None, 7, 0, 1)], "the partition flights-7, which was not requested"),
        ([*THREE, FetchRequestPartition("trains", None, 0, 0, 1)], "a topic( id)? that was not requested"),
        ([*THREE, FetchRequestPartition("ships", None, 1, 0, 1)], "the partition ships-1, which was not requested"),
    ]:
        fields_by_partition = {(each.topic, each.partition): NO_RECORDS for each in order}
        for throttle_ms in (0, 100):  # a throttled response may only lack all of them
            body = encoded_by_kafka_python(version, order, fields_by_partition, throttle_ms)
            with pytest.raises(MalformedError, match=message):
                parse_fetch_response(memoryview(body), version, THREE)


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_responses_are_malformed(version: int) -> None:
    body = memoryview(encoded_by_kafka_python(version, THREE, FIELDS))
    parse_fetch_response(body, version, THREE)
    for size in range(len(body)):
        with pytest.raises(MalformedError):
            parse_fetch_response(body[:size], version, THREE)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_responses_are_malformed_or_parsed(version: int) -> None:
    @seeds(60)
    def check(source: random.Random) -> None:
        body = bytearray(encoded_by_kafka_python(version, THREE, FIELDS))
        for _ in range(source.randint(1, 4)):
            body[source.randrange(len(body))] = source.randrange(256)
        try:
            response = parse_fetch_response(memoryview(body), version, THREE)
        except MalformedError:
            return
        assert response.partitions.keys() in (FIELDS.keys(), set())
        assert all(len(fetched.records) <= len(body) for fetched in response.partitions.values())

    check()
