"""A direct stream and its copies restored from a checkpoint."""

from __future__ import annotations

import pickle
import threading
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pyspark.cloudpickle import dumps
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies, checkpointed_stream
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream, find_stream
from pyspark_kafka_direct.direct.direct_stream import BeginGeneration, ComputeKafkaRdd, EndGeneration
from pyspark_kafka_direct.direct.direct_stream_planner import DirectBatchPlan, StreamPosition
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig, RateController
from pyspark_kafka_direct.errors import BrokerTimeoutError, OptionError
from pyspark_kafka_direct.offsets import LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.options.settings import PIDGains
from pyspark_kafka_direct.planning.backpressure import PIDRateEstimator

if TYPE_CHECKING:
    from collections.abc import Callable

TIME = datetime.fromtimestamp(1700000000.0)
NO_RDD: Any = None  # not used
T0 = TopicPartition("flights", 0)


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0


class FakeContextBinding:
    def __init__(self) -> None:
        self.forgotten: list[list[int]] = []

    def forget_generated_rdds(self, times_ms: list[int]) -> None:
        self.forgotten.append(times_ms)


def registered_stream(name: str) -> tuple[CheckpointedStream, Any]:
    strategy = ConsumerStrategies.Subscribe(["flights"], {"bootstrap.servers": "localhost:1"})
    stream = CheckpointedStream(name, StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0), None)
    stream._state.start(StreamPosition({T0: 0}, {}))
    binding: Any = FakeContextBinding()
    stream.context_binding = binding
    checkpointed_stream.register_stream(stream)
    return stream, binding


def plan(stream: CheckpointedStream, time_ms: int, until: int) -> None:
    start = stream.current_offsets[T0]
    stream._state.add_batch(time_ms, [OffsetRange("flights", 0, start, until)], {})


def restored(function: Any) -> Any:
    """As restored from Spark's checkpoint."""
    return pickle.loads(dumps(function))  # type: ignore[no-untyped-call]


def test_a_restored_copy_does_not_replace_the_running_stream() -> None:
    stream, _ = registered_stream("runs")
    begin = BeginGeneration(stream)
    for _ in range(2):
        copy = restored(begin)
        assert copy._stream is not stream
        assert find_stream("runs") is stream
    begin(TIME, NO_RDD)
    plan(stream, 1700000000_000, 5)
    EndGeneration("runs")(TIME, NO_RDD)
    assert stream.current_offsets == {T0: 5}
    assert copy._stream.current_offsets == {T0: 0}


def test_a_restored_copy_replaces_the_stream_when_spark_generates_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, binding = registered_stream("stopped")
    copy = restored(BeginGeneration(stream))
    monkeypatch.setattr("pyspark_kafka_direct.direct.direct_stream.bind_restored_stream", lambda stream, rdd: binding)
    copy(TIME, NO_RDD)
    assert find_stream("stopped") is copy._stream
    assert copy._stream.context_binding is binding
    assert copy._stream._cluster_view()._is_restored, "a new partition does not start at a committed offset"
    assert not stream._cluster_view()._is_restored


def test_a_generation_without_an_end_has_failed_when_the_next_starts(caplog: pytest.LogCaptureFixture) -> None:
    stream, binding = registered_stream("fails")
    stream.begin_generation(1000)
    plan(stream, 500, 3)  # a window looks back
    plan(stream, 1000, 5)
    stream.begin_generation(2000)
    assert binding.forgotten == [[500, 1000]]
    (message,) = caplog.messages
    assert message.startswith("Spark failed to generate the batch at 1000 ms, so none of its jobs runs.")
    assert (stream.batch_ranges(1000), stream.current_offsets) == ((), {T0: 0})
    plan(stream, 2000, 7)
    stream.end_generation()
    stream.begin_generation(3000)
    assert binding.forgotten == [[500, 1000]], "that generation has ended"


def test_a_generation_without_an_end_has_failed_when_the_checkpoint_is_written() -> None:
    """The rollback comes before the rest of the graph is pickled, which must not contain RDDs of the generation."""
    stream, binding = registered_stream("pickled")
    stream.begin_generation(1000)
    plan(stream, 1000, 5)
    copy = restored(BeginGeneration(stream))._stream
    assert binding.forgotten == [[1000]]
    assert (copy.batch_ranges(1000), copy.current_offsets) == ((), {T0: 0})
    assert stream.current_offsets == {T0: 0}


