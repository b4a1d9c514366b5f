"""Random histories of a query and its cluster, compared with a model: every remaining record is read exactly once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.options.offset_specs import Earliest, Latest, OffsetSpec
from pyspark_kafka_direct.options.settings import ReadLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.options.settings import ReadSettings

TOPICS = ("t", "u")
DELAY = 30.0

# With the topic's id, so that the records of a recreated topic differ.
Record = tuple[UUID, TopicPartition, int]


@dataclass
class Query:
    """A query as Spark runs it: the end of a batch is logged before it is planned, and the sink replaces a batch.

    Once the first end is logged, every restart has another start option.

    ``unnoticed`` are topics deleted since the planner's last refresh. A restart forgets topic ids, so they are then
    ``excused`` (see docs/structured-streaming.md), as are deletions before a planner's first refresh.
    """

    options: ReadSettings
    reader: FakeOffsetReader = field(default_factory=lambda: FakeOffsetReader({}))
    clock: FakeClock = field(default_factory=FakeClock)
    ends: list[dict[TopicPartition, int]] = field(default_factory=list)
    done: int = 0
    sink: dict[int, list[Record]] = field(default_factory=dict)
    unnoticed: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)
    first_start: dict[TopicPartition, int] = field(default_factory=dict)
    start_offsets: dict[tuple[UUID, TopicPartition], int] = field(default_factory=dict)
    available_now: bool = False
    refreshed: bool = False

    def start(self, available_now: bool) -> None:
        self.excused |= self.unnoticed
        self.unnoticed = set()
        self.available_now, self.refreshed = available_now, False
        other_start = Earliest() if isinstance(self.options.source.start, Latest) else Latest()
        settings = self.options
        if self.ends:
            settings = replace(settings, source=replace(settings.source, start=other_start))
        self.planner = MicroBatchPlanner(settings, self.reader, self.clock)
        if available_now:
            self.planner.fix_end_offsets()

    def log_end(self) -> bool:
        """Decide and log the end of the next batch; whether there is a batch."""
        if len(self.ends) > self.done:
            return True
        start = self._start()
        first = not self.ends
        if first:
            self.first_start = start
            self.start_offsets = {(self.reader.ids[tp.topic], tp): offset for tp, offset in start.items()}
        end = self.planner.next_end_offsets(start)
        self.refreshed = True
        if not self.available_now:
            self.unnoticed -= {
                topic for topic in self.unnoticed if topic in self.reader.ids or topic not in topics_of(end)
            }
        if first or end != start:
            self.ends.append(end)
            return True
        return False

    def run_batch(self) -> None:
        """Plan the logged batch and read it; ``commit`` may follow."""
        start, end = self._start(), self.ends[self.done]
        plan = self.planner.plan(start, end, None if self.done else self.first_start)
        self.sink[self.done] = [
            record for expected in plan.ranges for record in self._read(expected, plan.topic_ids.get(expected.topic))
        ]

    def commit(self) -> None:
        self.done += 1

    def _start(self) -> dict[TopicPartition, int]:
        return dict(self.ends[self.done - 1]) if self.done else self.planner.initial_offsets()

    def _read(self, expected: OffsetRange, topic_id: UUID | None) -> list[Record]:
        tp = expected.topic_partition
        now = self.reader.ids.get(tp.topic)
        if now is None or tp not in self.reader.logs or topic_id not in (None, now):
            return []
        first, end = self.reader.logs[tp]
        offsets = range(max(first, expected.from_offset), min(end, expected.until_offset))
        return [(now, tp, offset) for offset in offsets]


def topics_of(offsets: dict[TopicPartition, int]) -> set[str]:
    return {tp.topic for tp in offsets}


class Cluster:
    """Changes to the topics."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._ids = 0

    def append(self, topic: str, partition: int, count: int) -> None:
        """Add records; create the topic and the partitions up to this one if they are missing."""
        reader = self._query.reader
        if topic not in reader.ids:
            self._ids += 1
            reader.ids[topic] = UUID(int=self._ids)
        for each in range(partition + 1):
            reader.logs.setdefault(TopicPartition(topic, each), (0, 0))
        tp = TopicPartition(topic, partition)
        reader.logs[tp] = (reader.logs[tp][0], reader.logs[tp][1] + count)

    def delete(self, topic: str) -> None:
        reader = self._query.reader
        if topic in reader.ids:
            reader.logs = {tp: log for tp, log in reader.logs.items() if tp.topic != topic}
            del reader.ids[topic]
            (self._query.unnoticed if self._query.refreshed else self._query.excused).add(topic)

    def recreate(self, topic: str, partition: int, count: int) -> None:
        self.delete(topic)
        self.append(topic, partition, count)

    def age(self, topic: str, partition: int, count: int) -> None:
        tp = TopicPartition(topic, partition)
        if tp in self._query.reader.logs:
            first, end = self._query.reader.logs[tp]
            self._query.reader.logs[tp] = (min(first + count, end), end)


