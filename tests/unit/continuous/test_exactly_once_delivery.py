"""The driver's part of exactly-once delivery: its requests, their order, and what it rejects."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
from tests.unit.continuous.test_checkpoint_logs import FakeFileManager, open_logs_on
from tests.unit.producer.fake_coordinator import FakeTransactionalCluster

from pyspark_kafka_direct.client.consumer_group import CommittedOffset
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.config.continuous_query import parse_start_options
from pyspark_kafka_direct.config.sink_options import parse_sink_options
from pyspark_kafka_direct.continuous import sink_delivery
from pyspark_kafka_direct.continuous.checkpoint_log_format import (
    OffsetLogEntry,
    format_commit,
    format_offset_entry,
)
from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointState
from pyspark_kafka_direct.continuous.checkpoint_recovery import recover_logs
from pyspark_kafka_direct.continuous.fencing_log import FencingLog
from pyspark_kafka_direct.continuous.group_offsets import (
    BEFORE_FIRST_EPOCH,
    EpochMetadata,
    EpochOffset,
    parse_epoch_metadata,
    reset_token,
)
from pyspark_kafka_direct.continuous.kafka_writer import KafkaWriterFactory
from pyspark_kafka_direct.continuous.sink_delivery import ExactlyOnceDelivery, kafka_delivery
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    CheckpointFencedError,
    InvalidOffsetsError,
    OptionError,
    TransactionStateError,
)
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.config.read_options import ContinuousOptions

A0, A1, MISSING = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("missing", 0)
ID = UUID(int=5)
BOTH_TASKS = [("InitProducerId", "p.cont.0", 60_000), ("InitProducerId", "p.cont.1", 60_000)]


class FakeCluster:
    """The cluster of the output, possibly another one for the input, and a checkpoint."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.cluster = FakeTransactionalCluster()
        self.cluster.ids = {"a": ID}
        self.other = FakeTransactionalCluster()
        self.disk = FakeFileManager()
        clusters = {"b": self.cluster, "o": self.other}
        patch.setattr(sink_delivery, "_INIT_THREADS", 1)  # so that the order of the requests is fixed
        patch.setattr(sink_delivery, "ClusterClient", lambda settings, pool: clusters[settings.bootstrap_servers[0][0]])

    def options(self, servers: str = "b:1", **options: str) -> Any:
        given = {
            "kafka.bootstrap.servers": servers,
            "topic": "out",
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": "p",
            "kafka.transaction.timeout.ms": "60000",
        }
        return parse_sink_options(given | options, streaming=True)

    def delivery(self, source: str = "", max_transaction_seconds: float = 10, **options: str) -> ExactlyOnceDelivery:
        connection = self.options(source).connection if source else None
        return ExactlyOnceDelivery(
            self.options(**options), connection, open_logs_on(self.disk), max_transaction_seconds
        )

    def commit(self, tp: TopicPartition, offset: int, epoch: int, query: str = "q") -> None:
        self.cluster.committed_offsets[tp] = CommittedOffset(offset, EpochMetadata(query, epoch, ID).to_json())

    def token(self, query: str) -> str:
        """The value for ``resetTransactionState`` in the error message."""
        found = {
            tp: EpochOffset(each.offset, parse_epoch_metadata(each.metadata))
            for tp, each in self.cluster.committed_offsets.items()
        }
        return reset_token(found, query)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster(monkeypatch)


def test_ids_are_acquired_before_offsets_are_fetched(world: FakeCluster) -> None:
    delivery = world.delivery()
    delivery.prepare("q", [A0, A1], 2)
    assert world.cluster.take_requests() == [
        ("DescribeConfigs", "1"),
        ("OffsetFetch", "p.cont", None, False),
        *BOTH_TASKS,
        ("OffsetFetch", "p.cont", None, True),
        ("OffsetFetch", "p.cont", [("a", 0), ("a", 1)], True),
    ]
    assert delivery.producers == [ProducerIdAndEpoch(7, 3), ProducerIdAndEpoch(8, 3)]
    assert delivery.coalesces_epochs is True
    assert isinstance(delivery.writer_factory, KafkaWriterFactory)
    assert delivery.writer_factory.transactional_id_prefix == "p"


