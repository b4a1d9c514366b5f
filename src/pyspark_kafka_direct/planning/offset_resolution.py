"""Resolves offset specs to offsets.

A spec is resolved in steps so that all lookups of a plan fit into few requests. ``positions_at`` returns the position
of each partition at the time of the plan, ``required_lookups`` what to request from the leaders with ListOffsets first,
and ``resolve_positions`` turns the responses, and the ends requested after them, into offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark_kafka_direct.errors import InvalidOffsetsError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.offset_specs import CommittedStart, OffsetSpec, ResolvedOffset, StartingOffsetSpec
from pyspark_kafka_direct.options.positions import AtTime, BeforeNow, FixedPosition, LastOffsets, Position
from pyspark_kafka_direct.planning.offset_reader import confirmed_starts

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.planning.offset_reader import OffsetReader

NO_RECORD = -1  # the ListOffsets response if no record has the timestamp or a later one

RangeSide: TypeAlias = Literal["start", "end"]

# Requests offsets from the leaders, by partition: EARLIEST, LATEST or a timestamp in ms, for which the result is
# NO_RECORD if no record has it or a later one.
OffsetLookup: TypeAlias = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]


def positions_at(
    spec: OffsetSpec, partitions: Collection[TopicPartition], side: RangeSide, now_ms: int
) -> dict[TopicPartition, FixedPosition]:
    """Return the position of each partition at this time; raise unless the spec names exactly the partitions."""
    _check_assigned(spec, partitions, side)
    return {tp: _fixed(position, now_ms) for tp in partitions if (position := spec.position(tp)) is not None}


def required_lookups(positions: Mapping[TopicPartition, FixedPosition]) -> dict[TopicPartition, int]:
    """Return what to request before any end: ``EARLIEST`` or a timestamp in ms by partition."""
    lookups: dict[TopicPartition, int] = {}
    for tp, position in positions.items():
        if isinstance(position, AtTime):
            lookups[tp] = position.timestamp
        elif position == EARLIEST or isinstance(position, LastOffsets):
            lookups[tp] = EARLIEST
    return lookups


def required_ends(
    positions: Mapping[TopicPartition, FixedPosition], listed_offsets: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Return the partitions whose ends to request, after the responses to ``required_lookups``."""
    at_end = {tp for tp, position in positions.items() if position == LATEST or isinstance(position, LastOffsets)}
    return at_end | times_without_record(positions, listed_offsets).keys()


