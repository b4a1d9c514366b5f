"""Commits one batch of an exactly-once write: its records and its sink state record in one transaction.

The correctness depends on the order of the steps:

1. Read the newest sink state record whose transaction has ended. If it belongs to another query, or has a newer ticket,
   reject the batch. No writer was fenced.
2. Acquire the transactional id. This fences every earlier writer and ends its open transaction.
3. Read the sink state record again, and decide from it whether to send, skip or reject the batch
   (``planning/commit_decision.py``).
4. Send the record batches in the order of the tasks, then the new sink state record. Check that it directly follows
   the one that was read, and commit. So the sink state record exists if and only if the records do.

After an error that a new transaction resolves, after fencing, and if the outcome of the commit is unknown, all steps
are repeated: the sink state record shows whether the commit succeeded.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from pyspark_kafka_direct.client.admin import describe_broker_config
from pyspark_kafka_direct.client.transaction_coordinator import check_supports_transactions
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    KafkaDirectError,
    OptionError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionStateError,
)
from pyspark_kafka_direct.planning.commit_decision import (
    RejectBatch,
    SinkState,
    SkipBatch,
    decide_before_fencing,
    decide_commit,
)
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ProducerSettings
    from pyspark_kafka_direct.planning.commit_decision import BatchAttempt
    from pyspark_kafka_direct.producer.batch_producer import WrittenRange
    from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore, StoredSinkState
    from pyspark_kafka_direct.records import EncodedBatch

_log = logging.getLogger("pyspark_kafka_direct.producer")

_MAX_TIMEOUT_CONFIG: Final = "transaction.max.timeout.ms"
_MAX_ATTEMPTS: Final = 3
_WARN_FRACTION: Final = 0.5
_MIN_FENCED_PAUSE: Final = 0.2  # seconds
# The same records may succeed in a new transaction.
_ABORTABLE_ERRORS: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class ExactlyOnceOptions:
    """Options of an exactly-once write."""

    transactional_id_prefix: str
    timeout_ms: int = 300_000  # transaction.timeout.ms
    reset_token: str | None = None  # resetTransactionState

    @property
    def query_transactional_id(self) -> str:
        """The transactional id of a streaming query, which is also the key of its sink state record."""
        return f"{self.transactional_id_prefix}.sink"

    def transactional_id(self, attempt: BatchAttempt) -> str:
        """Return the transactional id of a write: each batch job has its own."""
        if attempt.kind != "job":
            return self.query_transactional_id
        return f"{self.query_transactional_id}.{quote(attempt.query, safe='')}"


class CommitResult(NamedTuple):
    """The result of ``commit_batch``."""

    newly_committed: bool  # False: the batch was committed before
    written: dict[TopicPartition, WrittenRange]  # empty if the batch was committed before


def check_exactly_once(cluster: ClusterClient, store: SinkStateStore, options: ExactlyOnceOptions) -> None:
    """Check before a batch is written that it can be committed, and create the sink state topic; fences nothing."""
    deadline = cluster.deadline()
    check_transaction_support(cluster, options.timeout_ms, deadline)
    store.ensure_topic(deadline)


def check_transaction_support(cluster: ClusterClient, timeout_ms: int, deadline: Deadline | None = None) -> None:
    """Raise if the brokers do not support transactions with this timeout; warn if old ones may leave some open."""
    from pyspark_kafka_direct.options.option_messages import warn_once

    deadline = deadline or cluster.deadline()
    cluster.refresh_brokers(deadline=deadline)

    def call(connection: Connection, _: Deadline) -> str | None:
        return check_supports_transactions(connection)

    if (warning := cluster.call_any_broker(call, deadline)) is not None:
        warn_once(warning)  # once, because this runs for each batch
    try:
        limit = describe_broker_config(cluster, [_MAX_TIMEOUT_CONFIG], deadline).get(_MAX_TIMEOUT_CONFIG)
    except AuthorizationError:
        return  # the coordinator rejects an excessive timeout in the first transaction
    if limit is not None and timeout_ms > int(limit):
        raise OptionError(
            f"kafka.transaction.timeout.ms is {timeout_ms}, but the brokers allow at most {limit}. Lower it, or raise "
            f"{_MAX_TIMEOUT_CONFIG} of the brokers."
        )


def commit_batch(
    cluster: ClusterClient,
    settings: ProducerSettings,
    store: SinkStateStore,
    options: ExactlyOnceOptions,
    attempt: BatchAttempt,
    *,
    batches: Callable[[], Iterable[tuple[str, EncodedBatch]]],  # topics and record batches; called for each retry
) -> CommitResult:
    """Send a batch in one transaction, unless it was committed before.

    After an error, this writer or the next one aborts the transaction. A fenced writer cannot abort the transaction of
    its successor.
    """
    system = cluster.pool.system
    committer = _BatchCommitter(cluster, settings, store, options, attempt)
    for attempts_left in reversed(range(_MAX_ATTEMPTS)):
        started_at = system.monotonic()
        try:
            return committer.run(batches)
        except KafkaDirectError as error:
            if attempts_left and _may_succeed_in_another_transaction(error):
                _log.warning("%s Reading the sink state record, and trying again.", error)
                if isinstance(error, ProducerFencedError):
                    # The other writer is probably sending the same batch: let it finish, or both fence each other.
                    elapsed = system.monotonic() - started_at
                    system.sleep((_MIN_FENCED_PAUSE + elapsed) * (1 + 2 * system.random()))
            elif not committer.outcome_is_unknown or isinstance(error, OutcomeUnknownError | TransactionStateError):
                raise  # these two describe the outcome themselves
            else:
                raise OutcomeUnknownError(
                    "The batch may have been committed, because the end of its transaction was not confirmed. To find "
                    "out, restart the streaming query, or repeat the batch write with the same jobId. The sink state "
                    f"record was not read: {error}"
                ) from error
    raise AssertionError("unreachable: the last attempt returns or raises")


def _may_succeed_in_another_transaction(error: KafkaDirectError) -> bool:
    if isinstance(error, OutcomeUnknownError | ProducerFencedError):
        return True
    return isinstance(error, BrokerError) and error.error_code in _ABORTABLE_ERRORS


class _BatchCommitter:
    """Attempts to commit one batch; an attempt may be repeated."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: ProducerSettings,
        store: SinkStateStore,
        options: ExactlyOnceOptions,
        attempt: BatchAttempt,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._store = store
        self._options = options
        self._attempt = attempt
        self._transactional_id = options.transactional_id(attempt)
        self._unconfirmed: CommitResult | None = None  # of a commit without a response, which may have succeeded
        # Of the transaction, to raise in the next attempt if the sink state shows that it was not committed.
        self._timeout_error: BrokerTimeoutError | None = None

    @property
    def outcome_is_unknown(self) -> bool:
        """Whether an earlier attempt may have committed; reading the sink state shows whether it did."""
        return self._unconfirmed is not None

    def run(self, batches: Callable[[], Iterable[tuple[str, EncodedBatch]]]) -> CommitResult:
        """Attempt to commit the batch, unless its sink state shows that it was committed before."""
        attempt, options, store = self._attempt, self._options, self._store
        before_fencing = store.read(self._transactional_id)
        self._check_before_fencing(before_fencing)
        with TransactionalProducer(
            self._cluster, self._transactional_id, options.timeout_ms, self._settings
        ) as producer:
            # Every earlier writer is fenced before the sink state is read, so none of them can change it afterwards.
            producer.init_transactions()
            stored = store.read_decided(self._transactional_id, before_fencing)
            if self._was_committed(stored):
                return self._unconfirmed or CommitResult(newly_committed=False, written={})
            # This state shows that an earlier attempt did not commit. If fencing or reading had failed, its outcome
            # would have to stay unknown for the next attempt.
            self._unconfirmed = None
            if self._timeout_error is not None:
                raise self._timeout_error
            decision = decide_commit(_state_of(stored), attempt, options.reset_token)
            if isinstance(decision, RejectBatch):
                raise decision.error(self._transactional_id)
            if isinstance(decision, SkipBatch):
                _log.info(
                    "Skipping batch %d of %s: it was already committed with transactional id %s",
                    attempt.batch,
                    attempt.query,
                    self._transactional_id,
                )
                return CommitResult(newly_committed=False, written={})
            return self._send_and_commit(producer, batches(), stored)

    def _check_before_fencing(self, stored: StoredSinkState) -> None:
        """Reject a batch that the sink state rules out already, before the state's writer is fenced."""
        state = _state_of(stored)
        if state is None or self._was_committed(stored):
            return
        if stored.undecided is not None and stored.undecided.value is not None:
            # The next state may be committed already: control records are written shortly after the response to EndTxn.
            # Then it replaces the state that would reject this batch, and does not reject it.
            next_state = SinkState.from_json(stored.undecided.value)
            if next_state.query == self._attempt.query and not next_state.ticket.is_newer_than(self._attempt.ticket):
                return
        rejection = decide_before_fencing(state, self._attempt, self._options.reset_token)
        if rejection is not None:
            raise rejection.error(self._transactional_id)

    def _was_committed(self, stored: StoredSinkState) -> bool:
        """Return whether the newest record is that of this write, which has its own ticket."""
        if not self._attempt.is_named:  # it writes a tombstone
            return stored.newest is not None  # no other write has its transactional id
        return stored.value is not None and stored.value == self._new_value()

    def _new_value(self) -> bytes | None:
        """Return the new sink state record's value; a job without a name writes a tombstone, because none follows."""
        return self._attempt.state().to_json().encode() if self._attempt.is_named else None

    def _send_and_commit(
        self,
        producer: TransactionalProducer,
        batches: Iterable[tuple[str, EncodedBatch]],
        stored: StoredSinkState,
    ) -> CommitResult:
        """Commit the batches and the new sink state; return the ranges that were written."""
        store, transactional_id = self._store, self._transactional_id
        timer = _TransactionTimer(producer, transactional_id, self._options.timeout_ms)
        try:
            for topic, batch in batches:
                timer.check()
                if topic == store.topic:
                    raise OptionError(
                        f"Rows are to be written to the sink state topic {topic!r}, where they could replace the "
                        "state of queries. Write them to another topic, or set another sinkStateTopic."
                    )
                timer.sent_bytes += len(batch.data)
                producer.send(topic, batch, more_follows=True)
            producer.send(store.topic, store.encode(transactional_id, self._new_value()), more_follows=True)
            written = producer.flush()
            state_range = written.pop(store.partition)
            store.check_newest(transactional_id, stored, state_range.first_offset)
            timer.check()
        except ProducerFencedError as error:  # after which the transaction cannot be aborted
            if producer.may_have_timed_out:
                raise timer.timeout_error() from error
            raise
        except BaseException:
            with contextlib.suppress(KafkaDirectError):
                producer.abort()
            raise
        result = CommitResult(newly_committed=True, written=written)
        try:
            producer.commit()
        except (OutcomeUnknownError, ProducerFencedError) as error:
            self._unconfirmed = result
            if isinstance(error, ProducerFencedError) and producer.may_have_timed_out:
                # The broker has probably aborted the transaction, and not another writer. The sink state shows it.
                self._timeout_error = timer.timeout_error()
                raise OutcomeUnknownError(timer.describe()) from error
            raise
        return result


