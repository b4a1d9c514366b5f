"""The stream reader for Spark 4.2, on a fake cluster."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader, cluster

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.datasource import micro_batch_stream_base as module
from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
from pyspark_kafka_direct.datasource.micro_batch_stream_base import PlanningState
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.datasource.stream_listener_files import open_query_committer
from pyspark_kafka_direct.offsets import TopicPartition, partition_offsets_from_json
from pyspark_kafka_direct.options.offset_specs import Earliest, Latest
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.spark.commit_offer import AcceptedCommitOffer, CommitOffer, commit_group
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME
from pyspark_kafka_direct.spark.offset_committer import RunOffsetCommitter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
    from pyspark_kafka_direct.options.offset_specs import StartingOffsetSpec
    from pyspark_kafka_direct.options.settings import ReadSettings

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
    planner = MicroBatchPlanner(read_settings(start), offset_reader, FakeClock())
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


def test_the_progress_has_the_end_offsets_that_planning_has_fetched() -> None:
    offset_reader = cluster(10)
    stream = new_stream(offset_reader, Earliest(), FakeCommitter())
    assert stream.reportLatestOffset() is None
    stream.latestOffset({"t": {"0": 0}}, stream.getDefaultReadLimit())
    assert stream.reportLatestOffset() == {"t": {"0": 10}}


def test_a_trigger_without_a_limit_reads_everything() -> None:
    """Spark passes the default limit, except for ``Trigger.Once``."""
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "maxOffsetsPerTrigger": "4"}
    source = KafkaSourceProvider(options)
    stream = cast("KafkaMicroBatchStream", source.streamReader(source.schema()))
    for limit, end in ((stream.getDefaultReadLimit(), 4), (ReadAllAvailable(), 10)):
        offset_reader = cluster(10)
        limits = parse_stream_options(options).source.limits
        planner = MicroBatchPlanner(read_settings(Earliest(), limits), offset_reader, FakeClock())
        stream._planning_state = PlanningState(planner, cast("Any", offset_reader), cast("Any", FakeCommitter()))
        assert stream.latestOffset(stream.initialOffset(), limit)["t"] == {"0": end}


@pytest.mark.parametrize(("options", "max_attempts"), [({}, 3), ({"fetchOffset.numRetries": "7"}, 7)])
def test_the_option_sets_the_number_of_attempts(
    options: dict[str, str], max_attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[ReadSettings] = []

    def planner(planner_options: ReadSettings, *more: Any, **named: Any) -> MicroBatchPlanner:
        created.append(planner_options)
        return MicroBatchPlanner(planner_options, *more, **named)

    monkeypatch.setattr("pyspark_kafka_direct.datasource.micro_batch_planner.MicroBatchPlanner", planner)
    source = KafkaSourceProvider({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **options})
    cast("KafkaMicroBatchStream", source.streamReader(source.schema()))._planner()
    assert [planner_options.source.confirmations for planner_options in created] == [max_attempts]


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


def test_the_listener_commits_if_it_offers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = parse_stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitGroupId": "g"})
    client: Any = SimpleNamespace(pool=SimpleNamespace(system=SYSTEM))

    def committer() -> object:
        return open_query_committer(options, client)

    def no_spark() -> str:
        raise RuntimeError("no files")

    caplog.set_level(logging.INFO, "pyspark_kafka_direct.datasource")
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", no_spark)
    assert isinstance(committer(), RunOffsetCommitter)
    assert "the planner commits: RuntimeError('no files')" in caplog.text
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    assert isinstance(committer(), RunOffsetCommitter), "enable(spark) was not called"
    folder = tmp_path / SHARED_FOLDER_NAME
    folder.mkdir()
    assert isinstance(committer(), RunOffsetCommitter), "the listener does not commit"
    group = commit_group(options)
    assert group is not None
    offer = CommitOffer(folder, group, "run")
    assert isinstance(committer(), AcceptedCommitOffer)
    assert offer.is_accepted()
    assert open_query_committer(replace(options, source=replace(options.source, commit_group_id=None)), client) is None
