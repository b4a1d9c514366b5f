"""``PartitionConsumer`` on a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.consumer.polling import (
    ONE,
    THREE,
    TWO,
    ConsumerCluster,
    at_end,
    offsets,
    poll_until,
)

from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.records import COLUMNS


def test_records_of_all_partitions_are_returned(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    cluster.append(THREE, 2)
    with cluster.consumer() as consumer:
        assert offsets(consumer.poll(10)) == {ONE: [0, 1, 2, 3, 4], THREE: [0, 1]}
        assert consumer.positions == {ONE: 5, TWO: 0, THREE: 2}
        assert consumer.poll(3) == []
    assert cluster.network.connect_count == 1
    assert cluster.open_connections == 0  # a response was expected


def test_new_records_are_returned_when_they_arrive(cluster: ConsumerCluster) -> None:
    with cluster.consumer() as consumer:
        start = cluster.now
        assert consumer.poll(5.0) == []
        assert cluster.now == pytest.approx(start + 5.0, abs=0.001)
        cluster.after(0.3, lambda: cluster.append(TWO, 1))
        start = cluster.now
        assert offsets(consumer.poll(5.0)) == {TWO: [0]}
        assert 0.3 < cluster.now - start < 0.31


def test_wakeup_fd_ends_the_poll_at_any_time(cluster: ConsumerCluster) -> None:
    signal = cluster.process.wakeup_signal()
    with cluster.consumer() as consumer:
        consumer.poll(1.0)
        for brokers_down in (False, True):
            if brokers_down:
                for broker in cluster.cluster.brokers:
                    cluster.event("stop_broker", broker=broker, seconds=1000)
            start = cluster.now
            cluster.after(7.25, signal.set)
            assert consumer.poll(60.0, [signal.fileno()]) == []
            assert cluster.now == pytest.approx(start + 7.25, abs=0.001)
            signal.clear()
        signal.set()
        start = cluster.now
        assert consumer.poll(60.0, [signal.fileno()]) == []
        assert cluster.now == pytest.approx(start, abs=0.001)


def test_slow_metadata_request_does_not_delay_the_poll(cluster: ConsumerCluster) -> None:
    """Metadata requests run in the background, so the poll ends in time."""
    cluster.append(ONE, 1)
    cluster.fault("Metadata", "delay_response", seconds=3.0)
    with cluster.consumer() as consumer:
        start = cluster.now
        assert consumer.poll(2.0) == []
        assert cluster.now == pytest.approx(start + 2.0, abs=0.001)
        assert offsets(consumer.poll(2.0)) == {ONE: [0]}


def test_connection_made_after_close_is_released(cluster: ConsumerCluster) -> None:
    """The fixture checks that none is left."""
    cluster.elect(ONE, 2)
    consumer = cluster.consumer({ONE: 0})
    consumer.poll(0)
    cluster.sleep(0.1)  # the leaders are known
    consumer.poll(0)
    consumer.close()
    assert cluster.open_connections == 1
    cluster.sleep(0.1)  # only now the connection is made
    assert cluster.open_connections == 2
    assert cluster.sent("Fetch") == 0


def test_next_fetch_is_sent_before_records_are_returned(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 5)
    with cluster.consumer({ONE: 0}) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1, 2, 3, 4]}
        assert cluster.sent("Fetch") == 2
        cluster.sleep(0.1)
        assert cluster.fetched() == [(ONE, 0), (ONE, 5)]


def test_poll_returns_a_limited_amount_and_loses_nothing(cluster: ConsumerCluster) -> None:
    for tp in (ONE, TWO):
        cluster.append(tp, 100, size=100)
    with cluster.consumer(max_bytes=1000, max_rows=3) as consumer:
        first = consumer.poll(1)
        assert sum(rows.nbytes for _, rows in first) < 1500
        assert {partition for partition, _ in first} == {ONE, TWO}  # both are served
        found = offsets(first)
        for tp, more in poll_until(consumer, at_end(cluster, consumer)).items():
            found[tp] += more
        assert found == {ONE: list(range(100)), TWO: list(range(100))}


def test_response_is_not_handled_before_the_last_one_was_returned(cluster: ConsumerCluster) -> None:
    """So memory is limited to two responses, however slow the owner is."""
    for _ in range(10):
        cluster.append(ONE, 10, size=100)
    with cluster.consumer({ONE: 0}, max_rows=1, max_bytes=1, fetch={"max_partition_fetch_bytes": 1}) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        for expected in range(1, 10):
            assert offsets(consumer.poll(1)) == {ONE: [expected]}
            assert cluster.sent("Fetch") == 2
        assert offsets(consumer.poll(1)) == {ONE: [10]}


@pytest.mark.parametrize("columns", [("value",), ("value", "offset"), COLUMNS, ("key",)])
def test_only_wanted_columns_are_returned(cluster: ConsumerCluster, columns: tuple[str, ...]) -> None:
    cluster.append(ONE, 3)
    with cluster.consumer({ONE: 1}, columns=columns) as consumer:
        ((_, rows),) = consumer.poll(1)
        assert tuple(rows.schema.names) == columns
        assert rows.num_rows == 2
        assert consumer.positions == {ONE: 3}


def test_position_moves_over_offsets_without_records(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 2)
    cluster.append(ONE, 3, producer_id=7)
    cluster.end_transaction(ONE, 7, commit=False)
    with cluster.consumer({ONE: 0}, isolation_level="read_committed") as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1]}
        assert consumer.positions == {ONE: 6}
        cluster.append(ONE, 1, producer_id=8)
        assert consumer.poll(2) == []
        assert consumer.positions == {ONE: 6}  # the transaction is open
        cluster.end_transaction(ONE, 8, commit=False)
        now = cluster.now
        assert consumer.poll(60) == []
        assert cluster.now < now + 1
        assert consumer.positions == {ONE: 8}


def test_open_transactions_only_block_read_committed(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 2)
    cluster.append(ONE, 3, producer_id=7)
    cluster.append(ONE, 1)
    with cluster.consumer({ONE: 0}) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1, 2, 3, 4, 5]}
    with cluster.consumer({ONE: 0}, isolation_level="read_committed") as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0, 1]}
        assert consumer.poll(3) == []
        cluster.end_transaction(ONE, 7, commit=True)
        assert offsets(consumer.poll(1)) == {ONE: [2, 3, 4, 5]}


def test_a_seek_ends_the_backoff(cluster: ConsumerCluster) -> None:
    """The error concerned the old position; the pauses after later errors are short again."""
    cluster.append(ONE, 10)
    with cluster.consumer({ONE: 0}) as consumer:
        cluster.every("Fetch", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        consumer.poll(20)
        failed = cluster.sent("Fetch")
        while cluster.sent("Fetch") == failed:
            consumer.poll(0.01)
        consumer.poll(0.05)  # a pause of about a second begins
        assert consumer.transient_errors.keys() == {ONE}
        cluster.every("Fetch", None)
        cluster.fault("Fetch", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        consumer.seek(ONE, 5)
        assert consumer.transient_errors == {}
        began = cluster.now
        assert offsets(consumer.poll(5)) == {ONE: list(range(5, 10))}
        assert cluster.now - began < 0.5


def test_seek_moves_in_both_directions(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 10)
    with cluster.consumer({ONE: 0}, max_bytes=1) as consumer:
        assert offsets(consumer.poll(1)) == {ONE: [0]}
        for offset in (4, 2):
            consumer.seek(ONE, offset)
            assert consumer.positions == {ONE: offset}
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [2, 3, 4, 5, 6, 7, 8, 9]}
        consumer.seek(ONE, 9)
        assert poll_until(consumer, at_end(cluster, consumer)) == {ONE: [9]}


@pytest.mark.parametrize("fields", [{"columns": ("nonsense",)}, {"max_rows": 0}, {"max_bytes": 0}])
def test_invalid_decode_options_are_rejected_at_once(cluster: ConsumerCluster, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"nonsense|max_rows|max_bytes"):
        cluster.consumer(**fields)


def test_unknown_partitions_and_invalid_offsets_are_rejected(cluster: ConsumerCluster) -> None:
    with pytest.raises(ValueError, match="flights-0 cannot be read from offset -1"):
        cluster.consumer({ONE: -1})
    with cluster.consumer({ONE: 0}) as consumer:
        with pytest.raises(ValueError, match="flights-1 is not assigned to this consumer"):
            consumer.seek(TWO, 0)
        with pytest.raises(ValueError, match="offset -2"):
            consumer.seek(ONE, -2)
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)
