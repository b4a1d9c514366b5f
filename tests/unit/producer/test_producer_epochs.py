"""When the epoch of an idempotent producer is incremented, so that brokers reject requests that arrive late."""

from __future__ import annotations

import pytest
from tests.unit.producer.fake_cluster import FakeCluster, FakeResponse, SimulatedSystem
from tests.unit.producer.test_batch_producer import PARTITION, batch, scripted, sent_producer_states, write

from pyspark_kafka_direct.client.producer_state import PartitionSequence, ProducerIdAndEpoch
from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.producer.batch_producer import BatchProducer
from pyspark_kafka_direct.protocol.error_codes import ErrorCode


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 200))
    monkeypatch.setattr(
        "pyspark_kafka_direct.producer.producer_id_manager.request_producer_id",
        lambda *_: ProducerIdAndEpoch(next(ids), 0),
    )


def test_the_epoch_is_incremented_when_the_broker_lost_the_state() -> None:
    cluster = FakeCluster(
        lambda number: FakeResponse(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if 1 <= number <= 3 else 0)
    )
    write(cluster, 5)
    before = [(100, 0, sequence) for sequence in (0, 10, 20, 30, 40)]
    # The last batch was written.
    assert sent_producer_states(cluster) == [*before, (100, 1, 0), (100, 1, 10), (100, 1, 20)]


@pytest.mark.parametrize("fails", [False, True])
def test_the_next_producer_fences_what_a_closed_one_had_in_flight(fails: bool) -> None:
    """Only in the partition that had something in flight; the others continue their sequence numbers."""
    cluster = FakeCluster(scripted(FakeResponse(), FakeResponse(None)))
    producer = BatchProducer(cluster, ProducerSettings(delivery_timeout_ms=2_000))  # type: ignore[arg-type]
    producer.send("t", batch(0), more_follows=True)
    producer.send("t", batch(1), more_follows=True)
    producer.flush()
    producer.send("t", batch(0))
    if fails:
        with pytest.raises(BrokerTimeoutError):
            producer.flush()
    producer.close()
    other = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    other.send("t", batch(0), more_follows=True)
    other.send("t", batch(1), more_follows=True)
    other.flush()
    assert sent_producer_states(cluster) == [(100, 0, 0), (100, 0, 10), (100, 1, 0)]
    assert sent_producer_states(cluster, 1) == [(100, 0, 0), (100, 0, 10)]


def test_after_the_last_epoch_another_producer_id_follows() -> None:
    rejected = FakeResponse(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    cluster = FakeCluster(scripted(FakeResponse(), rejected, FakeResponse(), rejected))
    write(cluster)
    key = (cluster.settings, cluster.cluster_id)
    state = cluster.pool.idle_producers.acquire(key)
    last = ProducerIdAndEpoch(100, 32_767)
    state.sequences = {
        PARTITION: PartitionSequence(last, 10),
        PARTITION._replace(partition=1): PartitionSequence(last, 0),
    }
    cluster.pool.idle_producers.release(key, state)
    producer = BatchProducer(cluster, ProducerSettings())  # type: ignore[arg-type]
    for partition in (0, 1, 2):
        producer.send("t", batch(partition))
        producer.flush()
    assert sent_producer_states(cluster)[1:] == [(100, 32_767, 10), (101, 0, 0)]
    assert sent_producer_states(cluster, 1) == [(100, 32_767, 0), (101, 0, 0)], "one id is enough for all partitions"
    assert sent_producer_states(cluster, 2) == [(101, 0, 0)]


class TickingSystem(SimulatedSystem):
    """Time also advances between two looks at the clock, as on a busy machine."""

    tick = 0.0

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now


@pytest.mark.parametrize(
    "response", [FakeResponse(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), FakeResponse(throttle_ms=100)]
)
def test_a_pause_that_ends_between_two_looks_at_the_clock_is_noticed(response: FakeResponse) -> None:
    durations = {}
    for milliseconds in range(1, 60):
        cluster = FakeCluster(scripted(FakeResponse(), response))
        cluster.system = cluster.pool.system = system = TickingSystem()
        system.tick = milliseconds / 1000
        started_at = system.now
        write(cluster, 4)
        durations[milliseconds] = round(system.now - started_at)
    assert max(durations.values()) < 20, durations
