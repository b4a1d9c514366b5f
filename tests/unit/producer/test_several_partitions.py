"""Producers with several partitions, brokers, batches and listeners: what holds for the first one holds for all."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.producer.accumulator_harness import AccumulatorHarness, numbered, rows_of
from tests.unit.producer.producer_cluster import RECORDS, ProducerCluster, batch
from tests.unit.producer.test_async_producer_callbacks import ONE_BATCH, TIMEOUT, Listener
from tests.unit.producer.test_batch_producer import Outcomes, soon_after

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer import async_producer
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.protocol.messages import PRODUCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

SECOND = TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Iterator[ProducerCluster]:
    """Broker 1 leads all partitions but the second one of ``t``."""
    with ProducerCluster(partitions=4, topics={"u": 1, "v": 1}) as cluster:
        cluster.elect(SECOND, 2)
        yield cluster


@pytest.fixture
def producer(cluster: ProducerCluster) -> BatchProducer:
    """A producer that is connected to both brokers, to broker 1 first."""
    return connected(cluster)


def connected(cluster: ProducerCluster, **settings: Any) -> BatchProducer:
    producer = cluster.producer(**settings)
    for partition in (0, 1):
        producer.send("t", batch(partition))
        producer.flush()
    return producer


def times(cluster: ProducerCluster, partition: int, skipped: int) -> list[float]:
    """Return when brokers handled the requests with batches of a partition, after the first such request."""
    found = [each.at for each in cluster.produced[skipped:] if partition in each.batches]
    return [at - found[0] for at in found]


# Batches.


def test_callers_wait_for_the_responses_of_each_broker(cluster: ProducerCluster, producer: BatchProducer) -> None:
    cluster.delay_responses(1.0)
    producer.send("t", batch(1), more_follows=True)
    assert producer.has_queued_batches
    producer.send("t", batch(0))
    assert (len(producer.descriptors()), producer.has_queued_batches) == (2, False)
    producer.flush()


def test_the_first_batch_of_any_partition_expires_first(cluster: ProducerCluster) -> None:
    cluster.delay_responses(1.0)
    producer, start = cluster.producer(), cluster.now
    for partition, age in enumerate((5, 50, 20)):
        producer.send("t", batch(partition), callback=Outcomes(cluster), created_at=start - age)
    assert producer.expires_at == start - 50 + 120
    producer.flush()


def test_without_acknowledgements_each_partition_of_a_request_is_written(cluster: ProducerCluster) -> None:
    producer = cluster.producer(acks=0)
    for partition in (0, 2, 3):
        producer.send("t", batch(partition), more_follows=True)
    assert {tp.partition: each.records for tp, each in producer.flush().items()} == dict.fromkeys((0, 2, 3), RECORDS)


def test_a_missing_response_of_any_broker_is_noticed_in_time(cluster: ProducerCluster, producer: BatchProducer) -> None:
    before = cluster.sent("Produce")
    cluster.fault("Produce", "stall_response")
    producer.send("t", batch(1))
    cluster.sleep(20)
    cluster.fault("Produce", "delay_response", seconds=29)
    producer.send("t", batch(0))
    producer.flush()
    assert times(cluster, 1, before) == [0, pytest.approx(30, abs=0.5)]


def test_queued_records_of_each_broker_that_throttles_expire(cluster: ProducerCluster) -> None:
    producer, start = connected(cluster, delivery_timeout_ms=40_000, max_in_flight=1), cluster.now
    cluster.fault("Produce", "throttle", ms=60_000)
    outcomes = Outcomes(cluster)
    for _ in range(2):
        producer.send("t", batch(1), callback=outcomes, created_at=start - 5)
    producer.flush()
    assert [at for at, _ in outcomes.failed] == [soon_after(35)], "before the throttling ends"


def test_several_batches_that_fail_together_are_one_failed_attempt(cluster: ProducerCluster) -> None:
    producer = connected(cluster)
    cluster.fault("Produce", "error", repeats=5, code=ErrorCode.NOT_ENOUGH_REPLICAS)
    for _ in range(5):
        producer.send("t", batch(0))
    producer.flush()
    retried_at = times(cluster, 0, skipped=2)[5]
    assert retried_at == pytest.approx(0.1, abs=0.05), "the first backoff"


def test_the_connection_of_each_broker_is_replaced_when_certificates_change(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = connected(cluster)
    connects = len(cluster.connect_limits)
    for partition in (1, 0):  # led by different brokers
        with monkeypatch.context() as changed:
            changed.setattr(Connection, "certificates_changed", property(is_first := IsFirst()))
            producer.send("t", batch(partition))
            producer.flush()
        assert is_first.connection is not None
        assert is_first.connection.closed
    assert len(cluster.connect_limits) == connects + 2


class IsFirst:
    """Returns whether a connection is the first one that it is called with."""

    connection: Connection | None = None

    def __call__(self, connection: Connection) -> bool:
        self.connection = self.connection or connection
        return connection is self.connection


def test_a_broker_without_zstd_is_an_error_and_its_connection_is_released(cluster: ProducerCluster) -> None:
    def without_zstd(_: int, values: dict[str, Any]) -> dict[str, Any]:
        old = [{**each, "max_version": 6} if each["api_key"] == PRODUCE.key else each for each in values["api_keys"]]
        return {**values, "api_keys": old}

    cluster.change("ApiVersions", without_zstd)
    client = cluster.client()
    producer = cluster.producer(client=client, codec="zstd", idempotent=False)
    with pytest.raises(UnsupportedBrokerError, match="does not support zstd"):
        producer.send("t", batch())
    producer.close()
    client.pool.clear()
    assert cluster.open_connections == 0


def test_a_partition_does_not_wait_for_the_backoff_of_another_one(
    cluster: ProducerCluster, producer: BatchProducer
) -> None:
    """The pauses of a partition without a leader have grown to a second."""
    cluster.event("lose_leader", topic="t", partition=0, seconds=20.3)
    cluster.break_connections()
    producer.send("t", batch(0))
    ends_at = cluster.now + 10
    while cluster.now < ends_at:
        producer.poll(ends_at - cluster.now)
    before = cluster.sent("Produce")
    outcomes = [Outcomes(cluster) for _ in range(4)]
    for each in outcomes:  # at different times within the pause
        cluster.fault("Produce", "error", code=ErrorCode.NOT_ENOUGH_REPLICAS)
        producer.send("t", batch(2), callback=each)
        while not each.acknowledged_at:
            producer.poll(60)
        cluster.sleep(0.15)
    sent_at = times(cluster, 2, before)
    assert [after - before for before, after in itertools.pairwise(sent_at)][::2] == [soon_after(0.1)] * 4
    producer.flush()


def test_all_partitions_wait_if_no_producer_id_can_be_acquired(cluster: ProducerCluster) -> None:
    producer = cluster.producer()
    cluster.fault("InitProducerId", "error", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, repeats=2)
    for partition in range(4):
        producer.send("t", batch(partition), more_follows=True)
    assert len(producer.flush()) == 4
    requested_at = [each.at for each in cluster.arrivals("InitProducerId")]
    pauses = [after - before for before, after in itertools.pairwise(requested_at)]
    assert pauses == [soon_after(0.1), soon_after(0.2)]


def test_all_partitions_fail_together_if_no_producer_id_can_be_acquired(cluster: ProducerCluster) -> None:
    producer, outcomes = cluster.producer(delivery_timeout_ms=10_000), Outcomes(cluster)
    cluster.every("InitProducerId", "error", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for partition in range(4):
        producer.send("t", batch(partition), callback=outcomes, more_follows=True)
    producer.flush()
    failed_at = [at for at, _ in outcomes.failed]
    assert len(failed_at) == 4
    assert max(failed_at) - min(failed_at) < 1, "the request is not repeated for each"


# Leaders.


def test_a_topic_that_may_not_be_written_to_fails_alone(cluster: ProducerCluster) -> None:
    cluster.event("deny_topic", topic="u", seconds=100)
    producer = cluster.producer()
    outcomes = {topic: Outcomes(cluster) for topic in "tuv"}
    for topic, callback in outcomes.items():
        producer.send(topic, batch(), callback=callback, more_follows=True)
    producer.flush()
    assert [type(error) for _, error in outcomes["u"].failed] == [AuthorizationError]
    assert [len(outcomes[topic].acknowledged_at) for topic in "tuv"] == [1, 0, 1]


def test_partitions_share_the_requests_for_their_leaders(cluster: ProducerCluster, producer: BatchProducer) -> None:
    """If the request fails, or one of the topics is missing, all of them wait for the next attempt."""
    outcomes = Outcomes(cluster)
    before = cluster.sent("Metadata")
    for topic in ("u", "v", "missing"):
        producer.send(topic, batch(), callback=outcomes, more_follows=True)
    producer.flush()
    assert [type(error) for _, error in outcomes.failed] == [TopicNotFoundError]
    assert cluster.sent("Metadata") - before < 40
    for broker in range(2):
        cluster.event("stop_broker", broker=broker, seconds=20)
    connects = cluster.network.connect_count
    for partition in range(4):
        producer.send("t", batch(partition), more_follows=True)
    producer.flush()
    assert cluster.network.connect_count - connects < 80


# Single records.


def test_records_of_several_partitions_share_a_request(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster)
    harness.accumulator.append([harness.record(b"%d" % number, partition=number) for number in (0, 2, 3)])
    harness.poll_until(b"0", b"2", b"3")
    assert harness.sent() == [{0: [b"0"], 2: [b"2"], 3: [b"3"]}]


def test_records_may_need_more_batches_than_expected(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster, batch_bytes=300)
    values = [bytes([number]) * 200 for number in range(4)]
    harness.append(*values, size=1, partition=0, flush_now=True)
    harness.poll_until(*values)
    assert harness.outcomes == {value: (0, offset) for offset, value in enumerate(values)}
    assert len(harness.sent()) == 4


def test_headers_of_any_record_of_a_batch_are_written(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster)
    headers = ((), (("one", b"1"), ("two", None)), ())
    harness.accumulator.append(
        [harness.record(b"%d" % number, headers=each, partition=0) for number, each in enumerate(headers)]
    )
    harness.poll_until(*numbered(3))
    (data,) = cluster.produced[0].batches.values()
    found = [[(each["key"], each["value"]) for each in row["headers"] or ()] for row in rows_of(data).to_pylist()]
    assert found == [list(each) for each in headers]


def test_queued_records_of_all_partitions_of_a_deleted_topic_fail_together(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster, batch_bytes=100)
    values = numbered(9)
    for number, value in enumerate(values):
        harness.append(value, partition=(0, 2, 3)[number % 3], poll=False)
    cluster.event("delete_topic", topic="t")
    start = cluster.now
    harness.poll_until(*values)
    assert {type(harness.error(value)) for value in values} == {TopicNotFoundError}
    named = {(harness.error(value).partition, (0, 2, 3)[number % 3]) for number, value in enumerate(values)}
    assert named <= {(None, 0), (0, 0), (None, 2), (2, 2), (None, 3), (3, 3)}
    assert named & {(0, 0), (2, 2), (3, 3)}
    assert cluster.now - start < 8


def test_records_that_failed_with_their_topic_do_not_fill_later_batches(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster, linger=2.0, batch_bytes=300)
    values = numbered(8)
    harness.append(*values, partition=0, poll=False)
    cluster.event("delete_topic", topic="t")
    harness.poll_until(*values)
    cluster.cluster.create_topic("t", 1)
    cluster.sleep(5)
    for number in range(3):
        start = cluster.now
        harness.append(b"later %d" % number, partition=0)
        harness.poll_until(b"later %d" % number)
        assert cluster.now - start == pytest.approx(2, abs=0.2), "it lingers"


def test_failed_records_are_reported_before_metadata_of_other_topics_are_awaited(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster, delivery_timeout_ms=20_000)
    harness.append(b"known", topic="v")
    harness.poll_until(b"known")
    missing = harness.record(b"missing", topic="missing")
    were_reported: list[bool] = []

    def note(_: int, response: dict[str, Any]) -> dict[str, Any]:
        if [topic["name"] for topic in response["topics"]] == ["u"]:
            were_reported.append(b"missing" in harness.outcomes)
        return response

    cluster.change("Metadata", note)
    harness.accumulator.append([missing, harness.record(b"u", topic="u")])
    harness.poll_until(b"missing", b"u")
    assert type(harness.error(b"missing")) is TopicNotFoundError
    assert were_reported[0]


def test_a_request_for_metadata_ends_before_records_of_any_queue_expire(cluster: ProducerCluster) -> None:
    harness = AccumulatorHarness(cluster, linger=100.0, delivery_timeout_ms=10_000)
    harness.append(b"done", topic="v", flush_now=True)
    harness.poll_until(b"done")
    start = cluster.now
    harness.send(b"u", topic="u")
    cluster.sleep(start + 7 - cluster.now)
    cluster.fault("Metadata", "stall_request", repeats=99)
    harness.append(b"t")
    harness.poll_until(b"u")
    assert 10 <= cluster.now - start < 11.1
    cluster.network.aimed_faults.clear()
    harness.append(flush_now=True)
    harness.poll_until(b"t")


def test_each_listener_of_a_batch_is_called(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer(ONE_BATCH)
    listeners = [Listener(producer) for _ in range(3)]
    for listener in listeners:
        listener.futures.append(producer.send("t", b"k", b"", listener=listener))
    producer.flush(TIMEOUT)
    acknowledged = ([(0, None), (1, None), (2, None)], False, 0)
    assert [each.notes for each in listeners] == [[acknowledged, (True, 3)]] * 3
    for listener in listeners:
        listener.notes.clear()
        producer.send("t", b"k", b"", listener=listener)
    producer.close(0)
    assert [each.notes for each in listeners] == [[(True, 6)]] * 3, "records that failed"


def test_a_record_behind_a_hanging_callback_of_another_batch_fails_at_the_close(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer()
    first = producer.send("t", b"k", b"v")
    first.add_done_callback(lambda _: cluster.process.sleep(100))
    first.result(TIMEOUT)
    other = producer.send("t", b"k", b"v")
    producer.close(0.5)
    assert isinstance(other.exception(0), BrokerTimeoutError)


def test_the_memory_of_each_record_of_a_batch_is_released(cluster: ProducerCluster) -> None:
    producer = cluster.async_producer(linger=100.0, buffer_bytes=60_000)
    for _ in range(10):
        futures = [producer.send("t", b"k", bytes(5_000)) for _ in range(8)]
        producer.flush(TIMEOUT)
        assert all(future.exception(0) is None for future in futures)
    assert cluster.sent("Produce") == 10, "the buffer is never full, which would end the linger time"


def test_each_thread_that_waits_for_a_record_is_notified(cluster: ProducerCluster) -> None:
    class Thread:
        def __init__(self) -> None:
            self.completed: list[object] = []

        def add_result(self, future: object) -> None:
            self.completed.append(future)

    future = cluster.async_producer(ONE_BATCH).send("t", b"k", b"v")
    threads = [Thread() for _ in range(2)]
    waiting: list[Any] = future._waiters
    waiting.extend(threads)
    future.result(TIMEOUT)
    assert [thread.completed for thread in threads] == [[future]] * 2


def test_the_exit_warns_of_the_topics_of_incomplete_records_and_ends_the_thread(
    cluster: ProducerCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at_exit: list[Any] = []
    monkeypatch.setattr(cluster.process, "finalize", lambda _, call, *given: at_exit.append((call, given)))
    producer = cluster.async_producer(ONE_BATCH)
    futures = [producer.send(topic, b"k", b"v") for topic in "tuv"]
    ((end, given),) = at_exit
    assert end is async_producer._end_at_exit
    end(*given)
    assert "have not acknowledged 3 records of t, u, v, which may be lost" in caplog.text
    assert producer._signal is None, "the thread has ended"
    assert all(isinstance(future.exception(TIMEOUT), BrokerTimeoutError) for future in futures)
