"""Transactions of one transactional id, one after the other: take over, send, commit or abort.

With ``transaction.version`` 2 the epoch of the producer id moves with each transaction, and when epochs run out, after
32,767 of them, the coordinator gives another producer id. Below that the epoch stays, however many there are.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from pyspark_kafka_direct.errors import FencedError
from pyspark_kafka_direct.wire.transactions import Started, Transactions
from pyspark_kafka_direct.writing.producer import Identity, Producer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.wire._idle_producers import ProducerId
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.groups import CommittedOffset, Group
    from pyspark_kafka_direct.writing.producer import Written


class TransactionalSession:
    """Writes record batches in transactions.

    A transaction begins with the first ``send`` or ``add_offsets`` after ``init`` or ``commit``. After an error in it,
    ``abort`` it.
    Whoever was fenced is fenced for good, and does nothing more.

    Used by one thread.

    Args:
        cluster: The cluster.
        transactional_id: The id.
        timeout_ms: After how long the broker aborts a transaction that is open (``transaction.timeout.ms``).
        settings: How records are written.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int, settings: ProduceSettings) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._settings = settings
        self._transactions = Transactions(cluster, transactional_id)
        self._started: Started | None = None
        self._producer: Producer | None = None
        self._open = False
        self._fenced: FencedError | None = None

    @property
    def producer(self) -> ProducerId | None:
        """Who writes the transaction that is open, or the next one; ``None`` before ``init``."""
        return None if self._started is None else self._started.producer

    def init(self, deadline: Deadline | None = None) -> None:
        """Take the transactional id over. Who had it is fenced, and what it left open is aborted.

        Args:
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            UnsupportedBrokerError: The broker is older than Kafka 2.5.
            AuthorizationError: The principal may not use the transactional id.
            BrokerError: The coordinator could not be asked, or allows no such ``transaction.timeout.ms``.
        """
        self._check_fenced()
        self._drop_producer()
        self._open = False
        self._started = None
        self._started = self._transactions.init(self._timeout_ms, deadline)

    def adopt(self, producer: ProducerId, deadline: Deadline | None = None, *, begun: bool = True) -> None:
        """Go on with a producer id and epoch that somebody else was given, instead of ``init``.

        Whatever was sent with them, by whichever process, is part of the transaction that the next ``commit`` ends.
        Partitions that were written to in this epoch cannot be written to again.

        Args:
            producer: The producer id and epoch.
            deadline: End of the wait instead of ``default.api.timeout.ms``.
            begun: Whether something may have been sent with them.
        """
        self._drop_producer()
        self._started = Started(producer, self._transactions.bumps_epochs(deadline))
        self._open = begun

    def send(self, topic: str, batch: EncodedBatch, *, more: bool = False) -> None:
        """Send a record batch within the transaction; see ``Producer.send``.

        Args:
            topic: Its topic.
            batch: The batch; it is changed, and not to be used again.
            more: Whether others follow at once, or ``flush``.

        Raises:
            FencedError: Another writer has taken over, or the transaction was open for too long.
            KafkaDirectError: As ``Producer.send``.
        """
        started = self._begin()
        if self._producer is None:
            self._producer = Producer(
                self._cluster,
                self._settings,
                self._identity(started),
                before_first=None if started.bumps_epochs else self._add,
            )
        with self._fencing():
            self._producer.send(topic, batch, more=more)

    def add_offsets(self, group: Group, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets of a group within the transaction.

        Args:
            group: The group; nobody may be a member of it.
            offsets: What to commit, for at least one partition.

        Raises:
            FencedError: Another writer has taken over, or the transaction was open for too long.
            KafkaDirectError: As ``Group.commit_in_transaction``.
        """
        producer, bumps_epochs = self._begin()
        with self._fencing():
            if not bumps_epochs:
                self._transactions.add_offsets(producer, group.group_id)
            group.commit_in_transaction(self.transactional_id, producer, offsets, bumps_epochs=bumps_epochs)

    @property
    def has_waiting(self) -> bool:
        """Whether any record batch waits to be sent."""
        return self._producer is not None and self._producer.has_waiting

    def descriptors(self) -> list[int]:
        """Return what to wait for: when one of them is readable, ``work(0)`` has an answer to take."""
        return [] if self._producer is None else self._producer.descriptors()

    def work(self, seconds: float) -> None:
        """Wait until something can be done for what was sent, and do it; so long at most. See ``Producer.work``."""
        if self._producer is not None:
            with self._fencing():
                self._producer.work(seconds)

    def flush(self) -> dict[TopicPartition, Written]:
        """Wait until everything that was sent is acknowledged; see ``Producer.flush``."""
        if self._producer is None:
            return {}
        with self._fencing():
            return self._producer.flush()

    def commit(self) -> dict[TopicPartition, Written]:
        """Wait until everything is acknowledged, and commit it. Without anything sent, nothing happens.

        Returns:
            What was written since the last ``flush``.

        Raises:
            FencedError: Another writer has taken over, or the transaction was open for too long.
            OutcomeUnknownError: Nobody knows whether it was committed. ``init`` ends it one way or the other.
            KafkaDirectError: It was not committed.
        """
        self._check_fenced()
        written = self.flush()
        if self._open:
            self._end(commit=True)
        return written

    def abort(self, deadline: Deadline | None = None) -> None:
        """Abort what was sent. Below ``transaction.version`` 2 the session needs ``init`` then.

        Args:
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            FencedError: Another writer has taken over, and has aborted it.
            BrokerError: The coordinator could not be asked; it aborts it when its time is up.
        """
        self._drop_producer()
        if self._open:
            self._end(commit=False, deadline=deadline)

    def close(self) -> None:
        """Give the connections back. A transaction that is open stays so until the broker aborts it."""
        self._drop_producer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> Started:
        self._check_fenced()
        if self._started is None:
            raise RuntimeError("init comes first")
        self._open = True
        return self._started

    def _check_fenced(self) -> None:
        if self._fenced is not None:
            raise self._fenced

    def _end(self, *, commit: bool, deadline: Deadline | None = None) -> None:
        started = self._started
        assert started is not None
        self._open, self._started = False, None
        with self._fencing():
            following = self._transactions.end(
                started.producer, commit=commit, bumps_epochs=started.bumps_epochs, deadline=deadline
            )
        if started.bumps_epochs:
            self._started = Started(following, True)
            if self._producer is not None:
                self._producer.begin(self._identity(self._started))
        elif commit:
            self._started = started
            if self._producer is not None:
                self._producer.begin()
        # Else nobody knows at which sequence numbers the partitions are, and the epoch stays the same.

    def _add(self, partitions: Collection[TopicPartition]) -> None:
        assert self._started is not None
        self._transactions.add(self._started.producer, partitions)

    def _identity(self, started: Started) -> Identity:
        return Identity(started.producer.id, started.producer.epoch, self.transactional_id)

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    @contextlib.contextmanager
    def _fencing(self) -> Iterator[None]:
        """Remember that the session was fenced."""
        try:
            yield
        except FencedError as error:
            self._fenced = error
            self._open = False
            raise
