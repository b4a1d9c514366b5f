"""The broker requests of the planner of a direct stream."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.fake_broker import PARTITION, TOPIC, TOPIC_ID, FakeBroker

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.consumer_strategies import DiscoversPartitions
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig, RateController
from pyspark_kafka_direct.direct.stream_client import StreamClusterView, create_stream_client, offsets_by_timestamp
from pyspark_kafka_direct.errors import AuthorizationError, InvalidOffsetsError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.kafka_params import parse_kafka_params
from pyspark_kafka_direct.options.settings import PIDGains
from pyspark_kafka_direct.planning.backpressure import PIDRateEstimator
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
OLD_ID = UUID(int=99)


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0


class TwoASecond(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 2


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.start, broker.stable = 5, 40
        yield broker
    POOL.clear()


def view(broker: FakeBroker, isolation_level: str, **changes: str) -> StreamClusterView:
    params = {
        "bootstrap.servers": broker.settings.bootstrap_string,
        "isolation.level": isolation_level,
        **changes,
    }
    strategy = ConsumerStrategies.Subscribe([TOPIC], params)
    return StreamClusterView(
        create_stream_client(strategy, POOL),
        StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0),
        None,
    )


@pytest.mark.parametrize(("is_restored", "start"), [(False, 20), (True, 5)])
def test_a_partition_that_a_checkpoint_lacks_starts_at_the_log_start(
    broker: FakeBroker, is_restored: bool, start: int
) -> None:
    """A batch that is generated again may have committed an offset of it, and must have its records again."""
    broker.committed = 20
    cluster_view = view(broker, "read_uncommitted", **{"group.id": "g"})
    cluster_view._is_restored = is_restored
    assert cluster_view.new_partition_offsets([PARTITION]) == {PARTITION: start}


@pytest.mark.parametrize(("isolation_level", "end"), [("read_committed", 40), ("read_uncommitted", 42)])
def test_a_batch_ends_at_the_last_readable_offset(broker: FakeBroker, isolation_level: str, end: int) -> None:
    cluster_view = view(broker, isolation_level)
    assert cluster_view.latest([PARTITION]) == {PARTITION: end}
    assert cluster_view.high_watermarks([PARTITION]) == {PARTITION: 42}
    assert broker.connections == 1


@pytest.mark.parametrize(("isolation_level", "end"), [("read_committed", 40), ("read_uncommitted", 42)])
def test_latest_is_the_last_readable_offset(broker: FakeBroker, isolation_level: str, end: int) -> None:
    assert view(broker, isolation_level).start().offsets == {PARTITION: end}


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_committed_offset_after_the_last_stable_offset_is_in_the_log(
    broker: FakeBroker, isolation_level: str
) -> None:
    """The fake broker returns this offset for every group."""
    broker.committed = 41
    cluster_view = view(broker, isolation_level, **{"group.id": "g", "auto.offset.reset": "none"})
    assert cluster_view.start().offsets == {PARTITION: 41}
    assert cluster_view.new_partition_offsets([PARTITION]) == {PARTITION: 41}


@pytest.mark.parametrize(("fail_on_data_loss", "log_starts"), [("false", {PARTITION: 5}), ("true", {})])
def test_log_starts_are_requested_only_without_fail_on_data_loss(
    broker: FakeBroker, fail_on_data_loss: str, log_starts: dict[TopicPartition, int]
) -> None:
    assert view(broker, "read_uncommitted", failOnDataLoss=fail_on_data_loss).log_starts([PARTITION]) == log_starts


@pytest.mark.parametrize(("group", "times"), [({}, 1), ({"group.id": "g"}, 0)])
def test_a_missing_group_id_is_logged_once(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, group: dict[str, str], times: int
) -> None:
    option_messages.warn_once.cache_clear()
    for _ in range(2):
        view(broker, "read_uncommitted", **group)
    assert sum("group.id is not set" in record.getMessage() for record in caplog.records) == times


A, B = TopicPartition("t", 0), TopicPartition("t", 1)


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
    cluster: UnitCluster, params: Mapping[str, object], requested: dict[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    spec = parse_kafka_params({"bootstrap.servers": "b:1", **params}).starting_timestamp
    assert spec is not None
    return offsets_by_timestamp(spec, requested, cluster.client(), "read_committed")


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


def test_a_deposed_leader_does_not_decide_where_a_timestamp_is(broker: FakeBroker) -> None:
    """Its retention deleted records that the current leader has: the stream started after them."""
    with FakeBroker() as leader:
        leader.epoch = broker.epoch + 1
        broker.leaders, leader.leaders = [(1, broker), (2, leader)], [(2, leader), (1, broker)]
        broker.offsets, leader.offsets = (lambda _: (0, 30)), (lambda _: (0, 20))
        broker.start = leader.start = 0
        spec = parse_kafka_params({"bootstrap.servers": "b:1", "startingTimestamp": "500"}).starting_timestamp
        assert spec is not None
        cluster = ClusterClient(broker.settings)
        assert offsets_by_timestamp(spec, {PARTITION: None}, cluster, "read_uncommitted") == {PARTITION: 20}


def test_a_deposed_leader_does_not_decide_that_a_committed_offset_is_out_of_range(broker: FakeBroker) -> None:
    """The stream started elsewhere, and records were read twice or never."""
    with FakeBroker() as leader:
        leader.epoch = broker.epoch + 1
        broker.leaders, leader.leaders = [(1, broker), (2, leader)], [(2, leader), (1, broker)]
        broker.offsets = lambda _: (0, 30)
        leader.start = 5
        broker.committed = leader.committed = 41
        stream = view(broker, "read_uncommitted", **{"group.id": "g", "auto.offset.reset": "none"})
        assert stream.start().offsets == {PARTITION: 41}


def test_a_committed_offset_that_is_out_of_range_is_logged(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.committed = 3
    stream = view(broker, "read_uncommitted", **{"group.id": "g", "auto.offset.reset": "earliest"})
    assert stream.start().offsets == {PARTITION: 5}
    (message,) = [message for message in caplog.messages if "flights-0" in message]
    assert "3" in message


def test_a_custom_strategy_reads_its_partitions_while_they_exist() -> None:
    class Custom:
        executor_params: Mapping[str, object] = {"bootstrap.servers": "broker-1:9092"}

        def on_start(self, *_: object) -> dict[TopicPartition, int]:
            return {A: 0}

    with UnitCluster({"t": 2, "u": 1}) as cluster:
        strategy = Custom()
        spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, TwoASecond(), 5.0)
        client = create_stream_client(strategy, cluster.environment.pool(cluster.process))
        stream = StreamClusterView(client, spec, None)
        missing, unknown = TopicPartition("t", 2), TopicPartition("v", 0)
        u0 = TopicPartition("u", 0)
        assert stream.assigned([A, u0, missing, unknown]) == {A: cluster.topic_id("t"), u0: cluster.topic_id("u")}
        assert stream.confirm_missing({A: cluster.topic_id("t"), unknown: None}) == {unknown}
        assert stream.record_limits({A: 0}, {A: 1000}) == {A: 10}


@pytest.mark.parametrize(("rate", "limit"), [(None, 30), (4, 20)])
def test_backpressure_limits_the_records_of_a_batch(broker: FakeBroker, rate: int | None, limit: int) -> None:
    strategy = ConsumerStrategies.Subscribe([TOPIC], {"bootstrap.servers": broker.settings.bootstrap_string})
    spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 5.0)
    controller = RateController(PIDRateEstimator(1000, PIDGains(min_rate=4)), initial_rate=6)
    if rate is not None:
        controller.batch_completed(2000, 1, 1000, 0)
        controller.batch_completed(4000, 1, 1000, 0)
        assert controller.latest_rate() == rate
    stream = StreamClusterView(create_stream_client(strategy, POOL), spec, controller)
    assert stream.record_limits({PARTITION: 0}, {PARTITION: 1000}) == {PARTITION: limit}
    without = StreamClusterView(create_stream_client(strategy, POOL), spec, None)
    assert without.record_limits({PARTITION: 0}, {PARTITION: 1000}) is None


def test_given_offsets_take_precedence_over_timestamps(cluster: UnitCluster) -> None:
    """Only the timestamps of other partitions are looked up."""
    assert starts(cluster, {"startingTimestamp": "500"}, {A: 7, B: None}) == {B: 0}
    (request,) = cluster.received("ListOffsets")
    assert [(each.partition_index, each.timestamp) for each in request.topics[0].partitions] == [(1, 500)]
    assert starts(cluster, {"startingOffsetsByTimestamp": '{"t":{"0":1,"1":500}}'}, {A: 7, B: None}) == {B: 0}
    assert starts(cluster, {"startingOffsetsByTimestamp": '{"t":{"1":500}}'}, {A: 7, B: None}) == {B: 0}
    assert starts(cluster, {"startingTimestamp": "9000"}, {A: 7, B: 8}) == {}


@pytest.mark.parametrize(
    ("by_partition", "names"), [('{"t":{"0":1}}', "missing: t-1"), ('{"t":{"0":1,"1":1,"2":1}}', "t-2")]
)
def test_timestamps_must_be_given_for_each_partition(cluster: UnitCluster, by_partition: str, names: str) -> None:
    with pytest.raises(InvalidOffsetsError, match=rf"must name exactly the assigned topic-partitions.*{names}"):
        starts(cluster, {"startingOffsetsByTimestamp": by_partition}, {A: None, B: None})


def test_a_pattern_ignores_errors_of_other_topics_only(broker: FakeBroker) -> None:
    strategy = ConsumerStrategies.SubscribePattern("flights.*", {"bootstrap.servers": broker.settings.bootstrap_string})
    assert isinstance(strategy, DiscoversPartitions)
    cluster = ClusterClient(broker.settings, pool=POOL)
    broker.failing_topics = [("orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)]
    assert set(strategy.assigned(cluster)) == {PARTITION}
    broker.failing_topics = [("flights-2", ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)]
    with pytest.raises(AuthorizationError, match="flights-2"):
        strategy.assigned(cluster)


def test_a_stream_starts_with_the_topic_ids_that_its_offsets_came_with(broker: FakeBroker) -> None:
    """The metadata before and after the offsets comes from a broker that still has the id of a deleted topic."""
    broker.topic_id = OLD_ID
    responses = 0

    def offsets(_: int) -> tuple[int, int]:
        nonlocal responses
        if broker.topic_id == OLD_ID:
            broker.topic_id = TOPIC_ID  # of the next metadata
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        responses += 1
        if responses == 2:
            broker.topic_id = OLD_ID
        return 0, 42

    broker.offsets = offsets
    assert view(broker, "read_uncommitted").start().topic_ids == {TOPIC: TOPIC_ID}


@pytest.mark.parametrize(("isolation_level", "warnings"), [("read_committed", 1), ("read_uncommitted", 0)])
def test_an_open_transaction_that_blocks_a_stream_is_logged(
    cluster: UnitCluster, caplog: pytest.LogCaptureFixture, isolation_level: str, warnings: int
) -> None:
    params = {"bootstrap.servers": "broker-1:9092", "isolation.level": isolation_level}
    strategy = ConsumerStrategies.Subscribe(["t"], params)
    spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0)
    stream = StreamClusterView(create_stream_client(strategy, cluster.environment.pool(cluster.process)), spec, None)
    for _ in range(20):
        stream.latest([A, B])
        cluster.sleep(30)
    assert sum("t-1" in message and "transaction" in message for message in caplog.messages) == warnings
