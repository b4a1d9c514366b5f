"""The records of one query in the topic of an offset store, as one run at a time writes them.

A run takes over once, in this order:

1. InitProducerId. Whatever an earlier run does from now on is refused, and what it left half done is aborted.
2. Read to the end of the topic what is committed. Nothing of it can change any more but by this run.
3. Write the record of the run, in a transaction, and look whether it follows what was read: a broker that was cut off
   may still take itself for the leader, and not know the newest records.

Each write is one transaction. Where nobody knows whether it was committed, the run takes over again, and the log tells.
So it does where brokers have forgotten its transactional id, as they do after a week without a write.
That must not take the id back from a successor, for InitProducerId asks no one. So the log is looked at before: a
successor has written the record of its run there before it began.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark_kafka_direct.errors import (
    BrokerError,
    FencedError,
    KafkaDirectError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from pyspark_kafka_direct.log._stored_offsets import Stored, offset_key, read_stored, run_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark_kafka_direct.log._stored_offsets import Run, StoredOffset
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.writing.compacted import CompactedPartition
    from pyspark_kafka_direct.writing.producer import Written
    from pyspark_kafka_direct.writing.session import TransactionalSession

Rows: TypeAlias = "Sequence[tuple[bytes, bytes | None]]"
"""Keys and values of records."""

_log = logging.getLogger("pyspark_kafka_direct.log")

_TRIES: Final = 3
# A transaction that is fenced when most of its time has passed was ended by the broker, not by another run.
_OVER_AT: Final = 0.9
_TELLING_TAKES: Final = 5.0  # seconds at most, to find out who has taken over


class StoreLog:
    """Reads and writes the records of one query. Used by one thread at a time.

    Args:
        cluster: The cluster.
        log: The partition with the records.
        new_session: Makes the session that writes.
        query: The query.
        run: This run.
        timeout: After how many seconds the broker ends a transaction that is open.
    """

    def __init__(
        self,
        cluster: Cluster,
        log: CompactedPartition,
        new_session: Callable[[], TransactionalSession],
        query: str,
        run: Run,
        timeout: float,
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._new_session = new_session
        self._query = query
        self._run = run
        self._timeout = timeout
        self._session: TransactionalSession | None = None
        self._offsets: dict[TopicPartition, StoredOffset] = {}
        self._doubtful: set[TopicPartition] = set()
        self._read_to: int | None = None
        self._written_to = 0
        self._fenced: FencedError | None = None

    @property
    def offsets(self) -> Mapping[TopicPartition, StoredOffset]:
        """What is known to be stored."""
        return self._offsets

    def take_over(self) -> None:
        """Take the query over, as the module says, and read what is stored.

        Raises:
            FencedError: Another run has taken over meanwhile; final.
            BrokerTimeoutError: A transaction of another writer stayed open.
            OutcomeUnknownError: The brokers did not confirm it.
            KafkaDirectError: It was not possible.
        """
        self._repeatedly(self._take_over)

    def write(self, offsets: Mapping[TopicPartition, StoredOffset | None]) -> None:
        """Write offsets in one transaction, those that are not stored already; ``None`` takes one away.

        Args:
            offsets: The offsets.

        Raises:
            FencedError: Another run has taken over; final.
            OutcomeUnknownError: Nobody knows whether they were stored.
            KafkaDirectError: They were not stored.
        """

        def write() -> None:
            if self._session is None:
                self._take_over()
            changed = {tp: new for tp, new in offsets.items() if not _same(self._offsets.get(tp), new)}
            if changed:
                self._send(changed)

        self._repeatedly(write)

    def close(self) -> None:
        """Give the connections back."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _repeatedly(self, step: Callable[[], None]) -> None:
        """Do something until its outcome is known; a run that was fenced does nothing more."""
        unclear: OutcomeUnknownError | None = None
        for tries in range(1, _TRIES + 1):
            if self._fenced is not None:
                raise self._fenced
            try:
                return step()
            except FencedError as error:
                self.close()
                self._fenced = self._superseded() or error
                raise self._fenced from error
            except OutcomeUnknownError as error:
                self.close()
                unclear = error
                if tries < _TRIES:
                    _log.warning("%s The topic will tell.", error)
            except KafkaDirectError as error:
                self._abandon()
                # A broker may also just say that the transaction was ended.
                if not isinstance(error, TransientBrokerError) and (fenced := self._superseded()) is not None:
                    self._fenced = fenced
                    raise fenced from error
                if unclear is None:
                    raise
                raise OutcomeUnknownError(f"{unclear.message} What went wrong then: {error}") from error
            except BaseException:
                self._abandon()
                raise
        assert unclear is not None
        raise unclear

    def _take_over(self) -> None:
        self.close()
        before = self._read_to
        if before is not None:
            self._refuse_successor(before, "read_uncommitted")
        session = self._new_session()
        session.init()
        self._session = session
        deadline = self._cluster.deadline()
        end, start = self._log.stable_end(deadline), self._log.start(deadline)
        stored = self._stored(start, end, deadline, from_earliest=True)
        if before is not None:
            self._refuse_successor(before, "read_committed")
            self._refuse_loss(stored.offsets)
        self._read_to = end
        with self._transaction() as write:
            written = write([(run_key(self._query), self._run.to_json())])
            self._check_follows(end, written.first_offset, deadline)
        self._written_to = written.next_offset
        self._offsets = stored.offsets
        self._doubtful.clear()

    def _send(self, changed: Mapping[TopicPartition, StoredOffset | None]) -> None:
        rows = [(offset_key(self._query, tp), None if new is None else new.to_json()) for tp, new in changed.items()]
        self._doubtful |= changed.keys()
        with self._transaction() as write:
            written = write(rows)
            if 0 <= written.first_offset < self._written_to:
                raise self._error(
                    f"The log had reached offset {self._written_to} before, and what follows was written at "
                    f"{written.first_offset}: it was cut back, or the topic was created anew, and may have lost what "
                    "was saved. Nothing was saved now."
                )
        self._written_to = max(self._written_to, written.next_offset)
        for tp, new in changed.items():
            if new is None:
                self._offsets.pop(tp, None)
            else:
                self._offsets[tp] = new
        self._doubtful -= changed.keys()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Callable[[Rows], Written]]:
        """Commit what is given to the function that is yielded, which says where it was written."""
        session, system = self._session, self._cluster.pool.system
        assert session is not None
        began = system.monotonic()

        def write(rows: Rows) -> Written:
            for batch in self._log.encode(rows):
                session.send(self._log.partition.topic, batch)
            return session.flush()[self._log.partition]

        try:
            yield write
            session.commit()
        except (TransientBrokerError, OutcomeUnknownError):
            raise
        except BrokerError as error:
            if isinstance(error, FencedError) and error.forgotten:
                raise OutcomeUnknownError(f"Nothing was saved: {error.message}", topic=error.topic) from error
            passed = system.monotonic() - began
            if passed < _OVER_AT * self._timeout:
                raise
            raise OutcomeUnknownError(
                f"A save took {passed:.1f} s, and the broker ends a transaction after {self._timeout:g} s "
                f"(transaction_timeout_ms): {error.message}",
                topic=self._log.partition.topic,
            ) from error

    def _stored(
        self,
        first: int,
        until: int,
        deadline: Deadline,
        isolation: IsolationLevel = "read_committed",
        *,
        from_earliest: bool = False,
    ) -> Stored:
        batches = self._log.read(first, until, deadline, isolation, from_earliest=from_earliest)
        return read_stored(self._query, batches, self._log.partition.topic)

    def _refuse_successor(self, since: int, isolation: IsolationLevel) -> None:
        """Raise if another run has begun after an offset."""
        if (successor := self._successor(since, isolation, self._cluster.deadline())) is not None:
            raise self._taken_over(successor)

    def _successor(self, since: int, isolation: IsolationLevel, deadline: Deadline) -> Run | None:
        """Return the newest of the other runs that have begun after an offset."""
        until = self._log.end(deadline, isolation)
        others = [run for run in self._stored(since, until, deadline, isolation).runs if run.id != self._run.id]
        return others[-1] if others else None

    def _refuse_loss(self, now: Mapping[TopicPartition, StoredOffset]) -> None:
        """Raise if something is not stored any more that was."""
        for tp, before in self._offsets.items():
            if tp not in self._doubtful and not _same(now.get(tp), before):
                raise self._error(
                    f"The offset {before.offset} of {tp} was saved by this run, and is not there any more: the log was "
                    "cut back, the topic was created anew, or somebody has changed it. Nothing was saved now."
                )

    def _check_follows(self, end: int, offset: int, deadline: Deadline) -> None:
        """Raise if records of the query lie between the end that was read and one that was written.

        All replicas in sync have the new one, so its offset was given by the true leader.
        """
        if offset == end:
            return
        if offset > end:
            between = self._stored(end, offset, deadline, "read_uncommitted")
            if not between.offsets and not between.runs:
                return
        raise self._error(
            f"The offsets were read up to {end}, and the next record was written at {offset}: a broker that no longer "
            "leads the partition was asked, or the log was cut back. Start again when all brokers are well."
        )

    def _superseded(self) -> FencedError | None:
        """Say who has taken over, if somebody has and that can be known."""
        if self._read_to is None:
            return None
        with contextlib.suppress(KafkaDirectError):
            deadline = self._cluster.deadline(_TELLING_TAKES)
            if (successor := self._successor(self._read_to, "read_uncommitted", deadline)) is not None:
                return self._taken_over(successor)
        return None

    def _taken_over(self, successor: Run) -> FencedError:
        began = datetime.fromtimestamp(successor.began / 1000, UTC).isoformat(timespec="seconds")
        return FencedError(
            f"The query {self._query!r} was taken over by run {successor.id}, process {successor.process} on host "
            f"{successor.host}, at {began}. This run, {self._run.id}, saves nothing any more: stop it, or give one of "
            "the two another query name.",
            topic=self._log.partition.topic,
        )

    def _error(self, message: str) -> BrokerError:
        return BrokerError(message, topic=self._log.partition.topic, partition=self._log.partition.partition)

    def _abandon(self) -> None:
        """Abort what is open, so that nobody waits for it."""
        if self._session is not None:
            with contextlib.suppress(KafkaDirectError):
                self._session.abort()
        self.close()


def _same(stored: StoredOffset | None, new: StoredOffset | None) -> bool:
    """Tell whether two say the same, whichever run has written them."""
    return (stored and stored[:2]) == (new and new[:2])
