"""The broker requests of the planner of a direct stream."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.planning.planner_cluster import GROUP, PlannerCluster

from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.consumer_strategies import DiscoversPartitions
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig, RateController
from pyspark_kafka_direct.direct.stream_client import (
    StreamClusterView,
    create_stream_client,
    resolve_requested_positions,
)
from pyspark_kafka_direct.errors import AuthorizationError, InvalidOffsetsError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.kafka_params import parse_kafka_params
from pyspark_kafka_direct.options.offset_specs import OffsetSpec
from pyspark_kafka_direct.options.positions import AtTime
from pyspark_kafka_direct.options.settings import PIDGains
from pyspark_kafka_direct.planning.backpressure import PIDRateEstimator
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark_kafka_direct.options.positions import Position

A, B, U = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0


class TwoASecond(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 2


@pytest.fixture
def brokers() -> Iterator[PlannerCluster]:
    """A log from 5 to 42, whose last stable offset is 40."""
    with PlannerCluster(40) as cluster:
        cluster.delete_records(A, 5)
        cluster.append(A, 2, producer_id=7)
        yield cluster


def view(
    cluster: UnitCluster,
    *topics: str,
    isolation_level: str = "read_uncommitted",
    params: Mapping[str, str] = MappingProxyType({}),
    is_restored: bool = False,
) -> StreamClusterView:
    given = {"bootstrap.servers": "broker-1:9092", "isolation.level": isolation_level, **params}
    strategy = ConsumerStrategies.Subscribe(topics or ["t"], given)
    spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0)
    client = create_stream_client(strategy, cluster.pool)
    return StreamClusterView(client, spec, None, is_restored=is_restored)


@pytest.mark.parametrize(("is_restored", "start"), [(False, 20), (True, 5)])
def test_a_partition_that_a_checkpoint_lacks_starts_at_the_log_start(
    brokers: PlannerCluster, is_restored: bool, start: int
) -> None:
    """A batch that is generated again may have committed an offset of it, and must have its records again."""
    brokers.commit({A: 20})
    stream = view(brokers, is_restored=is_restored, params={"group.id": GROUP})
    assert stream.new_partition_offsets([A]) == {A: start}


@pytest.mark.parametrize(("isolation_level", "end"), [("read_committed", 40), ("read_uncommitted", 42)])
def test_a_batch_ends_at_the_last_readable_offset(brokers: PlannerCluster, isolation_level: str, end: int) -> None:
    stream = view(brokers, isolation_level=isolation_level)
    assert stream.start().offsets == stream.latest([A]) == {A: end}
    assert stream.high_watermarks([A]) == {A: 42}


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_committed_offset_after_the_last_stable_offset_is_in_the_log(
    brokers: PlannerCluster, isolation_level: str
) -> None:
    brokers.commit({A: 41})
    stream = view(brokers, isolation_level=isolation_level, params={"group.id": GROUP, "auto.offset.reset": "none"})
    assert stream.start().offsets == {A: 41}
    assert stream.new_partition_offsets([A]) == {A: 41}


@pytest.mark.parametrize(("fail_on_data_loss", "log_starts"), [("false", {A: 5}), ("true", {})])
def test_log_starts_are_requested_only_without_fail_on_data_loss(
    brokers: PlannerCluster, fail_on_data_loss: str, log_starts: dict[TopicPartition, int]
) -> None:
    assert view(brokers, params={"failOnDataLoss": fail_on_data_loss}).log_starts([A]) == log_starts
    assert (brokers.sent("ListOffsets") > 0) == (fail_on_data_loss == "false")


@pytest.mark.parametrize(("group", "times"), [({}, 1), ({"group.id": GROUP}, 0)])
def test_a_missing_group_id_is_logged_once(
    brokers: PlannerCluster, caplog: pytest.LogCaptureFixture, group: dict[str, str], times: int
) -> None:
    option_messages.warn_once.cache_clear()
    for _ in range(2):
        view(brokers, params=group)
    assert sum("group.id is not set" in record.getMessage() for record in caplog.records) == times


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    """Two partitions with records of seconds 1, 2 and 3, and of 1 and 1.5 before an open transaction."""
    with UnitCluster({"t": 2}) as cluster:
        for tp, times in ((A, (1000, 2000, 3000)), (B, (1000, 1500))):
            for time in times:
                cluster.cluster.append(tp, [b"value"], timestamp=time)
        cluster.append(B, 1, producer_id=7)
        yield cluster


def starts(
    cluster: UnitCluster, params: Mapping[str, object], requested: dict[TopicPartition, Position | None]
) -> dict[TopicPartition, int]:
    spec = parse_kafka_params({"bootstrap.servers": "b:1", **params}).starting_timestamp
    return resolve_requested_positions(spec, requested, cluster.client(), "read_committed")


def test_partitions_start_at_the_first_record_of_the_timestamp(cluster: UnitCluster) -> None:
    assert starts(cluster, {"startingTimestamp": 1200}, {A: None, B: None}) == {A: 1, B: 1}
    by_partition = '{"t":{"0":2500,"1":0}}'
    assert starts(cluster, {"startingOffsetsByTimestamp": by_partition}, {A: None, B: None}) == {A: 2, B: 0}
    both = {"startingTimestamp": "0", "startingOffsetsByTimestamp": by_partition}
    assert starts(cluster, both, {A: None, B: None}) == {A: 0, B: 0}


def test_the_strategy_decides_where_partitions_without_such_a_record_start(cluster: UnitCluster) -> None:
    with pytest.raises(InvalidOffsetsError, match=r"startingTimestamp: no record has timestamp 2000 .* t-1"):
        starts(cluster, {"startingTimestamp": "2000"}, {A: None, B: None})
    latest = {"startingTimestamp": "2000", "startingOffsetsByTimestampStrategy": "latest"}
    assert starts(cluster, latest, {A: None, B: None}) == {A: 1, B: 2}


def test_a_deposed_leader_does_not_decide_where_a_timestamp_is() -> None:
    """Its retention deleted records that the current leader has: the stream started after them."""
    with PlannerCluster(60) as brokers:
        brokers.grow(U, 60)
        brokers.elect(A, 2)
        brokers.depose_leader(U, start=30)
        spec = parse_kafka_params({"bootstrap.servers": "b:1", "startingTimestamp": "20"}).starting_timestamp
        assert spec is not None
        client = brokers.client()
        client.topics({"t", "u"})  # of the deposed leader
        found = resolve_requested_positions(spec, {A: None, U: None}, client, "read_uncommitted")
        assert found == {A: 20, U: 20}


def test_a_deposed_leader_does_not_decide_that_a_committed_offset_is_out_of_range(brokers: PlannerCluster) -> None:
    """The stream started elsewhere, and records were read twice or never."""
    brokers.grow(U, 42)
    brokers.commit({A: 41, U: 40})
    brokers.elect(A, 2)
    brokers.depose_leader(U, end=30)
    stream = view(brokers, "t", "u", params={"group.id": GROUP, "auto.offset.reset": "none"})
    position = stream.start()
    assert position.offsets == {A: 41, U: 40}
    assert position.topic_ids == {topic: brokers.topic_id(topic) for topic in ("t", "u")}


def test_committed_offsets_that_are_out_of_range_are_logged(
    brokers: PlannerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.grow(U, 20)
    brokers.commit({A: 3, U: 21})
    stream = view(brokers, "t", "u", params={"group.id": GROUP, "auto.offset.reset": "earliest"})
    assert stream.start().offsets == {A: 5, U: 0}
    for partition, offset in (("t-0", "3"), ("u-0", "21")):
        (message,) = [message for message in caplog.messages if partition in message]
        assert offset in message


def test_a_custom_strategy_reads_its_partitions_while_they_exist() -> None:
    class Custom:
        executor_params: Mapping[str, object] = {"bootstrap.servers": "broker-1:9092"}

        def on_start(self, *_: object) -> dict[TopicPartition, int]:
            return {A: 0}

    with UnitCluster({"t": 2, "u": 1}) as cluster:
        strategy = Custom()
        spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, TwoASecond(), 5.0)
        client = create_stream_client(strategy, cluster.pool)
        stream = StreamClusterView(client, spec, None)
        missing, unknown = TopicPartition("t", 2), TopicPartition("v", 0)
        assert stream.assigned([A, U, missing, unknown]) == {A: cluster.topic_id("t"), U: cluster.topic_id("u")}
        assert stream.confirm_missing({A: cluster.topic_id("t"), unknown: None}) == {unknown}
        assert stream.record_limits({A: 0}, {A: 1000}) == {A: 10}


@pytest.mark.parametrize(("rate", "limit"), [(None, 30), (4, 20)])
def test_backpressure_limits_the_records_of_a_batch(cluster: UnitCluster, rate: int | None, limit: int) -> None:
    strategy = ConsumerStrategies.Subscribe(["t"], {"bootstrap.servers": "broker-1:9092"})
    spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 5.0)
    controller = RateController(PIDRateEstimator(1000, PIDGains(min_rate=4)), initial_rate=6)
    if rate is not None:
        controller.batch_completed(2000, 1, 1000, 0)
        controller.batch_completed(4000, 1, 1000, 0)
        assert controller.latest_rate() == rate
    client = create_stream_client(strategy, cluster.pool)
    assert StreamClusterView(client, spec, controller).record_limits({A: 0}, {A: 1000}) == {A: limit}
    assert StreamClusterView(client, spec, None).record_limits({A: 0}, {A: 1000}) is None


def test_given_offsets_take_precedence_over_timestamps(cluster: UnitCluster) -> None:
    """Only the timestamps of other partitions are looked up."""
    assert starts(cluster, {"startingTimestamp": "500"}, {A: 7, B: None}) == {A: 7, B: 0}
    (request,) = cluster.received("ListOffsets")
    assert [(each.partition_index, each.timestamp) for each in request.topics[0].partitions] == [(1, 500)]
    for by_partition in ('{"t":{"0":1,"1":500}}', '{"t":{"1":500}}', '{"t":"2026-11-28T06:00Z","*":5}'):
        params = {"startingOffsetsByTimestamp": by_partition, "startingOffsetsByTimestampStrategy": "latest"}
        expected = {A: 7, B: 2 if "2026" in by_partition else 0}
        assert starts(cluster, params, {A: 7, B: None}) == expected
    assert starts(cluster, {"startingTimestamp": "9000"}, {A: 7, B: 8}) == {A: 7, B: 8}
    assert starts(cluster, {"startingOffsetsByTimestamp": '{"t":9000}'}, {A: 7, B: 8}) == {A: 7, B: 8}


def test_a_record_that_arrives_while_a_start_is_resolved_is_not_skipped(cluster: UnitCluster) -> None:
    client = cluster.client()
    fetch_offsets = client.offsets

    def offsets(requested: Mapping[TopicPartition, int], **options: Any) -> dict[TopicPartition, int]:
        if LATEST in requested.values():
            cluster.cluster.append(A, [b"value"], timestamp=4000)
        return fetch_offsets(requested, **options)

    client.offsets = offsets  # type: ignore[assignment, method-assign]
    times = OffsetSpec(others=AtTime(3500, "latest"))
    assert resolve_requested_positions(times, {A: None, B: None}, client, "read_committed") == {A: 3, B: 2}


def test_a_stream_starts_at_times_before_now(cluster: UnitCluster) -> None:
    """For the clock of the driver; a partition without a record that new starts at its last stable offset."""
    age = int(cluster.pool.system.wall_time() * 1000) - 1750
    assert starts(cluster, {"startingTimestamp": f"-{age}ms"}, {A: None, B: None}) == {A: 1, B: 2}
    by_partition = f'{{"t":{{"1":"1970-01-01T00:00:01.2Z","*":"-{age}ms"}}}}'
    assert starts(cluster, {"startingOffsetsByTimestamp": by_partition}, {A: None, B: None}) == {A: 1, B: 1}


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        ("earliest", 0),
        ("NOW", 3),
        ("last 2", 1),
        ("1970-01-01T00:00:02Z", 1),
        (datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), 2),
        ("-1s", 3),
        (timedelta(seconds=-1), 3),
        (2, 2),
    ],
)
def test_a_strategy_may_start_partitions_at_other_positions(
    cluster: UnitCluster, position: int | str | datetime | timedelta, offset: int
) -> None:
    params = {"bootstrap.servers": "broker-1:9092", "isolation.level": "read_committed"}
    strategy = ConsumerStrategies.Subscribe(["t"], params, {A: position})
    client = create_stream_client(pickle.loads(pickle.dumps(strategy)), cluster.pool)
    spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0)
    assert StreamClusterView(client, spec, None).start().offsets == {A: offset, B: 2}


@pytest.mark.parametrize(
    ("by_partition", "names"), [('{"t":{"0":1}}', "missing: t-1"), ('{"t":{"0":1,"1":1,"2":1}}', "t-2")]
)
def test_timestamps_must_be_given_for_each_partition(cluster: UnitCluster, by_partition: str, names: str) -> None:
    with pytest.raises(InvalidOffsetsError, match=rf"must name exactly the assigned topic-partitions.*{names}"):
        starts(cluster, {"startingOffsetsByTimestamp": by_partition}, {A: None, B: None})


def test_a_pattern_ignores_errors_of_other_topics_only() -> None:
    with UnitCluster({"flights": 1, "flights-2": 1, "orders": 1}) as cluster:
        strategy = ConsumerStrategies.SubscribePattern("flights.*", {"bootstrap.servers": "broker-1:9092"})
        assert isinstance(strategy, DiscoversPartitions)
        client = cluster.client()
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        cluster.event("deny_topic", topic="orders", seconds=1000, error_code=denied)
        assert {tp.topic for tp in strategy.assigned(client)} == {"flights", "flights-2"}
        cluster.event("deny_topic", topic="flights-2", seconds=1000, error_code=denied)
        with pytest.raises(AuthorizationError, match="flights-2"):
            strategy.assigned(client)


def test_a_stream_starts_with_the_topic_ids_that_its_offsets_came_with() -> None:
    """The first metadata comes from a broker that still has the id of a deleted topic."""
    with PlannerCluster(50) as brokers:
        brokers.recreate_elsewhere(A, 42)
        position = view(brokers).start()
        assert (position.offsets, position.topic_ids) == ({A: 42}, {"t": brokers.topic_id("t")})


@pytest.mark.parametrize(("isolation_level", "warnings"), [("read_committed", 1), ("read_uncommitted", 0)])
def test_an_open_transaction_that_blocks_a_stream_is_logged(
    cluster: UnitCluster, caplog: pytest.LogCaptureFixture, isolation_level: str, warnings: int
) -> None:
    stream = view(cluster, isolation_level=isolation_level)
    for _ in range(20):
        stream.latest([A, B])
        cluster.sleep(30)
    assert sum("t-1" in message and "transaction" in message for message in caplog.messages) == warnings
