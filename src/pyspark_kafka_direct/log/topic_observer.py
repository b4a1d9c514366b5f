"""Reports of brokers about the topic of a log: its partitions, its ends, and whether it was deleted or recreated."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import TransientBrokerError
from pyspark_kafka_direct.log.log_topic import describe_log_topic, selected_partitions
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.planning.data_loss import Presence, has_later_leader, is_other_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.witnesses import AbsenceCheck
    from pyspark_kafka_direct.log.log_topic import LogTopic
    from pyspark_kafka_direct.options.settings import IsolationLevel
    from pyspark_kafka_direct.planning.data_loss import TopicReport


class LogEnds(NamedTuple):
    """The ends of a log, as of a time after the request."""

    ends: dict[TopicPartition, int]  # high watermarks, or last stable offsets
    added: LogTopic | None = None  # the topic if it has partitions without an end here
    recreated: bool = False  # then there are no ends


class TopicObserver:
    """Fetches metadata and ends of a topic; contradictions between brokers are checked over several calls."""

    def __init__(
        self, cluster: ClusterClient, topic: str, partition_filter: Callable[[int], bool] | None = None
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition_filter = partition_filter
        self._partition_count = 0  # in the topic that `fetch_topic` returned last
        self._witnesses = cluster.replica_witnesses()
        # Of partitions that a broker lacks; partition 0 stands for the topic.
        self._absence_checks: dict[TopicPartition, AbsenceCheck] = {}

    def fetch_topic(
        self, topic_id: UUID | None, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> LogTopic:
        """Return the topic, with another id or fewer partitions than before only if several brokers confirm that.

        Until they do, each call makes a step of the check, and raises ``TransientBrokerError``.
        """
        topic = describe_log_topic(self._cluster, self._topic, self._partition_filter, deadline)
        if is_other_topic(topic_id, topic.topic_id):
            if self.check_presence(topic_id, deadline) is not Presence.RECREATED:
                raise TransientBrokerError(
                    f"A broker reports that the topic was recreated: its id is {topic.topic_id}, not {topic_id}. "
                    "Other brokers have not confirmed it yet.",
                    topic=self._topic,
                )
        elif missing := _missing_partition(topic, partitions):
            if self.check_presence(topic_id, deadline, missing.partition) is not Presence.ABSENT:
                raise TransientBrokerError(
                    "A broker reports that the topic has no such partition. Other brokers have not confirmed it yet.",
                    topic=self._topic,
                    partition=missing.partition,
                )
        else:
            self._discard_checks(topic.partitions)
        self._partition_count = topic.partition_count
        return topic

    def fetch_ends(
        self,
        topic_id: UUID | None,
        partitions: Collection[TopicPartition],
        deadline: Deadline,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> LogEnds:
        """Return the ends that the current leaders report: high watermarks, or last stable offsets."""
        ends, reports, unresolved_error = self._request_ends(topic_id, partitions, deadline, isolation_level)
        # ListOffsets has no topic id: if no broker reports another id, these are the offsets of the same topic. An
        # unresolved broker may have another id, or a later leader.
        if unresolved_error is not None or not _have_partitions(reports, topic_id, partitions):
            topic = self.fetch_topic(topic_id, partitions, deadline)
            if is_recreated(topic, topic_id, partitions):
                return LogEnds({}, recreated=True)
            if unresolved_error is not None:
                raise unresolved_error
        self._discard_checks(partitions)
        reported = self._reported_partitions(reports, topic_id)
        has_added = reported.partition_count > self._partition_count or not set(reported.partitions) <= set(partitions)
        return LogEnds(ends, self._fetch_grown_topic(topic_id, partitions, reported, deadline) if has_added else None)

    def check_presence(self, topic_id: UUID | None, deadline: Deadline, number: int = 0) -> Presence:
        """Make one step of the check whether a partition of this topic exists; partition 0 stands for the topic."""
        partition = TopicPartition(self._topic, number)
        if partition not in self._absence_checks:
            self._absence_checks[partition] = self._cluster.absence_check({partition: topic_id})
        presence = self._absence_checks[partition].step(deadline)[partition]
        if presence is Presence.ABSENT and number:
            # An absent topic remains absent, but a partition may return. If it is absent again, it is checked again.
            del self._absence_checks[partition]
        return presence

    def on_recreated(self) -> None:
        """Discard the checks of the previous topic."""
        self._absence_checks.clear()

    def _request_ends(
        self,
        topic_id: UUID | None,
        partitions: Collection[TopicPartition],
        deadline: Deadline,
        isolation_level: IsolationLevel,
    ) -> tuple[dict[TopicPartition, int], list[TopicReport], TransientBrokerError | None]:
        """Return the ends, the reports that show no later leader, and why these do not suffice, if they do not."""
        requested = dict.fromkeys(partitions, LATEST)
        while True:
            leaders = self._cluster.known_leaders(requested)  # those that respond have these epochs, or later ones
            ends = self._cluster.offsets(requested, isolation_level=isolation_level, deadline=deadline)
            by_topic, unresolved_error = self._witnesses.request_reports({self._topic: topic_id}, requested, deadline)
            reports = by_topic[self._topic]
            epochs = {tp: leader.epoch for tp, leader in leaders.items()}
            if leaders.keys() == requested.keys() and not has_later_leader(epochs, topic_id, reports):
                return ends, reports, unresolved_error
            # The ends may come from a leader that was deposed: request them from the next one.
            self._cluster.use_next_broker()
            self._cluster.topics([self._topic], deadline=deadline)

    def _fetch_grown_topic(
        self, topic_id: UUID | None, partitions: Collection[TopicPartition], reported: LogTopic, deadline: Deadline
    ) -> LogTopic:
        """Return the topic with at least as many partitions as brokers have reported."""
        topic = self.fetch_topic(topic_id, partitions, deadline)
        if topic.partition_count < reported.partition_count:
            self._cluster.use_next_broker()
            raise TransientBrokerError(
                "The metadata of a broker does not contain the added partitions yet.", topic=self._topic
            )
        return topic

    def _discard_checks(self, existing: Collection[TopicPartition]) -> None:
        """Discard the absence checks of the topic and of its existing partitions."""
        topic_check = TopicPartition(self._topic, 0)
        self._absence_checks = {
            tp: check for tp, check in self._absence_checks.items() if tp not in existing and tp != topic_check
        }

    def _reported_partitions(self, reports: Iterable[TopicReport], topic_id: UUID | None) -> LogTopic:
        numbers: set[int] = set()
        for report in reports:
            if report.topic_id == topic_id:
                numbers.update(report.leader_epochs or ())
        return selected_partitions(self._topic, topic_id, numbers, self._partition_filter)


def is_recreated(found: LogTopic, topic_id: UUID | None, partitions: Collection[TopicPartition]) -> bool:
    """Return whether this is another topic: it has another id, or without ids, it lacks a partition."""
    return is_other_topic(topic_id, found.topic_id) or _missing_partition(found, partitions) is not None


def _missing_partition(topic: LogTopic, partitions: Iterable[TopicPartition]) -> TopicPartition | None:
    return next((partition for partition in partitions if partition not in topic.partitions), None)


def _have_partitions(
    reports: Iterable[TopicReport], topic_id: UUID | None, partitions: Collection[TopicPartition]
) -> bool:
    """Return whether brokers report the topic and, if it has no id, all partitions that are read."""
    known = [report.leader_epochs for report in reports if report.leader_epochs is not None]
    if topic_id is not None:
        return bool(known)
    return bool(known) and all(tp.partition in epochs for epochs in known for tp in partitions)
