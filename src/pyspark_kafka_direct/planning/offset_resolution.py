"""Resolves offset specs to offsets.

A spec is resolved in two steps so that all lookups of a plan fit into few requests: ``required_lookups`` returns what
to request from the leaders with ListOffsets, ``resolve_offsets`` turns the responses into offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark_kafka_direct.errors import InvalidOffsetsError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.offset_specs import (
    CommittedStart,
    Earliest,
    GlobalTimestamp,
    Latest,
    OffsetSpec,
    ResolvedOffset,
    SpecificOffsets,
    SpecificTimestamps,
    StartingOffsetSpec,
)
from pyspark_kafka_direct.planning.offset_reader import confirmed_starts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.planning.offset_reader import OffsetReader

NO_RECORD = -1  # the ListOffsets response if no record has the timestamp or a later one

RangeSide: TypeAlias = Literal["start", "end"]


def required_lookups(
    spec: OffsetSpec, partitions: Collection[TopicPartition], side: RangeSide
) -> dict[TopicPartition, int]:
    """Return what to request: ``EARLIEST``, ``LATEST`` or a timestamp in ms by partition, none for explicit offsets."""
    match spec:
        case Earliest():
            return dict.fromkeys(partitions, EARLIEST)
        case Latest():
            return dict.fromkeys(partitions, LATEST)
        case SpecificOffsets():
            return {tp: offset for tp, offset in _explicit_offsets(spec, partitions).items() if offset < 0}
        case SpecificTimestamps():
            return _explicit_timestamps(spec, partitions, side)
        case GlobalTimestamp(timestamp):
            return dict.fromkeys(partitions, timestamp)


def resolve_offsets(
    spec: OffsetSpec,
    partitions: Collection[TopicPartition],
    listed_offsets: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],  # for timestamps without a matching record
    side: RangeSide,
) -> dict[TopicPartition, ResolvedOffset]:
    """Return the resolved offset of each partition, from the responses to ``required_lookups``."""
    match spec:
        case Earliest():
            return {tp: ResolvedOffset(listed_offsets[tp], "earliest") for tp in sorted(partitions)}
        case Latest():
            return {tp: ResolvedOffset(listed_offsets[tp], "latest") for tp in sorted(partitions)}
        case SpecificOffsets():
            return {
                tp: _resolved_offset(tp, offset, listed_offsets)
                for tp, offset in sorted(_explicit_offsets(spec, partitions).items())
            }
        case SpecificTimestamps() | GlobalTimestamp():
            requested = required_lookups(spec, partitions, side)
            if side == "start" and spec.on_no_match == "error":
                _check_matches(spec.option, requested, listed_offsets)
            return {
                tp: ResolvedOffset(latest[tp], "latest")
                if listed_offsets[tp] == NO_RECORD
                else ResolvedOffset(listed_offsets[tp], "timestamp")
                for tp in sorted(requested)
            }


def start_may_change(spec: StartingOffsetSpec) -> bool:
    """Return whether resolving again may give other offsets although no record was deleted.

    Such a start must be persisted before records are read: the planner does so with an empty first batch.
    """
    match spec:
        case Earliest():
            return False
        case Latest() | SpecificTimestamps() | GlobalTimestamp() | CommittedStart():
            return True
        case SpecificOffsets(offsets, topics):
            return LATEST in offsets.values() or LATEST in topics.values()


def start_is_reproducible(spec: StartingOffsetSpec) -> bool:
    """Return whether resolving again gives the same offsets while no record is deleted."""
    match spec:
        case SpecificTimestamps() | GlobalTimestamp():
            return spec.on_no_match == "error"
    return not start_may_change(spec)


def starts_at_earliest(spec: StartingOffsetSpec, partition: TopicPartition) -> bool:
    """Return whether a partition starts at its log start offset, so records deleted before the start are no loss."""
    match spec:
        case SpecificOffsets(offsets, topics):
            return offsets.get(partition, topics.get(partition.topic)) == EARLIEST
    return isinstance(spec, Earliest)


def resolve_start_offsets(
    spec: StartingOffsetSpec,
    partitions: Collection[TopicPartition],
    offset_reader: OffsetReader,
    available_now_ends: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Resolve the start of a stream.

    ``available_now_ends`` are the end offsets of Trigger.AvailableNow: ``latest`` resolves to them, and other starts
    except explicit offsets are limited to them.
    """
    if isinstance(spec, CommittedStart):
        return _committed_offsets(spec, partitions, offset_reader, available_now_ends)
    requested = required_lookups(spec, partitions, "start")
    listed_offsets = dict(
        confirmed_starts(lambda: _fetch_starts(offset_reader, requested), offset_reader.raise_epoch_floors)
    )
    # A partition without a record of the timestamp starts at its end, or `resolve_offsets` rejects it.
    at_end = {tp for tp, lookup in requested.items() if lookup == LATEST or listed_offsets.get(tp) == NO_RECORD}
    # Request end offsets last, so that no start lies after its end.
    latest = (
        _fetch_offsets(offset_reader, dict.fromkeys(at_end, LATEST))
        if available_now_ends is None
        else {tp: available_now_ends[tp] for tp in at_end}
    )
    listed_offsets.update({tp: latest[tp] for tp, lookup in requested.items() if lookup == LATEST})
    starts = resolve_offsets(spec, partitions, listed_offsets, latest, "start")
    if available_now_ends is None:
        return {tp: start.offset for tp, start in starts.items()}
    return {
        tp: start.offset if start.origin == "given" else min(start.offset, available_now_ends[tp])
        for tp, start in starts.items()
    }


