"""The partition and record batch of single records, when they are sent, and their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.producer.accumulator_harness import AccumulatorHarness, numbered, rows_of
from tests.unit.producer.producer_cluster import ProducerCluster

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.errors import BrokerTimeoutError, RecordTooLargeError, TopicNotFoundError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.records import partition_for_key, split_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_WRITTEN = " The records were not written."
MAY_BE_WRITTEN = " The records may have been written."


@pytest.fixture
def one_partition() -> Iterator[ProducerCluster]:
    with ProducerCluster(partitions=1, topics={"other": 1}) as cluster:
        yield cluster


def test_records_that_arrive_while_requests_are_in_flight_share_a_batch(cluster: ProducerCluster) -> None:
    cluster.delay_responses(1.0)
    harness = AccumulatorHarness(cluster, max_in_flight=2)
    for value in (b"first", *numbered(6)):
        harness.send(value, partition=0)
    harness.poll_until(*numbered(6))
    assert harness.sent() == [{0: [b"first"]}, {0: [b"0"]}, {0: numbered(5, 1)}]
    assert harness.outcomes == {b"first": (0, 0), **{b"%d" % number: (0, number + 1) for number in range(6)}}


def test_record_contents_are_unchanged(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster)
    headers = (("one", b"1"), ("none", None), ("one", b""))
    first = harness.record(b"v", key=None, headers=headers, partition=0)
    second = harness.record(b"", key=b"\0\xff", partition=0)
    second.value = None
    harness.accumulator.append([first, second])
    harness.poll_until(b"v", b"")
    (data,) = cluster.produced[0].batches.values()
    one, other = rows_of(data).to_pylist()
    assert (one["key"], one["value"], other["key"], other["value"]) == (None, b"v", b"\0\xff", None)
    assert [(each["key"], each["value"]) for each in one["headers"]] == list(headers)
    assert not other["headers"]


def test_keys_select_the_same_partitions_as_in_java(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster)
    for key in numbered(50):
        harness.append(b"v" + key, key=key)
    harness.poll_until(*(b"v" + key for key in numbered(50)))
    assert {key: harness.outcomes[b"v" + key][0] for key in numbered(50)} == {  # type: ignore[index]
        key: partition_for_key(key, 8) for key in numbered(50)
    }


@pytest.mark.parametrize(("batch_bytes", "records"), [(300, 3), (301, 4)])
@pytest.mark.parametrize("how", [{"key": None}, {"key": b"k", "ignore_keys": True}])
def test_records_without_keys_stick_to_a_partition_until_a_batch_is_full(
    how: dict[str, Any], batch_bytes: int, records: int
) -> None:
    with ProducerCluster(partitions=3) as cluster:
        harness = AccumulatorHarness(cluster, batch_bytes=batch_bytes, ignore_keys=how.get("ignore_keys", False))
        for value in numbered(12):
            harness.append(value, key=how["key"])
        harness.poll_until(*numbered(12))
        places = [harness.outcomes[value][0] for value in numbered(12)]  # type: ignore[index]
        assert places == [number // records % 3 for number in range(12)]


def test_a_missing_partition_fails_its_record_only(one_partition: ProducerCluster) -> None:
    harness, start = AccumulatorHarness(one_partition), one_partition.now
    records = [harness.record(b"good"), harness.record(b"bad", partition=1), harness.record(b"too", partition=0)]
    harness.accumulator.append(records)
    harness.poll_until(b"good", b"bad", b"too")
    assert (harness.outcomes[b"good"], harness.outcomes[b"too"]) == ((0, 0), (0, 1))
    error = harness.error(b"bad")
    assert type(error) is TopicNotFoundError
    assert (error.topic, error.partition) == ("t", 1)
    assert error.message == f"The topic has no such partition; it has 1.{NOT_WRITTEN}"
    assert one_partition.now - start < 1, "nothing is sent to find out"
    one_partition.event("expand_topic", topic="t")
    harness.append(b"now", partition=1)
    harness.poll_until(b"now")
    assert harness.outcomes[b"now"] == (1, 0)


def test_a_partition_that_was_added_since_the_last_metadata_is_found(one_partition: ProducerCluster) -> None:
    harness = AccumulatorHarness(one_partition)
    harness.append(b"1", partition=0)
    one_partition.event("expand_topic", topic="t")
    harness.append(b"2", partition=1)
    harness.poll_until(b"1", b"2")
    assert harness.outcomes == {b"1": (0, 0), b"2": (1, 0)}


def test_queued_records_of_a_missing_partition_fail_with_the_first_ones() -> None:
    """A recreated topic may have fewer partitions; each batch would take five seconds to be found missing."""
    with ProducerCluster(partitions=2) as cluster:
        harness = AccumulatorHarness(cluster, batch_bytes=100)
        values = numbered(6)
        harness.append(*values, partition=1, poll=False)
        cluster.event("recreate_topic", topic="t", partitions=1)
        started = cluster.now
        harness.poll_until(*values)
        assert cluster.now - started < 8
        for value in values:
            assert type(error := harness.error(value)) is TopicNotFoundError
            assert error.message.endswith(NOT_WRITTEN)
            assert error.message.count(NOT_WRITTEN) == 1
        harness.append(b"other", key=b"a key of the second partition", flush_now=True)
        harness.append(*numbered(20, 100), key=None, flush_now=True)
        harness.poll_until(b"other", *numbered(20, 100))
        assert {harness.outcomes[value][0] for value in [b"other", *numbered(20, 100)]} == {0}  # type: ignore[index]


@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("before", [1, 4, 8, 20, 23])
def test_records_without_keys_go_to_the_partitions_of_a_recreated_topic(partitions: int, before: int) -> None:
    with ProducerCluster(partitions=8) as cluster:
        harness = AccumulatorHarness(cluster, batch_bytes=300)
        for value in numbered(before):
            harness.append(value, key=None)
        harness.poll_until(*numbered(before))
        cluster.event("recreate_topic", topic="t", partitions=partitions)
        harness.append(b"missing", partition=7, flush_now=True)
        harness.poll_until(b"missing")
        assert type(harness.error(b"missing")) is TopicNotFoundError
        after = numbered(20, 100)
        for value in after:
            harness.append(value, key=None, flush_now=True)
        harness.poll_until(*after)
        assert {harness.outcomes[value][0] for value in after} == set(range(partitions))  # type: ignore[index]


def test_queued_records_of_the_other_partitions_of_a_topic_do_not_fail_with_those_of_a_missing_one() -> None:
    with ProducerCluster(partitions=2) as cluster:
        harness = AccumulatorHarness(cluster, linger=30.0, batch_bytes=100)
        harness.append(b"lingers", partition=0, size=50, poll=False)
        harness.append(b"missing", partition=1, size=100, poll=False)
        cluster.event("recreate_topic", topic="t", partitions=1)
        harness.poll_until(b"missing")
        assert type(harness.error(b"missing")) is TopicNotFoundError
        harness.poll_until(b"lingers")
        assert harness.outcomes[b"lingers"] == (0, 0)


def test_a_topic_that_only_some_brokers_know_is_requested_again_with_pauses(cluster: ProducerCluster) -> None:
    cluster.event("stick_image", broker=0, seconds=3)
    cluster.event("create_topic", topic="new")
    cluster.elect(TopicPartition("new", 0), 1)
    harness = AccumulatorHarness(cluster)
    start = cluster.now
    harness.append(b"1", topic="new", flush_now=True)
    harness.poll_until(b"1")
    assert harness.outcomes[b"1"] == (0, 0)
    assert 3 <= cluster.now - start < 5
    assert cluster.sent("Metadata") < 12


def test_a_missing_topic_fails_its_records_only() -> None:
    with ProducerCluster(partitions=1, topics={"topic": 1}) as cluster:
        harness = AccumulatorHarness(cluster)
        start = cluster.now
        harness.accumulator.append(
            [harness.record(b"1", topic="topix"), harness.record(b"2"), harness.record(b"3", topic="topix")]
        )
        harness.poll_until(b"1", b"2", b"3")
        assert cluster.now - start < 8, "it is looked for once for both records"
        assert harness.outcomes[b"2"] == (0, 0)
        assert type(harness.error(b"1")) is type(harness.error(b"3")) is TopicNotFoundError
        assert "did you mean 'topic'" in harness.error(b"3").message
        assert harness.error(b"3").message.endswith(NOT_WRITTEN)
        cluster.event("create_topic", topic="topix")
        harness.append(b"4", topic="topix")
        harness.poll_until(b"4")
        assert harness.outcomes[b"4"] == (0, 0)


def test_partition_counts_are_refreshed_after_metadata_max_age() -> None:
    with ProducerCluster(partitions=1, connection={"metadata_max_age_ms": 300_000}) as cluster:
        harness = AccumulatorHarness(cluster)
        start = cluster.now
        harness.append(b"1", b"2")
        harness.poll_until(b"1", b"2")
        requests = cluster.sent("Metadata")
        cluster.sleep(start + 299.9 - cluster.now)
        harness.append(b"still known")
        assert cluster.sent("Metadata") == requests
        cluster.sleep(0.2)
        cluster.fault("Metadata", "stall_request", repeats=99)
        harness.append(b"3")
        harness.poll_until(b"3")
        assert cluster.sent("Metadata") > requests
        requests = cluster.sent("Metadata")
        harness.append(b"4")
        harness.poll_until(b"4")
        assert (harness.outcomes[b"3"], harness.outcomes[b"4"]) == ((0, 3), (0, 4)), "partitions are never removed"
        assert cluster.sent("Metadata") == requests, "the metadata is used for the same time again"


def test_an_unreachable_cluster_fails_the_records(cluster: ProducerCluster) -> None:
    for broker in range(2):
        cluster.event("stop_broker", broker=broker, seconds=100)
    harness, start = AccumulatorHarness(cluster), cluster.now
    harness.append(b"1")
    assert harness.error(b"1").message.endswith(NOT_WRITTEN)
    assert cluster.now - start < 20


@pytest.mark.parametrize(
    ("settings", "connection", "seconds"),
    [({"delivery_timeout_ms": 10_000}, {}, 10), ({}, {"default_api_timeout_ms": 5_000}, 5)],
    ids=["delivery-timeout", "api-timeout"],
)
def test_records_wait_for_metadata_at_most_for_their_own_time(
    settings: dict[str, Any], connection: dict[str, Any], seconds: int
) -> None:
    """Not for that of the records before them, and then for theirs."""
    with ProducerCluster(partitions=1, topics={"other": 1}, connection=connection) as cluster:
        harness = AccumulatorHarness(cluster, **settings)
        harness.append(b"0")
        harness.poll_until(b"0")
        cluster.fault("Metadata", "stall_request", repeats=99)
        start = cluster.now
        for number, value in enumerate([b"1", b"2", b"3"]):
            harness.append(value, created_at=start + number, topic="other")
            assert cluster.now - start == pytest.approx(seconds + number, abs=0.1)
            assert harness.error(value).message.endswith(NOT_WRITTEN)


def test_a_request_for_metadata_ends_before_other_records_expire(one_partition: ProducerCluster) -> None:
    harness = AccumulatorHarness(one_partition, delivery_timeout_ms=10_000)
    one_partition.event("lose_leader", topic="other", partition=0, seconds=100)
    start = one_partition.now
    harness.append(b"other", topic="other")
    one_partition.sleep(start + 7 - one_partition.now)
    one_partition.fault("Metadata", "stall_request", repeats=99)
    harness.append(b"1")
    harness.poll_until(b"other")
    assert 10 <= one_partition.now - start < 11.1
    assert b"1" not in harness.outcomes, "its own time is not over"
    start = one_partition.now
    harness.accumulator.poll([])
    assert 0.1 <= one_partition.now - start < 0.101, "metadata is requested again"
    one_partition.network.aimed_faults.clear()
    harness.append()
    harness.poll_until(b"1")
    assert harness.outcomes[b"1"] == (0, 0)


def test_a_request_for_metadata_ends_before_records_in_flight_expire(one_partition: ProducerCluster) -> None:
    harness = AccumulatorHarness(one_partition, delivery_timeout_ms=10_000)
    harness.append(b"0")
    harness.poll_until(b"0")
    one_partition.fault("Metadata", "stall_request", repeats=99)
    start = one_partition.now
    harness.send(b"in flight")
    one_partition.sleep(7.0)
    harness.append(b"other", topic="other")
    assert one_partition.now - start == pytest.approx(10, abs=0.1)
    assert harness.outcomes[b"in flight"] == (0, 1), "the response arrived meanwhile"
    assert b"other" not in harness.outcomes, "its own time is not over"


def test_batches_expire_although_new_records_fail_without_metadata(one_partition: ProducerCluster) -> None:
    """Each new record reports a failure, and its request for metadata takes a second."""
    harness = AccumulatorHarness(one_partition, delivery_timeout_ms=10_000)
    one_partition.event("lose_leader", topic="t", partition=0, seconds=100)
    start = one_partition.now
    harness.append(b"head")
    one_partition.sleep(start + 9 - one_partition.now)
    one_partition.fault("Metadata", "stall_request", repeats=99)
    for value in numbered(5):
        harness.append(value, topic="other", created_at=start)
    assert list(harness.outcomes)[:2] == [b"0", b"head"]
    assert "The last error" in harness.error(b"head").message


def test_an_unreachable_cluster_delays_the_failures_of_several_topics_once() -> None:
    names = [f"topic-{number}" for number in range(8)]
    with ProducerCluster(partitions=1, topics=dict.fromkeys(names, 1)) as cluster:
        harness = AccumulatorHarness(cluster, delivery_timeout_ms=10_000)
        harness.append(b"known")
        harness.poll_until(b"known")
        cluster.fault("Metadata", "stall_request", repeats=99)
        start = cluster.now
        records = [harness.record(name.encode(), topic=name) for name in names]
        late = harness.record(b"late", topic="topic-0", created_at=start + 5)
        harness.accumulator.append([*records, late])
        harness.accumulator.poll([])
        assert cluster.now - start == pytest.approx(10, abs=0.1)
        assert set(harness.outcomes) == {b"known", *(name.encode() for name in names)}
        messages = {harness.error(name.encode()).message for name in names}
        assert len(messages) == 1
        cluster.network.aimed_faults.clear()
        harness.append()
        harness.poll_until(b"late")
        assert isinstance(harness.outcomes[b"late"], tuple), "its own time was not over"


def test_records_linger_for_the_configured_time(one_partition: ProducerCluster) -> None:
    harness = AccumulatorHarness(one_partition, linger=2.0)
    start = one_partition.now
    harness.append(b"1", poll=False)
    one_partition.sleep(1.5)
    harness.append(b"2")
    harness.poll_until(b"1", b"2")
    assert one_partition.now - start == pytest.approx(2, abs=0.05)
    assert harness.sent() == [{0: [b"1", b"2"]}]


def test_records_expire_while_they_linger(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster, linger=20.0, delivery_timeout_ms=10_000, batch_bytes=150)
    for value in (b"1", b"2"):  # the first one does not fill the batch of the second one
        start = cluster.now
        harness.append(value)
        harness.poll_until(value)
        assert cluster.now - start == pytest.approx(10, abs=0.01)
        assert type(harness.error(value)) is BrokerTimeoutError


def test_records_do_not_linger_for_a_flush_or_a_full_batch(cluster: ProducerCluster) -> None:
    harness, start = AccumulatorHarness(cluster, linger=2.0, batch_bytes=300), cluster.now
    harness.append(*numbered(3))
    harness.poll_until(*numbered(3))
    harness.append(b"last", flush_now=True)
    harness.poll_until(b"last")
    assert cluster.now - start < 0.1


def test_records_that_were_sent_do_not_fill_the_next_batch(one_partition: ProducerCluster) -> None:
    harness, start = AccumulatorHarness(one_partition, linger=2.0, batch_bytes=300), one_partition.now
    for number in range(5):  # each of them lingers
        harness.append(b"%d" % number)
        harness.poll_until(b"%d" % number)
        assert one_partition.now - start == pytest.approx(2 * (number + 1), abs=0.2)


def test_batches_are_filled_up_to_their_size(one_partition: ProducerCluster) -> None:
    harness = AccumulatorHarness(one_partition, batch_bytes=350)
    harness.append(*numbered(8))
    harness.poll_until(*numbered(8))
    assert [each[0] for each in harness.sent()] == [numbered(3), numbered(3, 3), numbered(2, 6)]
    harness.append(b"large", size=10_000)
    harness.poll_until(b"large")
    assert harness.sent()[-1] == {0: [b"large"]}


def test_queued_records_have_their_own_delivery_timeout(one_partition: ProducerCluster) -> None:
    one_partition.event("lose_leader", topic="t", partition=0, seconds=100)
    harness = AccumulatorHarness(one_partition, delivery_timeout_ms=10_000)
    start = one_partition.now
    harness.append(b"head")
    one_partition.sleep(start + 4 - one_partition.now)
    harness.append(b"behind", b"beside")
    harness.poll_until(b"head")
    assert one_partition.now - start == pytest.approx(10, abs=1.5)
    assert set(harness.outcomes) == {b"head"}
    harness.poll_until(b"behind", b"beside")
    assert one_partition.now - start == pytest.approx(14, abs=1.5)
    assert all(type(error) is BrokerTimeoutError for error in harness.outcomes.values())
    assert all(harness.error(value).message.endswith(NOT_WRITTEN) for value in harness.outcomes)


def test_old_and_new_records_do_not_share_a_batch(one_partition: ProducerCluster) -> None:
    """A batch has the delivery timeout of its oldest record."""
    harness = AccumulatorHarness(one_partition)
    now = one_partition.now
    old, young = harness.record(b"old", created_at=now - 50), harness.record(b"young", created_at=now)
    harness.accumulator.append([old, young])
    harness.poll_until(b"old", b"young")
    assert harness.sent() == [{0: [b"old"]}, {0: [b"young"]}]


def test_records_that_expire_in_the_queue_were_not_written(one_partition: ProducerCluster) -> None:
    one_partition.fault("Produce", "stall_request", number=1)
    harness = AccumulatorHarness(one_partition, delivery_timeout_ms=10_000, max_in_flight=1)
    harness.append(b"0")
    harness.poll_until(b"0")
    start = one_partition.now
    for value in (b"in flight", b"next", b"waits"):
        harness.send(value, created_at=start)
    harness.poll_until(b"in flight", b"next", b"waits")
    assert one_partition.now - start < 21
    assert harness.error(b"in flight").message.endswith(MAY_BE_WRITTEN)
    assert harness.error(b"waits").message.endswith(NOT_WRITTEN)
    assert "Records waited 10 s (kafka.delivery.timeout.ms)" in harness.error(b"waits").message
    harness.append(b"later")
    harness.poll_until(b"later")
    assert isinstance(harness.outcomes[b"later"], tuple)


def test_a_rejected_record_is_left_out(one_partition: ProducerCluster) -> None:
    one_partition.fault("Produce", "error", number=1, code=ErrorCode.INVALID_RECORD)
    harness = AccumulatorHarness(one_partition)
    for value in (b"1", b"bad", b"2"):
        harness.append(value)
        harness.poll_until(value)
    assert (harness.outcomes[b"1"], harness.outcomes[b"2"]) == ((0, 0), (0, 1))
    assert harness.error(b"bad").message.endswith(NOT_WRITTEN)


def test_after_a_general_error_another_producer_continues(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster, max_in_flight=1)
    harness.append(b"done", partition=0)
    harness.poll_until(b"done")
    cluster.fault("Produce", "garble_response")
    for value in (b"in flight", b"ready", b"waits"):
        harness.send(value, partition=0)
    harness.send(b"other", partition=1)
    harness.poll_until(b"waits")
    in_flight, ready, other = (harness.error(value).message for value in (b"in flight", b"ready", b"other"))
    assert in_flight.endswith(MAY_BE_WRITTEN)
    assert ready == other == in_flight.replace(MAY_BE_WRITTEN, NOT_WRITTEN)
    assert harness.outcomes[b"waits"] == (0, 2), "the broker appended the batch in flight"
    assert cluster.producer_states()[-2:] == [(ProducerIdAndEpoch(0, 0), 1), (ProducerIdAndEpoch(0, 1), 0)]


def test_a_replaced_producer_fences_its_own_late_requests(cluster: ProducerCluster) -> None:
    """Another producer of the process may fail at the same time; neither takes the other's id."""
    harnesses = [AccumulatorHarness(cluster) for _ in range(2)]
    for number, harness in enumerate(harnesses):
        harness.append(b"%d" % number, partition=0)
        harness.poll_until(b"%d" % number)
    cluster.fault("Produce", "garble_response", repeats=2)
    for harness in harnesses:
        harness.send(b"in flight", partition=0)
    for harness in harnesses:
        harness.poll_until(b"in flight")
        assert harness.error(b"in flight").message.endswith(MAY_BE_WRITTEN)
    for harness in harnesses:
        harness.append(b"later", partition=0)
        harness.poll_until(b"later")
    assert cluster.producer_states()[-2:] == [(ProducerIdAndEpoch(number, 1), 0) for number in range(2)]