def test_a_failed_rollback_is_repeated() -> None:
    stream, binding = registered_stream("stuck")
    stream.begin_generation(1000)
    plan(stream, 1000, 5)

    def fail(times_ms: list[int]) -> None:
        raise RuntimeError("no such field")

    binding.forget_generated_rdds = fail
    for time_ms in (2000, 3000):
        with pytest.raises(RuntimeError, match="no such field"):
            stream.begin_generation(time_ms)


def test_functions_of_the_graph_contain_only_an_id() -> None:
    for function in (ComputeKafkaRdd("id"), EndGeneration("id")):
        assert len(dumps(function)) < 120  # type: ignore[no-untyped-call]


def test_pickling_creates_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _ = registered_stream("closed")
    monkeypatch.setattr("pyspark_kafka_direct.direct.checkpointed_stream.create_stream_client", None)
    restored(BeginGeneration(stream))


def test_a_checkpoint_is_rejected_without_pinned_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch would deadlock."""
    pickled = dumps(registered_stream("pinned")[0])  # type: ignore[no-untyped-call]
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(OptionError, match="PYSPARK_PIN_THREAD=true"):
        pickle.loads(pickled)


def test_offset_ranges_have_their_topic_ids_also_after_a_restart() -> None:
    stream, _ = registered_stream("with-ids")
    topic_id = UUID(int=7)
    BeginGeneration(stream)(TIME, NO_RDD)
    stream._state.add_batch(1700000000_000, [OffsetRange("flights", 0, 0, 5)], {"flights": topic_id})
    EndGeneration("with-ids")(TIME, NO_RDD)
    for each in (stream, restored(BeginGeneration(stream))._stream):
        (planned,) = each.planned_ranges(1700000000_000)
        assert (planned, planned.topic_id) == (OffsetRange("flights", 0, 0, 5), topic_id)


def test_a_closed_stream_leaves_the_connections_of_another_one_with_the_same_parameters() -> None:
    with UnitCluster({"flights": 1}) as cluster:

        def connections() -> int:
            return sum(line[1] == "connected" for line in cluster.world.trace_lines)

        strategy = ConsumerStrategies.Subscribe(["flights"], {"bootstrap.servers": "broker-1:9092"})
        spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0)
        one, other = (CheckpointedStream(name, spec, None, system=cluster.process) for name in ("one", "other"))
        for stream in (one, other):
            stream.start()
        before = connections()
        one.close()
        for _ in range(2):
            other.client.cluster.offsets({T0: LATEST})
        assert connections() == before, "the other stream still has its connection"
        for _ in range(2):
            one.client.cluster.offsets({T0: LATEST})
        assert connections() == before + 2, "a closed stream opens one for each request"
        other.close()


def test_a_batch_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _ = registered_stream("planned-once")
    sent: list[bool] = []
    client: Any = SimpleNamespace(commits=SimpleNamespace(send=lambda: sent.append(True)))
    stream._client = client
    ranges = (OffsetRange("flights", 0, 0, 5), OffsetRange("flights", 1, 0, 0))
    plans: list[StreamPosition] = []

    def plan_batch(position: StreamPosition, _: object) -> DirectBatchPlan:
        plans.append(position)
        return DirectBatchPlan(ranges, {}, deleted_offset_count=3)

    monkeypatch.setattr(checkpointed_stream, "plan_direct_batch", plan_batch)
    stream.begin_generation(1000)
    assert [stream.batch_ranges(1000) for _ in range(2)] == [ranges, ranges]
    assert (plans, sent) == ([StreamPosition({T0: 0}, {})], [True])
    assert [stream.take_deleted_offset_count(1000) for _ in range(2)] == [3, 0]
    stream._client = None


def test_queued_offsets_are_committed_before_a_plan_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _ = registered_stream("no-plan")
    sent: list[bool] = []
    client: Any = SimpleNamespace(commits=SimpleNamespace(send=lambda: sent.append(True)))
    stream._client = client

    def plan_batch(position: StreamPosition, _: object) -> DirectBatchPlan:
        raise BrokerTimeoutError(f"no response after {len(sent)} commits")

    monkeypatch.setattr(checkpointed_stream, "plan_direct_batch", plan_batch)
    for number in (1, 2):
        stream.begin_generation(number * 1000)
        with pytest.raises(BrokerTimeoutError, match=f"after {number} commits"):
            stream.batch_ranges(number * 1000)
    stream._client = None


def test_a_failed_generation_reports_no_deleted_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that looks back would report fewer records than none for the batch, which Spark rejects."""
    stream, _ = registered_stream("deleted")
    client: Any = SimpleNamespace(commits=SimpleNamespace(send=lambda: None))
    stream._client = client

    def plan_batch(position: StreamPosition, _: object) -> DirectBatchPlan:
        return DirectBatchPlan((OffsetRange("flights", 0, position.offsets[T0], 9),), {}, deleted_offset_count=3)

    monkeypatch.setattr(checkpointed_stream, "plan_direct_batch", plan_batch)
    for time_ms in (1000, 2000, 3000):
        stream.begin_generation(time_ms)
        stream.batch_ranges(time_ms)  # then another output fails
    stream.end_generation()
    assert [stream.batch_ranges(time_ms) for time_ms in (1000, 2000)] == [(), ()]
    assert [stream.take_deleted_offset_count(time_ms) for time_ms in (1000, 2000, 3000)] == [0, 0, 3]
    stream._client = None