def test_a_run_of_fewer_tasks_acquires_all_ids(world: FakeCluster) -> None:
    world.delivery().prepare("q", [A0], 2)
    world.cluster.take_requests()
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert world.cluster.requests_for("InitProducerId") == BOTH_TASKS
    assert delivery.producers == [ProducerIdAndEpoch(7, 4)]


def test_the_cluster_is_checked_once(world: FakeCluster) -> None:
    delivery = world.delivery("b:1")
    for _ in range(2):
        delivery.prepare("q", [A0], 1)
    assert len(world.cluster.requests_for("DescribeConfigs")) == 1


@pytest.mark.parametrize(("max_seconds", "rejected"), [(59.99, False), (60, True), (61, True)])
def test_the_transaction_timeout_must_exceed_an_epoch(world: FakeCluster, max_seconds: float, rejected: bool) -> None:
    if not rejected:
        world.delivery(max_transaction_seconds=max_seconds)
        return
    with pytest.raises(
        OptionError, match=rf"timeout\.ms is 60000, but a transaction can stay open for up to {max_seconds:g} s"
    ):
        world.delivery(max_transaction_seconds=max_seconds)


@pytest.mark.parametrize(("has_timeout_option", "timeout_ms"), [(True, 60_000), (False, 52_000)])
def test_without_the_option_the_transaction_timeout_covers_the_slowest_epoch(
    world: FakeCluster, has_timeout_option: bool, timeout_ms: int
) -> None:
    options = world.options()
    settings = parse_start_options({"checkpointLocation": "/c", "epochInterval": 2, "epochTimeout": 10})
    read_options = cast("ContinuousOptions", SimpleNamespace(connection=options.connection))
    delivery = kafka_delivery(options, has_timeout_option, read_options, open_logs_on(world.disk), settings)
    delivery.prepare("q", [A0], 1)
    assert world.cluster.requests_for("InitProducerId") == [("InitProducerId", "p.cont.0", timeout_ms)]


def test_at_least_once_delivery_has_no_producer_ids(world: FakeCluster) -> None:
    options = parse_sink_options({"kafka.bootstrap.servers": "b:1", "topic": "out"}, streaming=True)
    settings = parse_start_options({"checkpointLocation": "/c"})
    read_options = cast("ContinuousOptions", SimpleNamespace(connection=options.connection))
    delivery = kafka_delivery(options, False, read_options, open_logs_on(world.disk), settings)
    delivery.prepare("q", [A0], 1)
    assert delivery.producers == ()
    assert world.cluster.take_requests() == []


def test_brokers_must_allow_the_transaction_timeout(world: FakeCluster) -> None:
    world.cluster.configs = {"transaction.max.timeout.ms": "59999"}
    with pytest.raises(OptionError, match="the brokers allow at most 59999"):
        world.delivery().prepare("q", [A0], 1)
    assert not world.cluster.requests_for("InitProducerId")


def test_input_and_output_must_be_in_one_cluster(world: FakeCluster) -> None:
    world.other.cluster_id = "not fetched yet"
    world.other.refresh_brokers = lambda **_: setattr(world.other, "cluster_id", "d")  # type: ignore[method-assign]
    with pytest.raises(OptionError, match="This query reads from d and writes to c"):
        world.delivery("o:1").prepare("q", [A0], 1)
    assert not world.cluster.requests_for("InitProducerId")
    world.other.refresh_brokers = lambda **_: setattr(world.other, "cluster_id", "c")  # type: ignore[method-assign]
    world.delivery("o:1").prepare("q", [A0], 1)


def test_the_prefix_of_another_query_is_rejected_before_it_is_fenced(world: FakeCluster) -> None:
    world.commit(A0, 5, 3, query="other")
    with pytest.raises(TransactionStateError, match="offset 5 of a-0, which query other has committed in epoch 3"):
        world.delivery().prepare("q", [A0], 1)
    with pytest.raises(TransactionStateError):
        world.delivery(resetTransactionState="1" * 8).prepare("q", [A0], 1)
    assert not world.cluster.requests_for("InitProducerId")
    assert world.disk.files == {}


