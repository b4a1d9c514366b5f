"""The logs of a continuous query on a real disk, by Spark's own means; and micro-batch queries before and after it."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from pyspark_kafka_direct.continuous._log_state import LogState, Settlement
from pyspark_kafka_direct.continuous._logs import open_logs
from pyspark_kafka_direct.errors import CheckpointTakenError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.runtime.checkpoint_files import CheckpointFiles

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
    """By each of Spark's managers; the second one is that of object stores."""
    spark.conf.set(MANAGER, f"{PACKAGE}.{request.param}CheckpointFileManager")
    try:
        yield CheckpointFiles(spark, f"file:{tmp_path}/checkpoint/", "a test")
    finally:
        spark.conf.unset(MANAGER)


def test_files_are_written_once(files: CheckpointFiles, tmp_path: Path) -> None:
    assert files.names("offsets") == []
    assert files.text("offsets/1") is None
    files.make_folder("offsets")
    assert files.create("offsets/1", "eins\nzwölf")
    assert not files.create("offsets/1", "another")
    assert files.text("offsets/1") == "eins\nzwölf"
    assert (tmp_path / "checkpoint" / "offsets" / "1").read_text(encoding="utf-8") == "eins\nzwölf"
    assert [name for name in files.names("offsets") if name.isdigit()] == ["1"]
    assert files.exists("offsets")
    files.delete("offsets/1")
    files.delete("offsets/1")
    assert not files.exists("offsets/1")
    assert files.place("offsets/1") == f"file:{tmp_path}/checkpoint/offsets/1"


def test_a_failure_of_the_disk_is_no_other_query(files: CheckpointFiles, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "offsets").write_text("a file where a folder should be")
    with pytest.raises(Exception, match=r"(?i)not a directory|parent"):
        files.create("offsets/1", "text")


def test_a_micro_batch_query_goes_on_where_a_continuous_one_stopped(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    put(topic, range(10), partition=0)
    put(topic, range(10, 20), partition=1)
    query = stream(subscribe=topic, startingOffsets="latest")
    checkpoint = str(query.folder / "checkpoint")
    logs = open_logs(spark, checkpoint)
    fresh = str(uuid.uuid4())
    assert logs.query_id(fresh) == fresh
    assert logs.settle(None, AT_MS) == Settlement(None, 0)
    logs.start({zero: 2, one: 0}, AT_MS)
    logs.commit(1, {zero: 5, one: 3}, AT_MS + 1000)
    logs.commit(2, {zero: 7, one: 6}, AT_MS + 2000)
    assert query.run() == [7]
    assert query.query is not None
    assert query.query.id == fresh
    assert query.values == sorted(map(str, [7, 8, 9, 16, 17, 18, 19]))
    # And back.
    again = open_logs(spark, checkpoint)
    assert again.query_id(str(uuid.uuid4())) == fresh
    assert again.settle(None, AT_MS) == Settlement({zero: 10, one: 10}, 4)
    ours, theirs = again.entry(2), again.entry(3)
    assert ours.conf == theirs.conf, "the settings that Spark itself keeps"
    again.commit(4, {zero: 10, one: 10}, AT_MS + 3000)
    put(topic, [20], partition=1)
    assert query.run() == [1]


def test_a_query_that_only_has_its_start(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(1)
    put(topic, range(10))
    query = stream(subscribe=topic, startingOffsets="latest")
    logs = open_logs(spark, str(query.folder / "checkpoint"))
    logs.query_id(str(uuid.uuid4()))
    logs.settle(None, AT_MS)
    logs.start({TopicPartition(topic, 0): 4}, AT_MS)
    assert query.run() == [6]


def test_a_start_that_was_not_committed_is_an_empty_batch(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    """The driver died between the two files."""
    topic = make_topic(1)
    put(topic, range(10))
    query = stream(subscribe=topic, startingOffsets="latest")
    logs = open_logs(spark, str(query.folder / "checkpoint"))
    logs.query_id(str(uuid.uuid4()))
    logs.settle(None, AT_MS)
    logs.start({TopicPartition(topic, 0): 4}, AT_MS)
    query.undo_commit()
    assert query.run() == [0, 6]


def test_a_continuous_query_goes_on_after_a_micro_batch_that_was_not_done(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(1)
    tp = TopicPartition(topic, 0)
    put(topic, range(10))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")
    query.run()
    query.undo_commit()
    logs = open_logs(spark, str(query.folder / "checkpoint"))
    assert logs.state() == LogState(0, (1,))
    assert logs.settle(None, AT_MS) == Settlement({tp: 5}, 1, remove=(1,))
    assert logs.state() == LogState(0, ())
    logs.commit(1, {tp: 8}, AT_MS)
    query.batches.clear()
    query.run()
    assert query.values == ["8", "9"]


def test_two_queries_on_one_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    one, two = (open_logs(spark, str(tmp_path)) for _ in range(2))
    tp = TopicPartition("t", 0)
    for logs in (one, two):
        logs.settle(None, AT_MS)
    one.start({tp: 1}, AT_MS)
    with pytest.raises(CheckpointTakenError, match=f"{tmp_path}/offsets/0 is there already: another query writes"):
        two.start({tp: 2}, AT_MS)
    one.commit(1, {tp: 3}, AT_MS)
    assert json.loads((tmp_path / "offsets" / "1").read_text().split("\n")[2]) == {"t": {"0": 3}}


def test_a_micro_batch_query_beside_a_continuous_one_ends(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(1)
    put(topic, range(2))
    query = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    query.start()
    query.wait_for(range(2))
    query.wait(lambda: query.committed == 1, "its last commit")
    logs = open_logs(spark, str(query.folder / "checkpoint"))
    assert logs.settle(None, AT_MS).next_epoch == 2
    logs.commit(2, {TopicPartition(topic, 0): 2}, AT_MS)
    put(topic, [2])
    assert query.query is not None
    with pytest.raises(StreamingQueryException, match=r"CONCURRENT_STREAM_LOG_UPDATE|[Cc]oncurrent|Multiple streaming"):
        query.query.awaitTermination(60)
    query.query = None


def test_old_epochs_go(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    try:
        logs = open_logs(spark, str(tmp_path))
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    logs.settle(None, AT_MS)
    logs.start({TopicPartition("t", 0): 0}, AT_MS)
    for epoch in range(1, 5):
        logs.commit(epoch, {TopicPartition("t", 0): epoch}, AT_MS + epoch)
        logs.purge(epoch)
    for folder in ("offsets", "commits"):
        assert sorted(file.name for file in (tmp_path / folder).glob("[0-9]*")) == ["2", "3", "4"]


def test_a_query_with_state_is_refused(
    stream: Callable[..., Stream], spark: SparkSession, make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(1)
    put(topic, range(2))
    query = stream(subscribe=topic, startingOffsets="earliest")
    query.run(query.load().dropDuplicates(["value"]))
    with pytest.raises(OptionError, match=r"checkpoint/state shows that the query of this checkpoint keeps state"):
        open_logs(spark, str(query.folder / "checkpoint"))