def run_step(query: Query, outcome: str) -> None:
    """Run one batch, or let the driver die during it."""
    query.clock.now += 2.0
    try:
        if not query.log_end():
            if query.available_now:
                query.start(available_now=False)
            return
        if outcome == "die before planning":
            query.start(available_now=False)
            return
        query.run_batch()
        if outcome == "die before the commit":
            query.start(available_now=False)
            return
        query.commit()
        if outcome != "live":
            query.start(available_now=outcome == "restart with AvailableNow")
    except DataLossError:
        # Trigger.AvailableNow always fails on data loss.
        assert query.available_now, "failOnDataLoss is false, or nothing is lost"
        query.start(available_now=False)
    except TopicNotFoundError:
        assert not query.ends, "only a new query is rejected"
        query.start(available_now=False)


OUTCOMES = st.sampled_from(
    ["live", "live", "live", "die before planning", "die before the commit", "restart", "restart with AvailableNow"]
)
NUMBERS = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2), st.integers(0, 40))
GROWTH = st.tuples(st.just("append"), NUMBERS)
CHANGES = st.one_of(
    GROWTH, st.tuples(st.sampled_from(["append", "recreate", "age"]), NUMBERS), st.tuples(st.just("delete"), NUMBERS)
)


def histories(changes: st.SearchStrategy[tuple[str, tuple[str, int, int]]]) -> st.SearchStrategy[list[object]]:
    return st.lists(st.one_of(changes, OUTCOMES), max_size=25)


def replay(options: ReadSettings, history: list[object]) -> Query:
    query = Query(options)
    cluster = Cluster(query)
    changes: dict[str, Callable[[str, int, int], None]] = {
        "append": cluster.append,
        "recreate": cluster.recreate,
        "age": cluster.age,
        "delete": lambda topic, _partition, _number: cluster.delete(topic),
    }
    cluster.append("t", 0, 10)
    query.start(available_now=False)
    for step in history:
        if isinstance(step, str):
            run_step(query, step)
        else:
            assert isinstance(step, tuple)
            change, numbers = step
            changes[change](*numbers)
    idle = 0
    for _ in range(300):
        before = query.done
        run_step(query, "live")
        query.clock.now += DELAY
        idle = idle + 1 if query.done == before else 0
        if idle == 3:
            return query
    raise AssertionError("the query does not finish")


def check(query: Query) -> None:
    read = [record for batch in query.sink.values() for record in batch]
    assert len(read) == len(set(read)), "a record was read twice"
    for tp, (first, end) in query.reader.logs.items():
        topic_id = query.reader.ids[tp.topic]
        if tp.topic in query.excused:
            continue
        begin = query.start_offsets.get((topic_id, tp), 0)
        expected = {(topic_id, tp, offset) for offset in range(max(first, begin), end)}
        assert expected <= set(read), f"missing of {tp}: {sorted(record[2] for record in expected - set(read))}"


LIMITS = st.builds(
    ReadLimits,
    max_offsets=st.none() | st.integers(1, 30),
    min_offsets=st.none() | st.integers(1, 60),
    max_delay=st.just(DELAY),
)
STARTS: st.SearchStrategy[OffsetSpec] = st.sampled_from([Earliest(), Latest()])


@given(LIMITS, STARTS, histories(GROWTH))
def test_each_record_of_growing_topics_is_read_once(
    limits: ReadLimits, start: OffsetSpec, history: list[object]
) -> None:
    query = replay(read_settings(start, limits), history)
    assert query.excused == set()
    assert query.reader.warnings == []
    check(query)


@given(LIMITS, STARTS, histories(CHANGES))
@example(ReadLimits(), Earliest(), ["live", ("recreate", ("t", 0, 40)), "die before planning"])
@example(ReadLimits(), Earliest(), ["live", ("recreate", ("t", 0, 5)), "die before the commit"])
def test_each_remaining_record_of_changing_topics_is_read_once(
    limits: ReadLimits, start: OffsetSpec, history: list[object]
) -> None:
    check(replay(read_settings(start, limits, fail_on_data_loss=False), history))
