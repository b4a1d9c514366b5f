"""The partition and record batch of single records, when they are sent, and their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.producer.accumulator_harness import AccumulatorHarness, numbered, rows_of
from tests.unit.producer.fake_cluster import FakeCluster, FakeResponse
from tests.unit.producer.test_batch_producer import scripted, sent_producer_states

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    ProtocolError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.records import create_encoder, partition_for_key, split_batch

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.client.deadline import Deadline

NOT_WRITTEN = " The records were not written."
MAY_BE_WRITTEN = " The records may have been written."


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 10_000))
    monkeypatch.setattr(
        "pyspark_kafka_direct.producer.producer_id_manager.request_producer_id",
        lambda *_: ProducerIdAndEpoch(next(ids), 0),
    )


def test_records_that_arrive_while_requests_are_in_flight_share_a_batch() -> None:
    harness = AccumulatorHarness(FakeCluster(lambda _: FakeResponse(1.0)), max_in_flight=2)
    harness.append(b"first", poll=False)
    harness.accumulator._send_ready_records()
    for value in numbered(6):
        harness.append(value, poll=False)
        harness.accumulator._send_ready_records()
    harness.poll_until(*numbered(6))
    assert harness.sent() == [{0: [b"first"]}, {0: [b"0"]}, {0: numbered(5, 1)}]
    assert harness.outcomes == {b"first": (0, 0), **{b"%d" % number: (0, number + 1) for number in range(6)}}


def test_record_contents_are_unchanged() -> None:
    harness = AccumulatorHarness(FakeCluster())
    headers = (("one", b"1"), ("none", None), ("one", b""))
    first = harness.record(b"v", key=None, headers=headers)
    second = harness.record(b"", key=b"\0\xff")
    second.value = None
    harness.accumulator.append([first, second])
    harness.poll_until(b"v", b"")
    (data,) = harness.cluster.sent[0].batches.values()
    one, other = rows_of(data).to_pylist()
    assert (one["key"], one["value"], other["key"], other["value"]) == (None, b"v", b"\0\xff", None)
    assert [(each["key"], each["value"]) for each in one["headers"]] == list(headers)
    assert not other["headers"]


def test_keys_select_the_same_partitions_as_in_java() -> None:
    cluster = FakeCluster()
    cluster.partitions = {"t": 7}
    harness = AccumulatorHarness(cluster)
    for key in numbered(50):
        harness.append(b"v" + key, key=key)
    harness.poll_until(*(b"v" + key for key in numbered(50)))
    assert {key: harness.outcomes[b"v" + key][0] for key in numbered(50)} == {  # type: ignore[index]
        key: partition_for_key(key, 7) for key in numbered(50)
    }


@pytest.mark.parametrize(("batch_bytes", "records"), [(300, 3), (301, 4)])
@pytest.mark.parametrize("how", [{"key": None}, {"key": b"k", "ignore_keys": True}])
def test_records_without_keys_stick_to_a_partition_until_a_batch_is_full(
    how: dict[str, Any], batch_bytes: int, records: int
) -> None:
    cluster = FakeCluster()
    cluster.partitions = {"t": 3}
    harness = AccumulatorHarness(cluster, batch_bytes=batch_bytes, ignore_keys=how.get("ignore_keys", False))
    for value in numbered(12):
        harness.append(value, key=how["key"])
    harness.poll_until(*numbered(12))
    places = [harness.outcomes[value][0] for value in numbered(12)]  # type: ignore[index]
    assert places == [number // records % 3 for number in range(12)]


def test_a_missing_partition_fails_its_record_only() -> None:
    cluster = FakeCluster()
    harness = AccumulatorHarness(cluster)
    records = [harness.record(b"good"), harness.record(b"bad", partition=5), harness.record(b"too", partition=0)]
    harness.accumulator.append(records)
    harness.poll_until(b"good", b"bad", b"too")
    assert (harness.outcomes[b"good"], harness.outcomes[b"too"]) == ((0, 0), (0, 1))
    error = harness.error(b"bad")
    assert type(error) is TopicNotFoundError
    assert (error.topic, error.partition) == ("t", 5)
    assert error.message == f"The topic has no such partition; it has 1.{NOT_WRITTEN}"
    cluster.partitions = {"t": 6}
    harness.append(b"now", partition=5)
    harness.poll_until(b"now")
    assert harness.outcomes[b"now"] == (5, 0)


def test_a_partition_that_was_added_since_the_last_metadata_is_found() -> None:
    cluster = FakeCluster()
    harness = AccumulatorHarness(cluster)
    harness.append(b"1", partition=0)
    cluster.partitions = {"t": 6}
    harness.append(b"2", partition=5)
    harness.poll_until(b"1", b"2")
    assert harness.outcomes == {b"1": (0, 0), b"2": (5, 0)}
    assert cluster.requested_topics == ["t", "t"]


def test_queued_records_of_a_missing_partition_fail_with_the_first_ones() -> None:
    """A recreated topic may have fewer partitions; each batch would take five seconds to be found missing."""
    cluster = FakeCluster()
    cluster.partitions = {"t": 2}
    original_leaders = cluster.leaders

    def leaders(partitions: Any, *more: Any, **requests_for: Any) -> Any:
        if any(each.partition >= cluster.partitions["t"] for each in partitions):
            raise TopicNotFoundError("unknown partition.", topic="t", partition=1)
        return original_leaders(partitions, *more, **requests_for)

    cluster.leaders = leaders  # type: ignore[method-assign]
    harness = AccumulatorHarness(cluster, batch_bytes=100)
    values = numbered(6)
    harness.append(*values, partition=1, poll=False)
    cluster.partitions["t"] = 1
    started = cluster.system.now
    harness.poll_until(*values)
    assert cluster.system.now - started < 8
    for value in values:
        assert type(error := harness.error(value)) is TopicNotFoundError
        assert error.message.endswith(NOT_WRITTEN)
        assert error.message.count(NOT_WRITTEN) == 1
    harness.append(b"other", key=b"a key of the second partition", flush_now=True)
    harness.append(*numbered(20, 100), key=None, flush_now=True)
    harness.poll_until(b"other", *numbered(20, 100))
    assert {harness.outcomes[value][0] for value in [b"other", *numbered(20, 100)]} == {0}  # type: ignore[index]


def test_queued_records_of_the_other_partitions_of_a_topic_do_not_fail_with_those_of_a_missing_one() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(20.0))
    cluster.partitions = {"t": 2}
    harness = AccumulatorHarness(cluster, batch_bytes=100, max_in_flight=1)
    original_leaders = cluster.leaders

    def leaders(partitions: Any, *more: Any, **requests_for: Any) -> Any:
        if any(each.partition >= cluster.partitions["t"] for each in partitions):
            raise TopicNotFoundError("unknown partition.", topic="t", partition=1)
        return original_leaders(partitions, *more, **requests_for)

    cluster.leaders = leaders  # type: ignore[method-assign]
    values = numbered(4)
    harness.append(*values, partition=0, poll=False)
    harness.accumulator._send_ready_records()
    harness.append(b"missing", partition=1, poll=False)
    cluster.partitions["t"] = 1
    harness.poll_until(b"missing", *values)
    assert type(harness.error(b"missing")) is TopicNotFoundError
    assert [harness.outcomes[value] for value in values] == [(0, number) for number in range(4)]


def test_a_topic_that_only_some_brokers_know_is_requested_again_with_pauses() -> None:
    class Lagging(FakeCluster):
        lagging_responses = 3

        def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> dict[str, Any]:
            self.lagging_responses -= 1
            return {} if self.lagging_responses >= 0 else super().topics(names, deadline=deadline)

    cluster = Lagging(retry_backoff_max_ms=1_000)
    started = cluster.system.now
    harness = AccumulatorHarness(cluster)
    harness.append(b"1", flush_now=True)
    harness.poll_until(b"1")
    assert harness.outcomes[b"1"] == (0, 0)
    assert 3 <= cluster.system.now - started < 5


def test_a_missing_topic_fails_its_records_only() -> None:
    cluster = FakeCluster()
    cluster.partitions = {"t": 1, "topic": 1}
    harness = AccumulatorHarness(cluster)
    harness.accumulator.append(
        [harness.record(b"1", topic="topix"), harness.record(b"2"), harness.record(b"3", topic="topix")]
    )
    harness.poll_until(b"1", b"2", b"3")
    assert harness.outcomes[b"2"] == (0, 0)
    assert type(harness.error(b"1")) is type(harness.error(b"3")) is TopicNotFoundError
    assert "did you mean 'topic'" in harness.error(b"3").message
    assert harness.error(b"3").message.endswith(NOT_WRITTEN)
    assert cluster.requested_topics.count("topix") == 1, "once for both records"
    cluster.partitions["topix"] = 1
    harness.append(b"4", topic="topix")
    harness.poll_until(b"4")
    assert harness.outcomes[b"4"] == (0, 1)


def test_partition_counts_are_refreshed_after_metadata_max_age() -> None:
    cluster = FakeCluster(metadata_max_age_ms=5_000)
    start = cluster.system.now
    harness = AccumulatorHarness(cluster)
    harness.append(b"1", b"2")
    harness.poll_until(b"1", b"2")
    cluster.system.now = start + 4.999
    harness.append(b"still known")
    assert cluster.requested_topics == ["t"]
    cluster.system.now = start + 5
    original_topics, failed_requests = cluster.topics, list[str]()

    def unreachable(names: Collection[str], **_: object) -> Any:
        failed_requests.extend(names)
        raise BrokerUnreachableError("unreachable")

    cluster.topics = unreachable  # type: ignore[method-assign]
    for value in (b"3", b"4"):
        harness.append(value)
        harness.poll_until(value)
    assert (harness.outcomes[b"3"], harness.outcomes[b"4"]) == ((0, 3), (0, 4)), "partitions are never removed"
    assert failed_requests == ["t"], "the metadata is used for the same time again"
    cluster.topics = original_topics  # type: ignore[method-assign]
    cluster.system.now += 5
    harness.append(b"5")
    assert cluster.requested_topics == ["t", "t"]


def test_metadata_is_requested_again_after_the_backoff() -> None:
    cluster = FakeCluster(retry_backoff_ms=100)
    original_topics, start = cluster.topics, cluster.system.now

    def unreachable(*_: object, **__: object) -> Any:
        raise BrokerUnreachableError("unreachable")

    cluster.topics = unreachable  # type: ignore[method-assign]
    harness = AccumulatorHarness(cluster)
    harness.append(b"1")
    assert cluster.system.now - start == pytest.approx(0.1, abs=1e-6)
    assert not harness.outcomes
    cluster.topics = original_topics  # type: ignore[method-assign]
    harness.append()
    harness.poll_until(b"1")
    assert harness.outcomes[b"1"] == (0, 0)


def test_an_unreachable_cluster_fails_the_records() -> None:
    cluster = FakeCluster()

    def unreachable(*_: object, **__: object) -> Any:
        raise BrokerUnreachableError("unreachable")

    cluster.topics = unreachable  # type: ignore[method-assign]
    cluster.nodes = {}  # it was never reached
    harness = AccumulatorHarness(cluster)
    harness.append(b"1")
    assert harness.error(b"1").message == f"unreachable{NOT_WRITTEN}"


class UnresponsiveCluster(FakeCluster):
    """Requests for metadata of a topic fail at their deadlines."""

    unresponsive_topic = "t"

    def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> dict[str, Any]:
        if self.unresponsive_topic not in names:
            return super().topics(names, deadline=deadline)
        assert deadline is not None
        self.requested_topics += names
        self.system.now = max(self.system.now, deadline.at)
        raise BrokerTimeoutError("no response")


def test_records_wait_for_metadata_at_most_for_their_own_delivery_timeout() -> None:
    """Not for that of the records before them, and then for theirs."""
    cluster = UnresponsiveCluster()
    start = cluster.system.now
    harness = AccumulatorHarness(cluster, delivery_timeout_ms=10_000)
    for number, value in enumerate([b"1", b"2", b"3"]):
        harness.append(value, created_at=start + number)
        assert cluster.system.now - start == 10 + number
        assert harness.error(value).message == f"no response{NOT_WRITTEN}"


def test_records_wait_for_metadata_at_most_for_the_api_timeout() -> None:
    cluster = UnresponsiveCluster(default_api_timeout_ms=5_000)
    start = cluster.system.now
    harness = AccumulatorHarness(cluster, delivery_timeout_ms=10_000)
    harness.append(b"1")
    assert cluster.system.now - start == pytest.approx(5, abs=1e-6)
    assert harness.error(b"1").message == f"no response{NOT_WRITTEN}"


def test_a_request_for_metadata_ends_before_other_records_expire() -> None:
    cluster = UnresponsiveCluster()
    cluster.partitions = {"t": 1, "other": 1}
    cluster.leader = None
    start = cluster.system.now
    harness = AccumulatorHarness(cluster, delivery_timeout_ms=10_000)
    harness.append(b"other", topic="other")
    cluster.system.now = start + 7
    harness.append(b"1")
    harness.poll_until(b"other")
    assert 10 <= cluster.system.now - start < 11
    assert b"1" not in harness.outcomes, "its own time is not over"
    cluster.leader, cluster.unresponsive_topic = 1, "none"
    harness.append()
    harness.poll_until(b"1")
    assert harness.outcomes[b"1"] == (0, 0)


def test_records_linger_for_the_configured_time() -> None:
    cluster = FakeCluster()
    start = cluster.system.now
    harness = AccumulatorHarness(cluster, linger=2.0)
    harness.append(b"1", poll=False)
    cluster.system.now += 1.5
    harness.append(b"2")
    harness.poll_until(b"1", b"2")
    assert [each.at - start for each in cluster.sent] == [2.0]
    assert harness.sent() == [{0: [b"1", b"2"]}]


def test_records_expire_while_they_linger() -> None:
    cluster = FakeCluster()
    start = cluster.system.now
    harness = AccumulatorHarness(cluster, linger=20.0, delivery_timeout_ms=10_000)
    harness.append(b"1")
    harness.poll_until(b"1")
    assert cluster.system.now - start == 10
    assert type(harness.error(b"1")) is BrokerTimeoutError


def test_records_do_not_linger_for_a_flush_or_a_full_batch() -> None:
    cluster = FakeCluster()
    start = cluster.system.now
    harness = AccumulatorHarness(cluster, linger=2.0, batch_bytes=300)
    harness.append(*numbered(3))
    harness.poll_until(*numbered(3))
    harness.append(b"last", flush_now=True)
    harness.poll_until(b"last")
    assert [round(each.at - start, 2) for each in cluster.sent] == [0, 0.01]


def test_batches_are_filled_up_to_their_size() -> None:
    harness = AccumulatorHarness(FakeCluster(), batch_bytes=350)
    harness.append(*numbered(8))
    harness.poll_until(*numbered(8))
    assert [each[0] for each in harness.sent()] == [numbered(3), numbered(3, 3), numbered(2, 6)]
    harness.append(b"large", size=10_000)
    harness.poll_until(b"large")
    assert harness.sent()[-1] == {0: [b"large"]}


def test_queued_records_have_their_own_delivery_timeout() -> None:
    cluster = FakeCluster()
    cluster.leader = None
    start = cluster.system.now
    harness = AccumulatorHarness(cluster, delivery_timeout_ms=10_000)
    harness.append(b"head")
    cluster.system.now = start + 4
    harness.append(b"behind", b"beside")
    harness.poll_until(b"head")
    assert cluster.system.now - start == pytest.approx(10, abs=1.5)
    assert set(harness.outcomes) == {b"head"}
    harness.poll_until(b"behind", b"beside")
    assert cluster.system.now - start == pytest.approx(14, abs=1.5)
    assert all(type(error) is BrokerTimeoutError for error in harness.outcomes.values())
    assert all(harness.error(value).message.endswith(NOT_WRITTEN) for value in harness.outcomes)


def test_old_and_new_records_do_not_share_a_batch() -> None:
    """A batch has the delivery timeout of its oldest record."""
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    harness = AccumulatorHarness(cluster)
    now = cluster.system.now
    old, young = harness.record(b"old", created_at=now - 50), harness.record(b"young", created_at=now)
    harness.accumulator.append([old, young])
    harness.poll_until(b"old", b"young")
    assert harness.sent() == [{0: [b"old"]}, {0: [b"young"]}]


def test_records_that_expire_in_the_queue_were_not_written() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(None)), request_timeout_ms=30_000)
    harness = AccumulatorHarness(cluster, delivery_timeout_ms=10_000, max_in_flight=1)
    harness.append(b"0")
    harness.poll_until(b"0")
    start = cluster.system.now
    harness.append(b"in flight", poll=False)
    harness.accumulator._send_ready_records()
    harness.append(b"next", poll=False)
    harness.accumulator._send_ready_records()
    harness.append(b"waits", poll=False)
    harness.poll_until(b"in flight", b"next", b"waits")
    assert cluster.system.now - start < 21
    assert harness.error(b"in flight").message.endswith(MAY_BE_WRITTEN)
    assert harness.error(b"waits").message.endswith(NOT_WRITTEN)
    assert "Records waited 10 s (kafka.delivery.timeout.ms)" in harness.error(b"waits").message
    harness.append(b"later")
    harness.poll_until(b"later")
    assert isinstance(harness.outcomes[b"later"], tuple)


def test_a_rejected_record_is_left_out() -> None:
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(code=ErrorCode.INVALID_RECORD)))
    harness = AccumulatorHarness(cluster)
    for value in (b"1", b"bad", b"2"):
        harness.append(value)
        harness.poll_until(value)
    assert (harness.outcomes[b"1"], harness.outcomes[b"2"]) == ((0, 0), (0, 1))
    assert harness.error(b"bad").message.endswith(NOT_WRITTEN)


def test_after_a_general_error_another_producer_continues() -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    cluster.partitions = {"t": 2}
    harness = AccumulatorHarness(cluster, max_in_flight=1)
    harness.append(b"done", partition=0)
    harness.poll_until(b"done")
    for value in (b"in flight", b"ready", b"waits"):
        harness.append(value, partition=0, poll=False)
        harness.accumulator._send_ready_records()
    original_leaders = cluster.leaders

    def broken(*_: object, **__: object) -> Any:
        cluster.leaders = original_leaders  # type: ignore[method-assign]
        raise ProtocolError("nonsense")

    cluster.leaders = broken  # type: ignore[method-assign]
    harness.append(b"other", partition=1)
    harness.poll_until(b"waits")
    assert harness.error(b"in flight").message == f"nonsense{MAY_BE_WRITTEN}"
    assert harness.error(b"ready").message == harness.error(b"other").message == f"nonsense{NOT_WRITTEN}"
    assert harness.outcomes[b"waits"] == (0, 2), "the fake broker appended the batch in flight"
    assert sent_producer_states(cluster)[-2:] == [(100, 0, 1), (100, 1, 0)], "a late request is rejected"


def test_a_replaced_producer_fences_its_own_late_requests() -> None:
    """Another producer of the process may fail at the same time; neither takes the other's id."""
    never = FakeResponse(None)
    cluster = FakeCluster(scripted(FakeResponse(), never, FakeResponse(), never))
    cluster.partitions = {"t": 2}
    harnesses = [AccumulatorHarness(cluster) for _ in range(2)]
    for number, harness in enumerate(harnesses):
        harness.append(b"%d" % number)
        harness.poll_until(b"%d" % number)
        harness.append(b"in flight", poll=False)
        harness.accumulator._send_ready_records()
    original_leaders = cluster.leaders

    def broken(*_: object, **__: object) -> Any:
        raise ProtocolError("nonsense")

    cluster.leaders = broken  # type: ignore[method-assign]
    for harness in harnesses:
        harness.append(b"other", partition=1)
        harness.poll_until(b"other")
    cluster.leaders = original_leaders  # type: ignore[method-assign]
    for harness in harnesses:
        harness.append(b"later")
        harness.poll_until(b"later")
    assert sent_producer_states(cluster)[-2:] == [(100, 1, 0), (101, 1, 0)]


