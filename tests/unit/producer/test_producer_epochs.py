"""When the epoch of an idempotent producer is incremented, so that brokers reject requests that arrive late."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.producer.producer_cluster import PARTITION, RECORDS, ProducerCluster, batch
from tests.unit.producer.test_delivery_callbacks import RecordingCallback

from pyspark_kafka_direct.client.producer_state import PartitionSequence, ProducerIdAndEpoch
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

FIRST, SECOND, LAST = (ProducerIdAndEpoch(0, epoch) for epoch in (0, 1, 32_767))
ANOTHER = ProducerIdAndEpoch(1, 0)


def test_the_epoch_is_incremented_when_the_broker_lost_the_state(cluster: ProducerCluster) -> None:
    cluster.fault("Produce", "error", number=1, repeats=3, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    cluster.write(5)
    assert cluster.producer_states() == [
        *((FIRST, sequence) for sequence in (0, 10, 20, 30, 40)),
        *((SECOND, sequence) for sequence in (0, 10, 20, 30)),
    ]
    assert cluster.values() == 5 * list(range(RECORDS))


@pytest.mark.parametrize("fails", [False, True])
def test_the_next_producer_fences_what_a_closed_one_had_in_flight(cluster: ProducerCluster, fails: bool) -> None:
    """Only in the partition that had something in flight; the others continue their sequence numbers."""
    cluster.fault("Produce", "stall_response", number=1)
    producer = cluster.producer(delivery_timeout_ms=2_000)
    producer.send("t", batch(0), more_follows=True)
    producer.send("t", batch(1), more_follows=True)
    producer.flush()
    producer.send("t", batch(0))
    if fails:
        with pytest.raises(BrokerTimeoutError):
            producer.flush()
    producer.close()
    other = cluster.producer()
    other.send("t", batch(0), more_follows=True)
    other.send("t", batch(1), more_follows=True)
    other.flush()
    assert cluster.producer_states() == [(FIRST, 0), (FIRST, 10), (SECOND, 0)]
    assert cluster.producer_states(1) == [(FIRST, 0), (FIRST, 10)]


def test_the_next_producer_fences_a_batch_that_failed(cluster: ProducerCluster) -> None:
    """The closed producer has nothing left, but its request may still arrive."""
    cluster.fault("Produce", "stall_response", number=1)
    producer, callback = cluster.producer(delivery_timeout_ms=2_000), RecordingCallback()
    producer.send("t", batch(0))
    producer.flush()
    producer.send("t", batch(0), callback)
    producer.flush()
    assert type(callback.error) is BrokerTimeoutError
    producer.close()
    other = cluster.producer()
    other.send("t", batch(0))
    other.flush()
    assert cluster.producer_states() == [(FIRST, 0), (FIRST, 10), (SECOND, 0)]


def test_after_the_last_epoch_another_producer_id_follows(cluster: ProducerCluster) -> None:
    """The brokers reject the sequence numbers of the last epoch, which they do not have."""
    client = cluster.client()
    for use_last_epoch in (False, True):
        producer = cluster.producer(client=client)
        for partition in range(2 + use_last_epoch):
            producer.send("t", batch(partition))
            producer.flush()
        producer.close()
        key = (client.settings, client.cluster_id)
        state = client.pool.idle_producers.acquire(key)
        assert state is not None
        state.sequences = {PARTITION._replace(partition=number): PartitionSequence(LAST, 10) for number in range(2)}
        client.pool.idle_producers.release(key, state)
    for partition in range(2):
        assert cluster.producer_states(partition)[1:] == [(LAST, 10), (ANOTHER, 0)], "one id is enough for both"
    assert cluster.producer_states(2) == [(ANOTHER, 0)]


@pytest.mark.parametrize(
    "fault",
    [{"kind": "error", "code": ErrorCode.NOT_ENOUGH_REPLICAS}, {"kind": "throttle", "ms": 100}],
    ids=["error", "throttle"],
)
def test_a_pause_that_ends_between_two_looks_at_the_clock_is_noticed(
    fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time also advances between two reads of the clock, as on a busy machine. Another broker responds later."""
    for milliseconds in range(5, 45, 5):
        with ProducerCluster() as cluster:
            cluster.elect(PARTITION._replace(partition=1), 2)
            cluster.fault("Produce", "delay_response", seconds=25)
            cluster.fault("Produce", **fault, number=1)
            producer = cluster.producer()
            producer.send("t", batch(1))
            for _ in range(2):
                producer.send("t", batch(0), more_follows=True)
            monkeypatch.setattr("tests.simulation.scheduler._CALL_SECONDS", milliseconds / 1000)
            producer.flush()
            monkeypatch.undo()
            assert cluster.produced[2].at < 20, milliseconds
