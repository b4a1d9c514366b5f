"""The batches of the direct stream, planned on a simulated cluster: nothing is skipped silently."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.direct_stream_planner import DirectBatchPlan, StreamPosition, plan_direct_batch
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig
from pyspark_kafka_direct.direct.stream_client import StreamClusterView, create_stream_client
from pyspark_kafka_direct.errors import BrokerTimeoutError, DataLossError, TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tests.simulation.wire import ReceivedRequest

    from pyspark_kafka_direct.direct.rate_controller import RateController

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ANOTHER_ID = uuid4()


class Limit(PerPartitionConfig):
    """The same limit for each partition; 0 is none."""

    def __init__(self, records: int) -> None:
        self.records = records

    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return self.records


class PlanningCluster(UnitCluster):
    """Topic ``a`` with two partitions and topic ``b`` with one."""

    def __init__(self, topics: Mapping[str, int] | None = None, **fields: Any) -> None:
        super().__init__(topics or {"a": 2, "b": 1}, brokers=2, **fields)

    def view(
        self,
        *topics: str,
        view: type[StreamClusterView] = StreamClusterView,
        limit: int = 0,
        rate: float | None = None,
        **params: str,
    ) -> StreamClusterView:
        """Return what a stream that subscribes to topics plans with; parameters have underscores instead of dots."""
        servers = ",".join(f"{host}:{port}" for host, port in self.environment.settings().bootstrap_servers)
        named = {name.replace("_", "."): value for name, value in params.items()}
        strategy = ConsumerStrategies.Subscribe([*topics], {"bootstrap.servers": servers, **named})
        client = create_stream_client(strategy, self.pool)
        spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, Limit(limit), 1.0)
        controller = None if rate is None else SimpleNamespace(latest_rate=lambda: rate, initial_rate=0)
        return view(client, spec, cast("RateController | None", controller))

    def log_of(self, tp: TopicPartition, start: int, end: int) -> None:
        """Append records, and delete those before an offset."""
        self.append(tp, end)
        self.delete_records(tp, start)


@pytest.fixture
def cluster() -> Iterator[PlanningCluster]:
    with PlanningCluster() as cluster:
        yield cluster


def plan(
    view: StreamClusterView, *, position: dict[TopicPartition, int], ids: dict[str, UUID] | None = None
) -> DirectBatchPlan:
    return plan_direct_batch(StreamPosition(position, ids or {}), view)


def spans(batch: DirectBatchPlan) -> dict[TopicPartition, tuple[int, int]]:
    return {each.topic_partition: (each.from_offset, each.until_offset) for each in batch.ranges}


def test_a_batch_has_all_records_in_order_and_empty_ranges(cluster: PlanningCluster) -> None:
    for tp, end in ((B0, 7), (A1, 4), (A0, 9)):
        cluster.append(tp, end)
    batch = plan(cluster.view("b", "a"), position={A0: 2, A1: 4, B0: 0})
    assert batch.ranges == (OffsetRange("a", 0, 2, 9), OffsetRange("a", 1, 4, 4), OffsetRange("b", 0, 0, 7))
    assert batch.topic_ids == {"a": cluster.topic_id("a"), "b": cluster.topic_id("b")}


def test_limits_end_a_batch_before_the_log(cluster: PlanningCluster) -> None:
    cluster.append(A0, 9)
    cluster.append(A1, 3)
    assert spans(plan(cluster.view("a", limit=4), position={A0: 2, A1: 1})) == {A0: (2, 6), A1: (1, 3)}


def test_limits_do_not_count_deleted_records(cluster: PlanningCluster) -> None:
    cluster.log_of(A0, 900, 1000)
    cluster.append(A1, 3)
    cluster.log_of(B0, 50, 60)
    position = {A0: 0, A1: 1, B0: 10}
    batch = plan(cluster.view("a", "b", limit=4, failOnDataLoss="false"), position=position)
    assert spans(batch) == {A0: (0, 904), A1: (1, 3), B0: (10, 54)}
    assert batch.deleted_offset_count == 940
    batch = plan(cluster.view("a", "b", failOnDataLoss="false"), position=position)
    assert (spans(batch), batch.deleted_offset_count) == ({A0: (0, 1000), A1: (1, 3), B0: (10, 60)}, 0), (
        "without a limit log starts are not requested"
    )
    batch = plan(cluster.view("a", "b", limit=4), position=position)
    assert (spans(batch), batch.deleted_offset_count) == ({A0: (0, 4), A1: (1, 3), B0: (10, 14)}, 0), (
        "the task fails there"
    )


def test_deleted_records_do_not_count_in_a_rate_shared_by_lag(cluster: PlanningCluster) -> None:
    cluster.log_of(A0, 900, 1000)
    cluster.append(A1, 100)
    batch = plan(cluster.view("a", rate=20, failOnDataLoss="false"), position={A0: 0, A1: 0})
    assert spans(batch) == {A0: (0, 910), A1: (0, 10)}


def test_all_unread_records_may_be_deleted(cluster: PlanningCluster) -> None:
    cluster.log_of(B0, 1000, 1000)
    view = cluster.view("b", limit=4, failOnDataLoss="false")
    assert spans(plan(view, position={B0: 10})) == {B0: (10, 1000)}
    assert spans(plan(view, position={B0: 1000})) == {B0: (1000, 1000)}


def test_a_new_partition_starts_at_its_start_offset(cluster: PlanningCluster) -> None:
    cluster.append(A0, 5)
    cluster.log_of(A1, 2, 3)
    assert spans(plan(cluster.view("a"), position={A0: 5})) == {A0: (5, 5), A1: (2, 3)}


def test_a_missing_partition_is_data_loss_once_it_is_confirmed(cluster: PlanningCluster) -> None:
    with pytest.raises(DataLossError, match=r"b-1 do not exist any more.*new checkpoint directory") as failure:
        plan(cluster.view("b"), position={B0: 0, TopicPartition("b", 1): 0})
    assert (failure.value.topic, failure.value.partition) == ("b", 1)


def test_stale_metadata_is_refreshed(cluster: PlanningCluster) -> None:
    """The broker that responds first has not applied the new partition."""
    cluster.append(B0, 5)
    cluster.event("stick_image", broker=0, seconds=1000)
    cluster.event("expand_topic", topic="b")
    b1 = TopicPartition("b", 1)
    cluster.elect(b1, 2)
    cluster.append(b1, 6)
    assert spans(plan(cluster.view("b"), position={B0: 0, b1: 0})) == {B0: (0, 5), b1: (0, 6)}
    a2 = TopicPartition("a", 2)
    with pytest.raises(DataLossError, match="a-2 do") as failure:
        plan(cluster.view("a", "b"), position={a2: 0, B0: 0, b1: 0})
    assert "b-1" not in str(failure.value), "it exists, unlike the first partition that the broker lacks"


def test_brokers_that_contradict_each_other_are_asked_with_pauses(cluster: PlanningCluster) -> None:
    """For example, the principal may not list a topic for a minute. 30 requests took a few milliseconds."""

    class Contradicting(StreamClusterView):
        def confirm_missing(self, suspects: Mapping[TopicPartition, UUID | None]) -> set[TopicPartition]:
            return set()

    start = cluster.now
    with pytest.raises(BrokerTimeoutError, match="some brokers do not know all of b-0, b-1"):
        plan(cluster.view("b", view=Contradicting), position={B0: 0, TopicPartition("b", 1): 0})
    assert cluster.now - start == pytest.approx(30, abs=1)


def test_a_topic_with_another_id_is_data_loss_however_long_its_log_is(cluster: PlanningCluster) -> None:
    cluster.append(B0, 50)
    new_id = cluster.topic_id("b")
    with pytest.raises(DataLossError, match=f"recreated, its id was {ANOTHER_ID} and is {new_id} now") as failure:
        plan(cluster.view("b"), position={B0: 3}, ids={"b": ANOTHER_ID})
    assert failure.value.topic == "b"


def test_another_topic_id_in_one_response_is_no_loss(cluster: PlanningCluster) -> None:
    """A broker with stale metadata may report the id of a deleted topic."""
    cluster.event("stick_image", broker=0, seconds=1000)
    cluster.event("recreate_topic", topic="b")
    cluster.elect(B0, 2)
    cluster.append(B0, 5)
    assert spans(plan(cluster.view("b"), position={B0: 3}, ids={"b": cluster.topic_id("b")})) == {B0: (3, 5)}


@pytest.mark.parametrize(("ends", "truncated"), [((7, 9), ""), ((6, 9), ""), ((7, 6), "b-0"), ((6, 9), "a-0")])
def test_only_the_leader_of_the_highest_epoch_reports_a_truncation(
    cluster: PlanningCluster, ends: tuple[int, int], truncated: str
) -> None:
    """The deposed leader of b-0 responds with the end 2 until the epochs are known; that of a-0 lags at first."""
    cluster.elect(A0, 2)
    cluster.append(B0, 2)
    cluster.event("isolate_broker", broker=0, seconds=1000)
    cluster.sleep(1)  # broker 2 is elected
    cluster.append(A0, ends[0])
    cluster.append(B0, ends[1] - 2)
    view, position = cluster.view("a", "b"), {A0: 7, A1: 0, B0: 7}
    if not truncated:  # both brokers have reported two ends
        cluster.before("ListOffsets", *[lambda: None] * 4, lambda: cluster.append(A0, 1))
    if truncated:
        with pytest.raises(DataLossError, match=f"{truncated}'s offset was changed from 7 to 6") as failure:
            plan(view, position=position)
        assert ("a-0" in str(failure.value)) + ("b-0" in str(failure.value)) == 1
    else:
        batch = plan(view, position=position)
        expected = {A0: (7, 7), A1: (0, 0), B0: (7, 7)}
        assert spans(batch) == expected, "the ends are requested for the next batch"


def test_brokers_without_ids_and_the_same_id_are_no_loss(cluster: PlanningCluster) -> None:
    cluster.append(B0, 5)
    known = {"b": cluster.topic_id("b")}
    for ids in (known, {}):
        assert spans(plan(cluster.view("b"), position={B0: 3}, ids=ids)) == {B0: (3, 5)}
    with PlanningCluster(topic_ids=False) as older:
        older.append(B0, 5)
        assert spans(plan(older.view("b"), position={B0: 3}, ids=known)) == {B0: (3, 5)}


def test_a_truncated_log_is_data_loss(cluster: PlanningCluster) -> None:
    cluster.append(B0, 5)
    with pytest.raises(DataLossError, match="b-0's offset was changed from 6 to 5") as failure:
        plan(cluster.view("b"), position={B0: 6})
    assert (failure.value.topic, failure.value.partition) == ("b", 0)
    assert "failOnDataLoss" not in str(failure.value), "the option does not apply here"


def test_an_offset_beyond_an_open_transaction_gives_an_empty_range(cluster: PlanningCluster) -> None:
    for tp in (A0, A1):
        cluster.append(tp, 5)
        cluster.append(tp, 3, producer_id=7)
    view = cluster.view("a", isolation_level="read_committed")
    assert spans(plan(view, position={A0: 7, A1: 4})) == {A0: (7, 7), A1: (4, 5)}
    with pytest.raises(DataLossError, match="a-0's offset was changed from 9 to 8"):
        plan(view, position={A0: 9, A1: 4})


def test_a_topic_deleted_between_two_requests_is_data_loss(cluster: PlanningCluster) -> None:
    def delete(request: ReceivedRequest) -> None:
        if request.api == "ListOffsets" and "b" in cluster.cluster.topics:
            cluster.event("delete_topic", topic="b")

    cluster.network.on_request = delete
    with pytest.raises(DataLossError, match="b-0 do not exist any more"):
        plan(cluster.view("a", "b"), position={A0: 0, A1: 0, B0: 0})


class MissingInResponses(StreamClusterView):
    """A broker that lags does not know a topic when end offsets are requested."""

    responses = 3

    def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        if self.responses:
            self.responses -= 1
            raise TopicNotFoundError("unknown to one broker", topic="b")
        return super().latest(partitions)


def test_a_topic_that_some_responses_lack_does_not_fail_the_batch(cluster: PlanningCluster) -> None:
    cluster.append(B0, 5)
    start = cluster.now
    assert spans(plan(cluster.view("b", view=MissingInResponses), position={B0: 0})) == {B0: (0, 5)}
    assert cluster.now - start == pytest.approx(3, abs=0.5)


def test_a_topic_that_many_responses_lack_keeps_its_error(
    cluster: PlanningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MissingInResponses, "responses", 1000)
    start = cluster.now
    with pytest.raises(TopicNotFoundError, match="unknown to one broker"):
        plan(cluster.view("b", view=MissingInResponses), position={B0: 0})
    assert cluster.now - start == pytest.approx(30, abs=1)


class RefreshedWithOffsets(StreamClusterView):
    """Topic ``b`` is recreated before its offsets are requested, which refreshes the metadata."""

    cluster: PlanningCluster

    def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        if self.cluster.cluster.topics["b"].generation == 1:
            self.cluster.event("recreate_topic", topic="b")
            self.cluster.append(B0, 7)
            self._client.cluster.topics({"b"})
        return super().latest(partitions)


@pytest.fixture
def refreshing(cluster: PlanningCluster, monkeypatch: pytest.MonkeyPatch) -> type[StreamClusterView]:
    monkeypatch.setattr(RefreshedWithOffsets, "cluster", cluster, raising=False)
    return RefreshedWithOffsets


def test_a_batch_has_the_topic_ids_that_its_offsets_came_with(
    cluster: PlanningCluster, refreshing: type[StreamClusterView]
) -> None:
    """A partition is added whose first metadata has an outdated topic id."""
    cluster.append(A0, 9)
    ids = {"a": cluster.topic_id("a")}
    batch = plan(cluster.view("a", "b", view=refreshing), position={A0: 2}, ids=ids)
    assert spans(batch) == {A0: (2, 9), A1: (0, 0), B0: (0, 7)}
    assert batch.topic_ids == {**ids, "b": cluster.topic_id("b")}


def test_a_topic_that_is_recreated_while_a_batch_is_planned_is_data_loss(
    cluster: PlanningCluster, refreshing: type[StreamClusterView]
) -> None:
    with pytest.raises(DataLossError, match="deleted and recreated"):
        plan(cluster.view("b", view=refreshing), position={B0: 0}, ids={"b": cluster.topic_id("b")})
