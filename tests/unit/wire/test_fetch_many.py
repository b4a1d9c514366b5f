"""Fetch requests and answers of many partitions, byte for byte against two libraries, and bytes that are wrong."""

from __future__ import annotations

import datetime
import importlib
import io
import uuid
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import ProtocolError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.wire._cursor import MalformedError
from pyspark_kafka_direct.wire._fetch_format import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    AskedPartition,
    FetchedPartition,
    FetchLimits,
    encode_request,
    parse_response,
)
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.fetch import ManyFetchChannel

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSIONS = range(OLDEST_VERSION, NEWEST_VERSION + 1)
IDS = {name: uuid.UUID(int=index + 1) for index, name in enumerate(("flights", "ships", "trains"))}
LIMITS = FetchLimits(500, 1, 50 << 20, 1, "a-rack")

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
partitions = st.builds(
    lambda topic, *numbers: AskedPartition(topic, IDS[topic], *numbers),
    st.sampled_from(sorted(IDS)),
    *(int32, int64, int32, int32, int32),
)
questions = st.lists(partitions, max_size=8, unique_by=lambda asked: (asked.topic, asked.partition))


def by_topic(asked: Sequence[AskedPartition]) -> list[tuple[str, list[AskedPartition]]]:
    return [(topic, list(group)) for topic, group in groupby(asked, key=lambda each: each.topic)]


@pytest.mark.parametrize("version", VERSIONS)
@given(asked=questions)
@settings(max_examples=30)
def test_requests_are_kafka_pythons(version: int, asked: list[AskedPartition]) -> None:
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
        for topic, group in by_topic(asked)
    ]
    theirs = FetchRequest(
        version=version,
        replica_id=-1,
        max_wait_ms=LIMITS.max_wait_ms,
        min_bytes=LIMITS.min_bytes,
        max_bytes=LIMITS.max_bytes,
        isolation_level=LIMITS.isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=topics,
        forgotten_topics_data=[],
        rack_id=LIMITS.rack,
    )
    assert encode_request(version, asked, LIMITS) == bytes(theirs.encode())


