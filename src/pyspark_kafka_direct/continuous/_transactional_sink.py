"""Writes a continuous query's output to Kafka exactly once: one transaction for each task and epoch.

It has the rows and, by TxnOffsetCommit, the offsets that the task has read up to, with what ``_group_offsets.py`` notes
beside them. The first epoch of a run commits the offsets of all the task's partitions; later ones of those that moved,
also where all their rows were filtered out, or else they would be read again. An epoch in which nothing moved asks
nothing of the brokers. But they forget offsets that were not committed for a week (``offsets.retention.minutes``), and
transactional ids that were not used (``transactional.id.expiration.ms``), so once a day all offsets are committed.

A task never asks for a producer id: it has its own from the driver (``_transactions.py``).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.continuous._group_offsets import Note, group_of, transactional_id
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError, FencedError, KafkaDirectError
from pyspark_kafka_direct.wire.groups import CommittedOffset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.continuous._output_rows import OutputRows
    from pyspark_kafka_direct.continuous._seams import EpochSink
    from pyspark_kafka_direct.continuous.sink import TaskInfo
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.sink import SinkOptions
    from pyspark_kafka_direct.wire._idle_producers import ProducerId
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.groups import Group
    from pyspark_kafka_direct.writing.rows import RowWriter
    from pyspark_kafka_direct.writing.session import TransactionalSession

_REFRESH: Final = 24 * 3600.0

# A transaction that is fenced when most of its time has passed was ended by the broker, not by another writer.
_OVER_AT: Final = 0.9

_ABORTING_TAKES: Final = 1.0  # seconds at most, so that readers of committed records need not wait until it times out


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalSinkFactory:
    """Makes the sinks of a run, in its tasks. It travels to the executors by cloudpickle.

    Attributes:
        options: How to write; with a ``transactional_id_prefix``.
        query_id: Id of the query.
        producers: Who writes the first transaction of each task.
        topic_ids: The ids of the topics that are read.
    """

    options: SinkOptions
    query_id: str
    producers: tuple[ProducerId, ...]
    topic_ids: Mapping[str, UUID | None]

    def __call__(self, task: TaskInfo) -> EpochSink:
        """Return the sink of a task."""
        from pyspark_kafka_direct.continuous._output_rows import OutputRows
        from pyspark_kafka_direct.wire.cluster import Cluster
        from pyspark_kafka_direct.wire.groups import Group
        from pyspark_kafka_direct.writing.rows import RowWriter, settings_behind
        from pyspark_kafka_direct.writing.session import TransactionalSession

        options, prefix = self.options, self.options.transactional_id_prefix
        assert prefix is not None, "the options of exactly-once delivery have one"
        cluster = Cluster(options.connection)
        name = transactional_id(prefix, task.task)
        session = TransactionalSession(cluster, name, options.transaction_timeout_ms, settings_behind(options.produce))
        session.adopt(self.producers[task.task], begun=False)
        return TransactionalSink(
            session,
            Group(cluster, group_of(prefix)),
            RowWriter(cluster, options.produce, session.send, topic=options.topic, first_sticky=task.task),
            OutputRows(options.topic, stamp=options.stamp_batch, task=task, system=cluster.pool.system),
            cluster,
            self.query_id,
            self.topic_ids,
            options.transaction_timeout_ms / 1000,
        )


class TransactionalSink:
    """The sink of one task, an ``EpochSink``.

    Args:
        session: Writes the transactions.
        group: Where offsets are committed.
        rows: Gives record batches to the session.
        output: Makes rows of what the query's function returns.
        cluster: The cluster; knows the ids of topics.
        query_id: Id of the query.
        topic_ids: The ids of the topics that are read, when the run began.
        timeout: Seconds after which the broker ends a transaction that is open.
    """

    def __init__(
        self,
        session: TransactionalSession,
        group: Group,
        rows: RowWriter,
        output: OutputRows,
        cluster: Cluster,
        query_id: str,
        topic_ids: Mapping[str, UUID | None],
        timeout: float,
    ) -> None:
        self._session = session
        self._group = group
        self._rows = rows
        self._output = output
        self._cluster = cluster
        self._system = cluster.pool.system
        self._query_id = query_id
        self._topic_ids = topic_ids
        self._anew: dict[TopicPartition, UUID | None] = {}  # of topics that were created anew since
        self._timeout = timeout
        self._committed: dict[TopicPartition, int] = {}
        self._refresh_at = 0.0
        self._began: float | None = None  # when the transaction was begun that is open
        self._open = False  # whether rows may be in open record batches

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode rows. Record batches that are full are sent, and waited for while ``buffer.memory`` is used up.

        Raises:
            FencedError: Another driver has taken over.
            KafkaDirectError: The rows cannot be written.
        """
        with self._transaction():
            for rows in self._output.of(batch):
                self._rows.write(rows)
        self._open = True

    def end_epoch(
        self, epoch: int, positions: Mapping[TopicPartition, int], anew: Mapping[TopicPartition, UUID] | None = None
    ) -> None:
        """Commit the rows of an epoch, and with them how far the task has read.

        Args:
            epoch: The epoch's number.
            positions: The next offset to read of each of the task's partitions.
            anew: The ids of topics that were found created anew, by the partitions whose positions are of these now.

        Raises:
            FencedError: Another driver has taken over; final.
            OutcomeUnknownError: Nobody knows whether they were committed; the next run will.
            KafkaDirectError: They were not committed.
        """
        self._anew.update(anew or {})
        now = self._system.monotonic()
        moved = {tp: offset for tp, offset in positions.items() if self._committed.get(tp) != offset}
        if not self._committed or now >= self._refresh_at:
            moved = dict(positions)
            self._refresh_at = now + _REFRESH
        if moved or self._began is not None:
            with self._transaction():
                self._hand_on()
                self._session.flush()
                if moved:
                    self._session.add_offsets(self._group, self._noted(epoch, moved))
                self._session.commit()
            self._began = None
            self._committed.update(moved)
        self._output.begin_epoch(epoch + 1)

    def descriptors(self) -> Collection[int]:
        """Return the connections on which answers are awaited."""
        return self._session.descriptors()

    def turn(self) -> None:
        """Take the answers that are there, and send what may be sent.

        Raises:
            FencedError: Another driver has taken over.
            KafkaDirectError: Something could not be written.
        """
        with self._transaction(begin=False):
            self._session.work(0)
            # What is sent early need not be waited for when the epoch ends, and neither need its partitions be added.
            if self._open and not self._session.has_waiting:
                self._hand_on()
                self._session.work(0)

    def close(self) -> None:
        """Abort what is open, so that nobody waits for it, and give the connections back."""
        with suppress(KafkaDirectError):
            self._session.abort(self._cluster.deadline(_ABORTING_TAKES))
        self._session.close()

    def _hand_on(self) -> None:
        self._rows.flush()
        self._open = False

    def _noted(self, epoch: int, moved: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
        if back := [tp for tp, offset in moved.items() if offset < self._committed.get(tp, 0) and tp not in self._anew]:
            # Its log was cut back, or the topic was created again, and the query reads on all the same.
            topics = self._cluster.topics({tp.topic for tp in back})
            self._anew.update({tp: topics[tp.topic].topic_id for tp in back if tp.topic in topics})
        # Of one topic, some partitions may be read anew while nobody has noticed it yet at others.
        ids = {tp: self._anew.get(tp, self._topic_ids.get(tp.topic)) for tp in moved}
        return {
            tp: CommittedOffset(offset, Note(self._query_id, epoch, ids[tp]).to_json()) for tp, offset in moved.items()
        }

    @contextmanager
    def _transaction(self, *, begin: bool = True) -> Iterator[None]:
        """Tell a transaction that was open for too long, or an id that was forgotten, from one that was taken over."""
        if self._began is None and begin:
            self._began = self._system.monotonic()
        try:
            yield
        except FencedError as error:
            if error.forgotten:
                raise BrokerError(
                    f"Nothing of the epoch was published: {error.message}", broker=error.broker
                ) from error
            passed = 0.0 if self._began is None else self._system.monotonic() - self._began
            if passed < _OVER_AT * self._timeout:
                raise
            raise BrokerTimeoutError(
                f"The transaction of {self._session.transactional_id!r} was open for {passed:.1f} s, and brokers end "
                f"it after {self._timeout:g} s (kafka.transaction.timeout.ms): nothing of it was published. Raise "
                f"that, or lower epochInterval or epochTimeout. {error.message}",
                broker=error.broker,
            ) from error
