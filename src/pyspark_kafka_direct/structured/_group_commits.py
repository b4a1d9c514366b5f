"""Committing finished batches for a consumer group, so that others see how far the query is.

Best effort: it never fails a batch, and a coordinator that does not answer never holds one up. Only the last offsets
count, so what waits while a commit is under way is replaced by what comes later.
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
        self._running = False
        self._late = False

    def offer(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets, unless they were the last already."""
        with self._changed:
            if offsets == self._last:
                return
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
            try:
                self._group.commit(offsets)
            except KafkaDirectError as error:
                self._warn(f"the offsets of a finished batch were not committed (commitGroupId): {error}")