def resolve_known_start_offsets(
    spec: StartingOffsetSpec, partitions: Collection[TopicPartition], offset_reader: OffsetReader
) -> dict[TopicPartition, int]:
    """Resolve a start as far as possible, although it does not match the assigned partitions.

    This is for the first batch of an earlier run, whose end is in the checkpoint: the topics may have changed since.
    """
    match spec:
        case CommittedStart():
            return dict(offset_reader.committed(partitions))
        case Earliest():
            requested = dict.fromkeys(partitions, EARLIEST)
        case Latest():
            requested = dict.fromkeys(partitions, LATEST)
        case SpecificOffsets(offsets, topics):
            requested = {tp: topics[tp.topic] for tp in partitions if tp.topic in topics} | dict(offsets)
            explicit = {tp: offset for tp, offset in requested.items() if offset >= 0}  # also of missing partitions
            lookups = {tp: bound for tp, bound in requested.items() if bound in (EARLIEST, LATEST) and tp in partitions}
            return explicit | dict(offset_reader.offsets(lookups) if lookups else {})
        case SpecificTimestamps(timestamps):
            requested = {tp: timestamp for tp, timestamp in timestamps.items() if tp in partitions}
        case GlobalTimestamp(timestamp):
            requested = dict.fromkeys(partitions, timestamp)
    listed_offsets = offset_reader.offsets(requested) if requested else {}
    return {tp: offset for tp, offset in listed_offsets.items() if offset != NO_RECORD}


def _resolved_offset(tp: TopicPartition, offset: int, listed_offsets: Mapping[TopicPartition, int]) -> ResolvedOffset:
    if offset >= 0:
        return ResolvedOffset(offset, "given")
    return ResolvedOffset(listed_offsets[tp], "earliest" if offset == EARLIEST else "latest")


