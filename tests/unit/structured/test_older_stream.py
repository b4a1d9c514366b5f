"""The stream reader, asked as Spark 4.0 and 4.1 ask it: the calls are as they were recorded with 4.0.2 and 4.1.4."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.planning.stream_clusters import Clock, Cluster, cluster

from pyspark_kafka_direct.errors import DataLossError, OffsetPlanError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.limits import Limits
from pyspark_kafka_direct.planning.positions import Earliest, Latest, SpecificOffsets
from pyspark_kafka_direct.planning.stream import StreamPlanner, StreamTuning
from pyspark_kafka_direct.settings.source import parse_stream_options
from pyspark_kafka_direct.structured._schema import full_schema, read_schema
from pyspark_kafka_direct.structured.older_stream import OlderStreamReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.planning.stream_start import StreamStart

T0 = TopicPartition("t", 0)


class Commits:
    """Remembers what a group would be told."""

    def __init__(self) -> None:
        self.offered: list[int] = []

    def offer(
        self, offsets: Mapping[TopicPartition, int], *, read_before: Mapping[TopicPartition, int] | None = None
    ) -> None:
        self.offered.append(offsets[T0])

    def settle(self) -> None:
        pass


def at(offset: int) -> dict[str, Any]:
    return {"t": {"0": offset}}


def spark(offsets: dict[str, Any]) -> Any:
    """What Spark tells again of what it was told: it keeps the text."""
    return json.loads(json.dumps(offsets))


class Query:
    """A run of a query, in a planner process of its own."""

    def __init__(self, view: Cluster, start: StreamStart, limit: int | None = None) -> None:
        option = "latest" if start == Latest() else "earliest"
        options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingoffsets": option}
        self.commits = Commits()
        self.reader = OlderStreamReader(parse_stream_options(options), read_schema(full_schema(False)))
        self.clock = Clock()
        tuning = StreamTuning(start, Limits(max_offsets=limit))
        leaders = SimpleNamespace(leaders=lambda partitions: {})
        self.reader._planning = cast("Any", (StreamPlanner(tuning, view, self.clock), leaders, self.commits))

    def latest(self) -> dict[str, Any]:
        self.clock.now += 10
        return cast("dict[str, Any]", spark(self.reader.latestOffset()))

    def initial(self) -> dict[str, Any]:
        return cast("dict[str, Any]", spark(self.reader.initialOffset()))

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
        tasks = cast("Any", self.reader.partitions(spark(start), spark(end)))
        return [(each.task.offsets.from_offset, each.task.offsets.until_offset) for each in tasks]


def test_a_new_query_and_the_batches_after_the_first() -> None:
    view = cluster(10)
    query = Query(view, Earliest())
    assert query.latest() == at(10)
    assert query.initial() == at(0)
    assert query.ranges(at(0), at(10)) == [(0, 10)]
    assert query.latest() == at(10), "nothing new"
    view.logs[T0] = (0, 14)
    assert query.latest() == at(14)
    assert query.ranges(at(10), at(14)) == [(10, 14)]
    assert query.commits.offered == [10, 10], "the end of the batch before, which is finished, and not the start"


def test_limits_count_from_where_the_batch_before_has_ended() -> None:
    query = Query(cluster(10), Earliest(), limit=4)
    ends = [at(0)]
    for _ in range(4):
        ends.append(query.latest())
        if len(ends) == 2:
            query.initial()
        if ends[-1] != ends[-2]:
            query.ranges(ends[-2], ends[-1])
    assert ends == [at(0), at(4), at(8), at(10), at(10)]


def test_a_batch_that_the_sink_leaves_unread_is_over_all_the_same() -> None:
    query = Query(cluster(10), Earliest(), limit=4)
    assert query.latest() == at(4)
    query.initial()
    assert query.latest() == at(8)
    assert query.ranges(at(4), at(8)) == [(4, 8)]


def test_a_start_that_moves_is_kept_by_an_empty_first_batch() -> None:
    view = cluster(10)
    query = Query(view, Latest())
    first = query.latest()
    assert first == {**at(10), "(start)": {}}
    view.logs[T0] = (0, 12)
    assert query.initial() == at(10)
    assert query.ranges(at(10), first) == []
    assert query.latest() == at(12)
    assert query.ranges(first, at(12)) == [(10, 12)]


@pytest.mark.parametrize("logged", [{**at(10), "(start)": {}}, {"u": {}, "t": {"1": 20, "0": 10}}])
def test_an_offset_with_nothing_behind_it_comes_back_to_the_letter(logged: dict[str, Any]) -> None:
    """Spark compares texts: any other one would be a batch, and each look at an idle topic another."""
    query = Query(cluster(10, 20) if "u" in logged else cluster(10), Earliest())
    query.ranges(logged, logged)
    for _ in range(2):
        assert json.dumps(query.latest()) == json.dumps(logged)


def test_a_restart_goes_on_where_the_last_batch_has_ended() -> None:
    query = Query(cluster(10), Earliest(), limit=4)
    assert query.ranges(at(3), at(3)) == []
    assert query.latest() == at(7)
    assert query.ranges(at(3), at(7)) == [(3, 7)]
    assert query.commits.offered == [3]


@pytest.mark.parametrize("first", [True, False])
def test_a_batch_that_was_not_finished_is_read_again_and_the_next_begins_at_its_end(first: bool) -> None:
    view = cluster(10)
    query = Query(view, Earliest())
    start = at(0) if first else at(2)
    assert query.ranges(at(6), at(6)) == []
    if first:
        assert query.initial() == start
    assert query.ranges(start, at(6)) == [(start["t"]["0"], 6)]
    assert query.commits.offered == []
    assert query.latest() == at(10)
    assert query.ranges(at(6), at(10)) == [(6, 10)]


def test_the_empty_first_batch_of_a_run_that_died_stays_empty() -> None:
    logged = {**at(10), "(start)": {}}
    view = cluster(15)
    query = Query(view, Latest())
    assert query.ranges(logged, logged) == []
    assert query.initial() == at(15)
    assert query.ranges(at(15), logged) == []
    assert query.latest() == at(15)
    assert query.ranges(logged, at(15)) == [(10, 15)]


def test_a_start_that_does_not_fit_ends_a_new_query_before_anything_is_logged() -> None:
    start = SpecificOffsets({T0: 4, TopicPartition("t", 7): 0})
    with pytest.raises(OffsetPlanError):
        Query(cluster(10), start).latest()


def test_a_loss_since_the_last_run_is_told() -> None:
    query = Query(cluster(10), Earliest())
    assert query.ranges(at(13), at(13)) == []
    with pytest.raises(DataLossError):
        query.latest()


def test_an_end_that_was_asked_for_before_the_start_was_told_is_never_read_to() -> None:
    """So asks Spark's wrapper for Trigger.AvailableNow after a restart. The end was decided for a new query."""
    query = Query(cluster(10), Earliest(), limit=4)
    assert query.latest() == at(4)
    with pytest.raises(OffsetPlanError, match=r"spark\.sql\.streaming\.triggerAvailableNowWrapper\.enabled"):
        query.ranges(at(8), at(8))
