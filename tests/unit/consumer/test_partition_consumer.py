"""``PartitionConsumer`` with a fake cluster: real bytes, no sockets, and a fake clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.consumer.fake_cluster import LATENCY, FakeCluster
from tests.unit.consumer.polling import (
    ONE,
    THREE,
    TWO,
    at_end,
    offsets,
    poll_until,
)

from pyspark_kafka_direct.records import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def cluster() -> FakeCluster:
    """Two brokers; the first one leads."""
    return FakeCluster([ONE, TWO, THREE], cluster=2)


def test_records_of_all_partitions_are_returned(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(5)
    cluster.logs[THREE].append(2)
    with cluster.consumer() as consumer:
        assert offsets(consumer.poll(10)) == {ONE: [0, 1, 2, 3, 4], THREE: [0, 1]}
        assert consumer.positions == {ONE: 5, TWO: 0, THREE: 2}
        assert consumer.poll(3) == []
    assert len(cluster.connections) == 1
    assert [connection.closed for connection in cluster.released] == [True]  # a response was expected


def test_new_records_are_returned_when_they_arrive(cluster: FakeCluster) -> None:
    system = cluster.system
    with cluster.consumer() as consumer:
        assert consumer.poll(5.0) == []
        assert system.now == pytest.approx(1005.0)

        def appended() -> None:
            cluster.logs[TWO].append(1)
            cluster.respond_to_waiting_fetches()

        system.schedule(1005.3, appended)
        assert offsets(consumer.poll(5.0)) == {TWO: [0]}
        assert system.now == pytest.approx(1005.3 + LATENCY)


def test_wakeup_fd_ends_the_poll_at_any_time(cluster: FakeCluster) -> None:
    system = cluster.system
    signal = system.wakeup_signal()
    with cluster.consumer() as consumer:
        consumer.poll(1.0)
        for brokers_down in (False, True):
            if brokers_down:
                cluster.down.update({1, 2})
                cluster.break_connections()
            now = system.now
            system.schedule(now + 7.25, signal.set)
            assert consumer.poll(60.0, [signal.fileno()]) == []
            assert system.now == pytest.approx(now + 7.25)
            signal.clear()
        signal.set()
        now = system.now
        assert consumer.poll(60.0, [signal.fileno()]) == []
        assert system.now == now


def test_slow_metadata_request_does_not_delay_the_poll(cluster: FakeCluster) -> None:
    """Metadata requests run in the background, so the poll ends in time."""
    cluster.logs[ONE].append(1)
    cluster.system.hold_background = True
    with cluster.consumer() as consumer:
        assert consumer.poll(2.0) == []
        assert cluster.system.now == pytest.approx(1002.0)
        cluster.system.hold_background = False
        cluster.system.run_background()
        assert offsets(consumer.poll(2.0)) == {ONE: [0]}


def test_connection_made_after_close_is_released(cluster: FakeCluster) -> None:
    consumer = cluster.consumer()
    cluster.system.hold_background = True
    consumer.poll(0)
    cluster.system.run_background()  # the leaders are known
    consumer.poll(0)
    consumer.close()
    cluster.system.run_background()  # only now the connection is made
    assert len(cluster.released) == len(cluster.connections) == 1


def test_next_fetch_is_sent_before_records_are_returned(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(5)
    with cluster.consumer({ONE: 0}) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1, 2, 3, 4]}
        assert cluster.fetched_offsets == [(ONE, 0), (ONE, 5)]


def test_poll_returns_a_limited_amount_and_loses_nothing(cluster: FakeCluster) -> None:
    for tp in (ONE, TWO):
        cluster.logs[tp].append(100, size=100)
    with cluster.consumer(max_bytes=1000, max_rows=3) as consumer:
        first = consumer.poll(1)
        assert sum(rows.nbytes for _, rows in first) < 1500
        assert {partition for partition, _ in first} == {ONE, TWO}  # both are served
        found = offsets(first)
        for tp, more in poll_until(consumer, at_end(cluster, consumer)).items():
            found[tp] += more
        assert found == {ONE: list(range(100)), TWO: list(range(100))}


def test_response_is_not_handled_before_the_last_one_was_returned(cluster: FakeCluster) -> None:
    """So memory is limited to two responses, however slow the owner is."""
    for _ in range(10):
        cluster.logs[ONE].append(10, size=100)
    with cluster.consumer({ONE: 0}, max_rows=1, max_bytes=1, fetch={"max_partition_fetch_bytes": 1}) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        for expected in range(1, 10):
            assert offsets(consumer.poll(1)) == {ONE: [expected]}
            assert len(cluster.fetched_offsets) == 2
        assert offsets(consumer.poll(1)) == {ONE: [10]}


@pytest.mark.parametrize("columns", [("value",), ("value", "offset"), COLUMNS, ("key",)])
def test_only_wanted_columns_are_returned(cluster: FakeCluster, columns: tuple[str, ...]) -> None:
    cluster.logs[ONE].append(3)
    with cluster.consumer({ONE: 1}, columns=columns) as consumer:
        ((_, rows),) = consumer.poll(1)
        assert tuple(rows.schema.names) == columns
        assert rows.num_rows == 2
        assert consumer.positions == {ONE: 3}


def test_position_moves_over_offsets_without_records(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(2)
    log.append(3, producer_id=7)
    log.finish(7, commit=False)
    with cluster.consumer({ONE: 0}, isolation_level="read_committed") as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1]}
        assert consumer.positions == {ONE: 6}
        log.append(1, producer_id=8)
        cluster.respond_to_waiting_fetches()
        assert consumer.poll(2) == []
        assert consumer.positions == {ONE: 6}  # the transaction is open
        log.finish(8, commit=False)
        cluster.respond_to_waiting_fetches()
        now = cluster.system.now
        assert consumer.poll(60) == []
        assert cluster.system.now < now + 1
        assert consumer.positions == {ONE: 8}


def test_open_transactions_only_block_read_committed(cluster: FakeCluster) -> None:
    log = cluster.logs[ONE]
    log.append(2)
    log.append(3, producer_id=7)
    log.append(1)
    with cluster.consumer({ONE: 0}) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1, 2, 3, 4, 5]}
    with cluster.consumer({ONE: 0}, isolation_level="read_committed") as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1]}
        assert consumer.poll(3) == []
        log.finish(7, commit=True)
        cluster.respond_to_waiting_fetches()
        assert offsets(consumer.poll(1)) == {ONE: [2, 3, 4, 5]}


def test_paused_partitions_are_not_fetched(cluster: FakeCluster) -> None:
    with cluster.consumer({ONE: 0, TWO: 0}) as consumer:
        consumer.poll(1)
        consumer.pause([ONE])
        consumer.poll(1)
        cluster.fetched_offsets.clear()
        cluster.logs[ONE].append(4)
        cluster.logs[TWO].append(4)
        cluster.respond_to_waiting_fetches()
        assert offsets(consumer.poll(2)) == {TWO: [0, 1, 2, 3]}
        consumer.poll(2)
        assert {tp for tp, _ in cluster.fetched_offsets} == {TWO}
        consumer.resume([ONE])
        assert offsets(consumer.poll(2)) == {ONE: [0, 1, 2, 3]}


def test_fetched_records_of_a_paused_partition_are_returned_after_resume(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(6)
    with cluster.consumer({ONE: 0, TWO: 0}, max_bytes=1) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        consumer.pause([ONE])
        cluster.logs[ONE].append(1)  # returned by the fetch in flight, and does not fit
        cluster.logs[TWO].append(1)
        cluster.respond_to_waiting_fetches()
        assert offsets(consumer.poll(1)) == {TWO: [0]}
        consumer.resume([ONE])
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [1, 2, 3, 4, 5, 6]}


def test_seek_moves_in_both_directions(cluster: FakeCluster) -> None:
    cluster.logs[ONE].append(10)
    with cluster.consumer({ONE: 0}, max_bytes=1) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        for offset in (4, 2):
            consumer.seek(ONE, offset)
            assert consumer.positions == {ONE: offset}
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [2, 3, 4, 5, 6, 7, 8, 9]}
        consumer.seek(ONE, 9)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [9]}


@pytest.mark.parametrize("fields", [{"columns": ("nonsense",)}, {"max_rows": 0}, {"max_bytes": 0}])
def test_invalid_decode_options_are_rejected_at_once(cluster: FakeCluster, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"nonsense|max_rows|max_bytes"):
        cluster.consumer(**fields)


def test_unknown_partitions_and_invalid_offsets_are_rejected(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="flights-0 cannot be read from offset -1"):
        cluster.consumer({ONE: -1})
    with cluster.consumer({ONE: 0}) as consumer:
        uses: list[Callable[[], None]] = [
            lambda: consumer.seek(TWO, 0),
            lambda: consumer.pause([TWO]),
            lambda: consumer.resume([TWO]),
        ]
        for use in uses:
            with pytest.raises(ValueError, match="flights-1 is not assigned to this consumer"):
                use()
        with pytest.raises(ValueError, match="offset -2"):
            consumer.seek(ONE, -2)
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)
