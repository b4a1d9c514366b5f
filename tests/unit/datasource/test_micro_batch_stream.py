"""The stream readers of all Spark versions, on a simulated cluster."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.unit.datasource.stream_runs import LEGACY, StreamRun, at, first_end_at
from tests.unit.planning.planner_cluster import GROUP, NewCluster, PlannerCluster

from pyspark_kafka_direct.datasource import micro_batch_stream_base as module
from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
from pyspark_kafka_direct.datasource.stream_listener_files import open_query_committer
from pyspark_kafka_direct.errors import DataLossError, InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition, partition_offsets_from_json
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.spark.commit_offer import AcceptedCommitOffer, CommitOffer, commit_group
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME
from pyspark_kafka_direct.spark.offset_committer import RunOffsetCommitter

if TYPE_CHECKING:
    from pathlib import Path

T0 = TopicPartition("t", 0)


def commits(brokers: PlannerCluster) -> list[int]:
    """Return the offsets of the first partition that were committed."""
    return [request.topics[0].partitions[0].committed_offset for request in brokers.received("OffsetCommit")]


@LEGACY
def test_a_new_query_and_the_batches_after_the_first(
    cluster: NewCluster, legacy: bool, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = cluster(10)
    brokers.every("FindCoordinator", "delay_response", seconds=0.3)
    run = StreamRun(brokers, legacy=legacy)
    first = run.first_end()
    assert first == first_end_at(0, 10)
    assert run.initial() == at(0)
    assert run.ranges(at(0), first) == [("t-0", 0, 10)]
    assert commits(brokers) == [], "no batch has reached the start, and the group may have a higher offset"
    assert json.dumps(run.latest(first)) == json.dumps(first), "no new records"
    assert commits(brokers) == [10], "Spark may end the query now"
    brokers.grow(T0, 14)
    assert run.latest(first) == at(14)
    assert run.ranges(first, at(14)) == [("t-0", 10, 14)]
    assert commits(brokers) == [10], "the end of the finished batch, once"
    assert caplog.messages == [], "the query has read nothing before, so the group needs no offsets"


@LEGACY
def test_limits_count_from_the_end_of_the_previous_batch(cluster: NewCluster, legacy: bool) -> None:
    run = StreamRun(cluster(10), legacy=legacy, maxoffsetspertrigger="4")
    ends = [at(0), run.first_end()]
    run.initial()
    for _ in range(3):
        if ends[-1] != ends[-2]:
            run.ranges(ends[-2], ends[-1])
        ends.append(run.latest(ends[-1]))
    assert ends == [at(0), first_end_at(0, 4), at(8), at(10), at(10)]


def test_a_batch_that_the_sink_does_not_read_counts_as_finished(cluster: NewCluster) -> None:
    run = StreamRun(cluster(10), legacy=True, maxoffsetspertrigger="4")
    assert run.first_end() == first_end_at(0, 4)
    run.initial()
    assert run.latest() == at(8)
    assert run.ranges(at(4), at(8)) == [("t-0", 4, 8)]


@LEGACY
def test_an_empty_first_batch_fixes_a_start_that_moves(cluster: NewCluster, legacy: bool) -> None:
    brokers = cluster(10)
    run = StreamRun(brokers, "latest", legacy=legacy)
    first = run.first_end()
    assert first == {**at(10), "(start)": {}}
    brokers.grow(T0, 12)
    assert run.initial() == at(10)
    assert run.ranges(at(10), first) == []
    assert run.latest(first) == at(12)
    assert run.ranges(first, at(12)) == [("t-0", 10, 12)]


@LEGACY
@pytest.mark.parametrize("logged", [{**at(10), "(start)": {}}, {"u": {}, "t": {"1": 20, "0": 10}}])
def test_an_offset_without_new_records_is_returned_unchanged(
    cluster: NewCluster, legacy: bool, logged: dict[str, Any]
) -> None:
    """Spark compares offsets as strings: any difference would start a batch."""
    run = StreamRun(cluster(10, 20) if "u" in logged else cluster(10), legacy=legacy)
    run.ranges(logged, logged)
    for _ in range(2):
        assert json.dumps(run.latest(logged)) == json.dumps(logged)


@LEGACY
def test_a_restart_resumes_at_the_end_of_the_last_batch(
    cluster: NewCluster, legacy: bool, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = cluster(10)
    run = StreamRun(brokers, legacy=legacy, maxoffsetspertrigger="4")
    assert run.ranges(at(3), at(3)) == []
    assert run.latest(at(3)) == at(7)
    assert run.ranges(at(3), at(7)) == [("t-0", 3, 7)]
    assert commits(brokers) == [3]
    assert "this query has read t before, but the group 'g' (commitGroupId) has no offsets of it" in caplog.text


@LEGACY
@pytest.mark.parametrize("first", [True, False])
def test_an_unfinished_batch_is_read_again_and_the_next_starts_at_its_end(
    cluster: NewCluster, legacy: bool, first: bool
) -> None:
    brokers = cluster(10)
    run = StreamRun(brokers, legacy=legacy)
    start = at(0) if first else at(2)
    assert run.ranges(at(6), at(6)) == []
    if first:
        assert run.initial() == start
    assert run.ranges(start, at(6)) == [("t-0", start["t"]["0"], 6)]
    assert commits(brokers) == []
    assert run.latest(at(6)) == at(10)
    assert run.ranges(at(6), at(10)) == [("t-0", 6, 10)]


def test_the_empty_first_batch_of_a_failed_run_stays_empty(cluster: NewCluster) -> None:
    logged = {**at(10), "(start)": {}}
    run = StreamRun(cluster(15), "latest", legacy=True)
    assert run.ranges(logged, logged) == []
    assert run.initial() == at(15)
    assert run.ranges(at(15), logged) == []
    assert run.latest() == at(15)
    assert run.ranges(logged, at(15)) == [("t-0", 10, 15)]


@LEGACY
def test_an_invalid_start_fails_a_new_query_before_its_first_batch(cluster: NewCluster, legacy: bool) -> None:
    with pytest.raises(InvalidOffsetsError):
        StreamRun(cluster(10), '{"t":{"0":4,"7":0}}', legacy=legacy).first_end()


@LEGACY
def test_data_loss_since_the_last_run_is_an_error(cluster: NewCluster, legacy: bool) -> None:
    run = StreamRun(cluster(10), legacy=legacy)
    assert run.ranges(at(13), at(13)) == []
    with pytest.raises(DataLossError):
        run.latest(at(13))


def test_an_end_requested_before_the_start_is_never_read(cluster: NewCluster) -> None:
    """Spark's wrapper for Trigger.AvailableNow calls in this order after a restart. The end is that of a new query."""
    run = StreamRun(cluster(10), legacy=True, maxoffsetspertrigger="4")
    assert run.latest() == first_end_at(0, 4)
    with pytest.raises(InvalidOffsetsError, match=r"spark\.sql\.streaming\.triggerAvailableNowWrapper\.enabled"):
        run.ranges(at(8), at(8))