@pytest.mark.parametrize("level", [1, 2])
def test_the_prefix_of_another_query_can_be_reset(world: FakeCluster, level: int) -> None:
    world.cluster.level = level
    world.commit(A0, 5, 3, query="other")
    world.commit(MISSING, 6, 3, query="other")
    world.commit(A1, 7, 2)
    others = {tp: each for tp, each in world.cluster.committed_offsets.items() if tp != A1}
    token = reset_token(
        {tp: EpochOffset(each.offset, EpochMetadata("other", 3, ID)) for tp, each in others.items()}, "q"
    )
    delivery = world.delivery(resetTransactionState=token)
    delivery.prepare("q", [A0, A1], 2)
    assert world.cluster.committed_offsets == {
        A0: CommittedOffset(5, EpochMetadata("q", BEFORE_FIRST_EPOCH, ID).to_json()),
        A1: CommittedOffset(7, EpochMetadata("q", 2, ID).to_json()),
        MISSING: others[MISSING],
    }
    assert world.cluster.requests_for("EndTxn") == [("EndTxn", ("p.cont.0", 7, 3), "commit")]
    assert delivery.producers == [ProducerIdAndEpoch(7, 3 if level < 2 else 4), ProducerIdAndEpoch(8, 3)]
    assert delivery.offsets_ahead(CheckpointState()) == {A1: 7}, "offsets of other queries do not count"


def test_a_run_without_tasks_cannot_reset_a_prefix(world: FakeCluster) -> None:
    world.commit(A0, 5, 3, query="other")
    with pytest.raises(TransactionStateError, match="query other"):
        world.delivery(resetTransactionState=world.token("q")).prepare("q", [], 0)
    assert world.cluster.committed_offsets[A0].offset == 5


def test_a_pending_offset_of_another_query_is_rejected(world: FakeCluster) -> None:
    """The offset was pending when the group was fetched first."""
    respond = world.cluster.respond

    def respond_late(api: Any, values: Mapping[str, Any]) -> Any:
        if api.name == "InitProducerId":
            world.commit(A0, 5, 3, query="other")
        return respond(api, values)

    world.cluster.respond = respond_late  # type: ignore[method-assign]
    with pytest.raises(TransactionStateError, match="query other"):
        world.delivery().prepare("q", [A0], 1)


