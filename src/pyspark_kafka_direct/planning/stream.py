"""The planner of a stream: which offsets the next micro-batch ends with, and which ranges a batch is made of.

It knows no broker and no Spark: ``ClusterView`` asks the one, ``structured.stream`` speaks with the other. Spark keeps
every end it is given in the checkpoint, starts the next batch there, and plans a batch again from the same two offsets
if it was not finished. So an end is decided once, from what the cluster says at that moment, and ranges follow from
start and end.

A start that moves (``latest``, timestamps) must not be looked up twice. Spark's own source writes it into the
checkpoint; here the first end is exactly the start, and Spark's log of that empty batch is what makes it durable. If
the query dies within that batch, a mark on its end says so (``structured.stream``): nothing is read, and the next batch
starts where the logged one ended. A first batch without the mark is another source's and not empty: its start is looked
up again where that gives the same, and else the batch is refused.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange
from pyspark_kafka_direct.planning.limits import Limits, MinimumGate, byte_limit, new_offsets, rate_limit
from pyspark_kafka_direct.planning.ranges import split_ranges
from pyspark_kafka_direct.planning.stream_frozen import check_against_frozen, check_against_latest
from pyspark_kafka_direct.planning.stream_loss import LossReport
from pyspark_kafka_direct.planning.stream_start import first_offsets, found_again, moves
from pyspark_kafka_direct.planning.stream_view import Memory, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.stream_start import StreamStart
    from pyspark_kafka_direct.planning.stream_view import ClusterView

IDLE_PAUSE = 0.1
"""Seconds for which a look that found nothing new is good; Spark asks an idle source up to 100 times a second."""

LONGEST_IDLE_PAUSE = 1.0
"""The same for looks that take long, as at a pattern among thousands of topics: the pause is ten times the look."""

_MOST_SAMPLES = 16
_GUESS = 1024

_ONCE = (
    "Trigger.Once cannot start a query whose start moves (startingOffsets=latest or committed, or a timestamp): its "
    "only batch would be the empty one that makes the start durable. Use Trigger.AvailableNow, or start from earliest "
    "or from offsets"
)

_FOREIGN = (
    "the checkpoint's first batch was not finished, and another source (Spark's own kafka source?) or another start "
    "planned it: where it began is not known, and a start that moves (startingOffsets=latest or committed) would skip "
    "records. Give its beginning as startingOffsets; Spark's own source keeps it in the last line of the checkpoint's "
    "file sources/0/0"
)


@dataclass(frozen=True, slots=True)
class StreamTuning:
    """The options that shape a stream.

    Attributes:
        start: Where a new query begins.
        limits: Limits on a micro-batch.
        fail_on_data_loss: Whether lost records end the query.
        read_committed: Whether the ends are last stable offsets.
        min_partitions: Least number of tasks.
        max_records_per_partition: Most offsets per task.
        tries: How often the cluster is asked before it is believed that something is gone (``fetchOffset.numRetries``).
    """

    start: StreamStart
    limits: Limits = field(default_factory=Limits)
    fail_on_data_loss: bool = True
    read_committed: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    tries: int = 3


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What a micro-batch reads.

    Attributes:
        ranges: One per task, none empty, in the order topic, partition, offset.
        topic_ids: The topics' ids when the batch's end was decided, as far as they are known.
    """

    ranges: tuple[OffsetRange, ...] = ()
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


