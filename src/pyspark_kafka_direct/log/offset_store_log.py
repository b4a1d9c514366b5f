"""The records of one query in the topic of an offset store, written by one run at a time.

A run acquires the query once, in this order:

1. InitProducerId fences earlier runs and aborts their open transaction.
2. Read the committed records to the end of the topic. From now on only this run can change them.
3. Write the run's own record in a transaction, and check that it follows what was read: a partitioned broker may
   still act as the leader and lack the newest records.

Each write is one transaction. If its outcome is unknown, the run acquires the query again and reads the outcome from
the topic. It does the same if brokers have expired its transactional id, which they do after a week without a write.
InitProducerId would also fence a successor, so the topic is checked first for the record of a newer run.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark_kafka_direct.errors import (
    BrokerError,
    KafkaDirectError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransientBrokerError,
)
from pyspark_kafka_direct.log.offset_store_records import (
    StoredState,
    offset_key,
    read_stored_state,
    run_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.log.offset_store_records import StoredOffset, StoreRun
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import IsolationLevel
    from pyspark_kafka_direct.producer.batch_producer import WrittenRange
    from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

KeyValueRows: TypeAlias = "Sequence[tuple[bytes, bytes | None]]"

_log = logging.getLogger("pyspark_kafka_direct.log")

_MAX_ATTEMPTS: Final = 3
_SUCCESSOR_LOOKUP_SECONDS: Final = 5.0  # timeout of the search for a newer run after fencing


class OffsetStoreLog:
    """The saved offsets of one query, in the topic of an offset store; not thread-safe."""

    def __init__(
        self,
        cluster: ClusterClient,
        log: CompactedPartition,
        new_producer: Callable[[], TransactionalProducer],
        *,
        query: str,
        run: StoreRun,
        transaction_timeout: float,  # seconds
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._new_producer = new_producer
        self._query = query
        self._run = run
        self._transaction_timeout = transaction_timeout
        self._producer: TransactionalProducer | None = None
        self._offsets: dict[TopicPartition, StoredOffset] = {}
        self._unknown_outcomes: set[TopicPartition] = set()  # their last write may or may not be committed
        self._read_until: int | None = None  # end of the topic when the query was last acquired; None: never acquired
        self._written_until = 0  # offset after this run's last record
        self._fencing_error: ProducerFencedError | None = None

    @property
    def offsets(self) -> Mapping[TopicPartition, StoredOffset]:
        """The offsets that are known to be stored."""
        return self._offsets

    def acquire(self) -> None:
        """Fence earlier runs of the query, and read its offsets."""
        self._retry_until_known(self._acquire)

    def write(self, offsets: Mapping[TopicPartition, StoredOffset | None]) -> None:
        """Write the offsets that differ from the stored ones in one transaction; ``None`` deletes an offset."""

        def write() -> None:
            if self._producer is None:
                self._acquire()
            changed_offsets = {tp: new for tp, new in offsets.items() if not _same_offset(self._offsets.get(tp), new)}
            if changed_offsets:
                self._write_changes(changed_offsets)

        self._retry_until_known(write)

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _retry_until_known(self, step: Callable[[], None]) -> None:
        """Run a step until its outcome is known; once another run has fenced this one, each call raises that error."""
        unknown_outcome: OutcomeUnknownError | None = None
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            if self._fencing_error is not None:
                # Its traceback would retain the frames of all callers. A direct stream continues after failed batches.
                raise self._fencing_error.with_traceback(None)
            try:
                return step()
            except ProducerFencedError as error:
                self.close()
                self._fencing_error = self._find_fencing_error() or error
                raise self._fencing_error from error
            except OutcomeUnknownError as error:
                self.close()  # so that the next attempt acquires the query, and reads the outcome
                unknown_outcome = error
                if attempt < _MAX_ATTEMPTS:
                    _log.warning("%s Reading the outcome from the topic.", error)
            except KafkaDirectError as error:
                self._abort_and_close()
                # After fencing, a broker may also respond that the transaction has ended.
                if (
                    not isinstance(error, TransientBrokerError)
                    and (fencing_error := self._find_fencing_error()) is not None
                ):
                    self._fencing_error = fencing_error
                    raise fencing_error from error
                if unknown_outcome is None:
                    raise
                # The earlier attempt is still the one that may have saved the offsets.
                raise OutcomeUnknownError(
                    f"{unknown_outcome.message} The check of the outcome failed: {error}"
                ) from error
            except BaseException:
                self._abort_and_close()
                raise
        assert unknown_outcome is not None
        raise unknown_outcome

    def _acquire(self) -> None:
        """Acquire the query in the steps of the module's docstring; to do so again must not fence a newer run."""
        self.close()
        previous_end = self._read_until
        if previous_end is not None:
            self._check_no_successor(previous_end, "read_uncommitted")
        producer = self._new_producer()
        producer.init_transactions()
        self._producer = producer
        deadline = self._cluster.deadline()
        end, start = self._log.wait_for_stable_end(deadline), self._log.start(deadline)
        stored = self._read_state(start, end, deadline, from_earliest=True)
        if previous_end is not None:
            self._check_no_successor(previous_end, "read_committed")  # it may have begun after the first check
            self._check_nothing_lost(stored.offsets)
        self._read_until = end
        with self._transaction() as write:
            written = write([(run_key(self._query), self._run.to_json())])
            self._check_contiguous(end, written.first_offset, deadline)
        self._written_until = written.next_offset
        self._offsets = stored.offsets
        self._unknown_outcomes.clear()

    def _write_changes(self, changed_offsets: Mapping[TopicPartition, StoredOffset | None]) -> None:
        rows = [
            (offset_key(self._query, tp), None if new is None else new.to_json()) for tp, new in changed_offsets.items()
        ]
        self._unknown_outcomes |= changed_offsets.keys()
        with self._transaction() as write:
            written = write(rows)
            if 0 <= written.first_offset < self._written_until:
                raise self._broker_error(
                    f"The log had reached offset {self._written_until} before, and this save was written at "
                    f"{written.first_offset}: the log was truncated or the topic recreated, and saved offsets may be "
                    "lost. Nothing was saved."
                )
        self._written_until = max(self._written_until, written.next_offset)
        for tp, new in changed_offsets.items():
            if new is None:
                self._offsets.pop(tp, None)
            else:
                self._offsets[tp] = new
        self._unknown_outcomes -= changed_offsets.keys()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Callable[[KeyValueRows], WrittenRange]]:
        """Yield a function that writes records to a transaction, which is committed when the context ends."""
        producer = self._producer
        assert producer is not None

        def write(rows: KeyValueRows) -> WrittenRange:
            for batch in self._log.encode(rows):
                producer.send(self._log.partition.topic, batch)
            return producer.flush()[self._log.partition]

        try:
            yield write
            producer.commit()
        except (TransientBrokerError, OutcomeUnknownError):
            raise
        except BrokerError as error:
            # After an OutcomeUnknownError, the query is acquired again, and the step repeated.
            if error.may_be_expired:
                raise OutcomeUnknownError(f"Nothing was saved: {error.message}", topic=error.topic) from error
            if not producer.may_have_timed_out:
                raise
            raise OutcomeUnknownError(
                f"A save took {producer.open_seconds:.1f} s, and the broker aborts a transaction after "
                f"{self._transaction_timeout:g} s (transaction_timeout_ms): {error.message}",
                topic=self._log.partition.topic,
            ) from error

    def _read_state(
        self,
        first: int,
        until: int,
        deadline: Deadline,
        isolation: IsolationLevel = "read_committed",
        *,
        from_earliest: bool = False,
    ) -> StoredState:
        batches = self._log.read(first, until, deadline, isolation, from_earliest=from_earliest)
        return read_stored_state(self._query, batches, self._log.partition.topic)

    def _check_no_successor(self, since: int, isolation: IsolationLevel) -> None:
        if (successor := self._find_successor(since, isolation, self._cluster.deadline())) is not None:
            raise self._successor_error(successor)

    def _find_successor(self, since: int, isolation: IsolationLevel, deadline: Deadline) -> StoreRun | None:
        """Return the newest other run that was recorded at or after an offset."""
        until = self._log.end(deadline, isolation)
        other_runs = [run for run in self._read_state(since, until, deadline, isolation).runs if run.id != self._run.id]
        return other_runs[-1] if other_runs else None

    def _check_nothing_lost(self, stored_offsets: Mapping[TopicPartition, StoredOffset]) -> None:
        """Raise if an offset that this run has saved is missing from the topic."""
        for tp, known_offset in self._offsets.items():
            if tp not in self._unknown_outcomes and not _same_offset(stored_offsets.get(tp), known_offset):
                raise self._broker_error(
                    f"The offset {known_offset.offset} of {tp}, which this run saved, is missing: the log was "
                    "truncated, the topic was recreated, or another process changed it. Nothing was saved."
                )

    def _check_contiguous(self, end: int, offset: int, deadline: Deadline) -> None:
        """Raise if records of the query lie between the end that was read and the new record."""

        def has_own_records() -> bool:
            state_between = self._read_state(end, offset, deadline, "read_uncommitted")
            return bool(state_between.offsets or state_between.runs)

        self._log.check_follows(end, offset, has_own_records)

    def _find_fencing_error(self) -> ProducerFencedError | None:
        """Return an error that names the newer run, if there is one and the brokers respond."""
        if self._read_until is None:
            return None
        with contextlib.suppress(KafkaDirectError):
            deadline = self._cluster.deadline(_SUCCESSOR_LOOKUP_SECONDS)
            if (successor := self._find_successor(self._read_until, "read_uncommitted", deadline)) is not None:
                return self._successor_error(successor)
        return None

    def _successor_error(self, successor: StoreRun) -> ProducerFencedError:
        started = datetime.fromtimestamp(successor.started / 1000, UTC).isoformat(timespec="seconds")
        return ProducerFencedError(
            f"The query {self._query!r} was acquired by run {successor.id}, process {successor.process_id} on host "
            f"{successor.host}, at {started}. This run, {self._run.id}, can no longer save offsets: stop it, or give "
            "one of the two another query name.",
            topic=self._log.partition.topic,
        )

    def _broker_error(self, message: str) -> BrokerError:
        return BrokerError(message, topic=self._log.partition.topic, partition=self._log.partition.partition)

    def _abort_and_close(self) -> None:
        if self._producer is not None:
            with contextlib.suppress(KafkaDirectError):
                self._producer.abort()
        self.close()


def _same_offset(stored: StoredOffset | None, new: StoredOffset | None) -> bool:
    """Compare offset and topic id, but not the run that wrote them, which is the last field."""
    return (stored and stored[:2]) == (new and new[:2])
