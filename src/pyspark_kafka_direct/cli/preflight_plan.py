"""The first batch of a query from a checkpoint, and missing records: decided from offsets, without a connection."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import InvalidOffsetsError
from pyspark_kafka_direct.offsets import partition_offsets_from_json

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition


class State(StrEnum):
    """The relation of a partition of the checkpoint to the cluster and the options."""

    OK = "ok"
    NEW = "new"
    DELETED = "deleted"
    NOT_SELECTED = "not selected"
    LEFT_OUT = "left out"
    EXPIRED = "expired"
    BEYOND_END = "beyond end"


ADVICE = {
    State.DELETED: "The topic or partition does not exist any more, or the brokers are those of another cluster.",
    State.NOT_SELECTED: "The options do not select the partition any more. Select it again, so that the query resumes "
    "there.",
    State.LEFT_OUT: "The unfinished batch was planned without the partition. Later batches read it from its start.",
    State.EXPIRED: "Records were deleted before they were read.",
    State.BEYOND_END: "The log ends before the offset of the checkpoint: the topic was recreated, or its log was "
    "truncated.",
}
"""The meaning of each problem."""


class Log(NamedTuple):
    """The offsets of a partition now."""

    start: int
    end: int  # of all records, also of open transactions
    readable_end: int  # of the records that the query may read


class FirstBatch(NamedTuple):
    """The first batch of a query, as far as the checkpoint determines it."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int] | None  # None: the batch is not planned yet


class PartitionPlan(NamedTuple):
    """The offsets of a partition that the first batch reads."""

    partition: TopicPartition
    state: State
    start: int | None = None
    end: int | None = None
    missing: int | None = None  # offsets; None: unknown

    def row(self) -> dict[str, object]:
        """Return the columns of the output."""
        first = self.start
        count = None if first is None or self.end is None else max(0, self.end - first)
        return {
            "partition": str(self.partition),
            "state": self.state.value,
            "start": first,
            "end": self.end,
            "offsets": count,
            "missing": self.missing,
        }


def plan_first_batch(
    batch: FirstBatch, logs: Mapping[TopicPartition, Log], selected: Collection[TopicPartition]
) -> list[PartitionPlan]:
    """Return the partitions of the checkpoint and of the options, in order; ``logs`` has all that exist."""
    partitions = sorted({*batch.starts, *(batch.ends or {}), *selected})
    return [_partition_plan(tp, batch, logs.get(tp), is_selected=tp in selected) for tp in partitions]


def is_other_query(batch: FirstBatch, selected: Collection[TopicPartition]) -> bool:
    """Return whether the checkpoint has offsets, but none of a topic that the options select."""
    topics = {tp.topic for tp in (*batch.starts, *(batch.ends or {}))}
    return bool(topics) and topics.isdisjoint(tp.topic for tp in selected)


def spark_accepts_start(value: str) -> bool:
    """Return whether Spark's own source accepts a value of ``startingOffsets``."""
    if value.strip().lower() in ("earliest", "latest"):
        return True
    try:
        partition_offsets_from_json(value)
    except InvalidOffsetsError:
        return False
    return True


def _partition_plan(tp: TopicPartition, batch: FirstBatch, log: Log | None, *, is_selected: bool) -> PartitionPlan:
    start = batch.starts.get(tp)
    end = None if batch.ends is None else batch.ends.get(tp)
    if log is None:
        missing = None if start is None or end is None else max(0, end - start)
        return PartitionPlan(tp, State.DELETED, start, missing=missing)
    if not is_selected:
        return PartitionPlan(tp, State.NOT_SELECTED, start, end)
    if batch.ends is not None and end is None:
        return PartitionPlan(tp, State.NEW if start is None else State.LEFT_OUT, start)
    last = log.readable_end if end is None else end
    if start is None:
        state = State.EXPIRED if log.start > 0 and batch.starts else State.NEW
        return PartitionPlan(tp, state, log.start, last, log.start if state is State.EXPIRED else 0)
    if max(start, end or 0) > log.end:
        return PartitionPlan(tp, State.BEYOND_END, start, end)
    if start < log.start:
        missing = min(log.start, last) - start if end is not None else log.start - start
        return PartitionPlan(tp, State.EXPIRED, log.start, max(last, log.start), missing)
    return PartitionPlan(tp, State.OK, start, max(last, start), 0)
