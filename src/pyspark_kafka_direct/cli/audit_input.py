"""The slice of a topic that ``kafka-direct audit`` compares: between positions, or what a query has committed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_direct.arrow.reader import read_arrow
from pyspark_kafka_direct.cli.query_checkpoint import QueryCheckpoint
from pyspark_kafka_direct.cli.source_offsets import PartitionComparison, offset_runs
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import EARLIEST, OffsetRange
from pyspark_kafka_direct.producer.file_systems import masked_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import TopicPartition

_COLUMNS = ("partition", "offset")


class TopicInput(NamedTuple):
    """The slice of the topic."""

    records: ArrowSlice
    expired: Counter[TopicPartition]  # offsets that the slice should have, but the log has no longer
    notes: list[str]


class InputArguments(NamedTuple):
    """The arguments that choose the slice."""

    topic: str
    start: str | None
    end: str | None
    checkpoint: str | None
    source: str | None  # of the checkpoint


def plan_input(chosen: InputArguments, settings: Mapping[str, str], cluster: ClusterClient) -> TopicInput:
    """Plan the slice.

    Raises:
        OptionError: The checkpoint is that of a stateful query, or has not committed offsets of the topic.
    """
    if chosen.checkpoint is None:
        planned = _slice(chosen.topic, settings, start=chosen.start or "earliest", end=chosen.end or "now")
        return TopicInput(planned, Counter(), [])
    if chosen.end is not None:
        raise OptionError("--to: the end follows from --checkpoint; remove one of them")
    checkpoint = QueryCheckpoint(chosen.checkpoint)
    source, ends = _committed_ends(checkpoint, chosen)
    bounds = cluster.log_bounds(ends, cluster.deadline())
    notes: list[str] = []
    starts: Mapping[TopicPartition, int] | None
    if chosen.start is not None:
        planned = _slice(chosen.topic, settings, start=chosen.start, end="now")
        starts = {each.topic_partition: each.from_offset for each in planned.ranges}
    else:
        starts = checkpoint.first_start(source)
        if starts is None:
            starts = {tp: start for tp, (start, _) in bounds.items()}
            notes.append(
                "The checkpoint has no longer the start of the query, so the comparison starts at the first record "
                "that exists. If the query started later, add --from."
            )
    expired: Counter[TopicPartition] = Counter()
    ranges = []
    for tp, end in ends.items():
        log_start, log_end = bounds[tp]
        until = min(end, log_end)
        start = min(starts.get(tp, 0), until)  # a partition that was added later is read from its beginning
        begin = min(max(start, log_start), until)
        expired[tp] = begin - start
        ranges.append(OffsetRange(*tp, begin, until))
        if end > log_end:
            notes.append(
                f"{tp}: the query has committed offsets up to {end}, but the log ends at {log_end}. The topic was "
                "recreated or truncated, so the offsets of its rows may be those of other records."
            )
    return TopicInput(_slice(ranges, settings), expired, notes)


def read_records(topic: TopicInput, cluster: ClusterClient, ends: Mapping[Any, int]) -> dict[int, PartitionComparison]:
    """Read which offsets have a record, in each partition; ``ends`` are those of the logs when rows were written."""
    partitions = {
        each.partition: PartitionComparison(each.from_offset, each.until_offset, ends[each.topic_partition])
        for each in topic.records.ranges
    }
    for batch in topic.records:
        for run in offset_runs(batch.column("partition"), batch.column("offset")):
            partitions[run.partition].add_records(run.start, run.stop)
    for loss in topic.records.losses:
        topic.expired[_partition(topic, loss.partition)] += loss.offsets
    starts = cluster.offsets(dict.fromkeys(ends, EARLIEST)) if ends else {}
    for tp, start in starts.items():
        partitions[tp.partition].log_start = start
    return partitions


def _partition(topic: TopicInput, number: int) -> TopicPartition:
    return next(each.topic_partition for each in topic.records.ranges if each.partition == number)


def _committed_ends(checkpoint: QueryCheckpoint, chosen: InputArguments) -> tuple[str, Mapping[TopicPartition, int]]:
    """Return the source of the topic, and the ends of the last committed batch."""
    location = masked_repr(chosen.checkpoint or "")
    if checkpoint.has_state:
        raise OptionError(
            f"The query of {location} has state: it aggregates, joins, or removes duplicates. So a row of its output "
            "does not stand for one record, and records without a row are not lost. Such an output cannot be compared "
            "with its input by offsets"
        )
    if not checkpoint.committed:
        raise OptionError(f"The query of {location} has not committed a batch, so there is nothing to compare")
    sources = {
        name: {tp: end for tp, end in ends.items() if tp.topic == chosen.topic}
        for name, ends in checkpoint.batch(checkpoint.committed[-1]).sources.items()
    }
    of_topic = {name: ends for name, ends in sources.items() if ends and chosen.source in (None, name)}
    if not of_topic:
        raise OptionError(
            f"The last committed batch of {location} has no offsets of the topic {chosen.topic!r}"
            + ("" if chosen.source is None else f" in the source {chosen.source!r}")
        )
    if len(of_topic) > 1:
        raise OptionError(f"Several sources of the query read {chosen.topic!r}; add --source {' or '.join(of_topic)}")
    return next(iter(of_topic.items()))


def _slice(
    topics: str | list[OffsetRange], settings: Mapping[str, str], *, start: str | None = None, end: str | None = None
) -> ArrowSlice:
    return read_arrow(topics, {**settings, "failOnDataLoss": "false"}, columns=_COLUMNS, start=start, end=end)