def test_committed_offsets_take_precedence_over_the_logs(world: FakeCluster) -> None:
    world.commit(A0, 50, 4)
    world.commit(A1, 60, 3)
    world.disk.files["offsets/3"] = format_offset_entry(OffsetLogEntry({A0: 40, A1: 60}))
    delivery = world.delivery()
    delivery.prepare("q", [A0, A1], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {A0: 50, A1: 60}
    assert delivery.offsets_ahead(CheckpointState(committed=3)) == {A0: 50}


def test_a_partition_that_returns_continues_at_its_committed_offset(world: FakeCluster) -> None:
    world.commit(A0, 40, 5)
    world.commit(A1, 60, 3)  # the logs have lost it since
    world.disk.files["offsets/5"] = format_offset_entry(OffsetLogEntry({A0: 40}))
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert delivery.offsets_ahead(CheckpointState(committed=5)) == {}
    delivery.prepare("q", [A0, A1], 2)
    assert delivery.offsets_ahead(CheckpointState(committed=5)) == {A1: 60}


def test_logs_that_contradict_the_transactions_are_rejected(world: FakeCluster) -> None:
    world.commit(A0, 50, 3)
    world.disk.files["offsets/3"] = format_offset_entry(OffsetLogEntry({A0: 40}))
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    with pytest.raises(TransactionStateError, match="offset 50 of a-0"):
        delivery.offsets_ahead(CheckpointState(committed=3))


def respond_in_turn(cluster: FakeTransactionalCluster, *responses: dict[str, UUID]) -> None:
    """Let different brokers return these topic ids one after the other; several brokers confirm the last ones."""
    remaining, topics = list(responses), cluster.topics
    cluster.witness_ids = responses[-1]

    def fetch_topics(names: Any, **keywords: Any) -> dict[str, Any]:
        cluster.ids = remaining.pop(0) if remaining else cluster.ids
        return topics(names, **keywords)

    cluster.topics = fetch_topics  # type: ignore[method-assign]


def test_an_epoch_of_the_driver_does_not_contradict_the_transactions(world: FakeCluster) -> None:
    """A log was truncated below its committed offset, and the driver dies before a task commits."""
    world.commit(A0, 50, epoch=4)
    world.disk.files["offsets/4"] = format_offset_entry(OffsetLogEntry({A0: 50}))
    driver = world.delivery()
    driver.prepare("q", [A0], 1)
    assert driver.offsets_ahead(CheckpointState(4)) == {}
    driver.commit_offsets(5, {A0: 40}, {A0: ID})
    assert world.cluster.committed_offsets[A0] == CommittedOffset(40, EpochMetadata("q", 5, ID).to_json())
    successor = world.delivery()
    successor.prepare("q", [A0], 1)
    assert successor.offsets_ahead(CheckpointState(4)) == {A0: 40}, "the driver died before it wrote the logs"
    world.disk.files["offsets/5"] = format_offset_entry(OffsetLogEntry({A0: 40}))
    assert successor.offsets_ahead(CheckpointState(5)) == {}


def test_a_topic_that_a_broker_does_not_know_is_not_missing(world: FakeCluster) -> None:
    world.commit(MISSING, 6, 3)
    cluster = world.cluster
    lagging: list[dict[str, UUID]] = [{}, {"a": ID}, {}, {"a": ID}]
    respond_in_turn(cluster, *lagging, {"a": ID, "missing": ID})
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {MISSING: 6}
    assert (cluster.broker_switches, cluster.system.slept) == (4, [1.0] * 4)


def test_a_topic_is_missing_if_several_brokers_confirm_it(world: FakeCluster) -> None:
    world.commit(MISSING, 6, 3)
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {}
    assert (world.cluster.confirmations, world.cluster.system.slept) == (1, [])


def test_one_broker_with_another_topic_id_discards_no_committed_offset(world: FakeCluster) -> None:
    """A broker whose metadata lagged was enough: the records of a committed transaction were written again."""
    world.commit(A0, 6, 3)
    respond_in_turn(world.cluster, {"a": UUID(int=99)}, {"a": ID})
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {A0: 6}
    assert world.cluster.confirmations == 1


def test_the_offsets_of_a_recreated_topic_do_not_count(world: FakeCluster) -> None:
    world.commit(A0, 6, 3)
    world.cluster.ids = {"a": UUID(int=99)}
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {}


@pytest.mark.parametrize("lost", [MISSING, A1], ids=["deleted", "recreated"])
@pytest.mark.parametrize("reached", [True, False], ids=["other-partition", "alone"])
def test_a_topic_is_lost_between_the_files_of_an_epoch(world: FakeCluster, lost: TopicPartition, reached: bool) -> None:
    """Brokers have deleted its committed offsets, and every later start was rejected."""
    planned = {A0: 50 if reached else 40, lost: 9}
    if reached:
        world.commit(A0, 50, 4)
    world.disk.files["offsets/3"] = format_offset_entry(OffsetLogEntry({A0: 40, lost: 7}))
    world.disk.files["offsets/4"] = format_offset_entry(OffsetLogEntry(planned, is_output_written=True))
    world.disk.files["commits/3"] = format_commit()
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert recover_logs(open_logs_on(world.disk), delivery, 0) == planned
    assert "commits/4" in world.disk.files


def test_the_topic_of_a_planned_epoch_exists_but_is_not_selected(world: FakeCluster) -> None:
    """A micro-batch query may have planned the epoch, so a topic that one broker lacks is no evidence."""
    world.disk.files["offsets/3"] = format_offset_entry(OffsetLogEntry({MISSING: 7}))
    world.disk.files["offsets/4"] = format_offset_entry(OffsetLogEntry({MISSING: 9}))
    world.disk.files["commits/3"] = format_commit()
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    respond_in_turn(world.cluster, {"a": ID}, {"a": ID, "missing": ID})
    with pytest.raises(InvalidOffsetsError, match="offsets/4 without a commit"):
        recover_logs(open_logs_on(world.disk), delivery, 0)


def test_brokers_that_contradict_each_other_fail_the_start(world: FakeCluster) -> None:
    world.commit(MISSING, 6, 3)
    world.cluster.witness_ids = {"a": ID, "missing": ID}
    with pytest.raises(BrokerTimeoutError, match=r"some brokers do not know all of a-0, missing-0"):
        world.delivery().prepare("q", [A0], 1)


def test_existing_topics_are_fetched_once(world: FakeCluster) -> None:
    world.delivery().prepare("q", [A0], 1)
    assert world.cluster.requested_topics == ["a"]
    assert world.cluster.system.slept == []


def test_a_driver_that_is_fenced_while_it_prepares_fails(world: FakeCluster) -> None:
    delivery = world.delivery()
    respond = world.cluster.respond

    def respond_late(api: Any, values: Mapping[str, Any]) -> Any:
        if api.name == "InitProducerId":
            FencingLog(world.disk, "successor").append("c", "p", 1)
        return respond(api, values)

    world.cluster.respond = respond_late  # type: ignore[method-assign]
    with pytest.raises(CheckpointFencedError):
        delivery.prepare("q", [A0], 1)


def test_a_driver_that_another_one_has_replaced_is_rejected_before_its_tasks_start(world: FakeCluster) -> None:
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    delivery.check("q")
    FencingLog(world.disk, "successor").append("c", "p", 1)
    with pytest.raises(CheckpointFencedError, match="has taken control of the query"):
        delivery.check("q")


def test_producer_ids_are_acquired_concurrently(world: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_delivery, "_INIT_THREADS", 3)
    delivery, all_requested = world.delivery(), threading.Barrier(3)
    acquire = delivery._init_producer_id

    def acquire_together(task: int) -> ProducerIdAndEpoch:
        if task < 3:
            all_requested.wait(60)
        return acquire(task)

    monkeypatch.setattr(delivery, "_init_producer_id", acquire_together)
    delivery.prepare("q", [A0], 5)
    assert {each[1] for each in world.cluster.requests_for("InitProducerId")} == {f"p.cont.{n}" for n in range(5)}
    assert [each.id for each in delivery.producers] == [
        world.cluster.producers[f"p.cont.{number}"].id for number in range(5)
    ]


def test_the_first_failure_to_acquire_a_producer_id_ends_the_others(
    world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery, requested = world.delivery(), []

    def fail(task: int) -> ProducerIdAndEpoch:
        requested.append(task)
        raise BrokerTimeoutError("no coordinator")

    monkeypatch.setattr(delivery, "_init_producer_id", fail)
    with pytest.raises(BrokerTimeoutError, match="no coordinator"):
        delivery.prepare("q", [A0], 5)
    assert requested == [0]


def test_the_failure_of_another_thread_to_acquire_a_producer_id_is_raised(
    world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_delivery, "_INIT_THREADS", 2)
    delivery, requested, failed = world.delivery(), list[int](), list[threading.Thread]()
    caller, is_waiting, has_failed = threading.current_thread(), threading.Event(), threading.Event()

    def fail_in_the_other_thread(task: int) -> ProducerIdAndEpoch:
        requested.append(task)
        if threading.current_thread() is not caller:
            assert is_waiting.wait(60)
            failed.append(threading.current_thread())
            has_failed.set()
            raise BrokerTimeoutError("no coordinator")
        is_waiting.set()
        assert has_failed.wait(60)
        failed[0].join(60)
        return ProducerIdAndEpoch(7, 3)

    monkeypatch.setattr(delivery, "_init_producer_id", fail_in_the_other_thread)
    with pytest.raises(BrokerTimeoutError, match="no coordinator"):
        delivery.prepare("q", [A0], 5)
    assert sorted(requested) == [0, 1], "the caller acquires no other id"


def test_no_producer_id_is_acquired_after_a_failure(world: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is still retried would fence the tasks of the next attempt."""
    monkeypatch.setattr(sink_delivery, "_INIT_THREADS", 2)
    delivery, acquired = world.delivery(), threading.Event()
    failing, retrying = threading.current_thread(), threading.Event()

    def fail_or_retry(task: int) -> ProducerIdAndEpoch:
        if threading.current_thread() is failing:
            retrying.wait(60)
            raise BrokerTimeoutError("no coordinator")
        retrying.set()
        time.sleep(0.2)
        acquired.set()
        return ProducerIdAndEpoch(7, 3)

    monkeypatch.setattr(delivery, "_init_producer_id", fail_or_retry)
    with pytest.raises(BrokerTimeoutError, match="no coordinator"):
        delivery.prepare("q", [A0], 2)
    assert acquired.is_set()


def test_another_prefix_after_a_recovery(world: FakeCluster) -> None:
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    with pytest.raises(OptionError, match="transactionalIdPrefix"):
        world.delivery(transactionalIdPrefix="r").prepare("q", [A0], 1)
    delivery._fencing_log.record_recovery()
    world.delivery(transactionalIdPrefix="r").prepare("q", [A0], 1)
    assert world.cluster.requests_for("InitProducerId")[-1][1] == "r.cont.0"
