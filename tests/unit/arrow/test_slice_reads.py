"""How slices are read: threads, order, limit, faults and losses, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.arrow.slice_cluster import SliceCluster

from pyspark_kafka_direct import DataLossError, KafkaDirectError, OptionError
from pyspark_kafka_direct.arrow.slice_reads import SliceLoss, SliceLosses
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from collections.abc import Iterator

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
PARTITIONS = [TopicPartition("wide", number) for number in range(6)]
THREADS = [1, 2, 9]
BOTH = ["t", "u"]


def fetched_partitions(cluster: SliceCluster) -> set[TopicPartition]:
    return {tp for tp, _ in cluster.fetched()}


@pytest.mark.parametrize("threads", THREADS)
def test_records_are_in_the_order_of_partitions(cluster: SliceCluster, threads: int) -> None:
    for tp, count in ((U0, 3), (T1, 2), (T0, 4)):
        cluster.append_each(tp, count)
    expected = [f"{tp}@{offset}" for tp, count in ((T0, 4), (T1, 2), (U0, 3)) for offset in range(count)]
    assert cluster.values(BOTH, threads=threads) == expected


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("columns", [["offset"], ["timestamp", "offset"]])
def test_records_are_in_the_order_of_timestamps(cluster: SliceCluster, threads: int, columns: list[str]) -> None:
    for tp, times in ((T0, [1, 5, 2]), (T1, [3, 3, 9]), (U0, [2, 5, 6])):
        for time in times:
            cluster.cluster.append(tp, [b"value"], timestamp=time)
    found = cluster.read(BOTH, threads=threads, order="timestamp", columns=["topic", "partition", *columns])
    assert found.schema.names == ["topic", "partition", *columns]
    rows = [(row["topic"], row["partition"], row["offset"]) for row in found.read_all().to_pylist()]
    t0, t1, u0 = [[(*tp, offset) for offset in range(3)] for tp in (T0, T1, U0)]
    assert rows == [t0[0], u0[0], *t1[:2], *t0[1:], u0[1], u0[2], t1[2]]


@pytest.mark.parametrize("threads", THREADS)
def test_ranges_of_one_partition_keep_their_order_by_timestamp(cluster: SliceCluster, threads: int) -> None:
    for time in (5, 4, 3, 2):
        cluster.cluster.append(T0, [b"value"], timestamp=time)
    ranges = [OffsetRange("t", 0, 2, 4), OffsetRange("t", 0, 0, 2)]
    values = cluster.values(ranges, threads=threads, order="timestamp")
    assert values == [f"t-0@{offset}" for offset in range(4)]


@pytest.mark.parametrize("threads", THREADS)
def test_equal_partitions_of_several_topics_are_separate(cluster: SliceCluster, threads: int) -> None:
    for name in ("v", "w"):
        cluster.cluster.create_topic(name, 1)
    for number, name in enumerate("wvu"):
        for time in (1 + number, 9):
            cluster.cluster.append(TopicPartition(name, 0), [b"value"], timestamp=time)
    values = cluster.values(["u", "v", "w"], threads=threads, order="timestamp")
    assert values == ["w-0@0", "v-0@0", "u-0@0", "u-0@1", "v-0@1", "w-0@1"]


def test_the_ranges_are_in_the_order_of_partitions(cluster: SliceCluster) -> None:
    given = [OffsetRange(*tp, first, first + 1) for tp in (U0, T1, T0) for first in (2, 0)]
    for tp in (U0, T1, T0):
        cluster.append_each(tp, 4)
    assert cluster.read(given).ranges == tuple(sorted(given))
    assert cluster.values(given) == [f"{tp}@{offset}" for tp in (T0, T1, U0) for offset in (0, 2)]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(
    ("limit", "partitions"), [(1, {T0}), (4, {T0}), (5, {T0, T1}), (6, {T0, T1}), (7, {T0, T1, U0})]
)
def test_a_limit_opens_no_more_partitions_than_needed(
    cluster: SliceCluster, threads: int, limit: int, partitions: set[TopicPartition]
) -> None:
    for tp, count in ((T0, 4), (T1, 2), (U0, 3)):
        cluster.append(tp, count)
    assert len(cluster.values(BOTH, threads=threads, limit=limit)) == limit
    assert fetched_partitions(cluster) == partitions


def test_a_limit_sends_no_fetch_in_advance(cluster: SliceCluster) -> None:
    cluster.append_each(T0, 20, size=100_000)
    assert cluster.values(limit=2) == ["t-0@0", "t-0@1"]
    assert cluster.sent("Fetch") == 1
    assert cluster.values(limit=0) == []
    assert cluster.sent("Fetch") == 1


@pytest.mark.parametrize("threads", THREADS)
def test_a_limit_counts_records_and_not_offsets(cluster: SliceCluster, threads: int) -> None:
    cluster.append(T0, 1)
    cluster.append_gap(T0, 5)
    cluster.append(T0, 1)
    cluster.append(U0, 3)
    assert cluster.values(BOTH, threads=threads, limit=3) == ["t-0@0", "t-0@6", "u-0@0"]


@pytest.mark.parametrize("limit", range(8))
def test_a_limit_takes_the_first_records_by_timestamp(cluster: SliceCluster, limit: int) -> None:
    for tp, times in ((T0, [1, 5, 2]), (T1, [3, 3, 9])):
        for time in times:
            cluster.cluster.append(tp, [b"value"], timestamp=time)
    everything = cluster.values(order="timestamp")
    assert cluster.values(order="timestamp", limit=limit) == everything[:limit]


@pytest.mark.parametrize("threads", [2, 6])
def test_a_slow_caller_stops_the_fetches(cluster: SliceCluster, threads: int) -> None:
    cluster.cluster.create_topic("wide", len(PARTITIONS))
    for tp in PARTITIONS:
        cluster.append_each(tp, 20, size=100_000)
    found = cluster.read("wide", threads=threads, columns=["value"], params={"max.partition.fetch.bytes": "110000"})
    found.read_next_batch()
    cluster.sleep(60)
    fetches = cluster.fetched()
    assert fetched_partitions(cluster) == set(PARTITIONS[:threads])
    assert len(fetches) <= threads * (2 + 2)
    cluster.sleep(60)
    assert cluster.fetched() == fetches
    assert found.read_all().num_rows == 119


@pytest.mark.parametrize("threads", [1, 2, 6])
def test_all_partitions_are_read_at_once_in_the_order_of_timestamps(cluster: SliceCluster, threads: int) -> None:
    cluster.cluster.create_topic("wide", len(PARTITIONS))
    for time in range(12):
        for tp in reversed(PARTITIONS):
            cluster.cluster.append(tp, [b"x" * 60_000], timestamp=time)
    small = {"max.partition.fetch.bytes": "70000"}
    values = cluster.values("wide", threads=threads, order="timestamp", params=small)
    assert values == [f"{tp}@{offset}" for offset in range(12) for tp in PARTITIONS]


def test_small_partitions_share_a_connection_although_all_are_open(cluster: SliceCluster) -> None:
    cluster.cluster.create_topic("wide", len(PARTITIONS))
    for tp in PARTITIONS:
        cluster.append(tp, 3)
    assert len(cluster.values("wide", threads=1, order="timestamp")) == 3 * len(PARTITIONS)
    assert len(cluster.connect_limits) == 1


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("dropped", [False, True])
def test_a_slice_that_is_not_read_to_its_end_releases_its_connections(
    cluster: SliceCluster, threads: int, dropped: bool
) -> None:
    for tp in (T0, T1, U0):
        cluster.append_each(tp, 20, size=100_000)
    found = cluster.read(BOTH, threads=threads, columns=["value"], params={"max.partition.fetch.bytes": "110000"})
    found.read_next_batch()
    if dropped:
        del found
    else:
        found.close()
    cluster.sleep(1)
    cluster.pool.clear()
    assert cluster.open_connections == 0
    fetches = cluster.sent("Fetch")
    cluster.sleep(60)
    assert cluster.sent("Fetch") == fetches < 20
    # The fixture checks that no connection is left.


@pytest.mark.parametrize("threads", THREADS)
def test_a_loss_is_an_error_with_its_partition(cluster: SliceCluster, threads: int) -> None:
    for tp in (T0, T1, U0):
        cluster.append_each(tp, 5)
    found = cluster.read(BOTH, threads=threads, start='{"t":{"0":0,"1":0},"u":{"0":0}}')
    cluster.delete_records(T1, 3)
    with pytest.raises(DataLossError) as caught:
        found.read_all()
    assert (caught.value.topic, caught.value.partition) == T1


@pytest.mark.parametrize("threads", THREADS)
def test_losses_are_on_the_slice_and_logged(
    cluster: SliceCluster, threads: int, caplog: pytest.LogCaptureFixture
) -> None:
    for tp in (T0, T1, U0):
        cluster.append_each(tp, 5)
    for tp, offset in ((T0, 1), (U0, 2)):
        cluster.delete_records(tp, offset)
    start = '{"t":{"0":0,"1":0},"u":{"0":0}}'
    found = cluster.read(BOTH, threads=threads, start=start, failOnDataLoss="false", columns=["offset"])
    assert found.ranges == (OffsetRange("t", 0, 1, 5), OffsetRange("t", 1, 0, 5), OffsetRange("u", 0, 2, 5))
    planned = [SliceLoss("t", 0, "aged_out", 1), SliceLoss("u", 0, "aged_out", 2)]
    assert [*found.losses] == planned
    for lost in (3, 4):  # each reader finds what is lost by then
        cluster.delete_records(T1, lost)
        for _ in range(2):
            assert found.to_reader().read_all().num_rows == 12 - lost
            assert [*found.losses] == [planned[0], SliceLoss("t", 1, "aged_out", lost), planned[1]]
    for logged in ("[0, 1) of t-0", "[0, 2) of u-0", "[0, 3) of t-1", "[0, 4) of t-1"):
        assert [message for message in caplog.messages if logged in message]


@pytest.mark.parametrize("threads", THREADS)
def test_losses_of_several_ranges_of_a_partition_add_up(cluster: SliceCluster, threads: int) -> None:
    for tp in (T0, T1, U0):
        cluster.append_each(tp, 6)
    ranges = [OffsetRange(*tp, first, first + 2) for tp in (T0, T1, U0) for first in (0, 2, 4)]
    found = cluster.read(ranges, threads=threads, failOnDataLoss="false", columns=["offset"])
    lost = {T0: 5, T1: 3, U0: 1}
    for tp, count in lost.items():
        cluster.delete_records(tp, count)
    for _ in range(2):
        assert found.to_reader().read_all().num_rows == 9
        skipped = {tp: sum(each.offsets for each in found.losses if each[:2] == tp) for tp in lost}
        assert skipped == lost


def test_all_losses_while_a_range_is_read_are_on_the_slice(cluster: SliceCluster) -> None:
    for tp in (T0, U0):
        cluster.append_each(tp, 9)
    found = cluster.read([OffsetRange(*tp, 0, 9) for tp in (T0, U0)], failOnDataLoss="false", columns=["offset"])
    for tp in (T0, U0):
        cluster.delete_records(tp, 2)
        cluster.truncate(tp, 6)
    assert found.read_all().num_rows == 8
    assert [each[:3] for each in found.losses] == [
        (*tp, cause) for tp in (T0, U0) for cause in ("aged_out", found.losses[1].cause)
    ]
    assert sum(each.offsets for each in found.losses) == 2 * (2 + 3)


def test_all_losses_of_a_partition_are_on_the_slice(cluster: SliceCluster, caplog: pytest.LogCaptureFixture) -> None:
    for tp in (T0, U0):
        cluster.append_each(tp, 5)
        cluster.delete_records(tp, 2)
    ranges = [OffsetRange(*tp, 0, 9) for tp in (T0, U0)]
    found = cluster.read(ranges, failOnDataLoss="false", columns=["offset"])
    expected = [
        SliceLoss(*tp, cause, count) for tp in (T0, U0) for cause, count in (("aged_out", 2), ("beyond_end", 4))
    ]
    assert [*found.losses] == expected
    for lost in ("[0, 2) of t-0", "[5, 9) of t-0", "[0, 2) of u-0", "[5, 9) of u-0"):
        assert [message for message in caplog.messages if lost in message]


def test_each_warning_of_the_plan_is_logged(cluster: SliceCluster, caplog: pytest.LogCaptureFixture) -> None:
    for tp in (T0, T1):
        cluster.append_each(tp, 5)
        cluster.delete_records(tp, 3)
    assert cluster.values(end={T0: 1, T1: 1}) == []
    for tp in (T0, T1):
        assert [message for message in caplog.messages if f"{tp}: the log starts at offset 3" in message]


def test_ranges_of_missing_partitions_are_losses(cluster: SliceCluster) -> None:
    cluster.append(T0, 5)
    ranges = [OffsetRange("t", 0, 0, 5), OffsetRange("t", 7, 0, 3), OffsetRange("t", 8, 0, 2)]
    found = cluster.read(ranges, failOnDataLoss="false", columns=["offset"])
    assert found.read_all().num_rows == 5
    assert [(each.partition, each.cause) for each in found.losses] == [(7, "deleted"), (8, "deleted")]


@pytest.mark.parametrize("threads", THREADS)
def test_a_deleted_topic(cluster: SliceCluster, threads: int) -> None:
    for tp in (T0, T1, U0):
        cluster.append(tp, 5)
    found = cluster.read(BOTH, threads=threads, columns=["offset"])
    tolerant = cluster.read(BOTH, threads=threads, columns=["offset"], failOnDataLoss="false")
    cluster.event("delete_topic", topic="u")
    with pytest.raises(DataLossError, match="deleted") as caught:
        found.read_all()
    assert (caught.value.topic, caught.value.partition) == U0
    assert tolerant.read_all().num_rows == 10
    assert tolerant.losses == (SliceLoss("u", 0, "deleted", 5),)


@pytest.fixture
def two_brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[SliceCluster]:
    with SliceCluster(monkeypatch, brokers=2) as cluster:
        yield cluster


@pytest.mark.parametrize("threads", THREADS)
def test_leaders_may_move_and_connections_may_break(two_brokers: SliceCluster, threads: int) -> None:
    cluster = two_brokers
    for tp in (T0, T1, U0):
        cluster.append_each(tp, 20, size=100_000)
    found = cluster.read(BOTH, threads=threads, columns=["offset"], params={"max.partition.fetch.bytes": "110000"})
    rows = found.read_next_batch().num_rows
    for tp in (T0, T1):
        cluster.elect(tp, 2)
    rows += found.read_next_batch().num_rows
    cluster.break_connections()
    assert rows + found.read_all().num_rows == 60


@pytest.mark.parametrize("threads", THREADS)
def test_an_unreachable_broker_is_an_error_with_a_partition(cluster: SliceCluster, threads: int) -> None:
    for tp in (T0, U0):
        cluster.append(tp, 5)
    found = cluster.read(BOTH, threads=threads)
    cluster.event("stop_broker", broker=1, seconds=600)
    with pytest.raises(Exception, match=r"broker-1|:") as caught:
        found.read_all()
    assert TopicPartition(caught.value.topic, caught.value.partition) in (T0, U0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("tp", [T0, T1, U0])
def test_an_error_of_a_connection_names_the_partition(cluster: SliceCluster, tp: TopicPartition) -> None:
    cluster.append(tp, 5)
    found = cluster.read(BOTH, threads=1, params={"default.api.timeout.ms": "5000", "request.timeout.ms": "2000"})
    cluster.event("stop_broker", broker=0, seconds=600)
    with pytest.raises(KafkaDirectError) as caught:
        found.read_all()
    assert (caught.value.topic, caught.value.partition) == tp


def test_losses_can_be_read_while_threads_find_others() -> None:
    losses, task = SliceLosses([]), RangeTask(OffsetRange("t", 0, 0, 9))

    class FoundMeanwhile(dict[DataLossCause, int]):
        def items(self) -> Any:
            losses.found(2, task, {})
            return super().items()

    losses.found(1, task, FoundMeanwhile({DataLossCause.AGED_OUT: 3, DataLossCause.TRUNCATED: 1}))
    assert losses.all() == (SliceLoss("t", 0, "aged_out", 3), SliceLoss("t", 0, "truncated", 1))


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_the_isolation_level_hides_aborted_records(cluster: SliceCluster, level: str) -> None:
    cluster.append(T0, 2)
    cluster.append(T0, 3, producer_id=7)
    cluster.end_transaction(T0, 7, commit=False)
    cluster.append(T0, 4, producer_id=8)
    count = {"read_committed": 2, "read_uncommitted": 9}[level]
    assert len(cluster.values("t", params={"isolation.level": level})) == count


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threads": 0}, "threads must be an integer of at least 1, got 0"),
        ({"limit": -1}, "limit must be an integer of at least 0, got -1"),
        ({"limit": True}, "limit must be an integer of at least 0, got True"),
        ({"order": "offset"}, "order must be partition or timestamp, got 'offset'"),
    ],
)
def test_invalid_arguments_are_rejected(cluster: SliceCluster, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        cluster.read(**arguments)
