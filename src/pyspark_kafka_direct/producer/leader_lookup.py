"""Finds the leaders of a producer's partitions, and which topics and partitions are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.client.deadline import Retry
from pyspark_kafka_direct.errors import AuthorizationError, KafkaDirectError, TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import Presence
from pyspark_kafka_direct.producer.produce_errors import WRITING
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.metadata import Node
    from pyspark_kafka_direct.client.witnesses import AbsenceCheck
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue


class LeaderResult(NamedTuple):
    """The leader of a partition, or why it was not found."""

    partition: PartitionQueue
    result: Node | KafkaDirectError
    waiting_is_useless: bool = False  # whether the partition is missing, or may not be written to


class LeaderLookup:
    """Finds leaders, and collects evidence of missing partitions, one attempt at a time."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        # Of topics and partitions that brokers lack; the partition of a topic is None.
        self._absence_checks: dict[tuple[str, int | None], AbsenceCheck] = {}

    def find(self, partitions: Sequence[PartitionQueue], deadline: Deadline) -> Iterator[LeaderResult]:
        """Yield the results of one attempt (partitions without one stay due); raise errors that concern all."""
        # After a failed attempt the cached leaders may be outdated. Partitions back off, so one request is enough.
        has_failed = any(partition.attempts for partition in partitions)
        refresh_retry = Retry(deadline, retries=0) if has_failed else None
        try:
            leaders = self._cluster.leaders(
                [partition.topic_partition for partition in partitions], deadline, refresh_retry=refresh_retry
            )
        except TopicNotFoundError as error:
            is_missing = self._step_absence_check(error, deadline)
            for partition in partitions:  # those that are not concerned only wait for the next attempt
                topic, partition_id = partition.topic_partition
                is_concerned = topic == error.topic and error.partition in (None, partition_id)
                yield LeaderResult(partition, error, waiting_is_useless=is_missing and is_concerned)
        except AuthorizationError as error:
            if error.topic is None:
                raise
            for partition in partitions:
                if partition.topic_partition.topic == error.topic:
                    yield LeaderResult(partition, error, waiting_is_useless=True)
        except TransientBrokerError as error:
            if not self._cluster.was_reached:
                raise  # a wrong address cannot be fixed by waiting
            for partition in partitions:
                yield LeaderResult(partition, error)
        else:
            for partition in partitions:
                leader = leaders[partition.topic_partition]
                topic, partition_id = partition.topic_partition
                # They exist, so evidence that they are missing must not count later.
                self._absence_checks.pop((topic, None), None)
                self._absence_checks.pop((topic, partition_id), None)
                if leader is None:
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                    yield LeaderResult(partition, error_for(code, WRITING, topic=topic, partition=partition_id))
                else:
                    yield LeaderResult(partition, leader.node)

    def _step_absence_check(self, error: TopicNotFoundError, deadline: Deadline) -> bool:
        """Make one step of the check whether a topic or partition is missing; return whether that is confirmed."""
        key = error.topic or "", error.partition
        tp = TopicPartition(key[0], error.partition or 0)  # partition 0 stands for the topic
        check = self._absence_checks.setdefault(key, self._cluster.absence_check({tp: None}))
        try:
            is_missing = check.step(deadline)[tp] is Presence.ABSENT
        except TransientBrokerError:
            return False
        if is_missing:
            del self._absence_checks[key]  # the partition may be created later, and then old evidence must not count
        return is_missing
