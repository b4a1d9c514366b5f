"""Delivery of a query's output: at least once to any sink, or exactly once to Kafka.

For exactly-once delivery, each task writes one transaction for each epoch. It contains the records and, by
TxnOffsetCommit, the next offsets to read, so that both are committed or neither (``kafka_writer.py``). At a start:

0. All tasks connect to the driver, so that a driver whose tasks cannot run fences no other one.
1. The driver writes to the fencing log how many transactional ids the run uses (``fencing_log.py``).
2. It calls InitProducerId for each transactional id that this or an earlier run has used. That aborts open
   transactions and fences tasks of earlier runs. Only the driver does this: a task that resumes late must not fence
   its successor. A suspended driver may fence ids of its successor, so it checks the fencing log afterwards.
3. It fetches the stable offsets of the group (``group_offsets.py``). No other writer can commit to it any more.
4. It recovers the logs from these offsets (``checkpoint_logs.py``), and sends each task its offsets and producer id.

The principal needs WRITE and DESCRIBE on the transactional ids ``<prefix>.cont.*``, READ and DESCRIBE on the group
``<prefix>.cont``, READ on the input topics and WRITE on the output topics.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.client.system import start_call
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.continuous.group_offsets import (
    BEFORE_FIRST_EPOCH,
    EpochMetadata,
    EpochOffset,
    foreign_offsets,
    offsets_ahead,
    offsets_group_id,
    parse_epoch_metadata,
    prefix_in_use_error,
    reset_token,
    transactional_id,
)
from pyspark_kafka_direct.continuous.kafka_writer import KafkaWriterFactory
from pyspark_kafka_direct.errors import OptionError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import find_lost_partitions
from pyspark_kafka_direct.planning.loss_errors import READ_FROM_START
from pyspark_kafka_direct.planning.offset_reader import MAX_METADATA_RESPONSES, contradicting_metadata_error
from pyspark_kafka_direct.producer.exactly_once import check_transaction_support
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
    from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointLogs, CheckpointState
    from pyspark_kafka_direct.continuous.continuous_sink import SinkWriterFactory
    from pyspark_kafka_direct.options.continuous_query import ContinuousSettings
    from pyspark_kafka_direct.options.settings import ConnectionSettings, ReadSettings, WriteSettings

_TRANSACTION_TIMEOUT_OPTION: Final = "kafka.transaction.timeout.ms"
_TRANSACTION_TIMEOUT_MARGIN: Final = 30.0  # seconds
_METADATA_RETRY_SECONDS: Final = 1.0
_INIT_THREADS: Final = 16
_PENDING_OFFSETS_SECONDS: Final = 10.0  # brokers end a transaction in less time, unless one of them has failed


class SinkDelivery(ABC):
    """The driver's side of a query's output; by default without transactions.

    Call order at each start and restart::

        delivery.check(query_id)
        TaskPlan(writer_factory=delivery.writer_factory, ...)
        delivery.prepare(query_id, partitions, tasks)  # when all tasks have connected
        state = logs.state()
        logs.recover(delivery.offsets_ahead(state), at_ms, state)
        RunStart(producers=delivery.producers, ...)
    """

    writer_factory: SinkWriterFactory

    @abstractmethod
    def check(self, query_id: str) -> None:
        """Reject what can be rejected without an effect on other drivers."""

    @abstractmethod
    def prepare(self, query_id: str, partitions: Collection[TopicPartition], tasks: int) -> None:
        """Fence earlier drivers, and with transactions their tasks, so that they cannot commit any more."""

    def offsets_ahead(self, state: CheckpointState) -> Mapping[TopicPartition, int] | None:
        """Return the offsets committed beyond the logs; ``None`` if only the logs count. Call ``prepare`` first."""
        return None

    @property
    def topic_ids(self) -> Mapping[str, UUID | None]:
        """The ids of the topics for which ``offsets_ahead`` was determined."""
        return MappingProxyType({})

    def commit_offsets(  # noqa: B027 (without transactions, the logs are enough)
        self, epoch: int, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[TopicPartition, UUID | None]
    ) -> None:
        """Commit an epoch of the driver, such as after data loss, which it then writes to the logs.

        Otherwise offsets of earlier transactions would contradict the logs if no task commits afterwards.
        """

    @property
    def coalesces_epochs(self) -> bool:
        """Whether the coordinator may merge epochs that complete while a commit is in flight."""
        return False  # rows may be stamped with the number of the epoch

    @property
    @abstractmethod
    def reselected_start(self) -> str:
        """The start of partitions that were not selected for a while, as a sentence for messages."""

    @property
    def producers(self) -> Sequence[ProducerIdAndEpoch]:
        """The producer ids of the tasks of the prepared run; empty without transactions."""
        return ()


class ExactlyOnceDelivery(SinkDelivery):
    """Exactly-once delivery to Kafka."""

    def __init__(
        self,
        options: WriteSettings,
        source: ConnectionSettings | None,  # None: do not check that input and output are in one cluster
        logs: CheckpointLogs,
        max_transaction_seconds: float,  # longest time a transaction may be open
        pool: ConnectionPool | None = None,  # None: that of the process
    ) -> None:
        prefix = options.transactional_id_prefix
        assert prefix is not None, "exactly-once delivery requires a prefix"
        timeout = options.transaction_timeout_ms / 1000
        if timeout <= max_transaction_seconds:
            raise OptionError(
                f"{_TRANSACTION_TIMEOUT_OPTION} is {options.transaction_timeout_ms}, but a transaction can stay "
                f"open for up to {max_transaction_seconds:g} s (epochInterval plus twice epochTimeout), and brokers "
                f"would abort it. Raise {_TRANSACTION_TIMEOUT_OPTION} (up to transaction.max.timeout.ms of the "
                "brokers), or lower epochTimeout."
            )
        self.writer_factory = KafkaWriterFactory.of(options)
        self._prefix = prefix
        self._options = options
        self._source = source
        self._logs = logs
        self._pool = pool
        self._cluster = ClusterClient(options.connection, pool=pool)
        self._group = ConsumerGroup(self._cluster, offsets_group_id(prefix))
        self._fencing_log = logs.fencing_log
        self._cluster_checked = False
        self._query_id = ""
        # Set by `prepare` for each run:
        self._partitions: Collection[TopicPartition] = ()  # that the run reads
        self._producer_ids: list[ProducerIdAndEpoch] = []  # of all ids that were fenced, the run's tasks first
        self._tasks = 0
        self._committed: Mapping[TopicPartition, EpochOffset] = {}  # of the group
        self._topic_ids: Mapping[str, UUID | None] = {}

    def check(self, query_id: str) -> None:
        """Reject a prefix that another query uses, because a query that uses it by mistake must not fence its owner."""
        self._fencing_log.check_newest()
        self._check_cluster()
        self._query_id = query_id
        # Do not wait for open transactions: they may be this query's own, which `_init_producer_id` aborts. So an owner
        # is known from the end of its first transaction on.
        foreign = self._fetch_foreign_offsets()
        if foreign and not self._is_reset_confirmed(foreign):
            self._wait_for_pending_offsets({tp.topic for tp in foreign})
            foreign = self._fetch_foreign_offsets()
        if foreign:
            self._check_reset_confirmed(foreign)

    def prepare(self, query_id: str, partitions: Collection[TopicPartition], tasks: int) -> None:
        """Fence all tasks of earlier runs, then read the committed offsets."""
        self.check(query_id)
        self._partitions, self._tasks = frozenset(partitions), tasks
        entry = self._fencing_log.append(self._cluster.cluster_id, self._prefix, tasks)
        # If an earlier run had more tasks, `entry.tasks` is greater than `tasks`, and all its ids are fenced too.
        self._producer_ids = self._init_producer_ids(entry.tasks)
        self._fencing_log.check_not_fenced()
        # Without partitions, the request returns all committed offsets, but omits partitions whose first offset is
        # pending in a transaction. With partitions, it waits for these.
        self._committed = _epoch_offsets(
            {**self._group.committed_with_metadata(), **self._group.committed_with_metadata(partitions)}
        )
        self._topic_ids = self._fetch_topic_ids({*partitions, *self._committed})
        if foreign := foreign_offsets(self._committed, query_id):
            self._reset_group(foreign)

    def offsets_ahead(self, state: CheckpointState) -> dict[TopicPartition, int]:
        logged_offsets = {} if state.committed is None else self._logs.offset_entry(state.committed).offsets
        return offsets_ahead(
            self._committed,
            query=self._query_id,
            topic_ids=self._topic_ids,
            last_epoch=state.committed,
            logged_offsets=logged_offsets,
            partitions=self._partitions,
        )

    @property
    def topic_ids(self) -> Mapping[str, UUID | None]:
        return self._topic_ids

    @property
    def coalesces_epochs(self) -> bool:
        return True  # the committed offsets are in the transactions

    @property
    def reselected_start(self) -> str:
        return (
            f"they are read from their offsets in the group {offsets_group_id(self._prefix)!r}, or from their start if "
            "brokers have deleted these offsets"
        )

    @property
    def producers(self) -> Sequence[ProducerIdAndEpoch]:
        return self._producer_ids[: self._tasks]

    def _check_cluster(self) -> None:
        """Check once that the cluster supports the transactions, and that input and output are in one cluster."""
        if self._cluster_checked:
            return
        check_transaction_support(self._cluster, self._options.transaction_timeout_ms)
        if self._source is not None:
            source = ClusterClient(self._source, pool=self._pool)
            source.refresh_brokers()
            if source.cluster_id != self._cluster.cluster_id:
                raise OptionError(
                    f"deliveryGuarantee=exactly-once requires that input and output are in one cluster, because a "
                    f"transaction is limited to one cluster. This query reads from {source.cluster_id} and writes to "
                    f"{self._cluster.cluster_id}. Use deliveryGuarantee=at-least-once, or a query with "
                    "trigger(processingTime) and an exactly-once sink."
                )
        self._cluster_checked = True

    def _init_producer_ids(self, tasks: int) -> list[ProducerIdAndEpoch]:
        """Acquire the ids concurrently: a coordinator needs a while to abort an open transaction."""
        system = self._cluster.pool.system
        remaining = iter(range(tasks))  # shared by the threads, each of which takes the next task
        acquired: dict[int, ProducerIdAndEpoch] = {}

        def acquire() -> None:
            try:
                for task in remaining:
                    acquired[task] = self._init_producer_id(task)
            except BaseException:
                deque(remaining, maxlen=0)  # the other threads need not continue
                raise

        others = [
            start_call(system, acquire, "pyspark-kafka-direct-init-producer-id")
            for _ in range(min(tasks, _INIT_THREADS) - 1)
        ]
        try:
            acquire()
        finally:  # a request that is still retried would fence the tasks of the next attempt
            for done in others:
                system.wait_for_future(done, None)
        for done in others:
            done.result()  # raises the error of the thread
        return [acquired[task] for task in range(tasks)]

    def _init_producer_id(self, task: int) -> ProducerIdAndEpoch:
        coordinator = TransactionCoordinatorClient(self._cluster, transactional_id(self._prefix, task))
        return coordinator.init_transactions(self._options.transaction_timeout_ms).producer

    def _fetch_topic_ids(self, partitions: Collection[TopicPartition]) -> dict[str, UUID | None]:
        """Return the ids of the existing topics of partitions, some of which have committed offsets.

        The offsets of missing and recreated topics are ignored, so several brokers have to confirm that.
        """
        committed_ids = {
            tp: metadata.topic_id
            for tp, (_, metadata) in self._committed.items()
            if metadata is not None and metadata.topic_id is not None
        }
        confirmed: set[TopicPartition] = set()
        for _ in range(MAX_METADATA_RESPONSES):
            topics = self._cluster.topics({tp.topic for tp in partitions})
            found = {tp for tp in partitions if tp.topic in topics}
            found_ids = {name: topic.topic_id for name, topic in topics.items() if topic.topic_id is not None}
            suspects = find_lost_partitions(partitions, committed_ids, found, found_ids).partitions - confirmed
            if suspects:
                confirmed |= self._cluster.confirm_missing({tp: committed_ids.get(tp) for tp in suspects})
            if suspects <= confirmed:
                return {name: topic.topic_id for name, topic in topics.items()}
            self._cluster.pool.system.sleep(_METADATA_RETRY_SECONDS)  # `confirm_missing` has chosen another broker
        raise contradicting_metadata_error(partitions)

    def _fetch_foreign_offsets(self) -> dict[TopicPartition, EpochOffset]:
        committed = self._group.committed_with_metadata(require_stable=False)
        return foreign_offsets(_epoch_offsets(committed), self._query_id)

    def _wait_for_pending_offsets(self, topics: Collection[str]) -> None:
        """Wait until the offsets of transactions that are ending are visible: a token without them would be invalid.

        A transaction of a query that was killed may remain open for longer. A reset aborts it, so the token is valid.
        """
        partitions = {
            TopicPartition(name, index)
            for name, topic in self._cluster.topics(topics).items()
            for index in topic.partitions
        }
        with contextlib.suppress(TransientBrokerError):
            self._group.committed_with_metadata(partitions, deadline=self._cluster.deadline(_PENDING_OFFSETS_SECONDS))

    def _is_reset_confirmed(self, foreign: Mapping[TopicPartition, EpochOffset]) -> bool:
        return self._options.reset_transaction_state == reset_token(foreign, self._query_id)

    def _check_reset_confirmed(self, foreign: Mapping[TopicPartition, EpochOffset]) -> None:
        """Reject a prefix that another query uses, unless the user confirmed to reset its state."""
        if not self._is_reset_confirmed(foreign):
            raise prefix_in_use_error(foreign, self._query_id, self._prefix)

    def _reset_group(self, foreign: Mapping[TopicPartition, EpochOffset]) -> None:
        """Replace the offsets of other queries by offsets of this query with an epoch that is ignored."""
        self._check_reset_confirmed(foreign)
        if not self._producer_ids:  # a run without tasks has no producer that could replace the offsets
            raise prefix_in_use_error(foreign, self._query_id, self._prefix)
        existing = [tp for tp in foreign if tp.topic in self._topic_ids]  # brokers delete offsets of a deleted topic
        topic_ids = {tp: self._topic_ids[tp.topic] for tp in existing}
        self.commit_offsets(BEFORE_FIRST_EPOCH, {tp: foreign[tp].offset for tp in existing}, topic_ids)
        self._committed = {tp: each for tp, each in self._committed.items() if tp not in foreign}

    def commit_offsets(
        self, epoch: int, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[TopicPartition, UUID | None]
    ) -> None:
        with TransactionalProducer(
            self._cluster,
            transactional_id(self._prefix, 0),  # that of the first task, which does not run yet
            self._options.transaction_timeout_ms,
            self._options.produce,
        ) as producer:
            producer.resume_transaction(self._producer_ids[0], in_progress=False)
            committed = {
                tp: CommittedOffset(offset, EpochMetadata(self._query_id, epoch, topic_ids.get(tp)).to_json())
                for tp, offset in offsets.items()
            }
            producer.send_offsets_to_transaction(self._group, committed)
            producer.commit()
            self._producer_ids[0] = producer.require_producer_id()


class AtLeastOnceDelivery(SinkDelivery):
    """At-least-once delivery: the query resumes from its logs."""

    def __init__(self, writer_factory: SinkWriterFactory, logs: CheckpointLogs) -> None:
        self.writer_factory = writer_factory
        self._fencing_log = logs.fencing_log

    def check(self, query_id: str) -> None:
        self._fencing_log.check_newest()

    def prepare(self, query_id: str, partitions: Collection[TopicPartition], tasks: int) -> None:
        self._fencing_log.append()
        self._fencing_log.check_not_fenced()

    @property
    def reselected_start(self) -> str:
        if isinstance(self.writer_factory, KafkaWriterFactory):
            return READ_FROM_START
        return f"{READ_FROM_START}, or from the positions that the sink has stored"


def kafka_delivery(
    sink_options: WriteSettings,
    read_settings: ReadSettings,
    logs: CheckpointLogs,
    settings: ContinuousSettings,
    pool: ConnectionPool | None = None,
    *,
    has_timeout_option: bool,
) -> SinkDelivery:
    """Return the delivery that the options select; the settings determine the default transaction timeout."""
    if sink_options.delivery_guarantee != "exactly-once":
        return AtLeastOnceDelivery(KafkaWriterFactory.of(sink_options), logs)
    max_seconds = max_transaction_seconds(settings)
    if not has_timeout_option:
        sink_options = replace(
            sink_options, transaction_timeout_ms=int((max_seconds + _TRANSACTION_TIMEOUT_MARGIN) * 1000)
        )
    return ExactlyOnceDelivery(sink_options, read_settings.connection, logs, max_seconds, pool)


def max_transaction_seconds(settings: ContinuousSettings) -> float:
    """Return the longest time a transaction may be open: a task that reports early starts the next one at once."""
    return settings.epoch_interval + 2 * settings.epoch_timeout


def _epoch_offsets(committed: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, EpochOffset]:
    return {tp: EpochOffset(each.offset, parse_epoch_metadata(each.metadata)) for tp, each in committed.items()}