def _explicit_offsets(spec: SpecificOffsets, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return an offset, EARLIEST or LATEST by partition; raise unless the spec names exactly the partitions."""
    topics = {tp.topic for tp in partitions}
    unknown = sorted(spec.topics.keys() - topics)
    if unknown:
        raise InvalidOffsetsError(
            f"{spec.option} names topics that are not assigned: {listed(unknown)}; assigned are "
            f"{listed(sorted(topics))} (KAFKA_TOPIC_OFFSET_DOES_NOT_MATCH_ASSIGNED)"
        )
    offsets = {tp: spec.topics[tp.topic] for tp in partitions if tp.topic in spec.topics}
    offsets.update(spec.offsets)  # the offset of a partition has priority over that of its topic
    _check_assigned(
        spec.option,
        offsets,
        partitions,
        "use -1 for latest, -2 for earliest (KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED)",
    )
    return offsets


def _explicit_timestamps(
    spec: SpecificTimestamps, partitions: Collection[TopicPartition], side: RangeSide
) -> dict[TopicPartition, int]:
    _check_assigned(
        spec.option,
        spec.timestamps,
        partitions,
        f"give a {side} timestamp for every partition (KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED)",
    )
    return dict(spec.timestamps)


def _check_assigned(
    option: str, named: Mapping[TopicPartition, int], assigned: Collection[TopicPartition], advice: str
) -> None:
    missing = sorted(set(assigned) - named.keys())
    extra = sorted(named.keys() - set(assigned))
    if missing or extra:
        raise InvalidOffsetsError(
            f"{option} must name exactly the assigned topic-partitions; missing: {listed(missing)}; "
            f"not assigned: {listed(extra)}. Partitions may have been created or deleted since; {advice}"
        )


def unused_start_warning(spec: StartingOffsetSpec) -> str | None:
    """Return the warning of a query that resumes from its checkpoint; ``None`` for a keyword, which jobs often keep."""
    if not isinstance(spec, SpecificOffsets | SpecificTimestamps | GlobalTimestamp):
        return None
    return (
        f"{spec.option} has no effect, because the query resumes from its checkpoint. To start there, use a new "
        "checkpointLocation."
    )


def _check_matches(
    option: str, requested: Mapping[TopicPartition, int], listed_offsets: Mapping[TopicPartition, int]
) -> None:
    unmatched = sorted(tp for tp in requested if listed_offsets[tp] == NO_RECORD)
    if unmatched:
        first = unmatched[0]
        earlier = "" if requested[first] == 0 else ", or give an earlier timestamp if they have records"
        raise InvalidOffsetsError(
            f"{option}: no record has timestamp {requested[first]} or a later one in {listed(unmatched)}, because "
            "these partitions are empty, or all of their records are older; to start such partitions at their end, set "
            f"startingOffsetsByTimestampStrategy=latest{earlier}",
            topic=first.topic,
            partition=first.partition,
        )


def _committed_offsets(
    spec: CommittedStart,
    partitions: Collection[TopicPartition],
    offset_reader: OffsetReader,
    available_now_ends: Mapping[TopicPartition, int] | None,
) -> dict[TopicPartition, int]:
    """Return committed offsets, and those of ``committedOffsetsFallback`` for partitions without one."""
    offsets = dict(offset_reader.committed(partitions))
    missing = sorted(set(partitions) - offsets.keys())
    if missing and spec.fallback is None:
        raise InvalidOffsetsError(
            f"startingOffsets=committed: the group has no committed offset for {listed(missing)}; set "
            "committedOffsetsFallback to earliest or latest for such partitions",
            topic=missing[0].topic,
            partition=missing[0].partition,
        )
    if missing and spec.fallback is not None:
        offsets.update(resolve_start_offsets(spec.fallback, missing, offset_reader, available_now_ends))
    return offsets


def _fetch_starts(offset_reader: OffsetReader, requested: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the requested log starts and the offsets by timestamp, but no ends."""
    log_starts = {tp: lookup for tp, lookup in requested.items() if lookup == EARLIEST}
    timestamps = {tp: lookup for tp, lookup in requested.items() if lookup >= 0}
    return {**_fetch_offsets(offset_reader, log_starts), **_fetch_offsets(offset_reader, timestamps)}


def _fetch_offsets(
    offset_reader: OffsetReader, requested: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    if not requested:
        return {}
    offsets = offset_reader.offsets(requested)
    missing = requested.keys() - offsets.keys()
    if missing:
        raise TopicNotFoundError(
            f"partitions were deleted while their offsets were requested: {listed(sorted(missing))}"
        )
    return offsets
