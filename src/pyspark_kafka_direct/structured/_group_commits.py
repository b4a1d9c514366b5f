"""Committing finished batches for a consumer group, so that others see how far the query is.

Best effort: it never fails a batch, and a coordinator that does not answer never holds one up. Only the last offsets
count, so what waits while a commit is under way is replaced by what comes later.

The group also tells something to a query that goes on from its checkpoint. Kafka removes committed offsets together
with their topic, so a topic that has none any more may have been deleted and created again. May: nothing was committed
for a group that is new, and offsets expire. So that is a warning and not a verdict.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import KafkaDirectError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.groups import Group

_PATIENCE = 0.5  # seconds; a commit takes a few milliseconds, and a query that ends takes its planner with it


class GroupCommits:
    """Commits offsets in a thread of its own.

    Args:
        group: The group.
        warn: Is told what went wrong.
    """

    def __init__(self, group: Group, warn: Callable[[str], None]) -> None:
        self._group = group
        self._warn = warn
        self._changed = threading.Condition()
        self._pending: dict[TopicPartition, int] | None = None
        self._last: dict[TopicPartition, int] | None = None
        self._unsure = False
        self._running = False
        self._late = False

    def offer(self, offsets: Mapping[TopicPartition, int], *, resumed: bool = False) -> None:
        """Commit these offsets, unless they were the last already.

        Args:
            offsets: Where the query is.
            resumed: The query goes on from its checkpoint; where it is the first time may be compared with the group.
        """
        with self._changed:
            if offsets == self._last:
                return
            self._unsure = self._unsure or (resumed and self._last is None)
            self._last = self._pending = dict(offsets)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="pyspark-kafka-direct-commits", daemon=True).start()

    def settle(self) -> None:
        """Wait a moment for the commit under way; not again while the same one is late."""
        with self._changed:
            if not self._late:
                self._late = not self._changed.wait_for(lambda: not self._running, _PATIENCE)

    def _run(self) -> None:
        while True:
            with self._changed:
                offsets, self._pending = self._pending, None
                if offsets is None:
                    self._running = self._late = False
                    self._changed.notify_all()
                    return
                unsure, self._unsure = self._unsure, False
            try:
                if unsure:
                    self._warn_of_forgotten(offsets)
                self._group.commit(offsets)
            except KafkaDirectError as error:
                self._warn(f"the offsets of a finished batch were not committed (commitGroupId): {error}")

    def _warn_of_forgotten(self, offsets: Mapping[TopicPartition, int]) -> None:
        there = {tp.topic for tp in self._group.committed(offsets.keys())}
        forgotten = sorted({tp.topic for tp, offset in offsets.items() if offset > 0} - there)
        if forgotten:
            self._warn(
                f"this query has read {', '.join(forgotten)} before, but the group {self._group.group_id!r} "
                "(commitGroupId) has no offsets of it. Kafka removes them with their topic: if that was deleted and "
                "created again, records of the new topic are missed unless its log is shorter than what was read. It "
                "is nothing if the group is new, or has committed nothing for offsets.retention.minutes"
            )
