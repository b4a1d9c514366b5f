"""A planner whose retries and timeouts are shorter than the confirmation of a data loss, on a simulated cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.settings import read_settings
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import AT_EARLIEST
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.options.settings import ReadLimits
from pyspark_kafka_direct.planning.data_loss import CONFIRMATION_SECONDS
from pyspark_kafka_direct.planning.offset_reader import MAX_METADATA_RESPONSES
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

if TYPE_CHECKING:
    from collections.abc import Callable

A, B = TopicPartition("flights", 0), TopicPartition("ships", 0)
LOG = logging.getLogger("pyspark_kafka_direct.datasource")

SETTINGS: dict[str, dict[str, str]] = {
    "defaults": {},
    "one attempt": {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "0"},
    "one attempt, short timeouts": {
        "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "10",
        "kafka.default.api.timeout.ms": "1000",
        "kafka.request.timeout.ms": "1000",
    },
    "API timeout below the request timeout": {"kafka.default.api.timeout.ms": "1000"},
    "no age of metadata": {"kafka.metadata.max.age.ms": "0", "fetchOffset.numRetries": "1"},
    "long pauses": {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "60000"},
    "one attempt, all topics": {"fetchOffset.numRetries": "1", "subscribePattern": ".*"},
}


class Planner:
    """A planner of two topics on three brokers, each of them with ten records."""

    def __init__(self, cluster: UnitCluster, settings: dict[str, str], *, fail: bool) -> None:
        for tp in (A, B):
            cluster.append(tp, 10)
        servers = ",".join(f"broker-{number}:9092" for number in cluster.cluster.brokers)
        subscription = {} if "subscribePattern" in settings else {"subscribe": "flights,ships"}
        options = {"kafka.bootstrap.servers": servers, **subscription, **settings}
        parsed = parse_stream_options({name.lower(): value for name, value in options.items()})
        self.reader = KafkaOffsetReader(parsed, LOG, cluster.client().pool)
        attempts = parsed.source.offset_fetch_attempts or 3
        self.planner = MicroBatchPlanner(
            read_settings(AT_EARLIEST, ReadLimits(), fail_on_data_loss=fail, max_attempts=attempts),
            self.reader,
            self.reader.clock,
        )
        self.end = self.planner.next_end_offsets(self.planner.initial_offsets())
        assert self.end == {A: 10, B: 10}
        self.planner.plan({A: 0, B: 0}, self.end)

    def plan_next(self) -> dict[TopicPartition, tuple[int, int]]:
        end = self.planner.next_end_offsets(self.end)
        plan = self.planner.plan(self.end, end)
        return {each.topic_partition: (each.from_offset, each.until_offset) for each in plan.ranges}


def delete(cluster: UnitCluster) -> None:
    cluster.event("delete_topic", topic=B.topic)


def recreate(cluster: UnitCluster) -> None:
    cluster.event("recreate_topic", topic=B.topic)
    cluster.append(B, 30)


def recreate_while_the_loss_is_confirmed(cluster: UnitCluster) -> None:
    cluster.event("recreate_topic", topic=B.topic, seconds=4.5)


def expire(cluster: UnitCluster) -> None:
    cluster.append(B, 20)
    cluster.delete_records(B, 20)


def truncate(cluster: UnitCluster) -> None:
    cluster.truncate(B, 0)


AFTER: dict[Callable[[UnitCluster], None], dict[TopicPartition, tuple[int, int]]] = {
    delete: {},
    recreate: {},  # the next batch reads the new topic
    recreate_while_the_loss_is_confirmed: {},
    expire: {B: (20, 30)},
    truncate: {},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("lose", AFTER, ids=lambda lose: lose.__name__)
def test_few_retries_neither_hide_a_loss_nor_fail_a_tolerant_query(
    lose: Callable[[UnitCluster], None], settings: dict[str, str]
) -> None:
    for fail in (False, True):
        with UnitCluster({A.topic: 1, B.topic: 1}, brokers=3, replication_factor=3) as cluster:
            planner = Planner(cluster, settings, fail=fail)
            cluster.append(A, 5)
            lose(cluster)
            started = cluster.now
            if fail and lose is expire:
                assert planner.plan_next() == {A: (10, 15), B: (10, 30)}  # the task fails
            elif fail:
                with pytest.raises(DataLossError):
                    planner.plan_next()
            else:
                assert planner.plan_next() == {A: (10, 15), **AFTER[lose]}
            assert cluster.now - started < (130 if "60000" in settings.values() else 20)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_few_retries_suffice_while_a_broker_lags(settings: dict[str, str]) -> None:
    """One broker has no new metadata, and its leader was deposed."""
    with UnitCluster({A.topic: 1, B.topic: 1}, brokers=3, replication_factor=3) as cluster:
        planner = Planner(cluster, settings, fail=True)
        cluster.event("isolate_broker", broker=0, seconds=3.0)
        cluster.sleep(1.0)
        for tp in (A, B):
            cluster.append(tp, 5)
        planner.end = {A: 15, B: 15}  # as of another run
        cluster.append(A, 5)
        assert planner.plan_next() == {A: (15, 20)}


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_evidence_of_a_deposed_leader_does_not_use_up_the_attempts(settings: dict[str, str], code: int) -> None:
    with UnitCluster({A.topic: 1, B.topic: 1}, brokers=3, replication_factor=3) as cluster:
        planner = Planner(cluster, settings, fail=True)
        cluster.append(A, 5)
        cluster.fault("ListOffsets", "error", repeats=3, code=code)
        assert planner.plan_next() == {A: (10, 15)}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_lost_epochs_are_confirmed_with_few_retries(settings: dict[str, str]) -> None:
    with UnitCluster({A.topic: 1, B.topic: 1}, brokers=3, replication_factor=3) as cluster:
        planner = Planner(cluster, settings, fail=True)
        cluster.append(A, 5)
        planner.reader.cluster.raise_epoch_floor(A, cluster.topic_id(A.topic), 50)
        assert planner.plan_next() == {A: (10, 15)}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("lose", [delete, truncate], ids=lambda lose: lose.__name__)
def test_a_broker_that_does_not_respond_delays_the_confirmation(
    lose: Callable[[UnitCluster], None], settings: dict[str, str]
) -> None:
    with UnitCluster({A.topic: 1, B.topic: 1}, brokers=3, replication_factor=3) as cluster:
        planner = Planner(cluster, settings, fail=False)
        cluster.append(A, 5)
        cluster.event("pause_broker", broker=2, seconds=1000.0)
        lose(cluster)
        started = cluster.now
        assert planner.plan_next() == {A: (10, 15), **AFTER[lose]}
        assert cluster.now - started < 180


def test_a_broker_that_does_not_respond_again_is_waited_for_again() -> None:
    """It may be the leader each time."""
    with UnitCluster({A.topic: 1}, brokers=3, replication_factor=3) as cluster:
        client = cluster.client(request_timeout_ms=10_000)
        client.topics([A.topic])
        for _ in range(2):
            cluster.event("pause_broker", broker=2, seconds=60.0)
            started = cluster.now
            client.raise_epoch_floors([A.topic])
            assert 10 <= cluster.now - started < 30
            cluster.sleep(100)


@pytest.mark.parametrize("attempts", ["1", "3"])
def test_an_error_that_is_no_evidence_uses_up_the_attempts(attempts: str) -> None:
    with UnitCluster({A.topic: 1, B.topic: 1}, brokers=3, replication_factor=3) as cluster:
        planner = Planner(cluster, {"fetchOffset.numRetries": attempts}, fail=False)
        before = cluster.sent("ListOffsets")
        cluster.every("ListOffsets", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        with pytest.raises(Exception, match="NOT_LEADER_OR_FOLLOWER") as caught:
            planner.reader.offsets({A: LATEST})
        assert cluster.sent("ListOffsets") == before + int(attempts)
        assert not any("data loss" in note for note in getattr(caught.value, "__notes__", []))


def test_the_error_of_a_confirmation_that_does_not_end_has_both_times() -> None:
    with UnitCluster({A.topic: 1, B.topic: 1}, brokers=3, replication_factor=3) as cluster:
        planner = Planner(cluster, SETTINGS["one attempt"], fail=False)
        cluster.every("ListOffsets", "error", code=ErrorCode.FENCED_LEADER_EPOCH)
        started = cluster.now
        with pytest.raises(Exception, match="FENCED_LEADER_EPOCH") as caught:
            planner.reader.offsets({A: LATEST})
        assert 9 < cluster.now - started < 12
        notes: Any = caught.value.__notes__
        assert any("10 s to confirm or refute a data loss, which takes at least 5 s" in note for note in notes)


@pytest.mark.parametrize("interval", ["0", "10"])
def test_contradicting_metadata_is_requested_for_longer_than_a_broker_lags(interval: str) -> None:
    with UnitCluster({A.topic: 1, B.topic: 1}, brokers=3, replication_factor=3) as cluster:
        planner = Planner(cluster, {"fetchOffset.retryIntervalMs": interval}, fail=False)
        started = cluster.now
        for _ in range(MAX_METADATA_RESPONSES):
            planner.reader.wait()
        assert cluster.now - started >= 2 * CONFIRMATION_SECONDS
