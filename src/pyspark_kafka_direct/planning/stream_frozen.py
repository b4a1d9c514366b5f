"""Trigger.AvailableNow: the ends are frozen when the query starts, and every batch is checked against them.

The four checks are those of Spark's ``KafkaMicroBatchStream.verifyEndOffsetForTriggerAvailableNow`` (SPARK-41996), with
its conditions. A fifth knows a topic that was created again although its new log is as long as the old one. They hold
whatever ``failOnDataLoss`` says: a query that must end could otherwise wait for ever for records that are gone. A batch
that an earlier run planned is not checked (SPARK-53560).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import partition_offsets_to_json
from pyspark_kafka_direct.planning.hints import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

_RESTART = "this can be transient: restart the query"


def check_against_frozen(end: Mapping[TopicPartition, int], frozen: Mapping[TopicPartition, int]) -> None:
    """Check a batch's end against the ends frozen at the start.

    Raises:
        DataLossError: Other partitions, or an end beyond the frozen one.
    """
    if end.keys() != frozen.keys():
        raise DataLossError(
            "with Trigger.AvailableNow every batch must end with the topic-partitions found at the start; "
            f"found at the start: {_names(frozen)}, in the end offset: {_names(end)}; {_RESTART} "
            "(MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED)"
        )
    if any(end[tp] > frozen[tp] for tp in end):
        raise DataLossError(
            "with Trigger.AvailableNow no batch may end beyond the offsets found at the start; "
            f"found at the start: {partition_offsets_to_json(frozen)}, end offset: {partition_offsets_to_json(end)}; "
            f"{_RESTART} (END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED)"
        )


def check_against_latest(end: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> None:
    """Check that what a batch is to read is still there.

    Args:
        end: The batch's end.
        latest: Ends of the partitions now, asked again after a pause where they contradict ``end``.

    Raises:
        DataLossError: Partitions are gone, or end before the batch does.
    """
    if not end.keys() <= latest.keys():
        raise DataLossError(
            "topic-partitions were lost while a query with Trigger.AvailableNow was running; "
            f"topic-partitions for latest offset: {_names(latest)}, topic-partitions for end offset: {_names(end)}; "
            f"{_RESTART} (LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW)"
        )
    if any(end[tp] > latest[tp] for tp in end):
        raise DataLossError(
            "topic-partitions end before a batch of a running query with Trigger.AvailableNow does; "
            f"latest offset: {partition_offsets_to_json(latest)}, end offset: {partition_offsets_to_json(end)}; "
            f"{_RESTART} (END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW)"
        )


def check_not_recreated(topics: Collection[str]) -> None:
    """Check that what a batch is to read is still the same.

    Args:
        topics: Those of the batch that have another id now, asked again after a pause.

    Raises:
        DataLossError: There are any.
    """
    if topics:
        raise DataLossError(
            "topics were deleted and created again while a query with Trigger.AvailableNow was running: "
            f"{listed(sorted(topics))}; their offsets in the checkpoint are those of the old ones",
            topic=min(topics),
        )


def _names(offsets: Mapping[TopicPartition, int]) -> str:
    return listed(sorted(offsets), most=50)