def test_records_that_cannot_be_encoded_fail(cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(**_: object) -> Any:
        raise RecordTooLargeError("There is not enough memory.")

    harness = AccumulatorHarness(cluster)
    with monkeypatch.context() as exhausted:
        exhausted.setattr("pyspark_kafka_direct.producer.accumulator.RecordEncoder", no_memory)
        harness.append(b"1", b"2")
        harness.poll_until(b"1", b"2")
    assert harness.error(b"2").message == f"There is not enough memory.{NOT_WRITTEN}"
    harness.append(b"3")
    harness.poll_until(b"3")
    assert isinstance(harness.outcomes[b"3"], tuple)


def test_aborted_records_are_not_sent(one_partition: ProducerCluster) -> None:
    harness = AccumulatorHarness(one_partition)
    harness.aborted = {b"1", b"3"}
    harness.append(b"1", b"2", b"3")
    harness.append(b"3")
    harness.poll_until(b"2")
    assert harness.sent() == [{0: [b"2"]}]


def test_records_in_flight_are_delivered_although_others_cannot_be_encoded(
    one_partition: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_partition.delay_responses(1.0)
    harness = AccumulatorHarness(one_partition)
    harness.send(b"in flight")
    with monkeypatch.context() as exhausted:
        exhausted.setattr("pyspark_kafka_direct.producer.accumulator.RecordEncoder", _raise_memory_error)
        harness.append(b"fails")
        harness.poll_until(b"fails", b"in flight")
    assert isinstance(harness.outcomes[b"fails"], MemoryError)
    assert harness.outcomes[b"in flight"] == (0, 0)


def test_records_that_cannot_be_marked_as_sent_fail_alone(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.delay_responses(1.0)
    harness = AccumulatorHarness(cluster)
    harness.send(b"in flight", partition=0)
    with monkeypatch.context() as patch:
        patch.setattr(harness.accumulator, "_mark_incomplete_as_sent", _raise_memory_error)
        harness.append(b"unmarked", partition=1)
    harness.poll_until(b"in flight", b"unmarked")
    assert harness.outcomes[b"in flight"] == (0, 0)
    assert isinstance(harness.outcomes[b"unmarked"], MemoryError)


def test_all_records_are_reported_after_an_error_outside_the_producer(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.delay_responses(1.0)
    harness = AccumulatorHarness(cluster)
    with monkeypatch.context() as patch:
        patch.setattr(harness.accumulator, "_seconds_until_due", _raise_memory_error)
        harness.append(b"in flight", partition=0)
    assert isinstance(harness.outcomes[b"in flight"], MemoryError)
    harness.append(b"next", partition=0)
    harness.poll_until(b"next")
    assert not isinstance(harness.outcomes[b"next"], BaseException)


def _raise_memory_error(*_: object, **__: object) -> Any:
    raise MemoryError("no memory")


def test_records_are_reported_once_if_their_batch_cannot_be_split(
    one_partition: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory suffices for the first half, which the producer then reports."""
    calls: list[int] = []

    def exhausted(data: bytearray) -> tuple[bytearray, bytearray]:
        calls.append(len(data))
        if len(calls) == 2:
            raise MemoryError
        return split_batch(data)

    one_partition.cluster.topics["t"].configs["max.message.bytes"] = "200"
    harness = AccumulatorHarness(one_partition, codec="none")
    harness.append(bytes(10), bytes(200))
    harness.poll_until(bytes(10), bytes(200))
    monkeypatch.setattr("pyspark_kafka_direct.producer.batch_producer.split_batch", exhausted)
    values = [b"1", b"2", bytes(150), bytes(151)]
    harness.append(*values)
    harness.poll_until(*values)
    assert len(calls) == 2
    assert all(isinstance(harness.outcomes[value], MemoryError) for value in values)
    harness.append(b"later")
    harness.poll_until(b"later")
