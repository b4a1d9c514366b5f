"""The batches of the direct stream: which ranges the next one has, and what would be loss.

It knows no broker and no Spark: ``DirectView`` asks the one, ``direct._carried`` keeps what is decided through Spark's
checkpoint. A batch begins where the one before ended and ends where the logs end, or at its limit. Unlike the planner
of a query (``planning.stream``) it passes over no partition: one that is gone, cut or created anew fails the batch, and
the next one begins where this one would have.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.planning.backpressure import clamp
from pyspark_kafka_direct.planning.hints import listed
from pyspark_kafka_direct.planning.limits import passed_log_starts
from pyspark_kafka_direct.planning.stream_loss import LossReport

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition

_log = logging.getLogger("pyspark_kafka_direct.direct")

_ADVICE = "start the stream with another checkpoint folder, or none, and an offset that exists"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream stands between two batches.

    Attributes:
        offsets: The next offset to read of each partition.
        topic_ids: The id under which each topic was first seen, where brokers have ids.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID]


@dataclass(frozen=True, slots=True)
class Batch:
    """The plan of a batch.

    Attributes:
        ranges: The offset ranges to read, one for each partition, empty ones too.
        topic_ids: The ids of the topics now, where brokers have ids.
        expired: How many offsets of the ranges are known to be gone, and are passed over.
    """

    ranges: tuple[OffsetRange, ...]
    topic_ids: Mapping[str, UUID]
    expired: int = 0


class DirectView(Protocol):
    """What the planner asks of the cluster. Every call may raise ``BrokerError``, after retries of its own."""

    def assigned(self, tracked: Collection[TopicPartition]) -> Mapping[TopicPartition, UUID | None]:
        """Return the partitions to read that exist now, each with the id of its topic, where brokers have ids."""

    def starts_of_new(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where partitions begin that have appeared under the stream."""

    def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where the logs of these partitions end.

        Raises:
            TopicNotFoundError: One of them is gone.
        """

    def written(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return high watermarks: under ``read_committed`` an open transaction hides what lies behind ``latest``."""

    def most(
        self, begins: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int] | None:
        """Return how many records each partition may have; ``None``: no limit."""

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where the logs of these partitions begin, if tasks pass over what is lost; else nothing."""

    def wait(self) -> bool:
        """Pause before looking again; return false once that has gone on for long enough."""


def plan_batch(at: Position, view: DirectView) -> Batch:
    """Decide the ranges of the batch that begins where the stream stands.

    Args:
        at: Where it stands.
        view: Asks the cluster.

    Raises:
        DataLossError: A partition that was read is gone, its topic was deleted and created anew, or its log ends before
            what was read of it.
        BrokerError: The cluster could not be asked.
    """
    assigned = _assigned_for_sure(at, view)
    _check_still_there(at, assigned)
    begins: dict[TopicPartition, int] = {**at.offsets, **_begin_new(at, assigned, view)}
    try:
        latest = view.latest(begins)
    except TopicNotFoundError:  # it went since the question before
        _check_still_there(at, _assigned_for_sure(at, view))
        raise
    latest = {**latest, **_hidden(begins, latest, view)}
    most = view.most(begins, latest)
    expired = {} if most is None else passed_log_starts(begins, latest, view.log_starts)
    if expired:
        most = view.most(begins | expired, latest)
    ends = clamp(begins | expired, latest, most)
    # A range begins where the last one ended also where its first records are gone: the task says that they are, and
    # what keeps offsets of its own sees no gap.
    ranges = tuple(OffsetRange(tp.topic, tp.partition, begins[tp], ends[tp]) for tp in sorted(begins))
    return Batch(ranges, ids_of(assigned), sum(expired[tp] - begins[tp] for tp in expired))


def ids_of(assigned: Mapping[TopicPartition, UUID | None]) -> dict[str, UUID]:
    """Return the ids of the topics, as far as they are known."""
    return {tp.topic: topic_id for tp, topic_id in assigned.items() if topic_id is not None}


def _assigned_for_sure(at: Position, view: DirectView) -> Mapping[TopicPartition, UUID | None]:
    """Return the partitions that exist; look again for missing ones, as a broker may lag behind the others."""
    while True:
        assigned = view.assigned(at.offsets)
        if all(tp in assigned for tp in at.offsets) or not view.wait():
            return assigned


def _check_still_there(at: Position, assigned: Mapping[TopicPartition, UUID | None]) -> None:
    losses = _losses()
    for topic, now in sorted(ids_of(assigned).items()):
        before = at.topic_ids.get(topic, now)
        if before != now:
            losses.recreated([tp for tp in at.offsets if tp.topic == topic], before, now)
    losses.gone([tp for tp in at.offsets if tp not in assigned])


def _begin_new(
    at: Position, assigned: Mapping[TopicPartition, UUID | None], view: DirectView
) -> Mapping[TopicPartition, int]:
    new = sorted(tp for tp in assigned if tp not in at.offsets)
    if not new:
        return {}
    _log.info("new partitions: %s", listed(new))
    return view.starts_of_new(new)


def _hidden(
    begins: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], view: DirectView
) -> Mapping[TopicPartition, int]:
    """Return partitions that begin behind what can be read, as at a committed offset; each is empty for now.

    Raises:
        DataLossError: The offset is beyond the end of the log.
    """
    behind = sorted(tp for tp in begins if latest[tp] < begins[tp])
    written = view.written(behind) if behind else {}
    for tp in behind:
        if written[tp] < begins[tp]:
            _losses().went_back(tp, begins[tp], written[tp])
    return {tp: begins[tp] for tp in behind}


def _losses() -> LossReport:
    return LossReport(True, _FixedSelection(), advice=_ADVICE)


class _FixedSelection:
    """A ``LossView`` of a stream whose selection never changes: a partition that is gone was deleted."""

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return ()

    def warn(self, message: str) -> None:
        _log.warning("%s", message)
