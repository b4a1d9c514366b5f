"""Finds partitions of a ``read_committed`` query that stay behind an open transaction, and describes them."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.options.hints import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.offsets import TopicPartition

CHECK_INTERVAL: Final = 5.0
"""Seconds between two requests for the high watermarks."""
REPORT_AFTER: Final = 10.0
"""Seconds for which a partition is blocked before it is reported; most transactions are shorter."""
MAX_BLOCKED: Final = 10_000
"""Blocked partitions that are remembered; those of deleted topics are never seen without a transaction again."""


class OpenTransaction(NamedTuple):
    """An open transaction in a partition."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp: int = -1  # of its last record, in ms since 1970; -1: unknown
    coordinator_epoch: int = -1  # of the last marker of the producer; -1: it has none


class BlockedPartition(NamedTuple):
    """A partition that ``read_committed`` queries can read only up to its last stable offset."""

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    since: float  # when it was first seen, on the caller's clock


class _Blocked(NamedTuple):
    last_stable_offset: int
    since: float
    is_reported: bool


class BlockedPartitions:
    """Remembers since when partitions are blocked; times are monotonic seconds."""

    def __init__(self) -> None:
        self._checked_at: float | None = None
        self._has_compared = False  # whether there were high watermarks in any check
        self._blocked: OrderedDict[TopicPartition, _Blocked] = OrderedDict()  # those that were checked last at the end

    def is_check_due(self, now: float) -> bool:
        """Return whether to request the high watermarks again."""
        return self._checked_at is None or now - self._checked_at >= CHECK_INTERVAL

    def update(
        self,
        last_stable_offsets: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
        now: float,
    ) -> list[BlockedPartition]:
        """Return the partitions to report: once for each transaction that blocks a partition."""
        immediately = not self._has_compared  # a single batch does not see how long a partition is blocked
        self._has_compared = self._has_compared or bool(high_watermarks)
        self._checked_at = now
        blocked = []
        for tp, offset in sorted(last_stable_offsets.items()):
            end = high_watermarks.get(tp)
            if end is None:  # the request failed, so nothing is known
                continue
            known = self._blocked.pop(tp, None)
            if end <= offset:  # not blocked any more
                continue
            if known is None or known.last_stable_offset != offset:  # another transaction blocks it
                known = _Blocked(offset, since=now, is_reported=False)
            if not known.is_reported and (immediately or now - known.since >= REPORT_AFTER):
                known = known._replace(is_reported=True)
                blocked.append(BlockedPartition(tp, offset, end, known.since))
            self._blocked[tp] = known
        while len(self._blocked) > MAX_BLOCKED:
            self._blocked.popitem(last=False)
        return blocked


def describe_blocked(
    blocked: Sequence[BlockedPartition],
    transactions: Mapping[TopicPartition, Sequence[OpenTransaction]],  # as far as they are known
    clock_offset: float,  # seconds from ``BlockedPartition.since`` to the time since 1970
) -> str:
    """Return the warning about blocked partitions."""
    descriptions = []
    for tp, offset, end, since in blocked:
        started = datetime.fromtimestamp(since + clock_offset, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        # The last stable offset is the start of the oldest open transaction, unless that has ended since.
        by_producer = [
            f" by producer id {each.producer_id} (epoch {each.producer_epoch})"
            for each in transactions.get(tp, ())
            if each.start_offset <= offset
        ]
        descriptions.append(
            f"{tp} is blocked since {started}{''.join(by_producer)}: {end - offset} offsets from {offset} on cannot be "
            "read yet"
        )
    partitions = listed(descriptions, limit=3, separator="; ")
    return (
        f"isolation.level=read_committed does not read past an open transaction: {partitions}. They are read when the "
        "transaction ends, usually at the latest after the writer's transaction.timeout.ms. kafka-transactions.sh "
        "finds and aborts hanging transactions."
    )
