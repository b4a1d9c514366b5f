"""The commit step of an exactly-once write: one batch, and the marker that names it, in one transaction.

The order of the steps is what makes it right:

1. Take the transactional id over. That fences every earlier writer, and aborts what one left half done; so nothing
   changes any more that is not ours.
2. Read the marker of what was sent last, to the end of its topic.
3. Decide by it (``planning/delivery.py``): send, skip or refuse.
4. Send the record batches in the order of the tasks, then the marker, and look whether it is the next one after that
   which was read. Only then commit. The marker is there if and only if the records are.

Where nobody knows whether the transaction was ended, the same from the start: the marker tells.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    FencedError,
    KafkaDirectError,
    OptionError,
    OutcomeUnknownError,
)
from pyspark_kafka_direct.planning.delivery import Marker, Refuse, Skip, decide
from pyspark_kafka_direct.wire.topics import broker_config
from pyspark_kafka_direct.wire.transactions import check_release
from pyspark_kafka_direct.writing.session import TransactionalSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.delivery import Attempt
    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.system import System
    from pyspark_kafka_direct.writing.markers import Found, MarkerStore
    from pyspark_kafka_direct.writing.producer import Written

_log = logging.getLogger("pyspark_kafka_direct.writing")

_MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
_TRIES: Final = 3
_WARN_AT: Final = 0.5
# A transaction that is fenced when most of its time has passed was ended by the broker, not by another writer.
_OVER_AT: Final = 0.9


@dataclass(frozen=True, slots=True)
class Delivery:
    """How batches are delivered exactly once.

    Attributes:
        prefix: What the transactional id begins with (``transactionalIdPrefix``).
        timeout_ms: After how long the broker aborts an open transaction (``transaction.timeout.ms``).
        reset_token: Token of a refusal that does not count (``resetDelivery``).
    """

    prefix: str
    timeout_ms: int = 300_000
    reset_token: str | None = None

    @property
    def transactional_id(self) -> str:
        """The transactional id; the key of the marker, too."""
        return f"{self.prefix}.sink"


class Delivered(NamedTuple):
    """What became of a batch.

    Attributes:
        sent: Whether it was sent now; if not, it was sent before.
        written: What was written to each partition; empty if it was not sent now.
        superseded: The runs before this one, if it has just taken over: none of them can commit any more. ``None`` if
            it was the last one to write, too.
    """

    sent: bool
    written: dict[TopicPartition, Written]
    superseded: tuple[str, ...] | None = None


def prepare(cluster: Cluster, store: MarkerStore, delivery: Delivery, deadline: Deadline | None = None) -> None:
    """Check before a query starts, as far as that can be known then, that batches can be delivered; fences nobody.

    Args:
        cluster: The cluster.
        store: The markers; their topic is created if it is not there.
        delivery: How.
        deadline: End of the wait instead of ``default.api.timeout.ms``.

    Raises:
        UnsupportedBrokerError: The broker is older than Kafka 2.5.
        OptionError: The brokers do not allow transactions to be open for so long.
        KafkaDirectError: As ``MarkerStore.ensure``.
    """
    deadline = deadline or cluster.deadline()
    check_brokers(cluster, delivery.timeout_ms, deadline)
    store.ensure(deadline)


def check_brokers(cluster: Cluster, timeout_ms: int, deadline: Deadline | None = None) -> None:
    """Check that the brokers can do transactions, and let them be open for so long.

    Args:
        cluster: The cluster.
        timeout_ms: After how long the broker is to abort an open transaction.
        deadline: End of the wait instead of ``default.api.timeout.ms``.

    Raises:
        UnsupportedBrokerError: The broker is older than Kafka 2.5.
        OptionError: The brokers do not allow transactions to be open for so long.
        KafkaDirectError: They could not be asked.
    """
    from pyspark_kafka_direct.settings.sink import warn_once  # a process plans many batches

    deadline = deadline or cluster.deadline()
    cluster.reach(deadline=deadline)

    def ask(connection: Connection, _: Deadline) -> str | None:
        return check_release(connection)

    if (warning := cluster.ask_any(ask, deadline)) is not None:
        warn_once(warning)
    try:
        most = broker_config(cluster, [_MAX_TIMEOUT], deadline).get(_MAX_TIMEOUT)
    except AuthorizationError:
        return  # the coordinator refuses it when the first transaction begins
    if most is not None and timeout_ms > int(most):
        raise OptionError(
            f"kafka.transaction.timeout.ms is {timeout_ms}, and the brokers allow {most} at most: lower it, or raise "
            f"their {_MAX_TIMEOUT}."
        )


def deliver(
    cluster: Cluster,
    settings: ProduceSettings,
    store: MarkerStore,
    delivery: Delivery,
    attempt: Attempt,
    batches: Callable[[], Iterable[tuple[str, EncodedBatch]]],
) -> Delivered:
    """Send a batch in one transaction, unless it was sent before.

    After any error that it raises its own transaction is aborted, or will be by the next writer. A writer that has
    taken over is not disturbed.

    Args:
        cluster: The cluster.
        settings: How records are written.
        store: The markers; ``prepare`` has seen to their topic.
        delivery: How batches are delivered.
        attempt: Which batch it is, and whose.
        batches: Gives the record batches, with their topics, in order; called again for another try.

    Raises:
        DeliveryRefusedError: Neither sending nor skipping is known to be right.
        FencedError: Another writer has taken over; final.
        OutcomeUnknownError: Nobody knows whether it was sent; the next attempt will.
        BrokerTimeoutError: Sending takes longer than a transaction may be open.
        KafkaDirectError: It was not sent.
    """
    with TransactionalSession(cluster, delivery.transactional_id, delivery.timeout_ms, settings) as session:
        step = _CommitStep(session, store, delivery, cluster.pool.system)
        for tries in range(1, _TRIES + 1):
            try:
                return step.run(attempt, batches)
            except OutcomeUnknownError as error:
                if tries == _TRIES:
                    raise
                _log.warning("%s The marker will tell.", error)
            except FencedError:
                raise
            except KafkaDirectError as error:
                if not step.is_unclear:
                    raise
                raise OutcomeUnknownError(
                    "The batch may have been committed, and its marker could not be read to know it. A streaming query "
                    "that is started again, and a batch write with the same jobId, find out; what follows went wrong: "
                    f"{error}"
                ) from error
        raise AssertionError


class _CommitStep:
    """The steps of the module, for one batch.

    Args:
        session: Writes.
        store: The markers.
        delivery: How.
        system: Has the clock.
    """

    def __init__(self, session: TransactionalSession, store: MarkerStore, delivery: Delivery, system: System) -> None:
        self._session = session
        self._store = store
        self._delivery = delivery
        self._system = system
        self._unclear: tuple[Marker, Delivered] | None = None

    @property
    def is_unclear(self) -> bool:
        """Whether a transaction was perhaps committed, and no marker has told yet."""
        return self._unclear is not None

    def run(self, attempt: Attempt, batches: Callable[[], Iterable[tuple[str, EncodedBatch]]]) -> Delivered:
        transactional_id = self._delivery.transactional_id
        self._session.init()
        found = self._store.find(transactional_id)
        unclear, self._unclear = self._unclear, None
        marker = None if found.value is None else Marker.from_json(found.value)
        if unclear is not None and marker == unclear[0]:
            return unclear[1]
        decision = decide(marker, attempt, self._delivery.reset_token)
        superseded = _superseded(marker, attempt)
        if isinstance(decision, Refuse):
            raise decision.error(transactional_id)
        if isinstance(decision, Skip):
            _log.info("batch %d of %s was sent before, under %s", attempt.batch, attempt.query, transactional_id)
            if decision.renewed is not None:
                self._send((), decision.renewed, found, Delivered(False, {}, superseded))
            return Delivered(False, {}, superseded)
        return self._send(batches(), decision.marker, found, Delivered(True, {}, superseded))

    def _send(
        self, batches: Iterable[tuple[str, EncodedBatch]], marker: Marker, found: Found, delivered: Delivered
    ) -> Delivered:
        session, store = self._session, self._store
        time = _TransactionTime(self._delivery, self._system)
        try:
            for topic, batch in batches:
                time.check(len(batch.data))
                session.send(topic, batch, more=True)
            named = store.encode(self._delivery.transactional_id, marker.to_json().encode())
            session.send(store.topic, named, more=True)
            written = session.flush()
            place = written.pop(store.partition)
            store.check_newest(self._delivery.transactional_id, found, place.first_offset)
            time.check()
        except FencedError as error:
            if time.is_nearly_over:
                raise time.too_slow() from error
            raise
        except BaseException:
            with contextlib.suppress(KafkaDirectError):
                session.abort()
            raise
        delivered = delivered._replace(written=written)
        try:
            session.commit()
        except OutcomeUnknownError:
            self._unclear = (marker, delivered)
            raise
        return delivered


def _superseded(marker: Marker | None, attempt: Attempt) -> tuple[str, ...] | None:
    runs = () if marker is None else marker.runs
    return None if runs and runs[-1] == attempt.run else tuple(run for run in runs if run != attempt.run)


class _TransactionTime:
    """How long a transaction is open, and how long it may be."""

    def __init__(self, delivery: Delivery, system: System) -> None:
        self._delivery = delivery
        self._system = system
        self._allowed = delivery.timeout_ms / 1000
        self._began = system.monotonic()
        self._bytes = 0
        self._warned = False

    @property
    def is_nearly_over(self) -> bool:
        return self._passed >= self._allowed * _OVER_AT

    def check(self, size: int = 0) -> None:
        """Count bytes that are to be sent; warn, or raise, when much time has passed."""
        if self._passed >= self._allowed:
            raise self.too_slow()
        if self._passed >= self._allowed * _WARN_AT and not self._warned:
            self._warned = True
            _log.warning("%s", self._told())
        self._bytes += size

    def too_slow(self) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._told()} Nothing of it was committed. Raise kafka.transaction.timeout.ms (the brokers' "
            f"{_MAX_TIMEOUT} is the limit), write smaller batches, or look for what is slow: a quota, the network, "
            "few partitions."
        )

    @property
    def _passed(self) -> float:
        return self._system.monotonic() - self._began

    def _told(self) -> str:
        return (
            f"The transaction of {self._delivery.transactional_id!r} has been open for {self._passed:.1f} s of the "
            f"{self._allowed:g} s that kafka.transaction.timeout.ms allows, and {self._bytes} bytes were sent so far."
        )
