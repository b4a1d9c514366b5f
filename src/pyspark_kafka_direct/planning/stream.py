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

A first batch is planned again from a start that is looked up anew, on topics that may have changed since. So a start
that does not fit them is refused when a first end is asked for, and not when a batch is planned whose end is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OffsetPlanError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import EARLIEST, OffsetRange
from pyspark_kafka_direct.planning.limits import Limits, passed_log_starts
from pyspark_kafka_direct.planning.ranges import split_ranges
from pyspark_kafka_direct.planning.stream_frozen import check_against_frozen, check_against_latest, check_not_recreated
from pyspark_kafka_direct.planning.stream_limits import BatchLimits
from pyspark_kafka_direct.planning.stream_look import Looked, Looks, recreated
from pyspark_kafka_direct.planning.stream_loss import LossReport
from pyspark_kafka_direct.planning.stream_start import first_offsets, found_again, moves, offsets_that_fit
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
"""The same for looks that take long, as at a pattern among thousands of topics."""

_PAUSE_PER_LOOK = 20
"""The pause after a look is at least this times the look: an idle planner takes a twentieth of a core at most."""

_ONCE = (
    "a query whose start moves (startingOffsets=latest or committed, or a timestamp) cannot begin as a single batch: "
    "that would be the empty one that makes the start durable. Spark runs a single batch for Trigger.Once, and for "
    "Trigger.AvailableNow where another source of the query does not know that trigger. Start from earliest or from "
    "offsets; or use Trigger.AvailableNow where all sources know it; or let the query's first run have another "
    "trigger, after that it goes on with this one"
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
    """The plan of a micro-batch.

    Attributes:
        ranges: The offset ranges to read, one per task, none empty, in the order topic, partition, offset.
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
        clock: Callable[[], float],
        *,
        measured_limit: Callable[[Mapping[TopicPartition, int]], int | None] | None = None,
    ) -> None:
        self._tuning = tuning
        self._view = view
        self._clock = clock
        self._losses = LossReport(tuning.fail_on_data_loss, view)
        self._limits = BatchLimits(tuning.limits, view, clock, measured_limit)
        self._memory = Memory()
        self._looks = Looks(view, self._memory, tries=tuning.tries, read_committed=tuning.read_committed)
        self._initial: dict[TopicPartition, int] | None = None
        self._misfit: OffsetPlanError | TopicNotFoundError | None = None  # why a new query can't begin
        self._started = False  # an end was asked for
        self._replayed = False  # a batch was planned before that: its end is in the checkpoint already
        self._idle: tuple[dict[TopicPartition, int], float] | None = None

    @property
    def known_latest(self) -> Mapping[TopicPartition, int] | None:
        """The ends found by the last look, for the progress report; ``None`` before the first."""
        return self._looks.known_latest

    @property
    def resumed(self) -> bool:
        """Whether this is a query that had finished a batch before: nobody asked where it begins."""
        return self._initial is None

    def initial(self) -> dict[TopicPartition, int]:
        """Return where a new query begins, as far as that can be told; it is looked up once."""
        if self._initial is None:
            self._initial = self._look_up_initial()
        return dict(self._initial)

    def at_first_start(self, start: Mapping[TopicPartition, int]) -> bool:
        """Tell whether nothing was planned yet and ``start`` is not the end of a finished batch."""
        return not self._started and not self._replayed and start == self._initial

    def freeze(self) -> None:
        """Read from now on only what there is at this moment (Trigger.AvailableNow)."""
        self._looks.freeze()

    def next_end(self, start: Mapping[TopicPartition, int], *, unlimited: bool = False) -> dict[TopicPartition, int]:
        """Return the end of the batch that begins at ``start``; equal to ``start`` when there is nothing to read yet.

        Args:
            start: The end of the batch before, or the initial offset.
            unlimited: Ignore the limits (Trigger.Once).

        Raises:
            DataLossError: Records are lost, and ``failOnDataLoss`` is true.
            OffsetPlanError: A new query's starting position does not fit the assigned partitions.
            TopicNotFoundError: A named topic or partition of a new query does not exist.
            OptionError: Trigger.Once with a start that moves.
        """
        start = dict(start)
        if self.at_first_start(start) and self._misfit is not None:
            raise self._misfit
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
        pause = min(max(IDLE_PAUSE, _PAUSE_PER_LOOK * (now - began)), LONGEST_IDLE_PAUSE)
        self._idle = (start, now + pause) if end == start else None
        return end

    def plan(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], *, empty: bool = False
    ) -> StreamPlan:
        """Return the ranges of a batch; called again with the same offsets, it gives the same ranges.

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
        if self._looks.frozen is not None:
            check_against_frozen(end, self._looks.frozen)
            looked = self._looks.now(end)
            check_against_latest(end, looked.latest)
            check_not_recreated(recreated(seen.topic_ids, looked.topic_ids))
        begins = {
            tp: max(offset, seen.log_starts.get(tp, offset))
            for tp, offset in start.items()
            if tp.topic not in seen.recreated
        }
        self._losses.gone(start.keys() - end.keys())
        unread = {tp: offset for tp, offset in end.items() if tp not in begins}
        begins.update(self._begin_added(unread, unread.keys() - start.keys()))
        return StreamPlan(self._ranges(begins, end), seen.topic_ids)

    def _is_idle(self, start: Mapping[TopicPartition, int]) -> bool:
        return self._idle is not None and self._idle[0] == start and self._clock() < self._idle[1]

    def _replan(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> StreamPlan:
        """Plan a batch whose end an earlier run decided."""
        topic_ids = self._view.assigned(strict=False).topic_ids
        first = self._initial is not None and start == self._initial and not self._started
        if first:
            # In a first batch the start was looked up again. So it may lie after the end, and may have partitions that
            # the logged end lacks. A partition that it lacks was not added: the look may have missed it.
            begins = {tp: min(offset, end[tp]) for tp, offset in start.items() if tp in end}
        else:
            self._losses.gone(start.keys() - end.keys())
            begins = dict(start)
        added = {tp: offset for tp, offset in end.items() if tp not in begins}
        begins.update(self._begin_added(added, () if first else added.keys()))
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
        earliest = self._looks.log_starts(ends)
        self._losses.start_not_found(ends.keys() - earliest.keys())
        self._losses.added_late({tp: offset for tp, offset in earliest.items() if tp in added})
        return {tp: min(offset, ends[tp]) for tp, offset in earliest.items()}

    def _decide_end(self, start: dict[TopicPartition, int], unlimited: bool) -> dict[TopicPartition, int]:
        looked = self._looks.available(start)
        before = self._memory.get(start)
        if before is None:
            before = Seen(looked.topic_ids)
            self._memory.put(start, before)
        anew = recreated(before.topic_ids, looked.topic_ids)
        lost = self._report_losses(start, looked, before.topic_ids, anew)
        latest = dict(looked.latest)
        fresh = {tp: end for tp, end in latest.items() if tp not in start or tp.topic in anew}
        begun = self._begin_added(fresh, fresh.keys() - start.keys())
        for tp in fresh.keys() - begun.keys():
            del latest[tp]
        begins = {tp: start[tp] for tp in latest if tp not in fresh} | begun
        for tp in begun.keys() & start.keys():
            if begun[tp] != start[tp]:
                # Of a recreated topic this batch reads nothing. It only tells the checkpoint where the topic begins.
                # Another process that plans the batch again does not know the old id: it would begin at the old offset.
                latest[tp] = begun[tp]
        expired = {} if unlimited else self._expired(begins, latest)
        lost_from = {tp: begins[tp] for tp in expired}
        begins |= expired
        if unlimited:
            end = latest
        # With frozen ends nothing new comes, so a minimum would hold the last records back for ever. And what was lost
        # must be in the checkpoint at once: the old offsets would take the records of the new log for read ones.
        elif self._looks.frozen is None and self._limits.holds_back(start, begins, latest, at_once=lost):
            end = dict(start)
        else:
            end = self._limits.cut(start, begins, latest)
        if not end:
            return start  # an empty end would forget where the others were (SPARK-41375)
        if end == start:
            self._memory.put(start, Seen(dict(looked.topic_ids), before.made, before.recreated))
        else:
            for tp, log_start in sorted(expired.items()):
                self._losses.aged_out(tp, lost_from[tp], log_start)
            self._memory.put(end, Seen(looked.topic_ids, made=True, recreated=anew, log_starts=expired))
        return end

    def _expired(
        self, begins: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Log starts that a limited batch passes over; where a loss ends the query, the task that finds it does so."""
        if self._tuning.fail_on_data_loss or not self._limits.any:
            return {}
        return passed_log_starts(begins, latest, lambda waiting: self._view.offsets(dict.fromkeys(waiting, EARLIEST)))

    def _report_losses(
        self,
        start: Mapping[TopicPartition, int],
        looked: Looked,
        ids_before: Mapping[str, UUID],
        anew: frozenset[str],
    ) -> bool:
        """Report what is lost of ``start``; return whether anything is."""
        for topic in sorted(anew):
            lost = [tp for tp in start if tp.topic == topic]
            self._losses.recreated(lost, ids_before[topic], looked.topic_ids[topic])
        gone = [tp for tp in start if tp not in looked.latest and tp.topic not in anew]
        self._losses.gone(gone)
        cut = [tp for tp, end in sorted(looked.latest.items()) if end < start.get(tp, 0) and tp.topic not in anew]
        for tp in cut:
            self._losses.went_back(tp, start[tp], looked.latest[tp])
        return bool(anew or gone or cut)

    def _look_up_initial(self) -> dict[TopicPartition, int]:
        try:
            initial, topic_ids = self._strict_initial()
        except (OffsetPlanError, TopicNotFoundError) as misfit:
            # A new query is refused. But this may be one that died in its first batch, whose end is in the checkpoint
            # and decides. What Spark asks next tells which it is: next_end or plan.
            self._misfit = misfit
            assigned = self._view.assigned(strict=False)
            topic_ids = assigned.topic_ids
            initial = offsets_that_fit(self._tuning.start, assigned.partitions, self._view)
        self._memory.put(initial, Seen(topic_ids))
        return initial

    def _strict_initial(self) -> tuple[dict[TopicPartition, int], Mapping[str, UUID]]:
        tries = self._tuning.tries
        while True:
            try:
                assigned = self._view.assigned(strict=True)
                self._looks.freeze_too(assigned)
                frozen = self._looks.frozen
                partitions = assigned.partitions if frozen is None else frozenset(frozen)
                return first_offsets(self._tuning.start, partitions, self._view, frozen), assigned.topic_ids
            except TopicNotFoundError:
                # A topic that was created a moment ago may not be known to every broker yet.
                tries -= 1
                if tries <= 0:
                    raise
                self._view.wait()
