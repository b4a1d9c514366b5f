"""Looks for other partitions while a run reads, in a thread that holds nobody up."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.planning.epochs import compare
from pyspark_kafka_direct.planning.hints import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.epochs import PartitionLook
    from pyspark_kafka_direct.planning.stream_view import ClusterView
    from pyspark_kafka_direct.wire.system import System

_log = logging.getLogger("pyspark_kafka_direct.continuous")


class Watch:
    """Watches the partitions of one run.

    Args:
        view: Asks the cluster; nobody else uses it.
        partitions: What the run reads.
        interval: Seconds between two looks.
        drain: Ends the run at an epoch, so that another one begins.
        system: Has the clock and the threads.

    Attributes:
        latest: The ends of the partitions at the last look.
        trouble: Why nothing could be seen at the last look; ``None`` if all is well.
    """

    def __init__(
        self,
        view: ClusterView,
        partitions: Collection[TopicPartition],
        interval: float,
        drain: Callable[[], None],
        system: System,
    ) -> None:
        self.latest: Mapping[TopicPartition, int] = {}
        self.trouble: KafkaDirectError | None = None
        self._view = view
        self._partitions = frozenset(partitions)
        self._interval = interval
        self._drain = drain
        self._system = system
        self._changed = threading.Condition()
        self._closed = False

    def start(self) -> None:
        """Begin to look."""
        self._system.start(self._run, "pyspark-kafka-direct-watch")

    def close(self) -> None:
        """Look no more; a look that is under way is left behind."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        last: PartitionLook | None = None
        while self._wait():
            try:
                found = self._view.assigned(strict=False).partitions
                self.latest = self._view.offsets(dict.fromkeys(self._partitions & found, LATEST))
            except KafkaDirectError as error:
                _log.log(
                    logging.WARNING if self.trouble is None else logging.INFO,
                    "The brokers do not say which partitions there are and where they end; the query tries on: %s",
                    error,
                )
                self.trouble = error
                continue
            self.trouble = None
            last = compare(self._partitions, found, last)
            if last.drain and not self._closed:
                _log.info(
                    "The query starts again with other partitions: new are %s, and not found %s.",
                    listed(sorted(last.new)),
                    listed(sorted(last.missing)),
                )
                self._drain()
                return

    def _wait(self) -> bool:
        """Wait for the next look; return whether there is to be one."""
        until = self._system.monotonic() + self._interval
        with self._changed:
            while not self._closed and (left := until - self._system.monotonic()) > 0:
                self._system.wait(self._changed, left)
            return not self._closed
