"""Random histories of a query and its cluster, against a model: what is still there is read, and once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.planning.stream_clusters import Clock, Cluster

from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.limits import Limits
from pyspark_kafka_direct.planning.positions import Earliest, Latest, Position
from pyspark_kafka_direct.planning.stream import StreamPlanner, StreamTuning

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS = ("t", "u")
DELAY = 30.0

Record = tuple[UUID, TopicPartition, int]
"""The topic's id, so that the records of a topic's two lives differ."""


@dataclass
class Query:
    """A query as Spark runs it: the end of a batch is kept before it is planned, and the sink replaces a batch.

    ``unnoticed`` are topics that were deleted and that the planner has not looked at since. A restart forgets the ids,
    so they are ``excused``, as docs/structured-streaming.md says; and so is what goes before a planner's first look.
    """

    tuning: StreamTuning
    view: Cluster = field(default_factory=lambda: Cluster({}))
    clock: Clock = field(default_factory=Clock)
    ends: list[dict[TopicPartition, int]] = field(default_factory=list)
    done: int = 0
    sink: dict[int, list[Record]] = field(default_factory=dict)
    unnoticed: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)
    begun: dict[tuple[UUID, TopicPartition], int] = field(default_factory=dict)
    frozen: bool = False
    looked: bool = False

    def start(self, frozen: bool) -> None:
        self.excused |= self.unnoticed
        self.unnoticed = set()
        self.frozen, self.looked = frozen, False
        self.planner = StreamPlanner(self.tuning, self.view, self.clock)
        if frozen:
            self.planner.freeze()

    def log_end(self) -> bool:
        """Whether there is a batch to run now."""
        if len(self.ends) > self.done:
            return True
        start = self._start()
        first = not self.ends
        if first:
            self.begun = {(self.view.ids[tp.topic], tp): offset for tp, offset in start.items()}
        end = self.planner.next_end(start)
        self.looked = True
        if not self.frozen:
            self.unnoticed -= {topic for topic in self.unnoticed if topic in self.view.ids or topic not in names(end)}
        if first or end != start:
            self.ends.append(end)
            return True
        return False

    def run_batch(self) -> None:
        """Plans the logged batch and reads it; to be followed by ``commit``, or not."""
        start, end = self._start(), self.ends[self.done]
        moves = isinstance(self.tuning.start, Latest)
        plan = self.planner.plan(start, end, empty=self.done == 0 and moves)
        self.sink[self.done] = [
            record for wanted in plan.ranges for record in self._read(wanted, plan.topic_ids.get(wanted.topic))
        ]

    def commit(self) -> None:
        self.done += 1

    def _start(self) -> dict[TopicPartition, int]:
        return dict(self.ends[self.done - 1]) if self.done else self.planner.initial()

    def _read(self, wanted: OffsetRange, topic_id: UUID | None) -> list[Record]:
        tp = wanted.topic_partition
        now = self.view.ids.get(tp.topic)
        if now is None or tp not in self.view.logs or topic_id not in (None, now):
            return []
        first, end = self.view.logs[tp]
        offsets = range(max(first, wanted.from_offset), min(end, wanted.until_offset))
        return [(now, tp, offset) for offset in offsets]


def names(offsets: dict[TopicPartition, int]) -> set[str]:
    return {tp.topic for tp in offsets}


class World:
    """What happens to the topics."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._ids = 0

    def append(self, topic: str, partition: int, number: int) -> None:
        """Records; the topic or the partitions up to this one are made, if they are not there."""
        view = self._query.view
        if topic not in view.ids:
            self._ids += 1
            view.ids[topic] = UUID(int=self._ids)
        for each in range(partition + 1):
            view.logs.setdefault(TopicPartition(topic, each), (0, 0))
        tp = TopicPartition(topic, partition)
        view.logs[tp] = (view.logs[tp][0], view.logs[tp][1] + number)

    def delete(self, topic: str) -> None:
        view = self._query.view
        if topic in view.ids:
            view.logs = {tp: log for tp, log in view.logs.items() if tp.topic != topic}
            del view.ids[topic]
            (self._query.unnoticed if self._query.looked else self._query.excused).add(topic)

    def recreate(self, topic: str, partition: int, number: int) -> None:
        self.delete(topic)
        self.append(topic, partition, number)

    def age(self, topic: str, partition: int, number: int) -> None:
        tp = TopicPartition(topic, partition)
        if tp in self._query.view.logs:
            first, end = self._query.view.logs[tp]
            self._query.view.logs[tp] = (min(first + number, end), end)


