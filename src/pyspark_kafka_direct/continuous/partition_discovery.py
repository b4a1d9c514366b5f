"""Detects new and deleted partitions, and replaced delegation tokens, in a background thread while a run reads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.system import wait_until
from pyspark_kafka_direct.continuous.continuous_epochs import detect_partition_changes
from pyspark_kafka_direct.errors import KafkaDirectError, PatternTimeoutError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.options.hints import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.continuous.continuous_epochs import PartitionChanges
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.offset_reader import OffsetReader

_log = logging.getLogger("pyspark_kafka_direct.continuous")


class PartitionDiscovery:
    """Checks the partitions of one run periodically, and ends the run if they change or a token was replaced."""

    def __init__(
        self,
        offset_reader: OffsetReader,
        partitions: Collection[TopicPartition],
        interval: float,  # seconds
        end_run: Callable[[], None],
        system: System,
        *,
        is_token_replaced: Callable[[], bool] = lambda: False,
    ) -> None:
        self.latest: Mapping[TopicPartition, int] = {}  # end offsets at the last check
        self.error: KafkaDirectError | None = None  # why the last check failed
        self._offset_reader = offset_reader  # used by this thread only
        self._partitions = frozenset(partitions)
        self._interval = interval
        self._end_run = end_run
        self._system = system
        self._is_token_replaced = is_token_replaced
        self._close_condition = system.condition()
        self._closed = False

    def start(self) -> None:
        self._system.start_thread(self._run, "pyspark-kafka-direct-partition-discovery")

    def close(self) -> None:
        """Stop checking, without waiting for a check that is in flight."""
        with self._close_condition:
            self._closed = True
            self._close_condition.notify_all()

    def _run(self) -> None:
        previous_changes: PartitionChanges | None = None
        while self._wait():
            if self._is_token_replaced():
                _log.info("The query restarts because its tasks need a new delegation token.")
                self._end_run()
                return
            try:
                current_partitions = self._offset_reader.assigned(strict=False).partitions
                self.latest = self._offset_reader.offsets(dict.fromkeys(self._partitions & current_partitions, LATEST))
            except PatternTimeoutError:
                self._end_run()  # the next run fails with this error; ignoring it would ignore new topics
                return
            except KafkaDirectError as error:
                _log.log(
                    logging.WARNING if self.error is None else logging.INFO,
                    "Cannot read the partitions and their end offsets from the brokers; the query retries: %s",
                    error,
                )
                self.error = error
                continue
            self.error = None
            changes = detect_partition_changes(self._partitions, current_partitions, previous_changes)
            if changes.end_run and not self._closed:
                _log.info(
                    "The query restarts because its partitions changed. New: %s. Missing: %s.",
                    listed(sorted(changes.new)),
                    listed(sorted(changes.missing)),
                )
                self._end_run()
                return
            previous_changes = changes

    def _wait(self) -> bool:
        """Wait until the next check is due; return ``False`` if this object was closed."""
        with self._close_condition:
            return not wait_until(self._system, self._close_condition, lambda: self._closed, self._interval)