def test_a_restored_stream_has_its_limits() -> None:
    stream, _ = registered_stream("with-limits")
    stream.controller = limits = RateController(PIDRateEstimator(1.0, PIDGains()), 77.0)
    copy = restored(BeginGeneration(stream))._stream
    assert (copy.stream_id, copy.persisted, copy.controller.initial_rate) == ("with-limits", False, limits.initial_rate)
    assert copy.spec.batch_seconds == stream.spec.batch_seconds


def test_a_new_stream_knows_its_offsets_and_topics() -> None:
    stream, _ = registered_stream("with-topics")
    topic_id = UUID(int=7)
    assert (stream.topic_ids, stream.commit_queue) == ({}, None)
    stream._state.add_batch(1000, [OffsetRange("flights", 0, 0, 5)], {"flights": topic_id})
    assert (stream.current_offsets, stream.topic_ids) == ({T0: 5}, {"flights": topic_id})
    assert stream.client.commits is stream.commit_queue
    assert stream.client is stream.client
    stream.close()


def start_slow_plan(
    stream: CheckpointedStream, time_ms: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[tuple[OffsetRange, ...]], Callable[[], None]]:
    """Request a batch in another thread; return its future ranges, and a function that lets its plan end."""
    client: Any = SimpleNamespace(commits=SimpleNamespace(send=lambda: None))
    stream._client = client
    planning, planned = threading.Event(), threading.Event()

    def plan_batch(position: StreamPosition, _: object) -> DirectBatchPlan:
        planning.set()
        assert planned.wait(120)
        return DirectBatchPlan((OffsetRange("flights", 0, position.offsets[T0], 9),), {})

    monkeypatch.setattr(checkpointed_stream, "plan_direct_batch", plan_batch)
    found: list[tuple[OffsetRange, ...]] = []
    planner = threading.Thread(target=lambda: found.append(stream.batch_ranges(time_ms)))
    planner.start()
    assert planning.wait(120)

    def end_plan() -> None:
        planned.set()
        planner.join(120)

    return found, end_plan


def test_a_job_does_not_wait_for_the_plan_of_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _ = registered_stream("concurrent")
    plan(stream, 1000, 5)
    stream.begin_generation(2000)
    found, end_plan = start_slow_plan(stream, 2000, monkeypatch)
    job = threading.Thread(target=lambda: found.append(stream.batch_ranges(1000)))
    job.start()
    job.join(120)
    assert [each[0].until_offset for each in found] == [5]
    end_plan()
    assert [each[0].until_offset for each in found] == [5, 9]
    stream._client = None


def test_a_plan_that_ends_after_its_generation_has_failed_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread requests the batch, for example with ``slice``. No job would read the records of the plan."""
    stream, _ = registered_stream("outlived")
    stream.begin_generation(1000)
    found, end_plan = start_slow_plan(stream, 1000, monkeypatch)
    stream.begin_generation(2000)
    end_plan()
    assert (found, stream.current_offsets) == ([()], {T0: 0})
    assert stream.batch_ranges(2000) == (OffsetRange("flights", 0, 0, 9),)
    stream._client = None
