"""Data loss that planners find by comparing a batch's start offsets with the cluster.

The cases and the condition names in the messages are those of Spark's
``KafkaOffsetReader.getOffsetRangesFromResolvedOffsets``. Recreated topics are recognized by their id (KIP-516).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import partition_offsets_to_json
from pyspark_kafka_direct.planning.hints import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition

_SKIP_LOSS_ADVICE = "set failOnDataLoss=false to continue without them"
_RESTART_ADVICE = "this can be transient: restart the query"


class LossContext(Protocol):
    """The part of ``OffsetReader`` that a loss report needs."""

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return those of these partitions that exist but that the subscription does not select."""

    def warn(self, message: str) -> None:
        """Log a warning, each message once."""


class LossReport:
    """Raises ``DataLossError`` at the first loss, or warns of each."""

    def __init__(self, fail_on_data_loss: bool, context: LossContext, *, advice: str = _SKIP_LOSS_ADVICE) -> None:
        self._fail_on_data_loss = fail_on_data_loss
        self._context = context
        self._advice = advice

    def report_missing(self, partitions: Collection[TopicPartition]) -> None:
        """Report partitions that were read before, and now do not exist or are not selected."""
        unselected = set(self._context.not_selected(partitions)) if partitions else set()
        deleted = set(partitions) - unselected
        self._report(
            deleted,
            f"data loss: {listed(sorted(deleted))} do not exist any more, the topic or its partitions were deleted "
            "(KAFKA_DATA_LOSS.PARTITIONS_DELETED)",
        )
        self._report(
            unselected,
            f"data loss: {listed(sorted(unselected))} are not selected any more: they exist, but assign, subscribe or "
            "subscribePattern does not include them. Include them again to resume where the query stopped. If the "
            "query continues without them and they are included later, they are read from their start "
            "(KAFKA_DATA_LOSS.PARTITIONS_DELETED)",
        )

    def report_start_not_found(self, partitions: Collection[TopicPartition]) -> None:
        """Report new partitions that were deleted before their log start offset was fetched."""
        self._report(
            partitions,
            f"data loss: the earliest offsets of {listed(sorted(partitions))} cannot be found, the partitions were "
            "deleted (KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS)",
        )

    def report_added_late(self, starts: Mapping[TopicPartition, int]) -> None:
        """Report a loss for each partition that was added to a running stream and starts after offset 0."""
        for tp in sorted(starts):
            if starts[tp] > 0:
                self._report(
                    [tp],
                    f"data loss: the added partition {tp} starts from offset {starts[tp]} instead of 0, records were "
                    "removed before they were read (KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO)",
                )

    def report_offset_changed(self, tp: TopicPartition, known: int, end: int) -> None:
        """Report an end offset below one that was already read or that the user requested as the start."""
        self._report(
            [tp],
            f"data loss: {tp}'s offset was changed from {known} to {end}. Either the requested start lies beyond the "
            "end, or the topic was deleted and recreated, or an unclean leader election truncated its log "
            "(KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED)",
        )

    def report_aged_out(self, tp: TopicPartition, from_offset: int, log_start: int) -> None:
        """Report a log start offset after the offset to resume from."""
        self._report(
            [tp],
            f"data loss (aged out): offsets [{from_offset}, {log_start}) of {tp} were removed by retention before "
            "they were read; they are skipped",
        )

    def report_recreated(self, partitions: Collection[TopicPartition], old_id: UUID, new_id: UUID) -> None:
        """Report a topic that was deleted and recreated."""
        self._report(
            partitions,
            f"data loss: the topic was deleted and recreated, its id was {old_id} and is {new_id} now; unread records "
            f"of {listed(sorted(partitions))} are lost, the new topic is read from its start",
        )

    def _report(self, partitions: Collection[TopicPartition], message: str) -> None:
        if not partitions:
            return
        if not self._fail_on_data_loss:
            self._context.warn(f"{message}; reading continues (failOnDataLoss=false)")
            return
        first = min(partitions)
        partition = first.partition if len(partitions) == 1 else None
        raise DataLossError(f"{message}; {self._advice}", topic=first.topic, partition=partition)


# Trigger.AvailableNow checks every batch against the end offsets fixed at the start of the query, as Spark's
# KafkaMicroBatchStream.verifyEndOffsetForTriggerAvailableNow does (SPARK-41996). Another check finds a recreated topic
# whose new log is as long as the old one. The checks ignore failOnDataLoss: a query that has to end could otherwise
# wait forever for deleted records. A batch that an earlier run planned is not checked (SPARK-53560).


def check_fixed_end_offsets(end: Mapping[TopicPartition, int], fixed_ends: Mapping[TopicPartition, int]) -> None:
    """Check a batch's end against the end offsets fixed at the start of the query."""
    if end.keys() != fixed_ends.keys():
        raise DataLossError(
            "with Trigger.AvailableNow every batch must end with the topic-partitions found at the start; found at "
            f"the start: {_partition_list(fixed_ends)}, in the end offset: {_partition_list(end)}; {_RESTART_ADVICE} "
            "(MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED)"
        )
    if any(end[tp] > fixed_ends[tp] for tp in end):
        raise DataLossError(
            "with Trigger.AvailableNow no batch may end beyond the offsets found at the start; found at the start: "
            f"{partition_offsets_to_json(fixed_ends)}, end offset: {partition_offsets_to_json(end)}; "
            f"{_RESTART_ADVICE} (END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED)"
        )


def check_latest_offsets(end: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> None:
    """Check that the records of a batch still exist."""
    if not end.keys() <= latest.keys():
        raise DataLossError(
            "topic-partitions were lost while a query with Trigger.AvailableNow was running; topic-partitions for "
            f"latest offset: {_partition_list(latest)}, topic-partitions for end offset: {_partition_list(end)}; "
            f"{_RESTART_ADVICE} (LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW)"
        )
    if any(end[tp] > latest[tp] for tp in end):
        raise DataLossError(
            "topic-partitions end before a batch of a running query with Trigger.AvailableNow does; latest offset: "
            f"{partition_offsets_to_json(latest)}, end offset: {partition_offsets_to_json(end)}; {_RESTART_ADVICE} "
            "(END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW)"
        )


def check_topics_not_recreated(recreated: Collection[str]) -> None:
    """Check that no topic of a batch was recreated."""
    if recreated:
        raise DataLossError(
            "topics were deleted and recreated while a query with Trigger.AvailableNow was running: "
            f"{listed(sorted(recreated))}; their offsets in the checkpoint belong to the deleted topics",
            topic=min(recreated),
        )


def _partition_list(offsets: Mapping[TopicPartition, int]) -> str:
    return listed(sorted(offsets), limit=50)