def test_records_that_cannot_be_encoded_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(**_: object) -> Any:
        raise RecordTooLargeError("There is not enough memory.")

    harness = AccumulatorHarness(FakeCluster())
    monkeypatch.setattr("pyspark_kafka_direct.producer.accumulator.create_encoder", no_memory)
    harness.append(b"1", b"2")
    harness.poll_until(b"1", b"2")
    assert harness.error(b"2").message == f"There is not enough memory.{NOT_WRITTEN}"
    monkeypatch.setattr("pyspark_kafka_direct.producer.accumulator.create_encoder", create_encoder)
    harness.append(b"3")
    harness.poll_until(b"3")
    assert harness.outcomes[b"3"] == (0, 0)


def test_aborted_records_are_not_sent() -> None:
    harness = AccumulatorHarness(FakeCluster())
    harness.aborted = {b"1", b"3"}
    harness.append(b"1", b"2", b"3")
    harness.append(b"3")
    harness.poll_until(b"2")
    assert harness.sent() == [{0: [b"2"]}]


def test_records_in_flight_are_delivered_although_others_cannot_be_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(**_: object) -> Any:
        raise MemoryError

    harness = AccumulatorHarness(FakeCluster(lambda _: FakeResponse(1.0)))
    harness.append(b"in flight", poll=False)
    harness.accumulator._send_ready_records()
    with monkeypatch.context() as exhausted:
        exhausted.setattr("pyspark_kafka_direct.producer.accumulator.create_encoder", no_memory)
        harness.append(b"fails")
        harness.poll_until(b"fails", b"in flight")
    assert isinstance(harness.outcomes[b"fails"], MemoryError)
    assert harness.outcomes[b"in flight"] == (0, 0)


