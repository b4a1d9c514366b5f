"""Writes transactions of one transactional id, one after the other.

With ``transaction.version`` 2 each transaction increments the producer epoch; after 32,767 epochs the coordinator
assigns another producer id. With older versions the epoch stays the same, unless a request of EndTxn got no response.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Self

from pyspark_kafka_direct.client.transaction_coordinator import InitProducerIdResult, TransactionCoordinatorClient
from pyspark_kafka_direct.errors import KafkaDirectError, ProducerFencedError
from pyspark_kafka_direct.producer.batch_producer import AssignedProducerId, BatchProducer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ProducerSettings
    from pyspark_kafka_direct.producer.batch_producer import WrittenRange
    from pyspark_kafka_direct.records import EncodedBatch

# A transaction that is fenced after this part of its timeout was aborted by the broker, not by another producer.
_EXPIRED_FRACTION: Final = 0.9


class TransactionalProducer:
    """Writes record batches in transactions. Not thread-safe.

    A transaction starts with the first ``send`` or ``send_offsets_to_transaction`` after ``init_transactions`` or
    ``commit``. After an error in it, ``abort`` it. A fenced producer can do nothing more.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        transactional_id: str,
        timeout_ms: int,  # transaction.timeout.ms
        settings: ProducerSettings,
    ) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self.timeout_ms = timeout_ms
        self._settings = settings
        self._coordinator = TransactionCoordinatorClient(cluster, transactional_id)
        self._init_result: InitProducerIdResult | None = None
        self._last_init_result: InitProducerIdResult | None = None  # of the last transaction
        self._producer: BatchProducer | None = None
        self.in_transaction = False  # whether records or offsets were sent since the last transaction
        self._started_at: float | None = None  # of the open transaction, or of one that could not be ended
        self._offsets_may_arrive_late = False  # a TxnOffsetCommit without a response, in the next transaction
        self._fencing_error: ProducerFencedError | None = None
        self._epoch_error: KafkaDirectError | None = None  # why there is no epoch for the next transaction

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch | None:
        """The id and epoch of the current transaction, or of the next one; ``None`` before ``init_transactions``."""
        return None if self._init_result is None else self._init_result.producer

    def require_producer_id(self) -> ProducerIdAndEpoch:
        """Return ``producer_id_and_epoch``, or raise the error because of which there is none."""
        return self._require_epoch().producer

    @property
    def open_seconds(self) -> float:
        """The age of the open transaction, or of one that could not be ended."""
        return 0.0 if self._started_at is None else self._cluster.pool.system.monotonic() - self._started_at

    @property
    def may_have_timed_out(self) -> bool:
        """Whether a fencing error may come from ``transaction.timeout.ms``, and not from another producer."""
        return self.open_seconds >= _EXPIRED_FRACTION * self.timeout_ms / 1000

    def init_transactions(self, deadline: Deadline | None = None) -> None:
        """Acquire the transactional id: fences earlier producers with it, and aborts their open transaction."""
        self._raise_if_fenced()
        self._drop_producer()
        self.in_transaction = self._offsets_may_arrive_late = False
        self._started_at = None
        self._init_result = self._epoch_error = None  # if the request fails, there is no epoch
        self._init_result = self._coordinator.init_transactions(self.timeout_ms, deadline)

    def reacquire(self) -> None:
        """Acquire the transactional id again, after an error that ``may_be_expired``; the transaction is aborted.

        If another producer has acquired the id meanwhile, this raises ``ProducerFencedError`` and fences nothing.
        """
        last = self._last_init_result
        assert last is not None
        id_is_deleted, self._fencing_error = self._fencing_error is not None, None
        if id_is_deleted:
            self._drop_producer()
            self._init_result = None
        else:
            self.abort()  # a coordinator that has the id confirms that it still belongs to this producer
        if self._init_result is None:
            with self._remember_fencing():
                # The coordinator compares id and epoch with those that it has, if any (KIP-360).
                self._init_result = last._replace(
                    producer=self._coordinator.increment_epoch(last.producer, self.timeout_ms)
                )

    def resume_transaction(
        self, producer: ProducerIdAndEpoch, deadline: Deadline | None = None, *, in_progress: bool = True
    ) -> None:
        """Use the producer id and epoch that another producer acquired, instead of ``init_transactions``.

        The next ``commit`` also commits the records that other processes sent with this id and epoch. Partitions that
        they have written to cannot be written to here. ``in_progress`` is false if nothing has been sent yet.
        """
        self._drop_producer()
        self._init_result = InitProducerIdResult(producer, self._coordinator.transaction_v2(deadline))
        self.in_transaction, self._started_at = in_progress, None  # its age is not known

    def send(self, topic: str, batch: EncodedBatch, *, more_follows: bool = False) -> None:
        """Send a record batch within the transaction; with ``more_follows``, small batches wait to share a request."""
        init_result = self._ensure_in_transaction()
        if self._producer is None:
            self._producer = BatchProducer(
                self._cluster,
                self._settings,
                self._assigned_id(init_result),
                add_partitions_to_transaction=None if init_result.transaction_v2 else self._add_partitions,
            )
        with self._remember_fencing():
            self._producer.send(topic, batch, more_follows=more_follows)

    def send_offsets_to_transaction(
        self, group: ConsumerGroup, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Commit offsets of a group, which has no members, within the transaction."""
        producer, transaction_v2 = self._ensure_in_transaction()
        with self._remember_fencing():
            if not transaction_v2:
                self._coordinator.add_offsets(producer, group.group_id)
            may_arrive_late = group.commit_in_transaction(
                self.transactional_id, producer, offsets, transaction_v2=transaction_v2
            )
        # With transaction.version 2 the next transaction has another epoch, so that the coordinator rejects it.
        self._offsets_may_arrive_late = self._offsets_may_arrive_late or (may_arrive_late and not transaction_v2)

    @property
    def has_queued_batches(self) -> bool:
        """Whether any record batch is waiting to be sent."""
        return self._producer is not None and self._producer.has_queued_batches

    def descriptors(self) -> list[int]:
        """Return the sockets to wait for: if one is readable, ``poll(0)`` has a response to handle."""
        return [] if self._producer is None else self._producer.descriptors()

    def poll(self, seconds: float) -> None:
        """Wait for responses or due retries, at most some seconds, and handle them."""
        if self._producer is not None:
            with self._remember_fencing():
                self._producer.poll(seconds)

    def flush(self) -> dict[TopicPartition, WrittenRange]:
        """Wait until all batches are acknowledged; return the ranges written since the last flush."""
        if self._producer is None:
            return {}
        with self._remember_fencing():
            return self._producer.flush()

    def commit(self) -> dict[TopicPartition, WrittenRange]:
        """Flush and commit; after ``OutcomeUnknownError``, ``init_transactions`` completes or aborts it."""
        self._raise_if_fenced()
        written = self.flush()
        if self.in_transaction:
            self._end_transaction(commit=True)
        return written

    def abort(self, deadline: Deadline | None = None) -> None:
        """Abort the transaction; below ``transaction.version`` 2, ``init_transactions`` is required afterwards."""
        self._drop_producer()
        if self.in_transaction:
            self._end_transaction(commit=False, deadline=deadline)

    def close(self) -> None:
        """Release the connections; an open transaction stays open until the broker aborts it."""
        self._drop_producer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ensure_in_transaction(self) -> InitProducerIdResult:
        """Begin a transaction unless one is open, which needs no request, and return its producer id."""
        init_result = self._require_epoch()
        if not self.in_transaction:
            self.in_transaction, self._started_at = True, self._cluster.pool.system.monotonic()
            self._last_init_result = init_result
        return init_result

    def _require_epoch(self) -> InitProducerIdResult:
        """Return the epoch of the current or next transaction, or raise the reason why there is none."""
        self._raise_if_fenced()
        if self._init_result is None:
            raise self._epoch_error or RuntimeError("Call init_transactions first.")
        return self._init_result

    def _raise_if_fenced(self) -> None:
        if self._fencing_error is not None:
            raise self._fencing_error

    def _end_transaction(self, *, commit: bool, deadline: Deadline | None = None) -> None:
        """End the transaction and prepare the next one.

        Increment the epoch if an EndTxn or TxnOffsetCommit without a response may still arrive in the next transaction.
        """
        init_result = self._init_result
        assert init_result is not None
        self.in_transaction, self._init_result = False, None  # after an error, `init_transactions` is required
        with self._remember_fencing():
            next_producer, may_arrive_late = self._coordinator.end_transaction(
                init_result.producer, commit=commit, transaction_v2=init_result.transaction_v2, deadline=deadline
            )
        self._started_at = None
        offsets_may_arrive_late, self._offsets_may_arrive_late = self._offsets_may_arrive_late, False
        if commit and (may_arrive_late or offsets_may_arrive_late):
            self._increment_epoch(init_result.producer)
        elif init_result.transaction_v2:
            self._begin_epoch(InitProducerIdResult(next_producer, transaction_v2=True))
        elif commit:
            self._init_result = init_result
            if self._producer is not None:
                self._producer.begin_transaction()
        # After an abort below transaction.version 2, the epoch is unchanged but the sequence numbers are unknown, so
        # `init_transactions` is required.

    def _increment_epoch(self, producer: ProducerIdAndEpoch) -> None:
        """Increment the epoch after a commit; an error is raised by the next transaction."""
        try:
            next_producer = self._coordinator.increment_epoch(producer, self.timeout_ms)
            self._begin_epoch(InitProducerIdResult(next_producer, transaction_v2=False))
        except ProducerFencedError as error:
            self._fencing_error = error
        except KafkaDirectError as error:
            self._epoch_error = error

    def _begin_epoch(self, init_result: InitProducerIdResult) -> None:
        self._init_result = init_result
        if self._producer is not None:
            self._producer.begin_transaction(self._assigned_id(init_result))

    def _add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        assert self._init_result is not None
        self._coordinator.add_partitions(self._init_result.producer, partitions)

    def _assigned_id(self, init_result: InitProducerIdResult) -> AssignedProducerId:
        return AssignedProducerId(init_result.producer.id, init_result.producer.epoch, self.transactional_id)

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    @contextlib.contextmanager
    def _remember_fencing(self) -> Iterator[None]:
        """Store a fencing error, so that later calls raise it without a request."""
        try:
            yield
        except ProducerFencedError as error:
            self._fencing_error = error
            self.in_transaction = False
            raise
