"""Tables and offset stores whose state at the brokers has expired, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.unit.log.log_cluster import LogCluster, tp
from tests.unit.log.store_cluster import StoreCluster, save

from pyspark_kafka_direct.errors import BrokerError, IllegalLogStateError, ProducerFencedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.log import KafkaTable

_UNKNOWN_PRODUCER_ID = 59


@pytest.fixture(params=[0, 2])
def cluster(request: pytest.FixtureRequest) -> Iterator[LogCluster]:
    with LogCluster(transaction_version=request.param) as cluster:
        yield cluster


def table_of(cluster: LogCluster) -> KafkaTable[Any, Any]:
    return cluster.table_of(transactional_id="writer")


def expire(cluster: LogCluster) -> None:
    cluster.sleep(1)  # the last transaction gets its marker
    TransactionCoordinator.of(cluster.cluster).expire("writer")


def test_a_table_writes_after_its_transactional_id_expired(cluster: LogCluster) -> None:
    with table_of(cluster) as table:
        expire(cluster)
        for number in range(3):
            value = b"%d" % number
            table.wait_for(table.write({b"a": value, b"b": value}), 10)
            assert table.snapshot() == {b"a": value, b"b": value}
            expire(cluster)
        table.wait_for(table.delete(b"a").result(0), 10)
        assert table.snapshot() == {b"b": b"2"}


def test_a_table_writes_after_brokers_lost_its_sequence_numbers(cluster: LogCluster) -> None:
    with table_of(cluster) as table:
        table.put(b"a", b"1")
        for number in range(3):
            value = b"%d" % number
            cluster.fault("Produce", "error", code=_UNKNOWN_PRODUCER_ID)
            table.wait_for(table.write({b"a": value, b"b": value}), 10)
            assert table.snapshot() == {b"a": value, b"b": value}
        cluster.sleep(1)
        assert cluster.log(tp(0)).last_stable_offset == cluster.log(tp(0)).end


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_expired_table_does_not_fence_its_successor(cluster: LogCluster, in_transaction: bool) -> None:
    other = cluster.environment.process("other")
    with table_of(cluster) as table:
        table.put(b"a", b"1")
        expire(cluster)
        written: list[Any] = []

        def write() -> None:
            with cluster.table_of(cluster.clients("read_committed", process=other), transactional_id="writer") as next_:
                if in_transaction:
                    cluster.fault("Produce", "delay_response", seconds=5)
                written.append(next_.put(b"a", b"2").result(0))
                other.sleep(10)
                written.append(next_.put(b"b", b"3").result(0))

        other.spawn("successor", write)
        cluster.sleep(2)
        assert len(written) == (not in_transaction)
        for _ in range(2):
            with pytest.raises(ProducerFencedError, match="another table has claimed transactional_id='writer'"):
                table.put(b"a", b"zombie")
        cluster.sleep(20)
        assert len(written) == 2
        table.read_to_end().result(10)
        assert table.snapshot() == {b"a": b"2", b"b": b"3"}


def test_an_expired_table_does_not_fence_a_successor_that_has_expired_too(cluster: LogCluster) -> None:
    with table_of(cluster) as table, cluster.table_of() as other:
        table.put(b"a", b"1")
        other.put(b"c", b"plain").result(10)  # without an id, so it fences nobody
        expire(cluster)
        table.put(b"a", b"2")
        with table_of(cluster) as successor:
            successor.put(b"a", b"3")
            for _ in range(2):
                expire(cluster)
                with pytest.raises(ProducerFencedError, match="another table has claimed transactional_id='writer'"):
                    table.put(b"a", b"zombie")
            successor.wait_for(successor.write({b"a": b"4", b"b": b"4"}), 10)
            assert successor.snapshot() == {b"a": b"4", b"b": b"4", b"c": b"plain"}


@pytest.mark.parametrize("has_written", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_a_write_of_a_successor_to_any_partition_is_noticed(
    cluster: LogCluster, number: int, has_written: bool
) -> None:
    keys = [b"k%d" % each for each in range(4)]
    with table_of(cluster) as table:
        if has_written:
            assert len(table.write(dict.fromkeys(keys, b"1"))) == 2
        expire(cluster)
        with table_of(cluster) as successor:
            successor.put(keys[number], b"2")
            expire(cluster)
            with pytest.raises(ProducerFencedError, match="another table has claimed transactional_id='writer'"):
                table.put(keys[0], b"zombie")


def test_a_fenced_table_of_lost_sequence_numbers_stays_fenced(cluster: LogCluster) -> None:
    with table_of(cluster) as table, table_of(cluster) as successor:
        cluster.fault("Produce", "error", code=_UNKNOWN_PRODUCER_ID)
        with pytest.raises(ProducerFencedError):
            table.put(b"a", b"zombie")
        successor.wait_for(successor.put(b"a", b"1").result(0), 10)
        assert successor.snapshot() == {b"a": b"1"}


def test_a_write_is_repeated_once(cluster: LogCluster) -> None:
    with table_of(cluster) as table:
        cluster.fault("Produce", "error", code=_UNKNOWN_PRODUCER_ID, repeats=2)
        with pytest.raises(BrokerError, match="UNKNOWN_PRODUCER_ID"):
            table.put(b"a", b"1")
        with pytest.raises(IllegalLogStateError, match="Start another table"):
            table.put(b"a", b"1")
        table.read_to_end().result(10)
        assert table.snapshot() == {}


def test_an_offset_store_saves_after_brokers_lost_its_sequence_numbers() -> None:
    with StoreCluster() as cluster:
        store = cluster.run("1")
        store.acquire()
        save(store, 1)
        for offset in (2, 3):
            cluster.fault("Produce", "error", code=_UNKNOWN_PRODUCER_ID)
            save(store, offset)
        assert cluster.committed_offsets() == [1, 2, 3]
        store.close()
