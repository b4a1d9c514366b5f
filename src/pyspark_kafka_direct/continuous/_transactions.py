"""The driver's part of exactly-once delivery: it takes over, knows how far the transactions have got, and hands on.

Each task writes one transaction for each epoch, with the records and, by TxnOffsetCommit, the offsets that it has read
up to. So they are published together, or not at all (``_transactional_sink.py``). The order at a start makes it right:

1. Write down how many transactional ids there will be (``_takeovers.py``).
2. InitProducerId for each that this or any earlier run has used. No task of an earlier run publishes anything from
   now on, and what it left half done is aborted. Only the driver asks for this: a task that wakes up late must not
   fence its successor. A driver that slept in the middle of it has taken some of the ids back from its successor, and
   not all: it looks whether it still is the last one, and ends if not.
3. Read the offsets of the group, stable ones (``_group_offsets.py``). Nobody can add to them any more.
4. Settle the logs by them (``_log_state.py``), and start tasks, each with its producer id and epoch.

The principal needs WRITE and DESCRIBE on the transactional ids ``<prefix>.cont.*``, READ and DESCRIBE on the group
``<prefix>.cont``, READ on the topics that are read and WRITE on those that are written to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.continuous._group_offsets import (
    BEFORE_ALL,
    Note,
    Noted,
    group_of,
    others,
    reached,
    read_note,
    refusal,
    reset_token,
    transactional_id,
)
from pyspark_kafka_direct.continuous._log_format import parse_offsets
from pyspark_kafka_direct.continuous._takeovers import Takeovers
from pyspark_kafka_direct.continuous._transactional_sink import TransactionalSinkFactory
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.groups import CommittedOffset, Group
from pyspark_kafka_direct.wire.transactions import Transactions
from pyspark_kafka_direct.writing.exactly_once import check_brokers
from pyspark_kafka_direct.writing.session import TransactionalSession

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.continuous._log_state import LogState
    from pyspark_kafka_direct.continuous._logs import Files
    from pyspark_kafka_direct.continuous._seams import EpochSinkFactory
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.sink import SinkOptions
    from pyspark_kafka_direct.wire._idle_producers import ProducerId

_TIMEOUT: Final = "kafka.transaction.timeout.ms"
_TRIES: Final = 3  # how often brokers are asked for topics before they are believed to be gone
_PAUSE: Final = 1.0  # seconds between the tries


class TransactionalDelivery:
    """Exactly-once delivery to Kafka, a ``Delivery``. Used by one thread at a time.

    Args:
        options: How to write; with a ``transactional_id_prefix``.
        source: How to reach the cluster that is read; ``None`` where nothing is read.
        files: Of the checkpoint.
        longest_epoch: Most seconds from the first record of a task's epoch until the task has reported it.

    Raises:
        OptionError: A transaction may not be open for as long as an epoch may take.
    """

    def __init__(
        self, options: SinkOptions, source: ConnectionSettings | None, files: Files, longest_epoch: float
    ) -> None:
        prefix = options.transactional_id_prefix
        assert prefix is not None, "the options of exactly-once delivery have one"
        timeout = options.transaction_timeout_ms / 1000
        if timeout <= longest_epoch:
            raise OptionError(
                f"{_TIMEOUT} is {options.transaction_timeout_ms}, and a transaction may be open for "
                f"{longest_epoch:g} s (epochInterval and twice epochTimeout): the brokers would end it before. Raise "
                f"{_TIMEOUT} (the brokers' transaction.max.timeout.ms is the limit), or lower epochTimeout."
            )
        self._prefix = prefix
        self._options = options
        self._source = source
        self._files = files
        self._cluster = Cluster(options.connection)
        self._group = Group(self._cluster, group_of(prefix))
        self._takeovers = Takeovers(files, self._cluster.pool.system.nonce())
        self._checked = False
        self._query_id = ""
        self._producers: list[ProducerId] = []
        self._tasks = 0
        self._noted: Mapping[TopicPartition, Noted] = {}
        self._topic_ids: Mapping[str, UUID | None] = {}

    def prepare(self, query_id: str, partitions: Collection[TopicPartition], tasks: int) -> None:
        """Take the query over. When it returns, no task of an earlier run publishes anything any more.

        Args:
            query_id: Id of the query.
            partitions: What the run reads.
            tasks: How many tasks the run has.

        Raises:
            CheckpointTakenError: Another driver has taken the query over; final.
            DeliveryRefusedError: The prefix is another query's.
            OptionError: The cluster that is read is not the one that is written to, or the prefix has changed, or the
                brokers do not allow transactions to be open for so long.
            KafkaDirectError: The cluster could not be asked.
        """
        self._check()
        self._query_id, self._tasks = query_id, tasks
        # Before anything else: who has the prefix by mistake must not fence its owner, nor be bound to it. What is
        # open is not waited for: it may be this query's own, which is aborted only below.
        if theirs := others(_noted(self._group.noted(stable=False)), query_id):
            self._check_wanted(theirs)
        takeover = self._takeovers.begin(self._cluster.cluster_id, self._prefix, tasks)
        self._producers = [self._take_over(task) for task in range(takeover.tasks)]
        self._takeovers.check()
        # Those that are named are waited for, if they need be.
        self._noted = _noted({**self._group.noted(), **self._group.noted(partitions)})
        self._topic_ids = self._ids_of({tp.topic for tp in (*partitions, *self._noted)})
        if theirs := others(self._noted, query_id):
            self._replace(theirs)

    def reached(self, state: LogState) -> dict[TopicPartition, int]:
        """Return where the transactions have got to after the last epoch that the logs have as committed.

        Args:
            state: What the logs say, looked up after ``prepare``.

        Raises:
            DeliveryRefusedError: The logs are of another past than the transactions.
            OffsetPlanError: The offset log is damaged.
        """
        logged: Mapping[TopicPartition, int] = {}
        if state.committed is not None:
            name = f"offsets/{state.committed}"
            logged = parse_offsets(self._files.text(name) or "", self._files.place(name)).offsets
        return reached(self._noted, self._query_id, self._topic_ids, state.committed, logged)

    @property
    def shares_numbers(self) -> bool:
        """See ``Delivery``: what was reached is in the transactions."""
        return True

    def sink(self) -> EpochSinkFactory:
        """Return what makes the sinks of the run that was prepared."""
        return TransactionalSinkFactory(
            options=self._options,
            query_id=self._query_id,
            producers=tuple(self._producers[: self._tasks]),
            topic_ids=self._topic_ids,
        )

    def settled(self) -> None:
        """Let the query have another prefix, or none: the logs have been settled by what was ``reached``.

        Raises:
            CheckpointTakenError: Another driver has taken the query over.
        """
        self._takeovers.settled()

    def _check(self) -> None:
        """Check once what does not change."""
        if self._checked:
            return
        check_brokers(self._cluster, self._options.transaction_timeout_ms)
        if self._source is not None:
            source = Cluster(self._source)
            source.reach()
            if source.cluster_id != self._cluster.cluster_id:
                raise OptionError(
                    f"delivery=exactly-once reads and writes one cluster, and this query reads {source.cluster_id} and "
                    f"writes to {self._cluster.cluster_id}: a transaction holds records and offsets of one cluster "
                    "only. Use delivery=at-least-once, or a query with trigger(processingTime) and an exactly-once "
                    "sink."
                )
        self._checked = True

    def _take_over(self, task: int) -> ProducerId:
        transactions = Transactions(self._cluster, transactional_id(self._prefix, task))
        return transactions.init(self._options.transaction_timeout_ms).producer

    def _ids_of(self, names: Collection[str]) -> dict[str, UUID | None]:
        """Return the ids of the topics that there are.

        What is noted of a topic that is not there counts for nothing. A broker that has just started may not know all
        of them yet, so it is not believed at once.
        """
        found: dict[str, UUID | None] = {}
        for tries in range(_TRIES):
            if tries:
                self._cluster.ask_another()
                self._cluster.pool.system.sleep(_PAUSE)
            found = {name: topic.topic_id for name, topic in self._cluster.topics(names).items()}
            if found.keys() >= set(names):
                break
        return found

    def _check_wanted(self, found: Mapping[TopicPartition, Noted]) -> None:
        """Refuse a prefix that is another query's, unless the user wants to have it."""
        if self._options.reset_delivery != reset_token(found, self._query_id):
            raise refusal(found, self._query_id, self._prefix)

    def _replace(self, found: Mapping[TopicPartition, Noted]) -> None:
        """Make the group this query's, where the user wants that: what others have noted counts for nothing then."""
        self._check_wanted(found)
        if not self._producers:
            raise refusal(found, self._query_id, self._prefix)
        offsets = {
            tp: CommittedOffset(each.offset, Note(self._query_id, BEFORE_ALL, self._topic_ids[tp.topic]).to_json())
            for tp, each in found.items()
            if tp.topic in self._topic_ids  # offsets of a topic that is gone go with it
        }
        with TransactionalSession(
            self._cluster,
            transactional_id(self._prefix, 0),
            self._options.transaction_timeout_ms,
            self._options.produce,
        ) as session:
            session.adopt(self._producers[0], begun=False)
            session.add_offsets(self._group, offsets)
            session.commit()
            assert session.producer is not None
            self._producers[0] = session.producer
        self._noted = {tp: each for tp, each in self._noted.items() if tp not in found}


def _noted(found: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, Noted]:
    return {tp: Noted(each.offset, read_note(each.metadata)) for tp, each in found.items()}
