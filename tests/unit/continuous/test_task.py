"""The loop of a task, with a tail, a driver and a sink that are made up."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pyarrow as pa
import pytest

from pyspark_kafka_direct.continuous._control import Mark, Report
from pyspark_kafka_direct.continuous._task import TaskLoop
from pyspark_kafka_direct.errors import DataLossError, OptionError, RunFailedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.reading.tail import Polled
from pyspark_kafka_direct.wire.system import RealSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.continuous._losses import Losses
    from pyspark_kafka_direct.continuous._task_channel import TaskChannel
    from pyspark_kafka_direct.wire.deadline import Deadline

ONE, TWO, THREE = (TopicPartition("t", number) for number in range(3))
STOP = Mark(9, stop=True)


def polled(partition: TopicPartition, *offsets: int) -> Polled:
    values = [b"%d" % offset for offset in offsets]
    return Polled(partition, pa.record_batch({"value": pa.array(values), "offset": pa.array(offsets, pa.int64())}))


class World(RealSystem):
    """A clock that only moves when it is told, and all that a loop talks to.

    Attributes:
        polls: What each call of ``poll`` does: returns rows, raises, or moves positions as well.
        marks: What each look at the channel finds.
        told: What sink, losses and driver were told, in order.
    """

    def __init__(self, *polls: Any, marks: Mapping[int, Mark] | None = None) -> None:
        self.now = 100.0
        self.polls = deque(polls)
        self.marks = dict(marks or {})
        self.looks = 0
        self.told: list[Any] = []
        self.waited_for: Collection[int] = ()
        self.positions: dict[TopicPartition, int] = dict.fromkeys((ONE, TWO, THREE), 0)
        self.sought: dict[TopicPartition, int] = {}
        self.told_anew: list[Mapping[TopicPartition, UUID] | None] = []
        self.anew: dict[TopicPartition, UUID] = {}

    def monotonic(self) -> float:
        return self.now

    # The tail.
    def poll(self, seconds: float, wake: Collection[int] = ()) -> list[Polled]:
        self.waited_for = wake
        if not self.polls:
            self.now += seconds
            return []
        found = self.polls.popleft()
        if callable(found):
            found = found()
        for partition, rows in found:
            self.positions[partition] = rows.column("offset")[-1].as_py() + 1
        return cast("list[Polled]", found)

    # The channel.
    def fileno(self) -> int:
        return 7

    def receive(self) -> list[Mark]:
        self.looks += 1
        mark = self.marks.pop(self.looks, None)
        if mark is None and not self.polls and not self.marks:
            mark = STOP
        return [] if mark is None else [mark]

    def report(self, report: Report, deadline: Deadline) -> None:
        assert deadline.system is self
        self.told.append(report)

    # The sink.
    def write(self, batch: pa.RecordBatch) -> None:
        self.told.append(batch)

    def end_epoch(
        self, epoch: int, positions: Mapping[TopicPartition, int], anew: Mapping[TopicPartition, UUID] | None = None
    ) -> None:
        self.now += 0.25
        self.told.append((epoch, positions))
        self.told_anew.append(anew)

    def descriptors(self) -> Collection[int]:
        return (8, 9)

    def turn(self) -> None:
        self.told.append("turn")

    def close(self) -> None:
        raise AssertionError("who has made it closes it")

    # The losses.
    def after(self, error: Exception) -> None:
        self.told.append(error)
        self.positions.update(self.sought)

    def take_sought(self) -> dict[TopicPartition, int]:
        sought, self.sought = self.sought, {}
        return sought

    def take_anew(self) -> dict[TopicPartition, UUID]:
        anew, self.anew = self.anew, {}
        return anew

    def work(
        self,
        function: Callable[[pa.RecordBatch], Any] | None = None,
        columns: Collection[str] = ("value",),
        mark_timeout: float = 60.0,
    ) -> None:
        channel, losses = cast("TaskChannel", self), cast("Losses", self)
        TaskLoop(self, channel, self, function, tuple(columns), losses, mark_timeout, self).run()

    @property
    def reports(self) -> list[Report]:
        return [each for each in self.told if isinstance(each, Report)]

    @property
    def written(self) -> list[Any]:
        return [each.to_pydict() for each in self.told if isinstance(each, pa.RecordBatch)]


def after(world: World, seconds: float) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        world.now += seconds
        return batch

    return slow


def test_it_waits_for_records_the_driver_and_the_sink() -> None:
    world = World()
    world.work()
    assert set(world.waited_for) == {7, 8, 9}


@pytest.mark.parametrize("columns", [("value",), ("value", "offset"), ("offset", "value")])
def test_rows_have_the_wanted_columns(columns: tuple[str, ...]) -> None:
    world = World([polled(ONE, 3, 4)])
    world.work(columns=columns)
    (written,) = world.written
    assert written == {"value": [b"3", b"4"], "offset": [3, 4]} if "offset" in columns else {"value": [b"3", b"4"]}


def test_an_epoch_is_flushed_and_then_reported() -> None:
    world = World([polled(ONE, 0, 1), polled(TWO, 5)], [polled(ONE, 2)], marks={1: Mark(4, stop=False)})
    world.work(function=lambda batch: None if batch.num_rows == 1 else batch)
    first = {ONE: 2, TWO: 6, THREE: 0}
    sizes = [polled(ONE, 0, 1).rows.get_total_buffer_size(), polled(ONE, 2).rows.get_total_buffer_size()]
    assert world.told[1:4] == [
        "turn",
        (4, first),
        Report(4, first, 2, sizes[0] + sizes[1], pytest.approx(250.0), 3, {}),  # type: ignore[arg-type]
    ]
    assert world.reports[1] == Report(9, {ONE: 3, TWO: 6, THREE: 0}, 0, sizes[1], pytest.approx(250.0), 1, {})  # type: ignore[arg-type]
    assert world.polls == deque()


def test_a_mark_between_the_batches_of_a_poll() -> None:
    """It tells what is written so far, not what the poll has handed out."""
    batches = [polled(ONE, 0, 1), polled(TWO, 0), polled(ONE, 2), polled(THREE, 0)]
    world = World(batches, marks={2: Mark(4, stop=False), 4: STOP})
    world.work(function=after(world, 0.01))
    assert [dict(each.offsets) for each in world.reports] == [{ONE: 2, TWO: 1, THREE: 0}, {ONE: 3, TWO: 1, THREE: 1}]
    assert [each.rows for each in world.reports] == [3, 2]


def test_a_quick_function_is_not_held_up_by_looks() -> None:
    world = World([polled(ONE, number) for number in range(100)])
    world.work()
    assert world.looks == 1
    assert world.told.count("turn") == 1


def test_a_sink_gets_its_turn_while_the_function_is_slow() -> None:
    world = World([polled(ONE, number) for number in range(10)], marks={11: STOP})
    world.work(function=after(world, 0.002))
    assert world.told.count("turn") >= 10


def test_a_mark_that_stops_leaves_the_rest_unread() -> None:
    world = World([polled(ONE, 0), polled(ONE, 1), polled(ONE, 2)], marks={1: STOP})
    world.work(function=after(world, 0.01))
    (report,) = world.reports
    assert report.offsets == {ONE: 1, TWO: 0, THREE: 0}
    assert world.written == [{"value": [b"0"]}]


def test_positions_move_without_rows() -> None:
    world = World()

    def control_records() -> list[Polled]:
        world.positions[TWO] = 17
        return []

    world.polls.append(control_records)
    world.work()
    assert world.reports[-1].offsets == {ONE: 0, TWO: 17, THREE: 0}


def test_positions_never_go_back_behind_what_was_passed_over() -> None:
    world = World(marks={1: Mark(4, stop=False), 3: Mark(5, stop=False)})

    def control_records() -> list[Polled]:
        world.positions[TWO] = 17
        return []

    world.polls.extend([control_records, [polled(ONE, 0), polled(ONE, 1), polled(TWO, 20)]])
    world.work(function=after(world, 0.01))
    assert [each.offsets[TWO] for each in world.reports] == [17, 17, 21]


def test_a_loss_moves_positions_and_is_reported() -> None:
    world = World([polled(ONE, 0, 1, 2)], marks={1: Mark(4, stop=False)})

    def lost() -> list[Polled]:
        raise error

    error = DataLossError("gone")
    world.polls.extend([lost, [polled(ONE, 0), polled(TWO, 0)]])
    world.sought = {ONE: 0}
    world.take_sought = lambda: {ONE: 0} if error in world.told else {}  # type: ignore[method-assign]
    world.take_anew = lambda: {ONE: UUID(int=7)} if error in world.told else {}  # type: ignore[method-assign]
    world.work()
    assert error in world.told
    assert [dict(each.offsets) for each in world.reports] == [{ONE: 3, TWO: 0, THREE: 0}, {ONE: 1, TWO: 1, THREE: 0}]
    assert [each.sought for each in world.reports] == [{}, {ONE: 0}]
    assert [each.anew for each in world.reports] == [{}, {ONE: UUID(int=7)}]
    assert world.told_anew == [{}, {ONE: UUID(int=7)}], "the sink is told, too"


def test_after_a_loss_a_mark_among_the_next_batches_tells_the_new_position() -> None:
    world = World([polled(ONE, 50)], marks={3: Mark(4, stop=False)})

    def lost() -> list[Polled]:
        raise DataLossError("gone")

    world.polls.extend([lost, [polled(TWO, 0), polled(ONE, 3)]])
    world.sought = {ONE: 3}
    world.work(function=after(world, 0.01))
    assert world.reports[0].offsets == {ONE: 3, TWO: 1, THREE: 0}


def test_no_mark_for_too_long() -> None:
    world = World(marks={10_000: STOP})
    with pytest.raises(RunFailedError, match="For 5 s the query's driver has marked no epoch"):
        world.work(mark_timeout=5)
    assert world.now == pytest.approx(105.1, abs=0.15)


def test_a_mark_that_waited_for_a_slow_function_was_heard() -> None:
    world = World([polled(ONE, 0)], marks={1: Mark(4, stop=False), 2: STOP})
    world.work(function=after(world, 600), mark_timeout=5)
    assert [each.epoch for each in world.reports] == [4, 9]


@pytest.mark.parametrize("made", [3, "rows", [], pa.table({"value": ["x"]})], ids=["number", "text", "list", "table"])
def test_what_is_no_batch_is_refused(made: object) -> None:
    world = World([polled(ONE, 0)])
    with pytest.raises(OptionError, match=r"The query's function returned a .*: it must return a pyarrow.RecordBatch"):
        world.work(function=lambda _: made)
    assert world.written == []


def test_no_rows_are_not_written() -> None:
    world = World([polled(ONE, 0)])
    world.work(function=lambda batch: batch.slice(1))
    assert world.written == []
    assert (world.reports[0].rows, world.reports[0].rows_read, world.reports[0].offsets[ONE]) == (0, 1, 1)


def test_what_the_function_raises_ends_it() -> None:
    world = World([polled(ONE, 0)])
    with pytest.raises(ZeroDivisionError):
        world.work(function=lambda batch: batch.slice(1 // 0))
    assert world.reports == []
