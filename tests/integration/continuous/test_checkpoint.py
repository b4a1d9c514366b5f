"""The logs of a continuous query in real files, shared with micro-batch queries."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.integration.sessions import setting

from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointState, RecoveryPlan, open_checkpoint_logs
from pyspark_kafka_direct.errors import CheckpointFencedError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.stream_queries import Stream

PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
AT_MS = 1795346400000


@pytest.fixture(params=["FileContextBased", "FileSystemBased"])
def files(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CheckpointFiles]:
    """With each of Spark's file managers; object stores use the second one."""
    with setting(spark, MANAGER, f"{PACKAGE}.{request.param}CheckpointFileManager"):
        yield CheckpointFiles(spark, f"file:{tmp_path}/checkpoint/", "a test")


def test_files_are_written_once(files: CheckpointFiles, tmp_path: Path) -> None:
    assert files.list_names("offsets") == []
    assert files.read("offsets/1") is None
    files.mkdirs("offsets")
    assert files.create("offsets/1", "eins\nzwölf")
    assert not files.create("offsets/1", "another")
    assert files.read("offsets/1") == "eins\nzwölf"
    assert (tmp_path / "checkpoint" / "offsets" / "1").read_text(encoding="utf-8") == "eins\nzwölf"
    assert [name for name in files.list_names("offsets") if name.isdigit()] == ["1"]
    assert files.exists("offsets")
    files.delete("offsets/1")
    files.delete("offsets/1")
    assert not files.exists("offsets/1")
    assert files.path("offsets/1") == f"file:{tmp_path}/checkpoint/offsets/1"


def test_a_failure_of_the_file_system_is_not_another_query(files: CheckpointFiles, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "offsets").write_text("a file instead of a folder")
    with pytest.raises(Exception, match=r"(?i)not a directory|parent"):
        files.create("offsets/1", "text")


def test_a_micro_batch_query_resumes_where_a_continuous_one_stopped(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    put(topic, range(10), partition=0)
    put(topic, range(10, 20), partition=1)
    query = stream(subscribe=topic, startingOffsets="latest")
    checkpoint = str(query.folder / "checkpoint")
    logs = open_checkpoint_logs(spark, checkpoint)
    new_id = str(uuid.uuid4())
    assert logs.query_id(new_id) == new_id
    assert logs.recover(None, AT_MS) == RecoveryPlan(None, 0)
    logs.commit_start({zero: 2, one: 0}, AT_MS)
    logs.commit(1, {zero: 5, one: 3}, AT_MS + 1000)
    logs.commit(2, {zero: 7, one: 6}, AT_MS + 2000)
    assert query.run() == [7]
    assert query.query is not None
    assert query.query.id == new_id
    assert query.values == sorted(map(str, [7, 8, 9, 16, 17, 18, 19]))
    # And vice versa.
    resumed = open_checkpoint_logs(spark, checkpoint)
    assert resumed.query_id(str(uuid.uuid4())) == new_id
    assert resumed.recover(None, AT_MS) == RecoveryPlan({zero: 10, one: 10}, 4)
    continuous, micro_batch = resumed.offset_entry(2), resumed.offset_entry(3)
    assert continuous.conf == micro_batch.conf, "the settings that Spark itself stores"
    resumed.commit(4, {zero: 10, one: 10}, AT_MS + 3000)
    put(topic, [20], partition=1)
    assert query.run() == [1]


def test_a_query_with_only_its_start(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(1)
    put(topic, range(10))
    query = stream(subscribe=topic, startingOffsets="latest")
    logs = open_checkpoint_logs(spark, str(query.folder / "checkpoint"))
    logs.query_id(str(uuid.uuid4()))
    logs.recover(None, AT_MS)
    logs.commit_start({TopicPartition(topic, 0): 4}, AT_MS)
    assert query.run() == [6]


def test_a_start_that_was_not_committed_is_an_empty_batch(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    """The driver crashed between the two writes."""
    topic = make_topic(1)
    put(topic, range(10))
    query = stream(subscribe=topic, startingOffsets="latest")
    logs = open_checkpoint_logs(spark, str(query.folder / "checkpoint"))
    logs.query_id(str(uuid.uuid4()))
    logs.recover(None, AT_MS)
    logs.commit_start({TopicPartition(topic, 0): 4}, AT_MS)
    query.undo_commit()
    assert query.run() == [0, 6]


def test_a_continuous_query_resumes_after_an_incomplete_micro_batch(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(1)
    tp = TopicPartition(topic, 0)
    put(topic, range(10))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")
    query.run()
    query.undo_commit()
    logs = open_checkpoint_logs(spark, str(query.folder / "checkpoint"))
    assert logs.state() == CheckpointState(0, (1,))
    assert logs.recover(None, AT_MS) == RecoveryPlan({tp: 5}, 1, planned_end={tp: 10})
    logs.commit(1, {tp: 10}, AT_MS)
    assert logs.state() == CheckpointState(1, ())
    put(topic, range(10, 12))
    query.batches.clear()
    query.run()
    assert query.values == ["10", "11"]


def test_two_queries_on_one_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    one, two = (open_checkpoint_logs(spark, str(tmp_path)) for _ in range(2))
    tp = TopicPartition("t", 0)
    for logs in (one, two):
        logs.recover(None, AT_MS)
    one.commit_start({tp: 1}, AT_MS)
    with pytest.raises(CheckpointFencedError, match=f"{tmp_path}/offsets/0 already exists: another query writes"):
        two.commit_start({tp: 2}, AT_MS)
    one.commit(1, {tp: 3}, AT_MS)
    assert json.loads((tmp_path / "offsets" / "1").read_text().split("\n")[2]) == {"t": {"0": 3}}


def test_a_concurrent_micro_batch_query_ends(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(1)
    put(topic, range(2))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    query.start()
    query.wait_for(range(2))
    query.wait(lambda: query.committed == 1, "its last commit")
    logs = open_checkpoint_logs(spark, str(query.folder / "checkpoint"))
    assert logs.recover(None, AT_MS).next_epoch == 2
    logs.commit(2, {TopicPartition(topic, 0): 2}, AT_MS)
    put(topic, [2])
    assert query.query is not None
    with pytest.raises(StreamingQueryException, match=r"CONCURRENT_STREAM_LOG_UPDATE|[Cc]oncurrent|Multiple streaming"):
        query.query.awaitTermination(600)
    query.query = None


def test_old_epochs_are_purged(spark: SparkSession, tmp_path: Path) -> None:
    with setting(spark, "spark.sql.streaming.minBatchesToRetain", "2"):
        logs = open_checkpoint_logs(spark, str(tmp_path))
    logs.recover(None, AT_MS)
    logs.commit_start({TopicPartition("t", 0): 0}, AT_MS)
    for epoch in range(1, 5):
        logs.commit(epoch, {TopicPartition("t", 0): epoch}, AT_MS + epoch)
        logs.purge(epoch)
    for folder in ("offsets", "commits"):
        assert sorted(file.name for file in (tmp_path / folder).glob("[0-9]*")) == ["2", "3", "4"]


def test_a_stateful_query_is_rejected(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(1)
    put(topic, range(2))
    query = stream(subscribe=topic, startingOffsets="earliest")
    query.run(query.load().dropDuplicates(["value"]))
    with pytest.raises(OptionError, match=r"checkpoint/state shows that the query of this checkpoint is stateful"):
        open_checkpoint_logs(spark, str(query.folder / "checkpoint"))