def go_on(query: Query, how: str) -> None:
    """One batch, or a death of the driver somewhere within it."""
    query.clock.now += 2.0
    try:
        if not query.log_end():
            if query.frozen:
                query.start(frozen=False)
            return
        if how == "die before planning":
            query.start(frozen=False)
            return
        query.run_batch()
        if how == "die before the commit":
            query.start(frozen=False)
            return
        query.commit()
        if how != "live":
            query.start(frozen=how == "restart with AvailableNow")
    except DataLossError:
        # Trigger.AvailableNow always ends when something vanishes.
        assert query.frozen, "failOnDataLoss=false, or nothing is lost"
        query.start(frozen=False)
    except TopicNotFoundError:
        assert not query.ends, "it is refused to a new query only"
        query.start(frozen=False)


HOW = st.sampled_from(
    ["live", "live", "live", "die before planning", "die before the commit", "restart", "restart with AvailableNow"]
)
NUMBERS = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2), st.integers(0, 40))
GROWTH = st.tuples(st.just("append"), NUMBERS)
CHANGES = st.one_of(
    GROWTH, st.tuples(st.sampled_from(["append", "recreate", "age"]), NUMBERS), st.tuples(st.just("delete"), NUMBERS)
)


def histories(changes: st.SearchStrategy[tuple[str, tuple[str, int, int]]]) -> st.SearchStrategy[list[object]]:
    return st.lists(st.one_of(changes, HOW), max_size=25)


def live_through(tuning: StreamTuning, history: list[object]) -> Query:
    query = Query(tuning)
    world = World(query)
    changes: dict[str, Callable[[str, int, int], None]] = {
        "append": world.append,
        "recreate": world.recreate,
        "age": world.age,
        "delete": lambda topic, _partition, _number: world.delete(topic),
    }
    world.append("t", 0, 10)
    query.start(frozen=False)
    for step in history:
        if isinstance(step, str):
            go_on(query, step)
        else:
            assert isinstance(step, tuple)
            what, numbers = step
            changes[what](*numbers)
    idle = 0
    for _ in range(300):
        before = query.done
        go_on(query, "live")
        query.clock.now += DELAY
        idle = idle + 1 if query.done == before else 0
        if idle == 3:
            return query
    raise AssertionError("the query does not come to an end")


def check(query: Query) -> None:
    read = [record for batch in query.sink.values() for record in batch]
    assert len(read) == len(set(read)), "twice"
    for tp, (first, end) in query.view.logs.items():
        topic_id = query.view.ids[tp.topic]
        if tp.topic in query.excused:
            continue
        begin = query.begun.get((topic_id, tp), 0)
        wanted = {(topic_id, tp, offset) for offset in range(max(first, begin), end)}
        assert wanted <= set(read), f"missing of {tp}: {sorted(record[2] for record in wanted - set(read))}"


LIMITS = st.builds(
    Limits,
    max_offsets=st.none() | st.integers(1, 30),
    min_offsets=st.none() | st.integers(1, 60),
    max_delay=st.just(DELAY),
)
STARTS: st.SearchStrategy[Position] = st.sampled_from([Earliest(), Latest()])


@given(LIMITS, STARTS, histories(GROWTH))
def test_of_topics_that_only_grow_each_record_is_read_once(
    limits: Limits, start: Position, history: list[object]
) -> None:
    query = live_through(StreamTuning(start, limits), history)
    assert query.excused == set()
    assert query.view.warnings == []
    check(query)


@given(LIMITS, STARTS, histories(CHANGES))
@example(Limits(), Earliest(), ["live", ("recreate", ("t", 0, 40)), "die before planning"])
@example(Limits(), Earliest(), ["live", ("recreate", ("t", 0, 5)), "die before the commit"])
def test_of_topics_that_come_and_go_what_is_there_is_read_once(
    limits: Limits, start: Position, history: list[object]
) -> None:
    check(live_through(StreamTuning(start, limits, fail_on_data_loss=False), history))