def times_without_record(
    positions: Mapping[TopicPartition, FixedPosition], listed_offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the times to request again after the ends: a record may have arrived before such an end."""
    return {
        tp: position.timestamp
        for tp, position in positions.items()
        if isinstance(position, AtTime) and listed_offsets.get(tp) == NO_RECORD
    }


def resolve_positions(
    positions: Mapping[TopicPartition, FixedPosition],
    listed_offsets: Mapping[TopicPartition, int],  # the responses to required_lookups and times_without_record
    latest: Mapping[TopicPartition, int],  # at least of required_ends
    *,
    side: RangeSide,
    option: str,
) -> dict[TopicPartition, ResolvedOffset]:
    """Return the resolved offset of each partition; raise if a start must have a record that is new enough."""
    if side == "start":
        _check_matches(option, positions, listed_offsets)
    return {tp: _resolve(tp, positions[tp], listed_offsets, latest) for tp in sorted(positions)}


def look_up_starts(
    positions: Mapping[TopicPartition, FixedPosition],
    fetch_confirmed: OffsetLookup,  # from leaders that several brokers confirm: a deposed one may report later starts
    fetch: OffsetLookup,
    *,
    ends: Mapping[TopicPartition, int] | None = None,  # None: they are requested
    option: str,
) -> dict[TopicPartition, ResolvedOffset]:
    """Request what positions need, and resolve them as starts.

    Ends are requested after log starts and times, so that no start lies after its end. A time without a record is
    requested again after that: a record may have arrived before the end.
    """
    listed_offsets = fetch_confirmed(required_lookups(positions))
    at_end = required_ends(positions, listed_offsets)
    latest = fetch(dict.fromkeys(at_end, LATEST)) if ends is None else {tp: ends[tp] for tp in at_end}
    found_later = fetch(times_without_record(positions, listed_offsets))
    return resolve_positions(positions, {**listed_offsets, **found_later}, latest, side="start", option=option)


def start_may_change(spec: StartingOffsetSpec) -> bool:
    """Return whether resolving again may give other offsets although no record was deleted.

    Such a start must be persisted before records are read: the planner does so with an empty first batch.
    """
    if isinstance(spec, CommittedStart):
        return True
    return not all(isinstance(position, int) and position != LATEST for position in spec.positions())


def start_is_reproducible(spec: StartingOffsetSpec) -> bool:
    """Return whether resolving again gives the same offsets while no record is deleted."""
    if isinstance(spec, CommittedStart):
        return False
    return all(
        position.on_no_match == "error"
        if isinstance(position, AtTime)
        else isinstance(position, int) and position != LATEST
        for position in spec.positions()
    )


def starts_at_earliest(spec: StartingOffsetSpec, partition: TopicPartition) -> bool:
    """Return whether a partition starts at its log start offset, so records deleted before the start are no loss."""
    return isinstance(spec, OffsetSpec) and spec.position(partition) == EARLIEST


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
    positions = positions_at(spec, partitions, "start", offset_reader.wall_time_ms())
    fetch = partial(_fetch_offsets, offset_reader)

    def fetch_confirmed(lookups: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return confirmed_starts(lambda: fetch(lookups), offset_reader.raise_epoch_floors)

    starts = look_up_starts(positions, fetch_confirmed, fetch, ends=available_now_ends, option=spec.option)
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
    if isinstance(spec, CommittedStart):
        return dict(offset_reader.committed(partitions))
    now_ms = offset_reader.wall_time_ms()
    positions = {
        tp: _fixed(position, now_ms)
        for tp in partitions
        if (position := spec.position(tp)) is not None and not isinstance(position, LastOffsets)
    }
    explicit = {tp: position for tp, position in spec.partitions.items() if isinstance(position, int) and position >= 0}
    ends = {tp: LATEST for tp, position in positions.items() if position == LATEST}
    requested = {**required_lookups(positions), **ends}
    listed_offsets = offset_reader.offsets(requested) if requested else {}
    # Also of missing partitions.
    return explicit | {tp: offset for tp, offset in listed_offsets.items() if offset != NO_RECORD}


def _fixed(position: Position, now_ms: int) -> FixedPosition:
    if isinstance(position, BeforeNow):
        return AtTime(max(now_ms - position.milliseconds, 0), position.on_no_match)
    return position


def _resolve(
    tp: TopicPartition,
    position: FixedPosition,
    listed_offsets: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> ResolvedOffset:
    if isinstance(position, LastOffsets):
        log_start, start = listed_offsets[tp], latest[tp] - position.count
        return ResolvedOffset(start, "last") if start > log_start else ResolvedOffset(log_start, "earliest")
    if isinstance(position, AtTime):
        found = listed_offsets[tp]
        # A record that was found last may have arrived after the end was requested.
        is_at_end = found == NO_RECORD or (tp in latest and found >= latest[tp])
        return ResolvedOffset(latest[tp], "latest") if is_at_end else ResolvedOffset(found, "timestamp")
    if position == LATEST:
        return ResolvedOffset(latest[tp], "latest")
    return ResolvedOffset(listed_offsets[tp], "earliest") if position == EARLIEST else ResolvedOffset(position, "given")


def _check_assigned(spec: OffsetSpec, assigned: Collection[TopicPartition], side: RangeSide) -> None:
    """Raise unless each assigned partition has a position, and each named topic and partition is assigned."""
    topics = {tp.topic for tp in assigned}
    unknown = sorted(spec.topics.keys() - topics)
    if unknown:
        raise InvalidOffsetsError(
            f"{spec.option} names topics that are not assigned: {listed(unknown)}; assigned are "
            f"{listed(sorted(topics))} (KAFKA_TOPIC_OFFSET_DOES_NOT_MATCH_ASSIGNED)"
        )
    missing = sorted(tp for tp in assigned if spec.position(tp) is None)
    extra = sorted(spec.partitions.keys() - set(assigned))
    if not missing and not extra:
        return
    advice = 'use -1 for latest, -2 for earliest, or "*":"earliest" for the others (KAFKA_START_OFFSET'
    if spec.has_times:
        advice = f'give a {side} timestamp for every partition, or "*":"-1h" for the others (KAFKA_TIMESTAMP_OFFSET'
    raise InvalidOffsetsError(
        f"{spec.option} must name exactly the assigned topic-partitions; missing: {listed(missing)}; "
        f"not assigned: {listed(extra)}. Partitions may have been created or deleted since; {advice}"
        "_DOES_NOT_MATCH_ASSIGNED)"
    )


def unused_start_warning(spec: StartingOffsetSpec) -> str | None:
    """Return the warning of a query that resumes from its checkpoint; ``None`` for a start that jobs often keep.

    Those are one keyword, ``-1h`` or ``last 1000`` for all partitions: they mean something else at each restart.
    """
    if isinstance(spec, CommittedStart):
        return None
    if not spec.partitions and not spec.topics and not isinstance(spec.others, AtTime):
        return None
    return (
        f"{spec.option} has no effect, because the query resumes from its checkpoint. To start there, use a new "
        "checkpointLocation."
    )


def _check_matches(
    option: str, positions: Mapping[TopicPartition, FixedPosition], listed_offsets: Mapping[TopicPartition, int]
) -> None:
    """Raise if a start by time needs a record that is new enough, and there is none."""
    unmatched = {
        tp: position.timestamp
        for tp, position in sorted(positions.items())
        if isinstance(position, AtTime) and position.on_no_match == "error" and listed_offsets[tp] == NO_RECORD
    }
    if unmatched:
        first, timestamp = next(iter(unmatched.items()))
        earlier = "" if timestamp == 0 else ", or give an earlier timestamp if they have records"
        raise InvalidOffsetsError(
            f"{option}: no record has timestamp {timestamp} or a later one in {listed(unmatched)}, because "
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
