"""Warns when partitions of a ``read_committed`` query stay behind an open transaction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.planning.open_transactions import BlockedPartitions, describe_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.open_transactions import OpenTransaction

_log = logging.getLogger("pyspark_kafka_direct.spark")

_REQUEST_SECONDS: Final = 5.0  # the query waits for these requests, which only a warning needs


class BlockedPartitionWarnings:
    """Compares the ends that a query may read to with the high watermarks; an error never affects the query."""

    def __init__(self, cluster: ClusterClient, warn: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._warn = warn
        self._blocked = BlockedPartitions()

    def check(self, last_stable_offsets: Mapping[TopicPartition, int]) -> None:
        """Warn of blocked partitions, given last stable offsets that were just fetched; may be called often."""
        system = self._cluster.pool.system
        now = system.monotonic()
        if not last_stable_offsets or not self._blocked.is_check_due(now):
            return
        try:
            deadline = self._cluster.deadline(_REQUEST_SECONDS)
            high_watermarks = self._cluster.offsets(dict.fromkeys(last_stable_offsets, LATEST), deadline=deadline)
        except KafkaDirectError as error:
            _log.debug("cannot check for open transactions: %s", error)
            high_watermarks = {}
        if blocked := self._blocked.update(last_stable_offsets, high_watermarks, now):
            transactions = self._open_transactions([each.partition for each in blocked])
            self._warn(describe_blocked(blocked, transactions, system.wall_time() - now))

    def _open_transactions(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Sequence[OpenTransaction]]:
        """Return open transactions, as far as the brokers' version and the principal's permissions allow."""
        try:
            return self._cluster.open_transactions(partitions, deadline=self._cluster.deadline(_REQUEST_SECONDS))
        except KafkaDirectError as error:
            _log.debug("cannot describe the producers of open transactions: %s", error)
            return {}
