"""The stream reader for Spark 4.0 and 4.1: the sequences of calls were recorded with 4.0.2 and 4.1.4."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader, cluster

from pyspark_kafka_direct.datasource.legacy_micro_batch_stream import LegacyKafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
from pyspark_kafka_direct.datasource.micro_batch_stream_base import PlanningState
from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.offset_specs import Earliest, Latest, SpecificOffsets
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.options.settings import ReadLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.offset_specs import StartingOffsetSpec

T0 = TopicPartition("t", 0)


class FakeCommitter:
    """Records committed offsets."""

    def __init__(self) -> None:
        self.committed: list[int] = []

    def commit_async(
        self, offsets: Mapping[TopicPartition, int], *, resumed_from: Mapping[TopicPartition, int] | None = None
    ) -> None:
        self.committed.append(offsets[T0])

    def wait_for_commit(self) -> None:
        pass


def at(offset: int) -> dict[str, Any]:
    return {"t": {"0": offset}}


def first_end(start: int, end: int) -> dict[str, Any]:
    """The end of the first batch, which records its start."""
    return {**at(end), f'(start){{"t":{{"0":{start}}}}}': {}}


def round_trip(offsets: dict[str, Any]) -> Any:
    """Return offsets as Spark passes them back: it stores them as JSON."""
    return json.loads(json.dumps(offsets))


class Query:
    """A run of a query with its own planner."""

    def __init__(self, offset_reader: FakeOffsetReader, start: StartingOffsetSpec, limit: int | None = None) -> None:
        option = "latest" if start == Latest() else "earliest"
        options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingoffsets": option}
        self.committer = FakeCommitter()
        self.reader = LegacyKafkaMicroBatchStream(parse_stream_options(options), read_schema(kafka_schema(False)))
        self.clock = FakeClock()
        planner_options = read_settings(start, ReadLimits(max_offsets=limit))
        leaders: Any = SimpleNamespace(leaders=lambda partitions: {})
        committer: Any = self.committer
        planner = MicroBatchPlanner(planner_options, offset_reader, self.clock)
        self.reader._planning_state = PlanningState(planner, leaders, committer)

    def latest(self) -> dict[str, Any]:
        self.clock.now += 10
        return cast("dict[str, Any]", round_trip(self.reader.latestOffset()))

    def initial(self) -> dict[str, Any]:
        return cast("dict[str, Any]", round_trip(self.reader.initialOffset()))

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
        tasks = cast("Any", self.reader.partitions(round_trip(start), round_trip(end)))
        return [(each.task.offsets.from_offset, each.task.offsets.until_offset) for each in tasks]


def test_a_new_query_and_the_batches_after_the_first() -> None:
    offset_reader = cluster(10)
    query = Query(offset_reader, Earliest())
    first = query.latest()
    assert first == first_end(0, 10)
    assert query.initial() == at(0)
    assert query.ranges(at(0), first) == [(0, 10)]
    assert query.latest() == first, "no new records"
    offset_reader.logs[T0] = (0, 14)
    assert query.latest() == at(14)
    assert query.ranges(first, at(14)) == [(10, 14)]
    assert query.committer.committed == [10, 10], "the end of the finished batch, and not the first start"


def test_limits_count_from_the_end_of_the_previous_batch() -> None:
    query = Query(cluster(10), Earliest(), limit=4)
    ends = [at(0)]
    for _ in range(4):
        ends.append(query.latest())
        if len(ends) == 2:
            query.initial()
        if ends[-1] != ends[-2]:
            query.ranges(ends[-2], ends[-1])
    assert ends == [at(0), first_end(0, 4), at(8), at(10), at(10)]


def test_a_batch_that_the_sink_does_not_read_counts_as_finished() -> None:
    query = Query(cluster(10), Earliest(), limit=4)
    assert query.latest() == first_end(0, 4)
    query.initial()
    assert query.latest() == at(8)
    assert query.ranges(at(4), at(8)) == [(4, 8)]


def test_an_empty_first_batch_fixes_a_start_that_moves() -> None:
    offset_reader = cluster(10)
    query = Query(offset_reader, Latest())
    first = query.latest()
    assert first == {**at(10), "(start)": {}}
    offset_reader.logs[T0] = (0, 12)
    assert query.initial() == at(10)
    assert query.ranges(at(10), first) == []
    assert query.latest() == at(12)
    assert query.ranges(first, at(12)) == [(10, 12)]


@pytest.mark.parametrize("logged", [{**at(10), "(start)": {}}, {"u": {}, "t": {"1": 20, "0": 10}}])
def test_an_offset_without_new_records_is_returned_unchanged(logged: dict[str, Any]) -> None:
    """Spark compares offsets as strings: any difference would start a batch."""
    query = Query(cluster(10, 20) if "u" in logged else cluster(10), Earliest())
    query.ranges(logged, logged)
    for _ in range(2):
        assert json.dumps(query.latest()) == json.dumps(logged)


def test_a_restart_resumes_at_the_end_of_the_last_batch() -> None:
    query = Query(cluster(10), Earliest(), limit=4)
    assert query.ranges(at(3), at(3)) == []
    assert query.latest() == at(7)
    assert query.ranges(at(3), at(7)) == [(3, 7)]
    assert query.committer.committed == [3]


@pytest.mark.parametrize("first", [True, False])
def test_an_unfinished_batch_is_read_again_and_the_next_starts_at_its_end(first: bool) -> None:
    offset_reader = cluster(10)
    query = Query(offset_reader, Earliest())
    start = at(0) if first else at(2)
    assert query.ranges(at(6), at(6)) == []
    if first:
        assert query.initial() == start
    assert query.ranges(start, at(6)) == [(start["t"]["0"], 6)]
    assert query.committer.committed == []
    assert query.latest() == at(10)
    assert query.ranges(at(6), at(10)) == [(6, 10)]


def test_the_empty_first_batch_of_a_failed_run_stays_empty() -> None:
    logged = {**at(10), "(start)": {}}
    offset_reader = cluster(15)
    query = Query(offset_reader, Latest())
    assert query.ranges(logged, logged) == []
    assert query.initial() == at(15)
    assert query.ranges(at(15), logged) == []
    assert query.latest() == at(15)
    assert query.ranges(logged, at(15)) == [(10, 15)]


def test_an_invalid_start_fails_a_new_query_before_its_first_batch() -> None:
    start = SpecificOffsets({T0: 4, TopicPartition("t", 7): 0})
    with pytest.raises(InvalidOffsetsError):
        Query(cluster(10), start).latest()


def test_data_loss_since_the_last_run_is_an_error() -> None:
    query = Query(cluster(10), Earliest())
    assert query.ranges(at(13), at(13)) == []
    with pytest.raises(DataLossError):
        query.latest()


def test_an_end_requested_before_the_start_is_never_read() -> None:
    """Spark's wrapper for Trigger.AvailableNow calls in this order after a restart. The end is that of a new query."""
    query = Query(cluster(10), Earliest(), limit=4)
    assert query.latest() == first_end(0, 4)
    with pytest.raises(InvalidOffsetsError, match=r"spark\.sql\.streaming\.triggerAvailableNowWrapper\.enabled"):
        query.ranges(at(8), at(8))
