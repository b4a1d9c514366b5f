"""Warns when partitions of a ``read_committed`` query or log stay behind an open transaction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.planning.open_transactions import BlockedPartitions, describe_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import IsolationLevel
    from pyspark_kafka_direct.planning.open_transactions import OpenTransaction

_log = logging.getLogger("pyspark_kafka_direct.consumer")

_REQUEST_SECONDS: Final = 5.0  # the query waits for these requests, which only a warning needs


class BlockedPartitionWarnings:
    """Compares last stable offsets with high watermarks; an error never affects the query."""

    def __init__(self, cluster: ClusterClient, warn: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._warn = warn
        self._blocked = BlockedPartitions()

    def check(self, last_stable_offsets: Mapping[TopicPartition, int]) -> None:
        """Warn of blocked partitions, given last stable offsets that were just fetched; may be called often."""
        if self._is_due(last_stable_offsets):
            deadline = self._cluster.deadline()
            self._report(last_stable_offsets, self._ends(last_stable_offsets, "read_uncommitted", deadline), deadline)

    def check_unreached(self, high_watermarks: Mapping[TopicPartition, int], deadline: Deadline) -> None:
        """Warn of blocked partitions, given high watermarks that a log has not reached; may be called often."""
        if self._is_due(high_watermarks):
            self._report(self._ends(high_watermarks, "read_committed", deadline), high_watermarks, deadline)

    def _is_due(self, ends: Mapping[TopicPartition, int]) -> bool:
        return bool(ends) and self._blocked.is_check_due(self._cluster.pool.system.monotonic())

    def _report(
        self,
        last_stable_offsets: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
        deadline: Deadline,
    ) -> None:
        """Warn of the partitions whose last stable offset stays below the high watermark."""
        system = self._cluster.pool.system
        now = system.monotonic()
        if blocked := self._blocked.update(last_stable_offsets, high_watermarks, now):
            transactions = self._open_transactions([each.partition for each in blocked], deadline)
            clock_offset = system.wall_time() - system.monotonic()
            self._warn(describe_blocked(blocked, transactions, clock_offset))

    def _ends(
        self, partitions: Collection[TopicPartition], isolation_level: IsolationLevel, deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        """Return the ends of logs; nothing after an error, because the query does not need them."""
        requested, limit = dict.fromkeys(partitions, LATEST), deadline.limited_to(_REQUEST_SECONDS)
        try:
            return self._cluster.offsets(requested, isolation_level=isolation_level, deadline=limit)
        except KafkaDirectError as error:
            _log.debug("cannot check for open transactions: %s", error)
            return {}

    def _open_transactions(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> Mapping[TopicPartition, Sequence[OpenTransaction]]:
        """Return open transactions, as far as the brokers' version and the principal's permissions allow."""
        try:
            return self._cluster.open_transactions(partitions, deadline=deadline.limited_to(_REQUEST_SECONDS))
        except KafkaDirectError as error:
            _log.debug("cannot describe the producers of open transactions: %s", error)
            return {}
