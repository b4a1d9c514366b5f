"""From positions to offsets: what must be looked up, and what the answers mean.

A position is resolved in two steps so that all look-ups of a plan fit into few requests: ``lookups`` tells what to ask
the leaders (ListOffsets takes -2, -1 or a timestamp per partition), ``resolve`` turns the answers into bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning.hints import listed
from pyspark_kafka_direct.planning.positions import (
    Earliest,
    GlobalTimestamp,
    Latest,
    Position,
    SpecificOffsets,
    SpecificTimestamps,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NO_RECORD = -1
"""ListOffsets' answer for a timestamp when no record is that new."""

Side: TypeAlias = Literal["start", "end"]
Origin: TypeAlias = Literal["given", "earliest", "latest", "timestamp"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A resolved start or end of one partition, and where the number comes from."""

    offset: int
    origin: Origin


def lookups(position: Position, partitions: Collection[TopicPartition], side: Side) -> dict[TopicPartition, int]:
    """Return what to ask the leaders for this position: ``EARLIEST``, ``LATEST`` or a timestamp in ms per partition.

    Partitions whose offset is given need no look-up and are left out.

    Raises:
        OffsetPlanError: The position does not name exactly the assigned partitions.
    """
    match position:
        case Earliest():
            return dict.fromkeys(partitions, EARLIEST)
        case Latest():
            return dict.fromkeys(partitions, LATEST)
        case SpecificOffsets():
            return {tp: offset for tp, offset in _offsets(position, partitions).items() if offset < 0}
        case SpecificTimestamps():
            return _timestamps(position, partitions, side)
        case GlobalTimestamp(timestamp):
            return dict.fromkeys(partitions, timestamp)


def resolve(
    position: Position,
    partitions: Collection[TopicPartition],
    found: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    side: Side,
) -> dict[TopicPartition, Bound]:
    """Return the bound of each partition.

    Args:
        position: What the user asked for.
        partitions: The assigned partitions.
        found: Answers to ``lookups``; ``NO_RECORD`` where no record is as new as a timestamp.
        latest: Ends of the partitions, for timestamps without a match.
        side: A timestamp without a match is an error or the latest offset at the start (the user's choice), and
            always the latest offset at the end.

    Raises:
        OffsetPlanError: Other partitions than the assigned ones, or a starting timestamp without a match.
    """
    match position:
        case Earliest():
            return {tp: Bound(found[tp], "earliest") for tp in sorted(partitions)}
        case Latest():
            return {tp: Bound(found[tp], "latest") for tp in sorted(partitions)}
        case SpecificOffsets():
            return {tp: _bound(tp, n, found) for tp, n in sorted(_offsets(position, partitions).items())}
        case SpecificTimestamps() | GlobalTimestamp():
            wanted = lookups(position, partitions, side)
            if side == "start" and position.on_no_match == "error":
                _check_matches(position.option, wanted, found)
            return {
                tp: Bound(latest[tp], "latest") if found[tp] == NO_RECORD else Bound(found[tp], "timestamp")
                for tp in sorted(wanted)
            }


def _bound(tp: TopicPartition, offset: int, found: Mapping[TopicPartition, int]) -> Bound:
    if offset >= 0:
        return Bound(offset, "given")
    return Bound(found[tp], "earliest" if offset == EARLIEST else "latest")


def _offsets(position: SpecificOffsets, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    topics = {tp.topic for tp in partitions}
    unknown = sorted(position.topics.keys() - topics)
    if unknown:
        raise OffsetPlanError(
            f"{position.option} names topics that are not assigned: {listed(unknown)}; assigned are "
            f"{listed(sorted(topics))} (KAFKA_TOPIC_OFFSET_DOES_NOT_MATCH_ASSIGNED)"
        )
    offsets = {tp: position.topics[tp.topic] for tp in partitions if tp.topic in position.topics}
    offsets.update(position.offsets)
    _check_assigned(
        position.option,
        offsets,
        partitions,
        "use -1 for latest, -2 for earliest (KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED)",
    )
    return offsets


def _timestamps(
    position: SpecificTimestamps, partitions: Collection[TopicPartition], side: Side
) -> dict[TopicPartition, int]:
    _check_assigned(
        position.option,
        position.timestamps,
        partitions,
        f"give every partition's {side} a timestamp (KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED)",
    )
    return dict(position.timestamps)


def _check_assigned(
    option: str, named: Mapping[TopicPartition, int], assigned: Collection[TopicPartition], advice: str
) -> None:
    missing = sorted(set(assigned) - named.keys())
    extra = sorted(named.keys() - set(assigned))
    if missing or extra:
        raise OffsetPlanError(
            f"{option} must name exactly the assigned topic-partitions; missing: {listed(missing)}; "
            f"not assigned: {listed(extra)}. Partitions may have been created or deleted meanwhile; {advice}"
        )


def _check_matches(option: str, wanted: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]) -> None:
    late = sorted(tp for tp in wanted if found[tp] == NO_RECORD)
    if late:
        first = late[0]
        raise OffsetPlanError(
            f"{option}: no record has timestamp {wanted[first]} or a later one in {listed(late)}; give an earlier "
            "timestamp, or startingOffsetsByTimestampStrategy=latest to start such partitions at their end",
            topic=first.topic,
            partition=first.partition,
        )