def test_the_progress_has_the_end_offsets_that_planning_has_fetched(cluster: NewCluster) -> None:
    run = StreamRun(cluster(10), maxoffsetspertrigger="4")
    assert isinstance(run.reader, KafkaMicroBatchStream)
    assert run.reader.reportLatestOffset() is None
    assert run.latest(at(0)) == at(4)
    assert run.reader.reportLatestOffset() == at(10)


def test_a_trigger_without_a_limit_reads_everything(cluster: NewCluster) -> None:
    """Spark passes the default limit, except for ``Trigger.Once``."""
    assert StreamRun(cluster(10), maxoffsetspertrigger="4").latest(at(0)) == at(4)
    assert StreamRun(cluster(10), maxoffsetspertrigger="4").latest(at(0), ReadAllAvailable()) == at(10)


@pytest.mark.parametrize(
    "limit",
    [
        {"maxoffsetspertrigger": "4"},
        {"minoffsetspertrigger": "40"},
        {"maxbytespertrigger": "4"},
        {"backpressure": "true", "backpressureinitialrate": "4"},
    ],
    ids=lambda limit: next(iter(limit)),
)
def test_each_limit_is_ignored_without_a_limit_of_spark(
    cluster: NewCluster, limit: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    (tmp_path / SHARED_FOLDER_NAME).mkdir()
    brokers = cluster(20)
    run = StreamRun(brokers, **limit)
    first = run.latest(at(0))
    brokers.grow(T0, 25)
    assert run.latest(first)["t"]["0"] < 25
    assert run.latest(first, ReadAllAvailable()) == at(25)


def test_a_start_that_moves_is_rejected_without_a_limit_of_spark(cluster: NewCluster) -> None:
    run = StreamRun(cluster(20), "latest")
    initial = run.initial()
    for _ in range(2):
        with pytest.raises(OptionError, match="cannot start with a single batch"):
            run.latest(initial, ReadAllAvailable())


@pytest.mark.parametrize("limits", [{}, {"maxoffsetspertrigger": "4"}, {"minoffsetspertrigger": "4"}])
def test_an_idle_query_pauses_with_any_limits(cluster: NewCluster, limits: dict[str, Any]) -> None:
    brokers = cluster(10)
    run = StreamRun(brokers, **limits)
    began = brokers.now
    for _ in range(11):
        assert run.latest(at(10)) == at(10)
    assert 1 <= brokers.now - began < 2


def test_tasks_know_the_leaders_of_their_partitions(cluster: NewCluster) -> None:
    brokers = cluster(10, 10)
    brokers.grow(TopicPartition("u", 0), 10)
    brokers.elect(TopicPartition("t", 1), 2)
    run = StreamRun(brokers, subscribepattern="[tu]")
    start = {"t": {"0": 0, "1": 0}, "u": {"0": 0}}
    tasks: Any = [task.task for task in run.reader.partitions(start, run.latest(start))]  # type: ignore[attr-defined]
    assert [task.leader.node.id for task in tasks] == [1, 2, 1]
    assert [task.leader.epoch for task in tasks] == [
        brokers.partition(task.offsets.topic_partition).epoch for task in tasks
    ]
    assert [task.topic_id for task in tasks] == [brokers.topic_id(name) for name in "ttu"]


def test_warnings_about_options_are_logged_by_the_planner(
    cluster: NewCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark parses the options in several processes."""
    names = ("unrelated", "kafka.linger.ms")
    options: dict[str, Any] = dict.fromkeys(names, "1")
    run = StreamRun(cluster(10), **options)
    assert "unrelated" not in caplog.text
    for _ in range(2):
        run.initial()
    assert [sum(name in message for message in caplog.messages) for name in names] == [1, 1]
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(("options", "attempts"), [({}, 3), ({"fetchoffset.numretries": "7"}, 7)])
def test_the_option_sets_the_number_of_attempts(cluster: NewCluster, options: dict[str, Any], attempts: int) -> None:
    brokers = cluster(10)
    began = brokers.now
    with pytest.raises(DataLossError, match="changed from 11 to 10"):
        StreamRun(brokers, **options).latest(at(11))
    assert attempts - 1 < brokers.now - began < attempts


def test_an_offset_that_is_passed_again_is_parsed_once(cluster: NewCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark polls an idle source up to 100 times a second."""
    run = StreamRun(cluster(10))
    parsed: list[str] = []

    def recording_parse(text: str) -> Any:
        parsed.append(text)
        return partition_offsets_from_json(text)

    monkeypatch.setattr(module, "partition_offsets_from_json", recording_parse)
    for start in (at(4), at(10)):
        for _ in range(5):
            assert run.latest(start) == at(10)
    assert len(parsed) == 2


def test_the_listener_commits_if_it_offers_to(
    cluster: NewCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = parse_stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitGroupId": GROUP})
    client = cluster().client()

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