def _state_of(stored: StoredSinkState) -> SinkState | None:
    return None if stored.value is None else SinkState.from_json(stored.value)


class _TransactionTimer:
    """Compares the age of a transaction with its timeout."""

    def __init__(self, producer: TransactionalProducer, transactional_id: str, timeout_ms: int) -> None:
        self._producer = producer
        self._transactional_id = transactional_id
        self._timeout = timeout_ms / 1000
        self._has_warned = False
        self.sent_bytes = 0  # for the messages

    def check(self) -> None:
        """Raise if the transaction's timeout has passed; warn once after half of it."""
        elapsed = self._producer.open_seconds
        if elapsed >= self._timeout:
            raise self.timeout_error()
        if elapsed >= self._timeout * _WARN_FRACTION and not self._has_warned:
            self._has_warned = True
            _log.warning("%s", self.describe())

    def timeout_error(self) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self.describe()} Nothing was committed. Raise kafka.transaction.timeout.ms (up to "
            f"{_MAX_TIMEOUT_CONFIG} of the brokers), write smaller batches, or find out what is slow, such as a quota, "
            "the network, or too few partitions."
        )

    def describe(self) -> str:
        return (
            f"The transaction of {self._transactional_id!r} has been open for {self._producer.open_seconds:.1f} s of "
            f"the {self._timeout:g} s that kafka.transaction.timeout.ms allows, and has sent {self.sent_bytes} bytes "
            "so far."
        )
