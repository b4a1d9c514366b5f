"""Decisions on answers that the real broker of the integration tests does not give, or not on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    CorruptRecordError,
    DataLossError,
    ProtocolError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.planning.loss import LogState
from pyspark_kafka_direct.reading._recovery import Recovery
from pyspark_kafka_direct.reading.counts import ReadCounts
from pyspark_kafka_direct.reading.request import RangeRequest
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.fetch import FetchedPartition
from pyspark_kafka_direct.wire.settings import connection_settings

if TYPE_CHECKING:
    from pyspark_kafka_direct.reading._replica import Replica

TOPIC_ID = UUID(int=1)


class Place:
    """Stands for the replica: notes what it is told, and answers as the test says."""

    def __init__(self) -> None:
        self.on_leader = True
        self.broker = "broker:9092"
        self.recreated_as: UUID | None = None
        self.told: list[str] = []
        self.log = LogState(0, 100, TOPIC_ID)
        self.first_local = 0

    def drop(self) -> None:
        self.told.append("drop")

    def return_to_leader(self) -> None:
        self.told.append("leader")

    def prefer(self, broker_id: int) -> None:
        self.told.append(f"prefer {broker_id}")

    def log_state(self, _: object) -> LogState:
        return self.log

    def local_start(self, _: object) -> int:
        return self.first_local


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def counts() -> ReadCounts:
    return ReadCounts()


def recovery(place: Place, counts: ReadCounts, **kafka: str) -> Recovery:
    names = {name.replace("_", "."): text for name, text in kafka.items()}
    quick = {"bootstrap.servers": "broker:9092", "retry.backoff.ms": "1", "retry.backoff.max.ms": "1"}
    request = RangeRequest(OffsetRange("flights", 3, 10, 50), ("value",), TOPIC_ID, poll_timeout=30.0)
    return Recovery(connection_settings(quick | names), request, cast("Replica", place), counts)


def answer(code: int = 0, **fields: Any) -> FetchedPartition:
    usual: dict[str, Any] = {
        "error_code": code,
        "high_watermark": 100 if code == 0 else -1,
        "last_stable_offset": 100 if code == 0 else -1,
        "log_start_offset": 0,
        "aborted": (),
        "preferred_read_replica": -1,
        "current_leader": None,
        "diverging_epoch": None,
        "throttle_ms": 0,
        "records": memoryview(b""),
    }
    return FetchedPartition(**(usual | fields))


RETRIED = [
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
]

NOT_RETRIED = {
    ErrorCode.CORRUPT_MESSAGE: CorruptRecordError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: UnsupportedBrokerError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedBrokerError,
    ErrorCode.INVALID_REQUEST: ProtocolError,
    4711: ProtocolError,
}


@pytest.mark.parametrize("code", RETRIED)
def test_codes_that_another_try_may_cure(place: Place, counts: ReadCounts, code: int) -> None:
    assert recovery(place, counts).after_code(20, answer(code)) == 20
    assert (place.told, counts.retries) == (["drop"], 1)


@pytest.mark.parametrize("code", NOT_RETRIED)
def test_codes_that_are_final(place: Place, counts: ReadCounts, code: int) -> None:
    with pytest.raises(NOT_RETRIED[code]) as caught:
        recovery(place, counts).after_code(20, answer(code))
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.broker) == ("flights", 3, 20, "broker:9092")
    assert counts.retries == 0


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_a_follower_in_trouble_is_left_for_the_leader(place: Place, counts: ReadCounts, code: int) -> None:
    place.on_leader = False
    place.log = LogState(40, 100, TOPIC_ID)  # what the leader would say; nobody asks before the leader is fetched from
    assert recovery(place, counts).after_code(20, answer(code)) == 20
    assert (place.told, counts.lost) == (["leader"], 0)


def test_an_empty_follower_is_left_for_the_leader_at_once(place: Place, counts: ReadCounts) -> None:
    place.on_leader = False
    assert recovery(place, counts).after_empty(20, answer(high_watermark=15)) == 20
    assert place.told == ["leader"]


def test_a_preferred_replica_is_gone_to(place: Place, counts: ReadCounts) -> None:
    assert recovery(place, counts).after_empty(20, answer(preferred_read_replica=7)) == 20
    assert (place.told, counts.retries) == (["prefer 7"], 0)


def test_an_offset_that_is_out_of_range_and_then_is_not_is_asked_for_again(place: Place, counts: ReadCounts) -> None:
    assert recovery(place, counts).after_code(20, answer(ErrorCode.OFFSET_OUT_OF_RANGE)) == 20
    assert (counts.retries, counts.lost) == (1, 0)


def test_bytes_without_a_whole_batch_are_malformed(place: Place, counts: ReadCounts) -> None:
    with pytest.raises(CorruptRecordError, match="17 bytes that hold no complete record batch") as caught:
        recovery(place, counts).after_empty(20, answer(records=memoryview(bytes(17))))
    assert caught.value.offset == 20


def test_a_hole_at_the_end_is_believed_when_it_is_seen_twice(place: Place, counts: ReadCounts) -> None:
    tail = recovery(place, counts)
    assert [tail.after_empty(20, answer()) for _ in range(2)] == [20, 50]
    assert (counts.holes, counts.lost) == (30, 0)


def test_a_hole_ends_where_read_committed_has_to_stop(place: Place, counts: ReadCounts) -> None:
    tail = recovery(place, counts, isolation_level="read_committed")
    assert [tail.after_empty(20, answer(last_stable_offset=45)) for _ in range(2)] == [20, 45]
    assert counts.holes == 25


def test_records_in_tiered_storage_are_no_hole(place: Place, counts: ReadCounts) -> None:
    """A broker that fetches them from there (KIP-405) answers with nothing until it has them."""
    place.first_local = 30
    tail = recovery(place, counts)
    assert [tail.after_empty(20, answer()) for _ in range(6)] == [20] * 6
    assert counts.holes == 0


def test_a_topic_is_gone_when_that_is_said_five_times_in_a_row(place: Place, counts: ReadCounts) -> None:
    missing = recovery(place, counts)
    unknown = TopicNotFoundError("unknown")
    for _ in range(4):
        assert missing.after_missing(20, unknown) == 20
    missing.after_trouble(BrokerUnreachableError("it is there, but has no leader"))
    for _ in range(4):
        assert missing.after_missing(20, unknown) == 20
    with pytest.raises(DataLossError, match="deleted"):
        missing.after_missing(20, unknown)


def test_patience_ends_with_the_last_trouble(place: Place, counts: ReadCounts) -> None:
    waiting = recovery(place, counts)
    waiting.after_trouble(BrokerUnreachableError("nobody is at home.", broker="other:9092"))
    waiting.check_time()
    waiting._deadline = Deadline.after(0)
    waiting.after_trouble(BrokerTimeoutError("the time is up."))
    with pytest.raises(BrokerTimeoutError, match=r"30 s \(option kafkaConsumer.*nobody is at home") as caught:
        waiting.check_time()
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == ("flights", 3, "other:9092")


def test_progress_makes_patience_new(place: Place, counts: ReadCounts) -> None:
    waiting = recovery(place, counts)
    waiting.after_trouble(BrokerUnreachableError("nobody is at home."))
    waiting._deadline = Deadline.after(0)
    with pytest.raises(BrokerTimeoutError, match="nobody is at home"):
        waiting.check_time()
    waiting.progressed()
    waiting.check_time()