def test_records_that_cannot_be_marked_as_sent_fail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(lambda _: FakeResponse(1.0))
    cluster.partitions = {"t": 2}
    harness = AccumulatorHarness(cluster)
    harness.append(b"in flight", partition=0, poll=False)
    harness.accumulator._send_ready_records()
    with monkeypatch.context() as patch:
        patch.setattr(harness.accumulator, "_mark_incomplete_as_sent", _raise_memory_error)
        harness.append(b"unmarked", partition=1)
    harness.poll_until(b"in flight", b"unmarked")
    assert harness.outcomes[b"in flight"] == (0, 0)
    assert isinstance(harness.outcomes[b"unmarked"], MemoryError)


def test_all_records_are_reported_after_an_error_outside_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = AccumulatorHarness(FakeCluster(lambda _: FakeResponse(1.0)))
    with monkeypatch.context() as patch:
        patch.setattr(harness.accumulator, "_seconds_until_due", _raise_memory_error)
        harness.append(b"in flight", partition=0)
    assert isinstance(harness.outcomes[b"in flight"], MemoryError)
    harness.append(b"next", partition=0)
    harness.poll_until(b"next")
    assert not isinstance(harness.outcomes[b"next"], BaseException)


def _raise_memory_error(*_: object) -> float:
    raise MemoryError("no memory")


def test_records_are_reported_once_if_their_batch_cannot_be_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory suffices for the first half, which the producer then reports."""
    calls: list[int] = []

    def exhausted(data: bytearray) -> tuple[bytearray, bytearray]:
        calls.append(len(data))
        if len(calls) == 2:
            raise MemoryError
        return split_batch(data)

    monkeypatch.setattr("pyspark_kafka_direct.producer.batch_producer.split_batch", exhausted)
    harness = AccumulatorHarness(FakeCluster(), codec="none")
    harness.accumulator._producer._rejected_sizes["t"] = 200
    values = [b"1", b"2", bytes(150), bytes(151)]
    harness.append(*values)
    harness.poll_until(*values)
    assert len(calls) == 2
    assert all(isinstance(outcome, MemoryError) for outcome in harness.outcomes.values())
    harness.append(b"later")
    harness.poll_until(b"later")
