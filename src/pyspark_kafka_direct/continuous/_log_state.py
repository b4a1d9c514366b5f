"""What the logs of a checkpoint say, and what has to be done to them before a query goes on.

An epoch that is in both logs is *committed*. One that is only in the offset log is *unfinished*, and its meaning
depends on who wrote it. A continuous query writes it when all records of the epoch are out, so a crash came just
between the two files. A micro-batch query writes it before it starts on them: what is out, nobody knows.

    delivery        the offset log is ahead                what is done
    at least once   by any epochs                          they are removed, and their records read again
    exactly once    by one, and transactions reached it    it is committed; where they went on it ends where they got to
    exactly once    by anything else                       refused
    exactly once    not, but transactions went on          where they got to is written as one more epoch

With exactly-once the truth is with the transactions, which commit offsets together with records. They may be ahead of
the logs, by a part of an epoch or by several of them, and what was published must not be read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pyspark_kafka_direct.errors import OffsetPlanError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark_kafka_direct.continuous._log_format import Entry
    from pyspark_kafka_direct.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class LogState:
    """Which epochs the logs have.

    Attributes:
        committed: The last committed one; ``None``: none yet.
        unfinished: Those after it that the offset log has, in order.
    """

    committed: int | None = None
    unfinished: tuple[int, ...] = ()

    @property
    def next_epoch(self) -> int:
        """The epoch after the last committed one."""
        return 0 if self.committed is None else self.committed + 1


@dataclass(frozen=True, slots=True)
class Settlement:
    """What has to be done to the logs, in this order, and where the query goes on then.

    Attributes:
        remove: Epochs to be removed from the offset log; the last one first, so that a crash leaves no gap.
        write: The epoch that is written to the offset log, with ``begin`` for its end.
        commit: The epoch that is written to the commit log.
        begin: Where the query goes on; ``None``: at its starting position, as it never read.
        next_epoch: The first epoch from there.
    """

    begin: Mapping[TopicPartition, int] | None
    next_epoch: int
    remove: tuple[int, ...] = ()
    write: int | None = None
    commit: int | None = None


def log_state(offsets: Collection[int], commits: Collection[int], place: str) -> LogState:
    """Return what the logs say, by the numbers of their entries.

    Args:
        offsets: Epochs in the offset log.
        commits: Epochs in the commit log.
        place: The checkpoint, for errors.

    Raises:
        OffsetPlanError: The logs do not belong together.
    """
    committed = max(commits, default=None)
    if committed is not None and committed not in offsets:
        raise OffsetPlanError(
            f"{place} has commits/{committed} and no offsets/{committed}: it is damaged, or a part of it was removed. "
            "Restore it, or start with a new checkpoint and startingOffsets."
        )
    unfinished = tuple(sorted(epoch for epoch in offsets if committed is None or epoch > committed))
    if committed is None and unfinished and unfinished != (0,):
        raise OffsetPlanError(
            f"{place} has offsets/{unfinished[-1]} and nothing in commits/: it is damaged, or a part of it was "
            "removed. Restore it, or start with a new checkpoint and startingOffsets."
        )
    return LogState(committed, unfinished)


def to_purge(epochs: Iterable[int], newest: int, retain: int) -> list[int]:
    """Return the epochs that are not kept any longer, the oldest first.

    Spark keeps so many before the newest one, and needs at least one of them to go on.

    Args:
        epochs: Those in a log.
        newest: The one that was committed last.
        retain: ``spark.sql.streaming.minBatchesToRetain``.
    """
    return sorted(epoch for epoch in epochs if epoch < newest - max(retain, 1))


def settle(
    state: LogState, entries: Mapping[int, Entry], reached: Mapping[TopicPartition, int] | None, place: str
) -> Settlement:
    """Decide how a query goes on by its logs.

    Args:
        state: What the logs have.
        entries: The committed and the unfinished epochs of the offset log.
        reached: With exactly-once: the offsets that transactions of this query have committed for epochs after
            ``state.committed``, by partition; partitions without such are not in it. Nobody can add to them any more.
            ``None``: at least once.
        place: The checkpoint, for errors.

    Raises:
        OffsetPlanError: Whether records were published is not known, or where the query began.
    """
    if state.committed is None:
        return _settle_first(state, entries, reached, place)
    committed = entries[state.committed].offsets
    if reached is None:
        return Settlement(committed, state.next_epoch, remove=state.unfinished[::-1])
    ends = {**committed, **reached}
    if not state.unfinished:
        if ends == committed:
            return Settlement(committed, state.next_epoch)
        epoch = state.next_epoch
        return Settlement(ends, epoch + 1, write=epoch, commit=epoch)
    epoch = state.unfinished[0]
    planned = entries[epoch].offsets
    # Of a new partition nothing may be out yet.
    if state.unfinished != (state.next_epoch,) or any(ends.get(tp, end) < end for tp, end in planned.items()):
        _refuse_unknown(state.unfinished, place)
    ends = {**planned, **reached}
    if ends == planned:
        return Settlement(planned, epoch + 1, commit=epoch)
    return Settlement(ends, epoch + 1, remove=(epoch,), write=epoch, commit=epoch)


def _settle_first(
    state: LogState, entries: Mapping[int, Entry], reached: Mapping[TopicPartition, int] | None, place: str
) -> Settlement:
    """Decide where no epoch was committed: a continuous query commits its start before it reads."""
    if reached:
        raise OffsetPlanError(
            f"Transactions have committed offsets for the query of {place}, whose logs are empty: they were removed. "
            "Restore them, or start with a new checkpoint and startingOffsets."
        )
    if not state.unfinished:
        return Settlement(None, 0)
    if not entries[0].is_start:
        raise OffsetPlanError(
            f"{place}: the first batch of a micro-batch query was planned and is not done, and the logs do not say "
            "where it began. Start that query again and stop it after its first batch; or start with a new checkpoint."
        )
    return Settlement(entries[0].offsets, 1, commit=0)


def _refuse_unknown(epochs: tuple[int, ...], place: str) -> NoReturn:
    names = ", ".join(f"offsets/{epoch}" for epoch in epochs)
    raise OffsetPlanError(
        f"{place} has {names} without a commit, and the transactions of this query did not get there: a micro-batch "
        "query may have published a part of it. Start that query again and let it finish its batch; or remove the "
        "named files, and their records are published, perhaps again."
    )
