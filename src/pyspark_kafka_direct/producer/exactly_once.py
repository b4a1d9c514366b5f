"""Commits one batch of an exactly-once write: its records and its sink state record in one transaction.

The correctness depends on the order of the steps:

1. Acquire the transactional id. This fences every earlier writer and aborts its open transaction.
2. Read the sink state record of the last batch, up to the end of its topic.
3. Decide from it whether to send, skip or reject the batch (``planning/commit_decision.py``).
4. Send the record batches in the order of the tasks, then the new sink state record. Check that it directly follows
   the one that was read, and commit. So the sink state record exists if and only if the records do.

If the outcome of the commit is unknown, all steps are repeated: the sink state record shows whether it succeeded.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.client.admin import describe_broker_config
from pyspark_kafka_direct.client.transaction_coordinator import check_supports_transactions
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    KafkaDirectError,
    OptionError,
    OutcomeUnknownError,
    ProducerFencedError,
)
from pyspark_kafka_direct.planning.commit_decision import (
    RejectBatch,
    SinkState,
    SkipBatch,
    decide_commit,
)
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.config.client_settings import ProducerSettings
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.commit_decision import BatchAttempt
    from pyspark_kafka_direct.producer.batch_producer import WrittenRange
    from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore, StoredSinkState
    from pyspark_kafka_direct.records import EncodedBatch

_log = logging.getLogger("pyspark_kafka_direct.producer")

_MAX_TIMEOUT_CONFIG: Final = "transaction.max.timeout.ms"
_MAX_ATTEMPTS: Final = 3
_WARN_FRACTION: Final = 0.5
# If a transaction is fenced after this part of its timeout, the broker aborted it, and not another writer.
_EXPIRED_FRACTION: Final = 0.9


@dataclass(frozen=True, slots=True)
class ExactlyOnceOptions:
    """Options of an exactly-once write."""

    transactional_id_prefix: str
    timeout_ms: int = 300_000  # transaction.timeout.ms
    reset_token: str | None = None  # resetTransactionState

    @property
    def transactional_id(self) -> str:
        """The transactional id, which is also the key of the sink state record."""
        return f"{self.transactional_id_prefix}.sink"


class CommitResult(NamedTuple):
    """The result of ``commit_batch``."""

    newly_committed: bool  # False: the batch was committed before
    written: dict[TopicPartition, WrittenRange]  # empty if the batch was committed before
    superseded_runs: tuple[str, ...] | None = None  # earlier runs, which are fenced; None after a run's first commit


def check_exactly_once(
    cluster: ClusterClient, store: SinkStateStore, options: ExactlyOnceOptions, deadline: Deadline | None = None
) -> None:
    """Check before a query starts that batches can be committed, and create the sink state topic; fences nothing."""
    deadline = deadline or cluster.deadline()
    check_transaction_support(cluster, options.timeout_ms, deadline)
    store.ensure_topic(deadline)


def check_transaction_support(cluster: ClusterClient, timeout_ms: int, deadline: Deadline | None = None) -> None:
    """Check that the brokers support transactions with this timeout."""
    from pyspark_kafka_direct.config.option_messages import warn_once  # this runs for each batch

    deadline = deadline or cluster.deadline()
    cluster.refresh_brokers(deadline=deadline)

    def call(connection: Connection, _: Deadline) -> str | None:
        return check_supports_transactions(connection)

    if (warning := cluster.call_any_broker(call, deadline)) is not None:
        warn_once(warning)
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
    batches: Callable[[], Iterable[tuple[str, EncodedBatch]]],  # topics and record batches; called for each retry
) -> CommitResult:
    """Send a batch in one transaction, unless it was committed before.

    After an error, this writer or the next one aborts the transaction. A fenced writer cannot abort the transaction of
    its successor.
    """
    with TransactionalProducer(cluster, options.transactional_id, options.timeout_ms, settings) as producer:
        committer = _BatchCommitter(producer, store, options, cluster.pool.system)
        for attempt_number in range(1, _MAX_ATTEMPTS + 1):
            try:
                return committer.run(attempt, batches)
            except OutcomeUnknownError as error:
                if attempt_number == _MAX_ATTEMPTS:
                    raise
                _log.warning("%s Reading the sink state record to find out.", error)
            except ProducerFencedError:
                raise
            except KafkaDirectError as error:
                if not committer.outcome_is_unknown:
                    raise
                raise OutcomeUnknownError(
                    "The batch may have been committed; the sink state record that shows this could not be read. To "
                    "resolve it, restart the streaming query, or repeat the batch write with the same jobId. Reading "
                    f"failed: {error}"
                ) from error
        raise AssertionError("unreachable: the last attempt returns or raises")


class _UnknownOutcome(NamedTuple):
    """A commit without a response: it succeeded if this sink state is stored."""

    state: SinkState
    result: CommitResult


class _BatchCommitter:
    """Attempts to commit one batch; an attempt may be repeated while the outcome is unknown."""

    def __init__(
        self, producer: TransactionalProducer, store: SinkStateStore, options: ExactlyOnceOptions, system: System
    ) -> None:
        self._producer = producer
        self._store = store
        self._options = options
        self._system = system
        self._unknown_outcome: _UnknownOutcome | None = None

    @property
    def outcome_is_unknown(self) -> bool:
        """Whether an earlier attempt may have committed; reading the sink state shows whether it did."""
        return self._unknown_outcome is not None

    def run(self, attempt: BatchAttempt, batches: Callable[[], Iterable[tuple[str, EncodedBatch]]]) -> CommitResult:
        """Attempt to commit the batch, unless its sink state shows that it was committed before."""
        transactional_id = self._options.transactional_id
        # Every earlier writer is fenced before the sink state is read, so none of them can change it afterwards.
        self._producer.init_transactions()
        stored = self._store.read_newest(transactional_id)
        # The state that was just read shows whether the earlier attempt committed, so its outcome can be forgotten. If
        # fencing or reading had failed, it would have to stay unknown for the next attempt.
        unknown_outcome, self._unknown_outcome = self._unknown_outcome, None
        state = None if stored.value is None else SinkState.from_json(stored.value)
        if unknown_outcome is not None and state == unknown_outcome.state:
            return unknown_outcome.result  # the earlier attempt committed
        decision = decide_commit(state, attempt, self._options.reset_token)
        superseded_runs = _superseded_runs(state, attempt)
        if isinstance(decision, RejectBatch):
            raise decision.error(transactional_id)
        if isinstance(decision, SkipBatch):
            _log.info(
                "Skipping batch %d of %s: it was already committed with transactional id %s",
                attempt.batch,
                attempt.query,
                transactional_id,
            )
            skipped = CommitResult(False, {}, superseded_runs)
            if decision.updated_state is None:
                return skipped
            return self._send_and_commit((), decision.updated_state, stored, skipped)
        return self._send_and_commit(batches(), decision.state, stored, CommitResult(True, {}, superseded_runs))

    def _send_and_commit(
        self,
        batches: Iterable[tuple[str, EncodedBatch]],
        state: SinkState,
        stored: StoredSinkState,
        result: CommitResult,
    ) -> CommitResult:
        """Commit the batches and the new sink state; return the result with the ranges that were written."""
        producer = self._producer
        store = self._store
        timer = _TransactionTimer(self._options, self._system)
        try:
            for topic, batch in batches:
                timer.check()
                timer.sent_bytes += len(batch.data)
                producer.send(topic, batch, more_follows=True)
            state_batch = store.encode(self._options.transactional_id, state.to_json().encode())
            producer.send(store.topic, state_batch, more_follows=True)
            written = producer.flush()
            state_range = written.pop(store.partition)
            store.check_newest(self._options.transactional_id, stored, state_range.first_offset)
            timer.check()
        except ProducerFencedError as error:
            if timer.is_nearly_expired:
                raise timer.timeout_error() from error
            raise
        except BaseException:
            with contextlib.suppress(KafkaDirectError):
                producer.abort()
            raise
        result = result._replace(written=written)
        try:
            producer.commit()
        except OutcomeUnknownError:
            self._unknown_outcome = _UnknownOutcome(state, result)
            raise
        return result


def _superseded_runs(state: SinkState | None, attempt: BatchAttempt) -> tuple[str, ...] | None:
    """Return the runs before this one; None if the last commit was of this run, which has returned them before."""
    if state is None:
        return ()
    if state.run == attempt.run:
        return None
    return tuple(run for run in state.runs if run != attempt.run)


class _TransactionTimer:
    """Compares the age of a transaction with its timeout."""

    def __init__(self, options: ExactlyOnceOptions, system: System) -> None:
        self._options = options
        self._system = system
        self._timeout = options.timeout_ms / 1000
        self._started_at = system.monotonic()
        self._has_warned = False
        self.sent_bytes = 0  # for the messages

    @property
    def is_nearly_expired(self) -> bool:
        return self._elapsed >= self._timeout * _EXPIRED_FRACTION

    def check(self) -> None:
        """Raise if the transaction's timeout has passed; warn once after half of it."""
        if self._elapsed >= self._timeout:
            raise self.timeout_error()
        if self._elapsed >= self._timeout * _WARN_FRACTION and not self._has_warned:
            self._has_warned = True
            _log.warning("%s", self._describe())

    def timeout_error(self) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._describe()} Nothing was committed. Raise kafka.transaction.timeout.ms (up to "
            f"{_MAX_TIMEOUT_CONFIG} of the brokers), write smaller batches, or find out what is slow, such as a quota, "
            "the network, or too few partitions."
        )

    @property
    def _elapsed(self) -> float:
        return self._system.monotonic() - self._started_at

    def _describe(self) -> str:
        return (
            f"The transaction of {self._options.transactional_id!r} has been open for {self._elapsed:.1f} s of the "
            f"{self._timeout:g} s that kafka.transaction.timeout.ms allows, and has sent {self.sent_bytes} bytes so "
            "far."
        )
