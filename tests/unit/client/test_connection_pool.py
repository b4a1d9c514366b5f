"""The connection pool: reuse, closing and limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.deadline import Cancellation, Deadline
from pyspark_kafka_direct.client.producer_state import (
    IdempotentProducerState,
    PartitionSequence,
    ProducerIdAndEpoch,
)
from pyspark_kafka_direct.consumer.fetch_channel import FetchChannel, FetchRequestPartition
from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.protocol.messages import METADATA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.options.settings import ConnectionSettings

TP = TopicPartition("t", 0)
METADATA_REQUEST = {"topics": [], "allow_auto_topic_creation": False}


class Pool:
    """The pool of a simulated process."""

    def __init__(self, cluster: UnitCluster) -> None:
        self.cluster = cluster
        self.pool: ConnectionPool = cluster.pool
        self.settings: ConnectionSettings = cluster.client().settings

    def acquire(self, broker: int = 1, *, seconds: float = 120, **settings: Any) -> Connection:
        changed = replace(self.settings, **settings)
        return self.pool.acquire(changed, f"broker-{broker}", 9092, self.deadline(seconds))

    def release(self, *connections: Connection) -> None:
        for connection in connections:
            self.pool.release(connection)

    def deadline(self, seconds: float = 120) -> Deadline:
        return Deadline.after(seconds, system=self.cluster.process)

    def time_out(self, connection: Connection) -> None:
        """Let a request get no response in time."""
        self.cluster.fault("Metadata", "stall_response")
        with pytest.raises(BrokerTimeoutError):
            connection.call(METADATA, METADATA_REQUEST, self.deadline(0.1))

    def failed_at(self, broker: int = 1) -> float:
        return self.pool.last_failure_time((f"broker-{broker}", 9092))

    def fail(self, broker: int = 1, *, seconds: float = 120, **settings: Any) -> None:
        with pytest.raises(BrokerUnreachableError):
            self.acquire(broker, seconds=seconds, **settings)


@pytest.fixture
def pool() -> Iterator[Pool]:
    with UnitCluster({TP.topic: 1}, brokers=20, replication_factor=20) as cluster:
        yield Pool(cluster)


def test_most_recently_used_connection_is_acquired_first(pool: Pool) -> None:
    one, two = pool.acquire(), pool.acquire()
    assert one is not two
    pool.release(one, two)
    assert pool.acquire() is two
    assert pool.acquire() is one
    pool.release(one, two)
    assert pool.cluster.network.connect_count == 2


def test_idle_connections_hold_no_fetch_buffers(pool: Pool) -> None:
    pool.cluster.append(TP, 1, size=8 << 20)
    settings = FetchSettings(max_partition_fetch_bytes=8 << 20)
    partition = FetchRequestPartition(TP.topic, pool.cluster.topic_id(TP.topic), TP.partition, 0, 8 << 20)
    connections = [pool.acquire() for _ in range(4)]
    channels = [FetchChannel(each, settings) for each in connections]

    def fetch(channel: FetchChannel) -> memoryview:
        channel.request([partition], pool.deadline())
        return channel.response(pool.deadline()).partition(TP).records

    responses = [fetch(channel) for channel in channels]
    assert all(held_bytes(connection) >= 8 << 20 for connection in connections)
    content = bytes(responses[0])
    assert fetch(channels[0]).obj is responses[0].obj, "reused between the fetches of a range"
    pool.release(*connections)
    assert sum(map(held_bytes, connections)) <= 4 * (65 << 10)
    assert bytes(responses[0]) == content, "a response is still valid"
    assert pool.acquire() is connections[-1]
    assert bytes(fetch(channels[-1])) == content
    pool.release(connections[-1])


def held_bytes(connection: Connection) -> int:
    return connection._response.capacity


def test_other_settings_or_brokers_get_other_connections(pool: Pool) -> None:
    mine = pool.acquire()
    pool.release(mine)
    others = [pool.acquire(client_id="other"), pool.acquire(2)]
    assert mine not in others
    assert pool.acquire() is mine  # equal settings, not the same object
    pool.release(*others, mine)


def test_connection_closed_by_broker_is_not_acquired(pool: Pool) -> None:
    dead = pool.acquire()
    pool.release(dead)
    pool.cluster.break_connections(1)
    fresh = pool.acquire()
    assert fresh is not dead
    assert dead.closed
    pool.release(fresh)


def test_connection_with_outstanding_response_is_closed_on_release(pool: Pool) -> None:
    busy = pool.acquire()
    busy.submit(METADATA, METADATA_REQUEST, pool.deadline())
    pool.release(busy)
    assert busy.closed
    pool.release(busy)  # harmless
    fresh = pool.acquire()
    assert fresh is not busy
    pool.release(fresh)


def test_idle_connections_are_limited(pool: Pool) -> None:
    """To 4 of a broker, and to 64."""
    same = [pool.acquire() for _ in range(6)]
    pool.release(*same)
    assert [connection.closed for connection in same] == [True, True, False, False, False, False]
    others = [pool.acquire(broker) for broker in range(2, 18) for _ in range(4)]
    pool.release(*others[:60])
    assert not any(connection.closed for connection in same[2:])
    pool.release(*others[60:])
    assert all(connection.closed for connection in same)
    assert not any(connection.closed for connection in others)


def test_connections_unused_for_too_long_are_closed(pool: Pool) -> None:
    """The time is in milliseconds; any use of the pool closes them."""
    old, kept = pool.acquire(connections_max_idle_ms=500_000), pool.acquire(connections_max_idle_ms=-1)
    elsewhere = [pool.acquire(broker, connections_max_idle_ms=500_000) for broker in range(2, 6)]
    pool.release(pool.acquire(9, connections_max_idle_ms=0), kept, old, *elsewhere)
    pool.cluster.sleep(0.1)
    pool.release(pool.acquire())
    assert pool.cluster.open_connections == 2 + len(elsewhere) + 1, "without the one that may not be idle"
    pool.cluster.sleep(499.8)
    pool.release(pool.acquire())
    assert not old.closed
    pool.cluster.sleep(0.2)
    pool.release(pool.acquire())
    assert old.closed
    assert all(connection.closed for connection in elsewhere)
    assert not kept.closed


def test_a_release_closes_connections_that_were_unused_for_too_long(pool: Pool) -> None:
    acquired, *idle = (pool.acquire(broker, connections_max_idle_ms=500_000) for broker in range(1, 5))
    pool.release(*idle)
    pool.cluster.sleep(500.1)
    pool.release(acquired)
    assert all(connection.closed for connection in idle)
    assert not acquired.closed


def test_reconnects_to_failed_broker_back_off(pool: Pool) -> None:
    """The connection timeout grows with the failures (KIP-601)."""
    settings = {
        "reconnect_backoff_ms": 2000,
        "reconnect_backoff_max_ms": 8000,
        "connect_timeout_ms": 4000,
        "connect_timeout_max_ms": 12_000,
    }
    pool.cluster.connect_fault("refuse_connect", repeats=5)
    times = [pool.cluster.now]
    for _ in range(5):
        pool.fail(**settings)
        times.append(pool.cluster.now)
    pool.release(pool.acquire(**settings))
    times.append(pool.cluster.now)
    pauses = [after - before for before, after in pairwise(times)]
    for pause, expected in zip(pauses, [0, 2, 4, 8, 8, 8], strict=True):
        assert 0.8 * expected <= pause <= 1.2 * expected + 0.02
    assert pool.cluster.connect_limits == pytest.approx([4, 8, 12, 12, 12, 12], abs=0.01)
    pool.acquire(2, **settings).close()
    for _ in range(2):
        pool.acquire(**settings).close()
    assert pool.cluster.now - times[-1] < 0.1, "success resets the failures"


def test_a_connection_timeout_above_its_maximum_does_not_shrink(pool: Pool) -> None:
    settings = {"reconnect_backoff_ms": 0, "connect_timeout_ms": 4000, "connect_timeout_max_ms": 1000}
    pool.cluster.connect_fault("refuse_connect", repeats=3)
    for _ in range(3):
        pool.fail(**settings)
    assert pool.cluster.connect_limits == pytest.approx([4, 4, 4], abs=0.01)


def test_backoff_leaves_time_to_connect(pool: Pool) -> None:
    """Otherwise a short deadline ends in the backoff, and the next one too, though the broker is up again."""
    settings = {"reconnect_backoff_ms": 10_000, "reconnect_backoff_max_ms": 10_000}
    pool.cluster.connect_fault("refuse_connect")
    pool.fail(**settings)
    pool.release(pool.acquire(seconds=2, **settings))
    assert pool.cluster.connect_limits[-1] == pytest.approx(1.0, abs=0.01)


def test_connect_timeout_closes_idle_connections_of_broker(pool: Pool) -> None:
    """They look open, but each would time out in turn."""
    mine, another, elsewhere = pool.acquire(), pool.acquire(), pool.acquire(2)
    pool.release(elsewhere, mine, another)
    pool.cluster.connect_fault("refuse_connect")
    pool.fail(client_id="other")
    assert not mine.closed  # one failed connection says little about the others
    pool.cluster.connect_fault("stall_connect")
    with pytest.raises(BrokerTimeoutError):
        pool.acquire(client_id="other")
    assert mine.closed
    assert another.closed
    assert not elsewhere.closed
    assert pool.failed_at(1) > 0.0 == pool.failed_at(2)


def test_a_cancelled_connect_is_no_failure_of_the_broker(pool: Pool) -> None:
    cancellation = Cancellation(pool.cluster.process)
    pool.cluster.after(1, cancellation.set)
    pool.cluster.every("ApiVersions", "stall_response")
    deadline, began = replace(pool.deadline(), cancellation=cancellation), pool.cluster.now
    with pytest.raises(BrokerTimeoutError):
        pool.pool.acquire(pool.settings, "broker-1", 9092, deadline)
    assert pool.cluster.now - began < 1.5
    assert pool.failed_at() == 0.0
    cancellation.close()


def test_a_cancelled_request_is_no_failure_of_the_broker(pool: Pool) -> None:
    cancellation = Cancellation(pool.cluster.process)
    cancelled, idle, in_use = pool.acquire(), pool.acquire(), pool.acquire()
    pool.release(idle)
    pool.cluster.after(1, cancellation.set)
    pool.cluster.fault("Metadata", "stall_response")
    with pytest.raises(BrokerTimeoutError):
        cancelled.call(METADATA, METADATA_REQUEST, replace(pool.deadline(), cancellation=cancellation))
    pool.release(cancelled, in_use)
    assert (cancelled.closed, idle.closed, in_use.closed) == (True, False, False)
    assert pool.failed_at() == 0.0
    cancellation.close()


def test_request_timeout_closes_idle_connections_of_broker(pool: Pool) -> None:
    slow, mine = pool.acquire(), pool.acquire()
    network = pool.cluster.network
    network.brokers["broker-1", 9093] = network.brokers["broker-2", 9092]  # another one on the same host
    neighbour = pool.pool.acquire(pool.settings, "broker-1", 9093, pool.deadline())
    pool.release(mine, neighbour)
    pool.time_out(slow)
    pool.release(slow)
    assert mine.closed
    assert not neighbour.closed
    assert pool.failed_at() > 0.0
    started = pool.cluster.now
    fresh = pool.acquire()
    assert pool.cluster.now - started < 0.02, "no connection attempt has failed"
    assert pool.failed_at() == 0.0
    pool.release(fresh)


def test_connections_in_use_during_a_timeout_are_reused_only_after_a_response(pool: Pool) -> None:
    """They are not idle when the idle ones are closed, but would time out as these would."""
    silent, responding, elsewhere, slow = pool.acquire(), pool.acquire(), pool.acquire(2), pool.acquire()
    pool.time_out(slow)
    pool.release(slow)
    responding.call(METADATA, METADATA_REQUEST, pool.deadline())
    pool.release(silent, elsewhere)
    assert silent.closed
    assert pool.failed_at() > 0.0
    pool.release(responding)
    assert pool.failed_at() == 0.0
    assert (pool.acquire(), pool.acquire(2)) == (responding, elsewhere)
    pool.release(responding, elsewhere)


def test_a_connection_in_use_during_a_timeout_is_closed_after_other_failures_too(pool: Pool) -> None:
    silent, slow = pool.acquire(), pool.acquire()
    pool.time_out(slow)
    pool.release(slow)
    pool.cluster.connect_fault("refuse_connect")
    pool.fail()
    pool.release(silent)
    assert silent.closed


def test_a_connection_in_use_during_a_timeout_is_closed_although_a_new_one_was_opened_since(pool: Pool) -> None:
    silent, slow = pool.acquire(), pool.acquire()
    pool.time_out(slow)
    pool.release(slow)
    pool.release(pool.acquire())  # a new one: the broker has responded, so its failures are forgotten
    assert pool.failed_at() == 0.0
    pool.release(silent)
    assert silent.closed


def test_only_a_response_after_a_failure_clears_it(pool: Pool) -> None:
    unused = pool.acquire()
    pool.cluster.connect_fault("refuse_connect")
    pool.fail(client_id="other")
    failed_at = pool.failed_at()
    for _ in range(2):  # the second time, it was released after the failure, but still without a response
        pool.release(unused)
        assert pool.acquire() is unused
    assert pool.failed_at() == failed_at > 0.0
    unused.call(METADATA, METADATA_REQUEST, pool.deadline())
    pool.release(unused)
    assert pool.failed_at() == 0.0


def test_the_failures_of_replaced_brokers_are_limited(pool: Pool) -> None:
    """In Kubernetes, a restarted broker may have another address each time; the latest 1000 failures are kept."""
    for broker in (*range(100, 1100), 100, 1100):
        pool.fail(broker)
    assert [broker for broker in range(100, 1101) if not pool.failed_at(broker)] == [101]


def test_many_threads_share_the_pool(pool: Pool) -> None:
    acquired: list[Connection] = []
    finished: list[int] = []

    def work() -> None:
        for _ in range(20):
            connection = pool.acquire()
            assert all(connection is not each for each in acquired)
            acquired.append(connection)
            connection.call(METADATA, METADATA_REQUEST, pool.deadline())
            acquired.remove(connection)
            pool.release(connection)
        finished.append(1)

    for number in range(6):
        pool.cluster.process.spawn(f"thread {number}", work)
    pool.cluster.sleep(60)
    assert len(finished) == 6
    assert pool.cluster.open_connections <= 4


def idle_producer(number: int, partitions: int = 0) -> IdempotentProducerState:
    producer = ProducerIdAndEpoch(number, 0)
    sequences = {TopicPartition("t", each): PartitionSequence(producer, 0) for each in range(partitions)}
    return IdempotentProducerState(producer, sequences)


def test_idle_producers_are_limited(pool: Pool) -> None:
    """To 4 with equal settings, to 16 settings, and to 10,000 partitions; the ones that were used last are kept."""
    producers = pool.pool.idle_producers
    for number in range(6):
        producers.release("key 0", idle_producer(number))
    acquired = [producers.acquire("key 0") for _ in range(5)]
    assert [each and each.producer.id for each in acquired] == [5, 4, 3, 2, None]
    for number in (*range(16), 0, 16):
        producers.release(f"key {number}", idle_producer(number))
    found = {number: producers.acquire(f"key {number}") for number in range(17)}
    assert [number for number, each in found.items() if each is None] == [1]
    producers.release("large", idle_producer(1, 10_000))
    assert producers.acquire("large") is not None
    producers.release("too large", idle_producer(1, 10_001))
    assert producers.acquire("too large") is None


def test_clear_closes_idle_connections(pool: Pool) -> None:
    idle, elsewhere, acquired = pool.acquire(), pool.acquire(2), pool.acquire()
    pool.release(idle, elsewhere)
    for broker in (3, 4):
        pool.cluster.connect_fault("refuse_connect")
        pool.fail(broker)
    producers = pool.pool.idle_producers
    pool.pool.clear()
    assert [pool.failed_at(broker) for broker in (3, 4)] == [0.0, 0.0]
    assert idle.closed
    assert elsewhere.closed
    assert pool.pool.idle_producers is not producers, "they may be those of a cluster that was replaced"
    assert not acquired.closed
    pool.release(acquired)
    assert pool.acquire() is acquired
    pool.release(acquired)


def test_closed_pool_retains_no_connection(pool: Pool) -> None:
    """An abandoned thread may release a connection, or even acquire a new one, later; the pool closes both."""
    idle, acquired = pool.acquire(), pool.acquire()
    pool.release(idle)
    pool.pool.close()
    assert idle.closed
    assert not acquired.closed
    late = pool.acquire()
    for connection in (acquired, late):
        pool.release(connection)
        assert connection.closed
