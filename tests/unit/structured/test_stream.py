"""The stream reader, asked as Spark asks it, over a made-up cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.planning.stream_clusters import Clock, Cluster, cluster

from pyspark_kafka_direct.offsets import TopicPartition, partition_offsets_from_json
from pyspark_kafka_direct.planning.positions import Earliest, Latest
from pyspark_kafka_direct.planning.stream import StreamPlanner, StreamTuning
from pyspark_kafka_direct.structured import _stream_reader as module
from pyspark_kafka_direct.structured.source import KafkaDirectSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.planning.stream_start import StreamStart
    from pyspark_kafka_direct.structured.stream import KafkaStreamReader

T0 = TopicPartition("t", 0)


class Commits:
    """Remembers what a group would be told, and whether that is said to come from a checkpoint."""

    def __init__(self) -> None:
        self.offered: list[tuple[int, bool]] = []
        self.settled = 0

    def offer(
        self, offsets: Mapping[TopicPartition, int], *, read_before: Mapping[TopicPartition, int] | None = None
    ) -> None:
        assert read_before in (None, offsets)
        self.offered.append((offsets[T0], read_before is not None))

    def settle(self) -> None:
        self.settled += 1


def reader(view: Cluster, start: StreamStart, commits: Commits) -> KafkaStreamReader:
    option = "latest" if start == Latest() else "earliest"
    source = KafkaDirectSource({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingoffsets": option})
    made = cast("KafkaStreamReader", source.streamReader(source.schema()))
    made._planning = cast("Any", (StreamPlanner(StreamTuning(start), view, Clock()), view, commits))
    return made


@pytest.mark.parametrize(("start", "begin"), [(Earliest(), 0), (Latest(), 10)])
def test_where_a_new_query_begins_is_not_committed(start: StreamStart, begin: int) -> None:
    """Nothing was read yet: a group would be shown, or moved back to, an offset that no batch has reached."""
    view, commits = cluster(10), Commits()
    stream = reader(view, start, commits)
    first = stream.initialOffset()
    assert first == {"t": {"0": begin}}
    end = stream.latestOffset(first, stream.getDefaultReadLimit())
    assert commits.offered == []
    view.logs[T0] = (0, 14)
    following = stream.latestOffset(end, stream.getDefaultReadLimit())
    assert following["t"] == {"0": 14}
    assert commits.offered == [(10, False)], "the end of the first batch, when the next is asked for"
    assert commits.settled == 2


def test_a_query_that_goes_on_commits_where_it_is() -> None:
    commits = Commits()
    stream = reader(cluster(10), Earliest(), commits)
    stream.latestOffset({"t": {"0": 4}}, stream.getDefaultReadLimit())
    assert commits.offered == [(4, True)]


def test_an_offset_with_nothing_behind_it_comes_back_to_the_letter() -> None:
    """Spark compares texts: any other one would be a batch, and each look at an idle topic another."""
    stream = reader(cluster(10, 20), Earliest(), Commits())
    for begin in ({"u": {}, "t": {"1": 20, "0": 10}}, {"t": {"0": 10, "1": 20}, "(start)": {}}):
        told = stream.latestOffset(begin, stream.getDefaultReadLimit())
        assert json.dumps(told) == json.dumps(begin)


@pytest.mark.parametrize(("given", "tries"), [({}, 3), ({"fetchOffset.numRetries": "7"}, 7)])
def test_the_cluster_is_asked_as_often_as_the_option_says(
    given: dict[str, str], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[StreamTuning] = []

    def planner(tuning: StreamTuning, *more: Any, **named: Any) -> StreamPlanner:
        asked.append(tuning)
        return StreamPlanner(tuning, *more, **named)

    monkeypatch.setattr("pyspark_kafka_direct.planning.stream.StreamPlanner", planner)
    source = KafkaDirectSource({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **given})
    cast("KafkaStreamReader", source.streamReader(source.schema()))._planner()
    assert [tuning.tries for tuning in asked] == [tries]


def test_an_offset_that_is_asked_for_again_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle source is asked up to 100 times a second."""
    view = cluster(10)
    stream = reader(view, Earliest(), Commits())
    read: list[str] = []
    parse = partition_offsets_from_json

    def reading(text: str) -> Any:
        read.append(text)
        return parse(text)

    monkeypatch.setattr(module, "partition_offsets_from_json", reading)
    for begin in ({"t": {"0": 4}}, {"t": {"0": 10}}):
        for _ in range(5):
            assert stream.latestOffset(json.loads(json.dumps(begin)), stream.getDefaultReadLimit()) == {"t": {"0": 10}}
    assert len(read) == 2
