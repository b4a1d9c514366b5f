"""Where a new stream begins: a position becomes the first offset of each assigned partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.errors import OffsetPlanError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST
from pyspark_kafka_direct.planning.hints import listed
from pyspark_kafka_direct.planning.positions import (
    Earliest,
    GlobalTimestamp,
    Latest,
    Position,
    SpecificOffsets,
    SpecificTimestamps,
)
from pyspark_kafka_direct.planning.resolve import NO_RECORD, lookups, resolve

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.stream_view import ClusterView


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a consumer group has committed.

    Attributes:
        fallback: Where partitions start that have no committed offset; ``None``: that is an error.
    """

    fallback: Earliest | Latest | None = None


StreamStart: TypeAlias = Position | Committed


def moves(position: StreamStart) -> bool:
    """Tell whether asking again later may give other offsets, although no record was removed.

    Such a start must be kept before anything is read from it; the planner does so by an empty first batch.
    """
    match position:
        case Earliest():
            return False
        case Latest() | SpecificTimestamps() | GlobalTimestamp() | Committed():
            return True
        case SpecificOffsets(offsets, topics):
            return LATEST in offsets.values() or LATEST in topics.values()


def found_again(position: StreamStart) -> bool:
    """Tell whether asking again gives the same offsets while no record is removed: not so for any ``latest``."""
    match position:
        case SpecificTimestamps() | GlobalTimestamp():
            return position.on_no_match == "error"
    return not moves(position)


def first_offsets(
    position: StreamStart,
    partitions: Collection[TopicPartition],
    view: ClusterView,
    frozen: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Resolve a starting position.

    Args:
        position: What the user asked for.
        partitions: The assigned partitions.
        view: Asks the cluster.
        frozen: Ends frozen for Trigger.AvailableNow: ``latest`` means these, and no start that is looked up lies after
            them.

    Raises:
        OffsetPlanError: The position does not fit the partitions, or a group has no offset for some of them.
        TopicNotFoundError: A partition was deleted meanwhile.
    """
    if isinstance(position, Committed):
        return _committed(position, partitions, view, frozen)
    wanted = lookups(position, partitions, "start")
    found: dict[TopicPartition, int] = {}
    timed = {tp: what for tp, what in wanted.items() if what >= 0}
    found.update(_ask(view, {tp: what for tp, what in wanted.items() if what == EARLIEST}))
    found.update(_ask(view, timed))
    at_end = {tp for tp, what in wanted.items() if what == LATEST or found.get(tp) == NO_RECORD}
    # Ends are asked for last, so that no start lies after its end.
    latest = _ask(view, dict.fromkeys(at_end, LATEST)) if frozen is None else {tp: frozen[tp] for tp in at_end}
    found.update({tp: latest[tp] for tp, what in wanted.items() if what == LATEST})
    bounds = resolve(position, partitions, found, latest, "start")
    if frozen is None:
        return {tp: bound.offset for tp, bound in bounds.items()}
    return {
        tp: bound.offset if bound.origin == "given" else min(bound.offset, frozen[tp]) for tp, bound in bounds.items()
    }


def offsets_that_fit(
    position: StreamStart, partitions: Collection[TopicPartition], view: ClusterView
) -> dict[TopicPartition, int]:
    """Return what can be told of a starting position that does not fit the assigned partitions.

    For the first batch of an earlier run, whose end is known: the topics may have changed since.

    Args:
        position: What the user asked for.
        partitions: The assigned partitions.
        view: Asks the cluster.

    Returns:
        Offsets given by number, and those that are found for assigned partitions; others are left out.
    """
    match position:
        case Committed():
            return dict(view.committed(partitions))
        case Earliest():
            wanted = dict.fromkeys(partitions, EARLIEST)
        case Latest():
            wanted = dict.fromkeys(partitions, LATEST)
        case SpecificOffsets(offsets, topics):
            wanted = {tp: topics[tp.topic] for tp in partitions if tp.topic in topics} | dict(offsets)
            given = {tp: offset for tp, offset in wanted.items() if offset >= 0}
            asked = {tp: what for tp, what in wanted.items() if what < 0 and tp in partitions}
            return given | dict(view.offsets(asked) if asked else {})
        case SpecificTimestamps(timestamps):
            wanted = {tp: timestamp for tp, timestamp in timestamps.items() if tp in partitions}
        case GlobalTimestamp(timestamp):
            wanted = dict.fromkeys(partitions, timestamp)
    found = view.offsets(wanted) if wanted else {}
    return {tp: offset for tp, offset in found.items() if offset != NO_RECORD}


def _committed(
    position: Committed,
    partitions: Collection[TopicPartition],
    view: ClusterView,
    frozen: Mapping[TopicPartition, int] | None,
) -> dict[TopicPartition, int]:
    offsets = dict(view.committed(partitions))
    missing = sorted(set(partitions) - offsets.keys())
    if missing and position.fallback is None:
        raise OffsetPlanError(
            f"startingOffsets=committed: the group has no committed offset for {listed(missing)}; set "
            "committedOffsetsFallback to earliest or latest to say where such partitions start",
            topic=missing[0].topic,
            partition=missing[0].partition,
        )
    if missing and position.fallback is not None:
        offsets.update(first_offsets(position.fallback, missing, view, frozen))
    return offsets


def _ask(view: ClusterView, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    if not wanted:
        return {}
    answers = view.offsets(wanted)
    missing = wanted.keys() - answers.keys()
    if missing:
        raise TopicNotFoundError(f"deleted while their offsets were looked up: {listed(sorted(missing))}")
    return answers