@pytest.mark.parametrize("version", VERSIONS)
@given(asked=questions)
@settings(max_examples=30)
def test_requests_are_kios(version: int, asked: list[AskedPartition]) -> None:
    module = importlib.import_module(f"kio.schema.fetch.v{version}.request")
    topics = tuple(
        known(
            module.FetchTopic,
            topic=topic,
            topic_id=IDS[topic],
            partitions=tuple(
                known(
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
        for topic, group in by_topic(asked)
    )
    theirs = known(
        module.FetchRequest,
        replica_id=-1,
        max_wait=datetime.timedelta(milliseconds=LIMITS.max_wait_ms),
        min_bytes=LIMITS.min_bytes,
        max_bytes=LIMITS.max_bytes,
        isolation_level=LIMITS.isolation_level,
        topics=topics,
        forgotten_topics_data=(),
        rack_id=LIMITS.rack,
    )
    out = io.BytesIO()
    entity_writer(module.FetchRequest)(out, theirs)
    assert encode_request(version, asked, LIMITS) == out.getvalue()


answered = st.fixed_dictionaries(
    {
        "error_code": st.sampled_from([0, 1, 3, 6, 29, 74]),
        "high_watermark": int64,
        "last_stable_offset": int64,
        "log_start_offset": int64,
        "aborted": st.none() | st.lists(st.tuples(int64, int64), max_size=3),
        "preferred_read_replica": int32,
        "records": st.none() | st.binary(max_size=300),
        "leader": st.none() | st.tuples(st.integers(0, 2**31 - 1), int32),
        "diverging": st.none() | st.tuples(st.integers(0, 2**31 - 1), int64),
    }
)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data(), asked=questions.filter(bool), throttle_ms=st.integers(0, 2**31 - 1))
@settings(max_examples=30)
def test_answers_of_kafka_python_are_understood(
    version: int, data: st.DataObject, asked: list[AskedPartition], throttle_ms: int
) -> None:
    told = {(each.topic, each.partition): data.draw(answered) for each in asked}
    order = data.draw(st.permutations(asked))
    body = of_kafka_python(version, order, told, throttle_ms)
    assert_understood(version, asked, told, body, throttle_ms)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data(), asked=questions.filter(bool), throttle_ms=st.integers(0, 2**31 - 1))
@settings(max_examples=30)
def test_answers_of_kio_are_understood(
    version: int, data: st.DataObject, asked: list[AskedPartition], throttle_ms: int
) -> None:
    told = {(each.topic, each.partition): data.draw(answered) for each in asked}
    order = data.draw(st.permutations(asked))
    body = of_kio(version, order, told, throttle_ms)
    assert_understood(version, asked, told, body, throttle_ms)


def assert_understood(
    version: int,
    asked: list[AskedPartition],
    told: dict[tuple[str, int], dict[str, Any]],
    body: bytes,
    throttle_ms: int,
) -> None:
    answer = parse_response(memoryview(body), version, asked)
    assert (answer.error_code, answer.throttle_ms) == (0, throttle_ms)
    assert answer.partitions.keys() == told.keys()
    for place, fields in told.items():
        fetched = answer.of(TopicPartition(*place))
        assert fetched == FetchedPartition(
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


def of_kafka_python(
    version: int, order: Sequence[AskedPartition], told: dict[tuple[str, int], dict[str, Any]], throttle_ms: int = 0
) -> bytes:
    topic_class = FetchResponse.FetchableTopicResponse
    data_class = topic_class.PartitionData

    def partition(each: AskedPartition) -> Any:
        fields = told[each.topic, each.partition]
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
                data_class.AbortedTransaction(version=version, producer_id=one, first_offset=two)
                for one, two in aborted
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


def of_kio(
    version: int, order: Sequence[AskedPartition], told: dict[tuple[str, int], dict[str, Any]], throttle_ms: int
) -> bytes:
    module = importlib.import_module(f"kio.schema.fetch.v{version}.response")

    def partition(each: AskedPartition) -> Any:
        fields = told[each.topic, each.partition]
        tags = {}
        if version >= 12 and fields["leader"] is not None:
            leader, epoch = fields["leader"]
            tags["current_leader"] = module.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if version >= 12 and fields["diverging"] is not None:
            epoch, end = fields["diverging"]
            tags["diverging_epoch"] = module.EpochEndOffset(epoch=epoch, end_offset=end)
        aborted = fields["aborted"]
        return known(
            module.PartitionData,
            partition_index=each.partition,
            error_code=ErrorCode(fields["error_code"]),
            **{name: fields[name] for name in fields.keys() - {"error_code", "aborted", "leader", "diverging"}},
            aborted_transactions=None
            if aborted is None
            else tuple(module.AbortedTransaction(producer_id=one, first_offset=two) for one, two in aborted),
            **tags,
        )

    topics = tuple(
        known(
            module.FetchableTopicResponse,
            topic=topic,
            topic_id=IDS[topic],
            partitions=tuple(partition(each) for each in group),
        )
        for topic, group in by_topic(order)
    )
    theirs = known(
        module.FetchResponse,
        throttle_time=datetime.timedelta(milliseconds=throttle_ms),
        error_code=ErrorCode(0),
        session_id=0,
        responses=topics,
    )
    out = io.BytesIO()
    entity_writer(module.FetchResponse)(out, theirs)
    return (b"\0" if version >= 12 else b"") + out.getvalue()


def known(data_class: Any, **fields: Any) -> Any:
    """An object of kio with those of the fields that its version has."""
    return data_class(**{name: value for name, value in fields.items() if name in data_class.__dataclass_fields__})


THREE = [
    AskedPartition(topic, IDS[topic], number, 0, 1) for topic, number in (("flights", 0), ("flights", 1), ("ships", 0))
]
QUIET = {
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
TOLD = {(each.topic, each.partition): QUIET for each in THREE} | {("flights", 1): QUIET | {"records": b"some records"}}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_names_each_partition_once(version: int) -> None:
    """Otherwise what is read of one could be taken for what is read of another."""
    for order, complaint in [
        (THREE[:2], "lacks the partition ships-0"),
        ([*THREE, THREE[1]], "holds flights-1 twice"),
        ([*THREE, AskedPartition("flights", None, 7, 0, 1)], "another partition, flights-7"),
        ([*THREE, AskedPartition("trains", None, 0, 0, 1)], "names another topic"),
        ([*THREE, AskedPartition("ships", None, 1, 0, 1)], "another partition, ships-1"),
    ]:
        told = {(each.topic, each.partition): QUIET for each in order}
        body = of_kafka_python(version, order, told)
        with pytest.raises(MalformedError, match=complaint):
            parse_response(memoryview(body), version, THREE)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_cut_off_anywhere_are_malformed(version: int) -> None:
    body = memoryview(of_kafka_python(version, THREE, TOLD))
    parse_response(body, version, THREE)
    for size in range(len(body)):
        with pytest.raises(MalformedError):
            parse_response(body[:size], version, THREE)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@settings(max_examples=100)
def test_damaged_answers_are_malformed_or_understood(version: int, data: st.DataObject) -> None:
    body = bytearray(of_kafka_python(version, THREE, TOLD))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        answer = parse_response(memoryview(body), version, THREE)
    except MalformedError:
        return
    assert answer.partitions.keys() in (TOLD.keys(), set())
    assert all(len(fetched.records) <= len(body) for fetched in answer.partitions.values())


class Line:
    """A connection that keeps what it is given, and answers what it is told."""

    broker = "there:9092"
    settings = ConnectionSettings((("there", 9092),))
    system = Frozen()

    def __init__(self, highest: int = 17) -> None:
        self.api_versions = {1: (4, highest)}
        self.sent: list[tuple[int, bytes, bool]] = []
        self.answer = b""
        self.room = self.throttled = 0
        self.closed = False

    def keep_room(self, size: int) -> None:
        self.room = size

    def throttle(self, milliseconds: int) -> None:
        self.throttled = milliseconds

    def send(self, _: int, version: int, name: str, body: bytes, *, flexible: bool, deadline: Deadline) -> None:
        self.sent.append((version, body, flexible))

    def receive(self, deadline: Deadline) -> memoryview:
        return memoryview(self.answer)

    def close(self) -> None:
        self.closed = True


SOON = Deadline.after(3600)  # counted from the start of all tests


def channel(line: Line, **fetch: Any) -> ManyFetchChannel:
    return ManyFetchChannel(line, FetchSettings(**fetch))  # type: ignore[arg-type]


def test_a_request_says_what_the_settings_say() -> None:
    line = Line()
    many = channel(
        line,
        isolation_level="read_committed",
        client_rack="ours",
        fetch_min_bytes=7,
        fetch_max_wait_ms=300,
        fetch_max_bytes=1000,
        max_partition_fetch_bytes=9 << 20,
    )
    many.request(THREE, SOON)
    # Without the rack: a tail reads from leaders, and one that sent it elsewhere would send nothing itself.
    assert line.sent == [(17, encode_request(17, THREE, FetchLimits(300, 7, 1000, 1, "")), True)]
    assert line.room == 9 << 20


@pytest.mark.parametrize(("min_bytes", "asked"), [(0, 1), (1, 1), (5, 5)])
def test_a_broker_always_waits_for_something(min_bytes: int, asked: int) -> None:
    line = Line()
    channel(line, fetch_min_bytes=min_bytes).request(THREE, SOON)
    assert line.sent[0][1] == encode_request(17, THREE, FetchLimits(500, asked, 52_428_800, 0, ""))


@pytest.mark.parametrize(("highest", "version", "flexible"), [(17, 12, True), (20, 12, True), (11, 11, False)])
def test_a_topic_without_an_id_is_named(highest: int, version: int, flexible: bool) -> None:
    line = Line(highest)
    many = channel(line)
    unnamed = [*THREE, AskedPartition("trains", None, 0, 0, 1)]
    many.request(unnamed, SOON)
    assert [(sent[0], sent[2]) for sent in line.sent] == [(version, flexible)]
    assert b"trains" in line.sent[0][1]


def test_an_answer_is_of_the_version_that_was_asked_in() -> None:
    line = Line()
    many = channel(line)
    line.answer = of_kafka_python(17, THREE, TOLD, throttle_ms=30)
    many.request(THREE, SOON)
    answer = many.response(SOON)
    assert bytes(answer.of(TopicPartition("flights", 1)).records) == b"some records"
    assert line.throttled == 30
    assert not line.closed


def test_an_answer_that_is_malformed_closes_the_connection() -> None:
    line = Line()
    many = channel(line)
    line.answer = of_kafka_python(17, THREE, TOLD)[:-1]
    many.request(THREE, SOON)
    with pytest.raises(ProtocolError, match="Fetch version 17 is malformed") as caught:
        many.response(SOON)
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == (None, None, "there:9092")
    assert line.closed


def test_what_is_not_told_of_a_partition_is_told_of_the_whole() -> None:
    line = Line()
    many = channel(line)
    empty = FetchResponse(version=17, throttle_time_ms=40, error_code=71, session_id=0, responses=[])
    empty.with_header(correlation_id=1)
    line.answer = bytes(empty.encode(header=True))[4:]
    many.request(THREE, SOON)
    fetched = many.response(SOON).of(TopicPartition("flights", 1))
    assert (fetched.error_code, fetched.throttle_ms, fetched.high_watermark) == (71, 40, -1)
    assert bytes(fetched.records) == b""
