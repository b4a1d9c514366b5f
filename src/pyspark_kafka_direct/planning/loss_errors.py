"""The errors and messages of data loss; ``data_loss`` decides which of them applies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.offsets import partition_offsets_to_json
from pyspark_kafka_direct.options.hints import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition

SKIP_ADVICE: Final = "set failOnDataLoss=false to continue without them"
READ_FROM_START: Final = "they are read from their start"
# A checkpoint does not contain the cluster's id, so this is only one of the possible causes.
OTHER_CLUSTER: Final = (
    "or the checkpoint or stored offsets are of another cluster: then connect to that one, or use a new checkpoint"
)
_RESTART_ADVICE: Final = "this can be transient: restart the query"


class DataLossCause(Enum):
    """The reason why records are unavailable."""

    AGED_OUT = "aged out"
    DELETED = "topic or partition deleted"
    NOT_SELECTED = "not selected any more"
    RECREATED = "topic deleted and recreated"
    BEYOND_END = "beyond the end of the log"
    TRUNCATED = "log truncated"
    UNPROVEN_GAP = "records not returned"


@dataclass(frozen=True, slots=True)
class SkippedLoss:
    """A loss that a query skips for good."""

    message: str  # the evidence
    cause: DataLossCause
    offsets: Mapping[TopicPartition, int]  # how many are skipped of each partition; 0 if that is unknown


def loss_message(tp: TopicPartition, first: int, until: int, cause: DataLossCause, detail: str) -> str:
    description = {
        DataLossCause.AGED_OUT: "were removed by retention before they were read",
        DataLossCause.DELETED: "are lost: the topic or the partition was deleted",
        DataLossCause.RECREATED: "are lost: the topic was deleted and recreated",
        DataLossCause.BEYOND_END: "lie beyond the end of the log: the offset is wrong, or the topic was deleted and "
        "recreated, or an unclean leader election truncated its log, or the offset is of another cluster",
        DataLossCause.TRUNCATED: "were read before an unclean leader election removed them from the log; records "
        "that replaced them are not read",
    }[cause]  # the other causes have other messages
    return f"data loss ({cause.value}): offsets [{first}, {until}) of {tp} {description}{detail}"


def error_context(tp: TopicPartition, position: int) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition, "offset": position}


def truncated_error(tp: TopicPartition, position: int, truncated_to: int) -> TruncatedError:
    """Return the error for a read without an end whose log was truncated to an offset."""
    if truncated_to < position:
        consequence = (
            f"the records read from there up to offset {position} are no longer in it. Resume at offset {truncated_to} "
            "and undo the effects of later records."
        )
    else:  # the logs diverged more than once
        consequence = (
            f"it is not known which of the records before offset {position} are still in it. Resume at that offset and "
            "expect that other records replaced some that were read."
        )
    error = TruncatedError(
        f"an unclean leader election truncated the log to offset {truncated_to}: {consequence}",
        **error_context(tp, position),
    )
    error.truncated_to = truncated_to
    return error


def truncated_at_unknown_offset_error(tp: TopicPartition, position: int) -> TruncatedError:
    """Return the error for a log that was truncated, without leader epochs that show where it differs."""
    return TruncatedError(
        "an unclean leader election truncated the log. It is not known which of the records before offset "
        f"{position} are lost or replaced. Resume at the end of the log, or read it again from its start.",
        **error_context(tp, position),
    )


def unproven_gap_error(
    tp: TopicPartition, position: int, end: int, no_data_seconds: float, broker: str | None = None
) -> DataLossError:
    """Return the error for offsets that are in the log but were not returned for a long time."""
    error = DataLossError(
        f"data loss ({DataLossCause.UNPROVEN_GAP.value}): the log ends at offset {end}, but for "
        f"{no_data_seconds:.0f} s its leader returned no records from offset {position} on. It does not report "
        "where its local log begins (ListOffsets -4, Kafka 3.5), so this is either a gap that compaction left, or "
        f"records in slow storage. Read again later, or set failOnDataLoss=false to continue at offset {end}.",
        broker=broker,
        **error_context(tp, position),
    )
    error.resume_offset = end
    return error


def missing_error(tp: TopicPartition) -> TopicNotFoundError:
    """Return the error for a topic that brokers report as unknown."""
    return TopicNotFoundError(
        "The topic no longer exists, or the DESCRIBE permission is missing (both look the same).",
        topic=tp.topic,
        partition=tp.partition,
    )


def recreated_error(tp: TopicPartition, known_id: UUID | None, new_id: UUID | None) -> TopicRecreatedError:
    """Return the error for a topic that was deleted and recreated."""
    error = TopicRecreatedError(
        f"The topic was deleted and recreated: its id is {new_id}, not {known_id}. The records read so far are the old "
        "topic's. Discard them, and resume at the start of the new topic.",
        topic=tp.topic,
        partition=tp.partition,
    )
    error.topic_id = new_id
    return error


# With Trigger.AvailableNow; the conditions are those of Spark's KafkaMicroBatchStream.


def fixed_partitions_error(
    end: Mapping[TopicPartition, int], fixed_ends: Mapping[TopicPartition, int]
) -> DataLossError:
    return DataLossError(
        "with Trigger.AvailableNow every batch must end with the topic-partitions found at the start; found at "
        f"the start: {_partition_list(fixed_ends)}, in the end offset: {_partition_list(end)}; {_RESTART_ADVICE} "
        "(MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED)"
    )


def fixed_ends_error(end: Mapping[TopicPartition, int], fixed_ends: Mapping[TopicPartition, int]) -> DataLossError:
    return DataLossError(
        "with Trigger.AvailableNow no batch may end beyond the offsets found at the start; found at the start: "
        f"{partition_offsets_to_json(fixed_ends)}, end offset: {partition_offsets_to_json(end)}; "
        f"{_RESTART_ADVICE} (END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED)"
    )


def latest_partitions_error(end: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> DataLossError:
    return DataLossError(
        "topic-partitions were lost while a query with Trigger.AvailableNow was running; topic-partitions for "
        f"latest offset: {_partition_list(latest)}, topic-partitions for end offset: {_partition_list(end)}; "
        f"{_RESTART_ADVICE} (LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW)"
    )


def latest_ends_error(end: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> DataLossError:
    return DataLossError(
        "topic-partitions end before a batch of a running query with Trigger.AvailableNow does; latest offset: "
        f"{partition_offsets_to_json(latest)}, end offset: {partition_offsets_to_json(end)}; {_RESTART_ADVICE} "
        "(END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW)"
    )


def recreated_topics_error(topics: Collection[str]) -> DataLossError:
    return DataLossError(
        "topics were deleted and recreated while a query with Trigger.AvailableNow was running: "
        f"{listed(sorted(topics))}; their offsets in the checkpoint belong to the deleted topics",
        topic=min(topics),
    )


def _partition_list(offsets: Mapping[TopicPartition, int]) -> str:
    return listed(sorted(offsets), limit=50)
