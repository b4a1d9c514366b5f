"""The driver's part of exactly-once delivery: its requests, their order, and what it rejects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.settings import read_settings
from tests.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.cluster.groups import CommittedOffset as StoredOffset
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.continuous.test_checkpoint_logs import FakeFileManager, open_logs_on
from tests.unit.producer.transaction_requests import TransactionRequest, transaction_requests

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import CommittedOffset
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
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
    AuthorizationError,
    BrokerTimeoutError,
    CheckpointFencedError,
    InvalidOffsetsError,
    OptionError,
    TransactionStateError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.continuous_query import parse_start_options
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.continuous.sink_delivery import SinkDelivery
    from pyspark_kafka_direct.options.settings import WriteSettings

DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MISSING, MISSING_TOO = TopicPartition("missing", 0), TopicPartition("missing-too", 0)
ID = UUID(int=5)
BOTH_TASKS = [("InitProducerId", "p.cont.0", 60_000), ("InitProducerId", "p.cont.1", 60_000)]


class DeliveryCluster(UnitCluster):
    """Two brokers with input and output, another cluster at ``other``, and a checkpoint."""

    def __init__(self, **settings: Any) -> None:
        super().__init__({"a": 2, "b": 1, "out": 1}, brokers=2, **settings)
        TransactionCoordinator.of(self.cluster).marker_seconds = (0.0, 0.0)
        self.other = SimulatedCluster(self.world, brokers=1)
        self.network.brokers["other", 9092] = self.other.brokers[1]
        vars(self.process)["random"] = lambda: 0.0  # broker 1 gets the first request
        self.disk = FakeFileManager()
        self._taken = 0

    def options(self, servers: str = "broker-1:9092", **options: str) -> Any:
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
            self.options(**options), connection, open_logs_on(self.disk), max_transaction_seconds, self.pool
        )

    def delivery_of(self, options: WriteSettings, *, has_timeout_option: bool) -> SinkDelivery:
        """Return the delivery of a query that reads and writes with the same connection."""
        return kafka_delivery(
            options,
            has_timeout_option=has_timeout_option,
            read_settings=replace(read_settings(), connection=options.connection),
            logs=open_logs_on(self.disk),
            settings=parse_start_options({"checkpointLocation": "/c", "epochInterval": 2, "epochTimeout": 10}),
            pool=self.pool,
        )

    @property
    def id(self) -> UUID:
        """The id of the input topic."""
        return self.topic_id("a")

    def commit(
        self, tp: TopicPartition, offset: int, epoch: int, query: str = "q", topic_id: UUID | None = None
    ) -> None:
        topic_id = topic_id or (self.topic_id(tp.topic) if tp.topic in self.cluster.topics else ID)
        groups = GroupCoordinator.of(self.cluster)
        groups.set_members("p.cont", False)  # creates the group
        metadata = EpochMetadata(query, epoch, topic_id).to_json()
        groups.commit("p.cont", tp, StoredOffset(offset, -1, metadata, topic_id, 0))

    def committed_offsets(self) -> dict[TopicPartition, EpochOffset]:
        found = GroupCoordinator.of(self.cluster).committed("p.cont")
        return {
            TopicPartition(*name): EpochOffset(each.offset, parse_epoch_metadata(each.metadata))
            for name, each in found.items()
        }

    def take_requests(self) -> list[TransactionRequest]:
        """Return the requests since the last call."""
        first, self._taken = self._taken, len(self.requests)
        return transaction_requests(self.requests[first:])


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeliveryCluster]:
    monkeypatch.setattr(sink_delivery, "_INIT_THREADS", 1)  # so that the order of the requests is fixed
    # Brokers delete the offsets of a deleted topic some time later.
    monkeypatch.setattr(GroupCoordinator, "remove_deleted_topics", lambda *_: None)
    with DeliveryCluster(**getattr(request, "param", {})) as world:
        yield world


def with_settings(*settings: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("world", settings, indirect=True)


def test_ids_are_acquired_before_offsets_are_fetched(world: DeliveryCluster) -> None:
    delivery = world.delivery()
    delivery.prepare("q", [A0, A1], 2)
    assert world.take_requests() == [
        ("DescribeConfigs", "1"),
        ("OffsetFetch", "p.cont", None, False),
        *BOTH_TASKS,
        ("OffsetFetch", "p.cont", None, True),
        ("OffsetFetch", "p.cont", [("a", 0), ("a", 1)], True),
    ]
    assert delivery.producers == [ProducerIdAndEpoch(0, 0), ProducerIdAndEpoch(1, 0)]
    assert delivery.coalesces_epochs is True
    assert isinstance(delivery.writer_factory, KafkaWriterFactory)
    assert delivery.writer_factory.transactional_id_prefix == "p"


def test_a_run_of_fewer_tasks_acquires_all_ids(world: DeliveryCluster) -> None:
    world.delivery().prepare("q", [A0], 2)
    world.take_requests()
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert [each for each in world.take_requests() if each[0] == "InitProducerId"] == BOTH_TASKS
    assert delivery.producers == [ProducerIdAndEpoch(0, 1)]


def test_the_cluster_is_checked_once(world: DeliveryCluster) -> None:
    delivery = world.delivery("broker-1:9092")
    for _ in range(2):
        delivery.prepare("q", [A0], 1)
    assert world.sent("DescribeConfigs") == 1


@pytest.mark.parametrize(("max_seconds", "rejected"), [(59.99, False), (60, True), (61, True)])
def test_the_transaction_timeout_must_exceed_an_epoch(
    world: DeliveryCluster, max_seconds: float, rejected: bool
) -> None:
    if not rejected:
        world.delivery(max_transaction_seconds=max_seconds)
        return
    with pytest.raises(
        OptionError, match=rf"timeout\.ms is 60000, but a transaction can stay open for up to {max_seconds:g} s"
    ):
        world.delivery(max_transaction_seconds=max_seconds)


@pytest.mark.parametrize(("has_timeout_option", "timeout_ms"), [(True, 60_000), (False, 52_000)])
def test_without_the_option_the_transaction_timeout_covers_the_slowest_epoch(
    world: DeliveryCluster, has_timeout_option: bool, timeout_ms: int
) -> None:
    delivery = world.delivery_of(world.options(), has_timeout_option=has_timeout_option)
    delivery.prepare("q", [A0], 1)
    assert ("InitProducerId", "p.cont.0", timeout_ms) in world.take_requests()


def test_at_least_once_delivery_has_no_producer_ids(world: DeliveryCluster) -> None:
    delivery = world.delivery_of(world.options(deliveryGuarantee="at-least-once"), has_timeout_option=False)
    delivery.prepare("q", [A0], 1)
    assert delivery.producers == ()
    assert world.take_requests() == []


@with_settings({"broker_configs": {"transaction.max.timeout.ms": "59999"}})
def test_brokers_must_allow_the_transaction_timeout(world: DeliveryCluster) -> None:
    with pytest.raises(OptionError, match="the brokers allow at most 59999"):
        world.delivery().prepare("q", [A0], 1)
    assert world.sent("InitProducerId") == 0


def test_input_and_output_must_be_in_one_cluster(world: DeliveryCluster) -> None:
    world.other.cluster_id = "another"
    with pytest.raises(OptionError, match="This query reads from another and writes to simulated-cluster"):
        world.delivery("other:9092").prepare("q", [A0], 1)
    assert world.sent("InitProducerId") == 0
    world.other.cluster_id = world.cluster.cluster_id
    world.delivery("other:9092").prepare("q", [A0], 1)


def test_the_prefix_of_another_query_is_rejected_before_it_is_fenced(world: DeliveryCluster) -> None:
    world.commit(A0, 5, 3, query="other")
    with pytest.raises(TransactionStateError, match="offset 5 of a-0, which query other has committed in epoch 3"):
        world.delivery().prepare("q", [A0], 1)
    with pytest.raises(TransactionStateError):
        world.delivery(resetTransactionState="1" * 8).prepare("q", [A0], 1)
    assert world.sent("InitProducerId") == 0
    assert world.disk.files == {}


@with_settings({"transaction_version": 0}, {"transaction_version": 2})
def test_the_prefix_of_another_query_can_be_reset(world: DeliveryCluster) -> None:
    world.commit(A0, 5, 3, query="other")
    world.commit(B0, 8, 3, query="other")
    world.commit(MISSING, 6, 3, query="other")
    world.commit(A1, 7, 2)
    others = {tp: each for tp, each in world.committed_offsets().items() if tp != A1}
    delivery = world.delivery(resetTransactionState=reset_token(others, "q"))
    delivery.prepare("q", [A0, A1, B0], 2)
    world.sleep(1)
    assert world.committed_offsets() == {
        A0: EpochOffset(5, EpochMetadata("q", BEFORE_FIRST_EPOCH, world.id)),
        A1: EpochOffset(7, EpochMetadata("q", 2, world.id)),
        B0: EpochOffset(8, EpochMetadata("q", BEFORE_FIRST_EPOCH, world.topic_id("b"))),
        MISSING: others[MISSING],
    }
    assert [each for each in world.take_requests() if each[0] == "EndTxn"] == [("EndTxn", ("p.cont.0", 0, 0), "commit")]
    version = world.cluster.settings.transaction_version
    assert delivery.producers == [ProducerIdAndEpoch(0, 0 if version < 2 else 1), ProducerIdAndEpoch(1, 0)]
    assert delivery.offsets_ahead(CheckpointState()) == {A1: 7}, "offsets of other queries do not count"


def owner_of_prefix(world: DeliveryCluster) -> ExactlyOnceDelivery:
    """Return another query with the prefix, which has committed an offset."""
    owner = ExactlyOnceDelivery(world.options(), None, open_logs_on(FakeFileManager()), 10, world.pool)
    owner.prepare("other", [A0, A1], 2)
    owner.commit_offsets(3, {A0: 5}, {A0: world.id})
    world.sleep(1)
    return owner


def rejected_token(world: DeliveryCluster) -> str:
    """Return the token with which a rejected query may use the prefix."""
    with pytest.raises(TransactionStateError, match="query other") as caught:
        world.delivery().prepare("q", [A0, A1], 2)
    return caught.value.message.partition("set resetTransactionState to ")[2].partition(",")[0]


def test_a_token_includes_the_offsets_of_a_transaction_that_is_ending(world: DeliveryCluster) -> None:
    """The query of the prefix was stopped just now, and brokers still write the markers of its last transaction."""
    owner, coordinator = owner_of_prefix(world), TransactionCoordinator.of(world.cluster)
    coordinator.marker_seconds = (1.0, 1.0)
    owner.commit_offsets(3, {A1: 7}, {A1: world.id})
    coordinator.marker_seconds = (0.0, 0.0)
    assert set(world.committed_offsets()) == {A0}
    token = rejected_token(world)
    assert set(world.committed_offsets()) == {A0, A1}
    world.delivery(resetTransactionState=token).prepare("q", [A0, A1], 2)


def test_a_rejected_query_does_not_wait_for_a_transaction_that_remains_open(world: DeliveryCluster) -> None:
    """The query of the prefix was killed, so its transaction is open until its timeout. A reset aborts it."""
    owner = owner_of_prefix(world)
    pending = {A1: CommittedOffset(7, EpochMetadata("other", 4, world.id).to_json())}
    owner._group.commit_in_transaction("p.cont.1", owner.producers[1], pending, transaction_v2=True)
    start = world.now
    token = rejected_token(world)
    assert world.now - start < 15
    world.delivery(resetTransactionState=token).prepare("q", [A0, A1], 2)
    assert world.now - start < 30


def test_a_run_without_tasks_cannot_reset_a_prefix(world: DeliveryCluster) -> None:
    world.commit(A0, 5, 3, query="other")
    with pytest.raises(TransactionStateError, match="query other"):
        world.delivery(resetTransactionState=reset_token(world.committed_offsets(), "q")).prepare("q", [], 0)
    assert world.committed_offsets()[A0].offset == 5


def test_a_pending_offset_of_another_query_is_rejected(world: DeliveryCluster) -> None:
    """The offset was pending when the group was fetched first."""
    world.before("InitProducerId", lambda: world.commit(A0, 5, 3, query="other"))
    with pytest.raises(TransactionStateError, match="query other"):
        world.delivery().prepare("q", [A0], 1)


def test_committed_offsets_take_precedence_over_the_logs(world: DeliveryCluster) -> None:
    world.commit(A0, 50, 4)
    world.commit(A1, 60, 3)
    world.disk.files["offsets/3"] = format_offset_entry(OffsetLogEntry({A0: 40, A1: 60}))
    delivery = world.delivery()
    delivery.prepare("q", [A0, A1], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {A0: 50, A1: 60}
    assert delivery.offsets_ahead(CheckpointState(committed=3)) == {A0: 50}


def test_a_partition_that_returns_continues_at_its_committed_offset(world: DeliveryCluster) -> None:
    world.commit(A0, 40, 5)
    world.commit(A1, 60, 3)  # the logs have lost it since
    world.disk.files["offsets/5"] = format_offset_entry(OffsetLogEntry({A0: 40}))
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert delivery.offsets_ahead(CheckpointState(committed=5)) == {}
    delivery.prepare("q", [A0, A1], 2)
    assert delivery.offsets_ahead(CheckpointState(committed=5)) == {A1: 60}


def test_logs_that_contradict_the_transactions_are_rejected(world: DeliveryCluster) -> None:
    world.commit(A0, 50, 3)
    world.disk.files["offsets/3"] = format_offset_entry(OffsetLogEntry({A0: 40}))
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    with pytest.raises(TransactionStateError, match="offset 50 of a-0"):
        delivery.offsets_ahead(CheckpointState(committed=3))


def test_an_epoch_of_the_driver_does_not_contradict_the_transactions(world: DeliveryCluster) -> None:
    """A log was truncated below its committed offset, and the driver dies before a task commits."""
    world.commit(A0, 50, epoch=4)
    world.disk.files["offsets/4"] = format_offset_entry(OffsetLogEntry({A0: 50}))
    driver = world.delivery()
    driver.prepare("q", [A0], 1)
    assert driver.offsets_ahead(CheckpointState(4)) == {}
    driver.commit_offsets(5, {A0: 40}, {A0: world.id})
    world.sleep(1)
    assert world.committed_offsets()[A0] == EpochOffset(40, EpochMetadata("q", 5, world.id))
    successor = world.delivery()
    successor.prepare("q", [A0], 1)
    assert successor.offsets_ahead(CheckpointState(4)) == {A0: 40}, "the driver died before it wrote the logs"
    world.disk.files["offsets/5"] = format_offset_entry(OffsetLogEntry({A0: 40}))
    assert successor.offsets_ahead(CheckpointState(5)) == {}


def test_a_topic_that_a_broker_does_not_know_is_not_missing(world: DeliveryCluster) -> None:
    world.event("stick_image", broker=0, seconds=100)
    world.event("create_topic", topic="missing")
    world.commit(MISSING, 6, 3)
    delivery, start = world.delivery(), world.now
    delivery.prepare("q", [A0], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {MISSING: 6}
    assert world.now - start > 1, "the next broker gets a request after a pause"


def test_topics_are_missing_if_several_brokers_confirm_it(world: DeliveryCluster) -> None:
    world.commit(MISSING, 6, 3)
    world.commit(MISSING_TOO, 7, 3)
    delivery, start = world.delivery(), world.now
    delivery.prepare("q", [A0], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {}
    assert 5 < world.now - start < 10, "both are confirmed at once"


@pytest.mark.parametrize("recreated", ["a", "b"])
def test_one_broker_with_another_topic_id_discards_no_committed_offset(world: DeliveryCluster, recreated: str) -> None:
    """A broker whose metadata lagged was enough: the records of a committed transaction were written again."""
    world.event("stick_image", broker=0, seconds=100)
    world.event("recreate_topic", topic=recreated, partitions=2)
    world.commit(A0, 6, 3)
    world.commit(B0, 7, 3)
    delivery = world.delivery()
    delivery.prepare("q", [A0, B0], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {A0: 6, B0: 7}


def test_the_offsets_of_a_recreated_topic_do_not_count(world: DeliveryCluster) -> None:
    world.commit(A0, 6, 3)
    world.event("recreate_topic", topic="a", partitions=2)
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert delivery.offsets_ahead(CheckpointState()) == {}


@pytest.mark.parametrize("lost", [MISSING, A1], ids=["deleted", "recreated"])
@pytest.mark.parametrize("reached", [True, False], ids=["other-partition", "alone"])
def test_a_topic_is_lost_between_the_files_of_an_epoch(
    world: DeliveryCluster, lost: TopicPartition, reached: bool
) -> None:
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


def test_the_topic_of_a_planned_epoch_exists_but_is_not_selected(world: DeliveryCluster) -> None:
    """A micro-batch query may have planned the epoch, so a topic that one broker lacks is no evidence."""
    world.disk.files["offsets/3"] = format_offset_entry(OffsetLogEntry({MISSING: 7}))
    world.disk.files["offsets/4"] = format_offset_entry(OffsetLogEntry({MISSING: 9}))
    world.disk.files["commits/3"] = format_commit()
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    world.event("stick_image", broker=0, seconds=100)
    world.event("create_topic", topic="missing")
    with pytest.raises(InvalidOffsetsError, match="offsets/4 without a commit"):
        recover_logs(open_logs_on(world.disk), delivery, 0)


def test_brokers_that_contradict_each_other_fail_the_start(
    world: DeliveryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(MISSING, 6, 3)
    monkeypatch.setattr(ClusterClient, "confirm_missing", lambda *_, **__: set())
    with pytest.raises(BrokerTimeoutError, match=r"some brokers do not know all of a-0, missing-0"):
        world.delivery().prepare("q", [A0], 1)


def test_existing_topics_are_fetched_once(world: DeliveryCluster) -> None:
    world.delivery().prepare("q", [A0], 1)
    names = [topic.name for request in world.received("Metadata") for topic in request.topics or ()]
    assert names == ["a"]


def test_a_driver_that_is_fenced_while_it_prepares_fails(world: DeliveryCluster) -> None:
    delivery = world.delivery()
    world.before("InitProducerId", lambda: FencingLog(world.disk, "successor").append("simulated-cluster", "p", 1))
    with pytest.raises(CheckpointFencedError):
        delivery.prepare("q", [A0], 1)


def test_a_driver_that_another_one_has_replaced_is_rejected_before_its_tasks_start(world: DeliveryCluster) -> None:
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    delivery.check("q")
    FencingLog(world.disk, "successor").append("simulated-cluster", "p", 1)
    with pytest.raises(CheckpointFencedError, match="has taken control of the query"):
        delivery.check("q")


def test_producer_ids_are_acquired_concurrently(world: DeliveryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_delivery, "_INIT_THREADS", 3)
    world.fault("InitProducerId", "delay_response", repeats=5, seconds=1)
    delivery, start = world.delivery(), world.now
    delivery.prepare("q", [A0], 5)
    assert 2 < world.now - start < 2.5
    transactions = TransactionCoordinator.of(world.cluster)
    found = [transactions.transaction(f"p.cont.{number}") for number in range(5)]
    assert [each.id for each in delivery.producers] == [each and each.producer_id for each in found]


def test_the_first_failure_to_acquire_a_producer_id_ends_the_others(world: DeliveryCluster) -> None:
    world.fault("InitProducerId", "error", code=DENIED)
    with pytest.raises(AuthorizationError, match=DENIED.name):
        world.delivery().prepare("q", [A0], 5)
    assert world.sent("InitProducerId") == 1


@pytest.mark.parametrize("failing", [0, 1, 2], ids=["one-thread", "another", "the-last"])
@pytest.mark.parametrize("slowest", [1, -1])
def test_no_producer_id_is_acquired_after_the_failure_of_a_thread(
    world: DeliveryCluster, monkeypatch: pytest.MonkeyPatch, failing: int, slowest: int
) -> None:
    """A request that is still retried would fence the tasks of the next attempt."""
    monkeypatch.setattr(sink_delivery, "_INIT_THREADS", 3)
    world.fault("InitProducerId", "error", number=failing, code=DENIED)
    for seconds, number in enumerate(sorted({0, 1, 2} - {failing})[::slowest], 1):
        world.fault("InitProducerId", "delay_response", number=number, seconds=seconds)
    start = world.now
    with pytest.raises(AuthorizationError, match=DENIED.name):
        world.delivery().prepare("q", [A0], 5)
    assert world.now - start > 2, "the other requests have their responses"
    world.sleep(60)
    assert world.sent("InitProducerId") == 3


def test_another_prefix_after_a_recovery(world: DeliveryCluster) -> None:
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    with pytest.raises(OptionError, match="transactionalIdPrefix"):
        world.delivery(transactionalIdPrefix="r").prepare("q", [A0], 1)
    delivery._fencing_log.record_recovery()
    world.delivery(transactionalIdPrefix="r").prepare("q", [A0], 1)
    assert world.received("InitProducerId")[-1].transactional_id == "r.cont.0"