class StreamPlanner:
    """Plans the micro-batches of one query, one after the other; not for several threads.

    Args:
        tuning: The options.
        view: Asks the cluster.
        clock: Seconds on a clock that never goes back.
        measured_limit: The most offsets of the batch that begins there, from how long earlier ones took; ``None``: no
            limit.
    """

    def __init__(
        self,
        tuning: StreamTuning,
        view: ClusterView,
        clock: Callable[[], float] = time.monotonic,
        *,
        measured_limit: Callable[[Mapping[TopicPartition, int]], int | None] | None = None,
    ) -> None:
        self._tuning = tuning
        self._view = view
        self._clock = clock
        self._measured_limit = measured_limit
        self._losses = LossReport(tuning.fail_on_data_loss, view)
        limits = tuning.limits
        self._gate = None if limits.min_offsets is None else MinimumGate(limits.min_offsets, limits.max_delay)
        self._memory = Memory()
        self._sizes: dict[TopicPartition, float] = {}
        self._initial: dict[TopicPartition, int] | None = None
        self._started = False  # an end was asked for
        self._replayed = False  # a batch was planned before that: its end is in the checkpoint already
        self._frozen: dict[TopicPartition, int] | None = None
        self._frozen_ids: Mapping[str, UUID] = {}
        self._latest: Mapping[TopicPartition, int] | None = None
        self._idle: tuple[dict[TopicPartition, int], float] | None = None

    @property
    def known_latest(self) -> Mapping[TopicPartition, int] | None:
        """The ends found by the last look, for the progress report; ``None`` before the first."""
        return self._latest

    @property
    def resumed(self) -> bool:
        """Whether this is a query that had finished a batch before: nobody asked where it begins."""
        return self._initial is None

    def initial(self) -> dict[TopicPartition, int]:
        """Where a new query begins; looked up once.

        Raises:
            OffsetPlanError: The starting position does not fit the assigned partitions.
            TopicNotFoundError: A named topic or partition does not exist.
        """
        if self._initial is None:
            self._initial = self._look_up_initial()
        return dict(self._initial)

    def at_first_start(self, start: Mapping[TopicPartition, int]) -> bool:
        """Whether nothing was planned yet and ``start`` is not the end of a finished batch."""
        return not self._started and not self._replayed and start == self._initial

    def freeze(self) -> None:
        """Trigger.AvailableNow: from now on read only what there is at this moment."""
        looked = self._look({})
        self._frozen, self._frozen_ids = dict(looked.latest), looked.topic_ids
        self._latest = self._frozen

    def next_end(self, start: Mapping[TopicPartition, int], *, unlimited: bool = False) -> dict[TopicPartition, int]:
        """The end of the batch that begins at ``start``; equal to ``start`` when there is nothing to read yet.

        Args:
            start: The end of the batch before, or the initial offset.
            unlimited: Ignore the limits (Trigger.Once).

        Raises:
            DataLossError: Records are lost, and ``failOnDataLoss`` is true.
            OptionError: Trigger.Once with a start that moves.
        """
        start = dict(start)
        if self.at_first_start(start) and moves(self._tuning.start):
            if unlimited:
                raise OptionError(_ONCE)
            self._started = True
            return start
        self._started = True
        if not unlimited and self._is_idle(start):
            return start
        began = self._clock()
        end = self._decide_end(start, unlimited)
        now = self._clock()
        pause = min(max(IDLE_PAUSE, 10 * (now - began)), LONGEST_IDLE_PAUSE)
        self._idle = (start, now + pause) if end == start else None
        return end

    def plan(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], *, empty: bool = False
    ) -> StreamPlan:
        """The ranges of a batch; called again with the same offsets, it gives the same ranges.

        Args:
            start: Its start.
            end: Its end.
            empty: Its end is marked: it is the empty first batch, wherever its start is looked up now.

        Raises:
            DataLossError: Records are lost, and ``failOnDataLoss`` is true; or a check of Trigger.AvailableNow failed.
            OptionError: An earlier run's first batch, whose start cannot be found again.
        """
        first_again = start == self._initial and not self._started and not empty
        self._replayed = self._replayed or not self._started
        if first_again and not found_again(self._tuning.start):
            raise OptionError(_FOREIGN)
        if empty or start == end:
            return StreamPlan()
        seen = self._memory.get(end)
        if seen is None or not seen.made:
            return self._replan(start, end)
        if self._frozen is not None:
            check_against_frozen(end, self._frozen)
            check_against_latest(end, self._look(end).latest)
        begins = {tp: offset for tp, offset in start.items() if tp.topic not in seen.recreated}
        self._losses.gone(start.keys() - end.keys())
        unread = {tp: offset for tp, offset in end.items() if tp not in begins}
        begins.update(self._begin_added(unread, unread.keys() - start.keys()))
        return StreamPlan(self._ranges(begins, end), seen.topic_ids)

    def _is_idle(self, start: Mapping[TopicPartition, int]) -> bool:
        return self._idle is not None and self._idle[0] == start and self._clock() < self._idle[1]

    def _replan(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> StreamPlan:
        """A batch whose end an earlier run decided."""
        topic_ids = self._view.assigned(strict=False).topic_ids
        if self._initial is not None and start == self._initial and not self._started:
            # The first batch. Its start was looked up again: it may lie after the end, and may know partitions that
            # the logged end could not.
            begins = {tp: min(offset, end[tp]) for tp, offset in start.items() if tp in end}
        else:
            self._losses.gone(start.keys() - end.keys())
            begins = dict(start)
        added = {tp: offset for tp, offset in end.items() if tp not in begins}
        begins.update(self._begin_added(added, added.keys()))
        return StreamPlan(self._ranges(begins, end), topic_ids)

    def _ranges(
        self, begins: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> tuple[OffsetRange, ...]:
        ranges = []
        for tp in sorted(end.keys() & begins.keys()):
            if begins[tp] > end[tp]:
                self._losses.went_back(tp, begins[tp], end[tp])
            else:
                ranges.append(OffsetRange(tp.topic, tp.partition, begins[tp], end[tp]))
        tuning = self._tuning
        return tuple(split_ranges(ranges, tuning.min_partitions, tuning.max_records_per_partition))

    def _begin_added(
        self, ends: Mapping[TopicPartition, int], added: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Log starts of partitions that are read from their beginning; those that are gone are left out."""
        if not ends:
            return {}
        earliest = self._view.offsets(dict.fromkeys(ends, EARLIEST))
        self._losses.start_not_found(ends.keys() - earliest.keys())
        self._losses.added_late({tp: offset for tp, offset in earliest.items() if tp in added})
        return {tp: min(offset, ends[tp]) for tp, offset in earliest.items()}

    def _decide_end(self, start: dict[TopicPartition, int], unlimited: bool) -> dict[TopicPartition, int]:
        looked = self._available(start)
        before = self._memory.get(start)
        if before is None:
            before = Seen(looked.topic_ids)
            self._memory.put(start, before)
        recreated = _recreated(before.topic_ids, looked.topic_ids)
        self._report_losses(start, looked, before.topic_ids, recreated)
        latest = dict(looked.latest)
        fresh = {tp: end for tp, end in latest.items() if tp not in start or tp.topic in recreated}
        begun = self._begin_added(fresh, fresh.keys() - start.keys())
        for tp in fresh.keys() - begun.keys():
            del latest[tp]
        begins = {tp: start[tp] for tp in latest if tp not in fresh} | begun
        end = self._limited(start, begins, latest, unlimited)
        if not end:
            return start  # an empty end would forget where the others were (SPARK-41375)
        for tp in end.keys() & start.keys():
            if tp.topic in recreated and begins[tp] < end[tp] == start[tp]:
                end[tp] -= 1  # equal offsets would look like no progress
        if end == start:
            self._memory.put(start, Seen(dict(looked.topic_ids), before.made, before.recreated))
        else:
            self._memory.put(end, Seen(looked.topic_ids, made=True, recreated=recreated))
        return end

    def _report_losses(
        self,
        start: Mapping[TopicPartition, int],
        looked: _Looked,
        ids_before: Mapping[str, UUID],
        recreated: frozenset[str],
    ) -> None:
        for topic in sorted(recreated):
            lost = [tp for tp in start if tp.topic == topic]
            self._losses.recreated(lost, ids_before[topic], looked.topic_ids[topic])
        self._losses.gone([tp for tp in start if tp not in looked.latest and tp.topic not in recreated])
        for tp in sorted(start.keys() & looked.latest.keys()):
            if looked.latest[tp] < start[tp] and tp.topic not in recreated:
                self._losses.went_back(tp, start[tp], looked.latest[tp])

    def _limited(
        self,
        start: dict[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        latest: dict[TopicPartition, int],
        unlimited: bool,
    ) -> dict[TopicPartition, int]:
        if unlimited:
            return dict(latest)
        # With frozen ends nothing new comes, so a minimum would hold the last records back for ever.
        if self._gate is not None and self._frozen is None:
            known = {tp: begin for tp, begin in begins.items() if tp in start}
            if not self._gate.passes(new_offsets(known, latest), self._clock()):
                return dict(start)
        measured = None if self._measured_limit is None else self._measured_limit(start)
        in_bytes = self._byte_limit(begins, latest)
        limits = [limit for limit in (self._tuning.limits.max_offsets, measured, in_bytes) if limit is not None]
        return rate_limit(min(limits), begins, latest) if limits else dict(latest)

    def _byte_limit(self, begins: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int | None:
        most = self._tuning.limits.max_bytes
        waiting = {tp: end - begins[tp] for tp, end in latest.items() if end > begins[tp]}
        if most is None or not waiting:
            return None
        # The partitions with the most to read decide; asking many would take longer than it is worth.
        chosen = sorted(waiting, key=lambda tp: waiting[tp], reverse=True)[:_MOST_SAMPLES]
        self._sizes.update(self._view.bytes_per_offset({tp: begins[tp] for tp in chosen}))
        sizes = {tp: size for tp, size in self._sizes.items() if tp in waiting} or self._sizes
        if not sizes:
            self._view.warn(f"no records could be sampled for maxBytesPerTrigger; taking {_GUESS} bytes for each")
            sizes = dict.fromkeys(chosen, float(_GUESS))
        return byte_limit(most, begins, latest, sizes)

    def _available(self, start: Mapping[TopicPartition, int]) -> _Looked:
        """What there is to read: the frozen ends, or the latest."""
        if self._frozen is None:
            looked = self._look(start)
            self._latest = looked.latest
            return looked
        behind = {tp for tp, offset in self._frozen.items() if offset < start.get(tp, 0)}
        if behind:
            # Seen too early, by a leader that lagged, or really gone back: only another look can tell.
            latest = self._look(start).latest
            self._frozen.update({tp: min(latest[tp], start[tp]) for tp in behind if tp in latest})
        return _Looked(self._frozen, self._frozen_ids)

    def _look(self, known: Mapping[TopicPartition, int]) -> _Looked:
        """Assigned partitions and their ends; asked again while they contradict what was known before.

        Metadata may be old, and a new leader's high watermark may lag (KIP-207): what is gone at the last try is gone.
        """
        before = self._memory.get(known)
        for attempt in range(1, self._tuning.tries + 1):
            assigned = self._view.assigned(strict=False)
            latest = dict(self._view.offsets(dict.fromkeys(assigned.partitions, LATEST)))
            doubtful = {tp for tp, offset in known.items() if latest.get(tp, -1) < offset}
            if doubtful and self._tuning.read_committed:
                # Beyond the last stable offset, but within the log: not committed yet, and not lost.
                behind = [tp for tp in doubtful if tp in latest]
                for tp, end in self._view.high_watermarks(behind).items() if behind else ():
                    if end >= known[tp]:
                        latest[tp] = known[tp]
                        doubtful.discard(tp)
            recreated = before is not None and _recreated(before.topic_ids, assigned.topic_ids)
            if not doubtful and not recreated:
                break
            if attempt < self._tuning.tries:
                self._view.wait()
        return _Looked(latest, assigned.topic_ids)

    def _look_up_initial(self) -> dict[TopicPartition, int]:
        tries = self._tuning.tries
        while True:
            try:
                assigned = self._view.assigned(strict=True)
                partitions = assigned.partitions if self._frozen is None else frozenset(self._frozen)
                initial = first_offsets(self._tuning.start, partitions, self._view, self._frozen)
            except TopicNotFoundError:
                # A topic that was created a moment ago may not be known to every broker yet.
                tries -= 1
                if tries <= 0:
                    raise
                self._view.wait()
            else:
                self._memory.put(initial, Seen(assigned.topic_ids))
                return initial


@dataclass(frozen=True, slots=True)
class _Looked:
    latest: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID]


def _recreated(before: Mapping[str, UUID], now: Mapping[str, UUID]) -> frozenset[str]:
    return frozenset(topic for topic, topic_id in before.items() if topic in now and now[topic] != topic_id)
