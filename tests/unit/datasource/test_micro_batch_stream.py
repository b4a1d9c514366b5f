"""The stream reader for Spark 4.2, on a fake cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader, cluster

from pyspark_kafka_direct.datasource import micro_batch_stream_base as module
from pyspark_kafka_direct.datasource.micro_batch_stream_base import PlanningState
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.offsets import TopicPartition, partition_offsets_from_json
from pyspark_kafka_direct.planning.micro_batch_planner import MicroBatchOptions, MicroBatchPlanner
from pyspark_kafka_direct.planning.offset_specs import Earliest, Latest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
    from pyspark_kafka_direct.planning.offset_resolution import StartingOffsetSpec

T0 = TopicPartition("t", 0)


class FakeCommitter:
    """Records committed offsets, and whether they were resumed from a checkpoint."""

    def __init__(self) -> None:
        self.committed: list[tuple[int, bool]] = []
        self.waits = 0

    def commit_async(
        self, offsets: Mapping[TopicPartition, int], *, resumed_from: Mapping[TopicPartition, int] | None = None
    ) -> None:
        assert resumed_from in (None, offsets)
        self.committed.append((offsets[T0], resumed_from is not None))

    def wait_for_commit(self) -> None:
        self.waits += 1


def new_stream(
    offset_reader: FakeOffsetReader, start: StartingOffsetSpec, committer: FakeCommitter
) -> KafkaMicroBatchStream:
    option = "latest" if start == Latest() else "earliest"
    source = KafkaSourceProvider({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingoffsets": option})
    stream = cast("KafkaMicroBatchStream", source.streamReader(source.schema()))
    planner = MicroBatchPlanner(MicroBatchOptions(start), offset_reader, FakeClock())
    stream._planning_state = PlanningState(planner, cast("Any", offset_reader), cast("Any", committer))
    return stream


@pytest.mark.parametrize(("start", "first_offset"), [(Earliest(), 0), (Latest(), 10)])
def test_the_start_of_a_new_query_is_not_committed(start: StartingOffsetSpec, first_offset: int) -> None:
    """No batch has reached that offset, and it may be lower than what the group has committed."""
    offset_reader, committer = cluster(10), FakeCommitter()
    stream = new_stream(offset_reader, start, committer)
    first = stream.initialOffset()
    assert first == {"t": {"0": first_offset}}
    end = stream.latestOffset(first, stream.getDefaultReadLimit())
    assert committer.committed == []
    offset_reader.logs[T0] = (0, 14)
    following = stream.latestOffset(end, stream.getDefaultReadLimit())
    assert following["t"] == {"0": 14}
    assert committer.committed == [(10, False)], "the end of the first batch, when the next one is planned"
    assert committer.waits == 2


def test_a_resumed_query_commits_its_start() -> None:
    committer = FakeCommitter()
    stream = new_stream(cluster(10), Earliest(), committer)
    stream.latestOffset({"t": {"0": 4}}, stream.getDefaultReadLimit())
    assert committer.committed == [(4, True)]


def test_an_offset_without_new_records_is_returned_unchanged() -> None:
    """Spark compares offsets as strings: any difference would start a batch."""
    stream = new_stream(cluster(10, 20), Earliest(), FakeCommitter())
    for start in ({"u": {}, "t": {"1": 20, "0": 10}}, {"t": {"0": 10, "1": 20}, "(start)": {}}):
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        assert json.dumps(end) == json.dumps(start)


@pytest.mark.parametrize(("options", "max_attempts"), [({}, 3), ({"fetchOffset.numRetries": "7"}, 7)])
def test_the_option_sets_the_number_of_attempts(
    options: dict[str, str], max_attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[MicroBatchOptions] = []

    def planner(planner_options: MicroBatchOptions, *more: Any, **named: Any) -> MicroBatchPlanner:
        created.append(planner_options)
        return MicroBatchPlanner(planner_options, *more, **named)

    monkeypatch.setattr("pyspark_kafka_direct.planning.micro_batch_planner.MicroBatchPlanner", planner)
    source = KafkaSourceProvider({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **options})
    cast("KafkaMicroBatchStream", source.streamReader(source.schema()))._planner()
    assert [planner_options.max_attempts for planner_options in created] == [max_attempts]


def test_an_offset_that_is_passed_again_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark polls an idle source up to 100 times a second."""
    offset_reader = cluster(10)
    stream = new_stream(offset_reader, Earliest(), FakeCommitter())
    parsed: list[str] = []
    parse = partition_offsets_from_json

    def recording_parse(text: str) -> Any:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(module, "partition_offsets_from_json", recording_parse)
    for start in ({"t": {"0": 4}}, {"t": {"0": 10}}):
        for _ in range(5):
            assert stream.latestOffset(json.loads(json.dumps(start)), stream.getDefaultReadLimit()) == {"t": {"0": 10}}
    assert len(parsed) == 2
