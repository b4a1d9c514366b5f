"""Exactly-once writes from Spark, and what they refuse; read back by librdkafka with read_committed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException
from tests.integration.exactly_once import PARTITIONS, Pipe, token_in, told, wait_for

from pyspark_kafka_direct import enable, foreach_batch_writer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def pipe(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Pipe:
    return Pipe(spark, kafka.bootstrap_servers, make_topic(PARTITIONS), make_topic(PARTITIONS), tmp_path / "checkpoint")


def refused(pipe: Pipe, /, **more: str) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        pipe.run(**more)
    return told(caught.value)


@pytest.mark.smoke
def test_each_batch_is_written_once_over_restarts(pipe: Pipe) -> None:
    for first in (0, 10, 20):
        pipe.put(*range(first, first + 10))
        pipe.run()
    pipe.run()  # nothing to do
    pipe.check(range(30))


def test_a_batch_that_spark_does_not_know_to_be_done_is_not_written_again(pipe: Pipe) -> None:
    pipe.put(*range(10))
    pipe.run()
    for _ in range(2):
        pipe.undo_commit()
        pipe.run()
    pipe.check(range(10))
    pipe.put(*range(10, 20))
    pipe.run()
    pipe.check(range(20))


def test_a_query_that_wrote_at_least_once_before_needs_a_word(pipe: Pipe) -> None:
    pipe.put(1, 2)
    pipe.run(delivery="at-least-once")
    pipe.put(3, 4)
    refusal = refused(pipe)
    assert refusal.startswith("DeliveryRefusedError: Exactly-once delivery under ")
    assert "batch 1 of query" in refusal
    assert "there is no marker of batch 0" in refusal
    pipe.run(resetDelivery=token_in(refusal))
    pipe.check([1, 2, 3, 4])
    pipe.put(5)
    pipe.run(resetDelivery=token_in(refusal))  # left in the code, it does no harm
    pipe.check([1, 2, 3, 4, 5])


def test_of_two_queries_from_a_copied_checkpoint_one_is_refused(pipe: Pipe, tmp_path: Path) -> None:
    pipe.put(1)
    pipe.run()
    copy = replace(pipe, checkpoint=pipe.copy_checkpoint(tmp_path / "copy"))
    pipe.put(2)
    pipe.run()
    pipe.put(3)
    refusal = refused(copy)  # its batch 1 has records that the other's has not
    assert "batch 1" in refusal
    assert "another batch: the checkpoint's offsets had the digest" in refusal
    pipe.check([1, 2])
    pipe.run()
    pipe.check([1, 2, 3])


def test_a_backup_of_the_checkpoint_is_refused_and_a_word_goes_on(pipe: Pipe, tmp_path: Path) -> None:
    pipe.put(1)
    pipe.run()
    backup = pipe.copy_checkpoint(tmp_path / "backup")
    for number in (2, 3):
        pipe.put(number)
        pipe.run()
    restored = replace(pipe, checkpoint=backup)
    refusal = refused(restored)
    assert "batch 1 of query" in refusal
    assert "what was sent last is batch 2" in refusal
    assert "resetDelivery" in refused(restored, resetDelivery="0123456789abcdef")
    restored.run(resetDelivery=token_in(refusal))
    pipe.check([1, 2, 2, 3, 3])  # as the refusal has said
    restored.put(4)
    restored.run(resetDelivery=token_in(refusal))
    pipe.check([1, 2, 2, 3, 3, 4])


def test_another_query_under_the_same_prefix_is_refused(pipe: Pipe, tmp_path: Path) -> None:
    pipe.put(1)
    pipe.run()
    refusal = refused(replace(pipe, checkpoint=tmp_path / "other"))
    assert "Another query uses this transactionalIdPrefix" in refusal
    pipe.check([1])


def test_complete_writes_each_result_once(pipe: Pipe) -> None:
    pipe.put("a", "a", "b")
    counts = pipe.frame().groupBy("value").count().selectExpr("concat(value, ' ', count) value")
    pipe.run(counts, mode="complete")
    pipe.undo_commit()
    pipe.run(counts, mode="complete")
    pipe.check(["a 2", "b 1"])
    pipe.put("b")
    pipe.run(counts, mode="complete")
    pipe.check(["a 2", "b 1", "a 2", "b 2"])


def test_too_long_a_transaction_is_refused_before_any_task(pipe: Pipe) -> None:
    pipe.put(1)
    refusal = refused(pipe, kafka_transaction_timeout_ms="1000000")
    assert refusal.startswith("OptionError: kafka.transaction.timeout.ms is 1000000, and the brokers allow 900000")
    pipe.run()
    pipe.check([1])


def write(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("kafka-direct").options(**options).mode("append").save()


def test_a_job_that_is_submitted_twice_is_written_once(pipe: Pipe) -> None:
    frame = pipe.spark.range(20).selectExpr("cast(id as string) value")
    for job in ("monday", "tuesday", "monday"):
        write(frame, pipe.sink_options(jobId=job))
    pipe.check([*range(20), *range(20)])
    write(frame, pipe.sink_options())
    write(frame, pipe.sink_options())
    pipe.check([*range(20)] * 4)


def test_a_batch_that_fails_leaves_nothing(pipe: Pipe) -> None:
    frame = pipe.spark.range(0, 100, 1, 4).selectExpr("if(id = 90, raise_error('no'), cast(id as string)) value")
    with pytest.raises(PySparkException, match="no"):
        write(frame, pipe.sink_options())
    pipe.check([])


def test_foreach_batch_writes_each_batch_once(pipe: Pipe) -> None:
    pipe.put("a", "a", "b")
    counts = pipe.frame().groupBy("value").count().selectExpr("concat(value, ' ', count) value")
    to_kafka = foreach_batch_writer(pipe.sink_options())
    pipe.run_foreach(to_kafka, frame=counts, mode="update")
    pipe.undo_commit()
    pipe.run_foreach(to_kafka, frame=counts, mode="update")
    pipe.check(["a 2", "b 1"])
    pipe.put("b", "c")
    pipe.run_foreach(to_kafka, frame=counts, mode="update")
    pipe.check(["a 2", "b 1", "b 2", "c 1"])


def test_copies_of_a_query_with_foreach_batch_are_told_apart_by_the_checkpoint(pipe: Pipe, tmp_path: Path) -> None:
    pipe.put(1)
    pipe.run_foreach(foreach_batch_writer(pipe.sink_options(checkpointLocation=str(pipe.checkpoint))))
    copy = replace(pipe, checkpoint=pipe.copy_checkpoint(tmp_path / "copy"))
    pipe.put(2)
    pipe.run_foreach(foreach_batch_writer(pipe.sink_options(checkpointLocation=str(pipe.checkpoint))))
    pipe.put(3)
    with pytest.raises(StreamingQueryException) as caught:
        copy.run_foreach(foreach_batch_writer(copy.sink_options(checkpointLocation=str(copy.checkpoint))))
    assert "another batch: the checkpoint's offsets had the digest" in str(caught.value)
    pipe.check([1, 2])


def test_what_was_written_is_told(pipe: Pipe) -> None:
    monitor = enable(pipe.spark)
    pipe.put(*range(10))
    query = pipe.start()
    wait_for(query)
    written = monitor.written(query)
    assert written is not None
    assert (written.query_id, written.batch_id, written.records) == (str(query.id), 0, 10)
    assert {each.topic for each in written.partitions} == {pipe.target}  # the marker is not the user's
    write(pipe.spark.range(5).selectExpr("cast(id as string) value"), replace(pipe, prefix="another").sink_options())
    written = monitor.written()
    assert written is not None
    assert (written.query_id, written.batch_id, written.records) == (None, None, 5)


def test_foreach_batch_may_leave_batches_out_and_writes_each_once_under_a_prefix(pipe: Pipe) -> None:
    def first_only(frame: DataFrame, number: int) -> None:
        if number != 1:
            write(frame, pipe.sink_options())

    for number in range(3):
        pipe.put(number)
        pipe.run_foreach(first_only)
    pipe.check([0, 2])

    def twice(frame: DataFrame, _: int) -> None:
        write(frame, pipe.sink_options())
        write(frame, pipe.sink_options())

    pipe.put(3)
    with pytest.raises(StreamingQueryException) as caught:
        pipe.run_foreach(twice)
    assert "was sent already by this run. foreachBatch may write each batch once" in str(caught.value)
    pipe.check([0, 2, 3])


def test_foreach_batch_with_a_name_of_its_own_or_a_job_group_is_refused(pipe: Pipe) -> None:
    def named(frame: DataFrame, _: int) -> None:
        write(frame, pipe.sink_options(jobId="mine"))

    def grouped(frame: DataFrame, _: int) -> None:
        frame.sparkSession.sparkContext.setJobGroup("mine", "of mine")
        write(frame, pipe.sink_options())

    pipe.put(1)
    for function, words in ((named, "jobId cannot be used within foreachBatch"), (grouped, "The job group is 'mine'")):
        with pytest.raises(StreamingQueryException) as caught:
            pipe.run_foreach(function)
        assert words in str(caught.value)
    pipe.check([])


ROWS = "cast(id as string) || repeat('x', 1000) value"


def test_more_than_the_threshold_needs_a_place(pipe: Pipe, tmp_path: Path) -> None:
    frame = pipe.spark.range(0, 2000, 1, 2).selectExpr(ROWS)
    with pytest.raises(PySparkException) as caught:
        write(frame, pipe.sink_options())
    assert "more than 262144 bytes of encoded records (stagingThreshold)" in told(caught.value)
    assert "stagingLocation" in told(caught.value)
    pipe.check([])


@pytest.mark.parametrize("where", ["files", "topic"])
def test_large_batches_are_staged_elsewhere(pipe: Pipe, make_topic: MakeTopic, tmp_path: Path, where: str) -> None:
    folder = tmp_path / "staging"
    location = f"topic:{make_topic(2)}" if where == "topic" else folder.as_uri()
    frame = pipe.spark.range(0, 2000, 1, 4).selectExpr(ROWS)
    for job in ("one", "one", "two"):
        write(frame, pipe.sink_options(stagingLocation=location, jobId=job))
    wanted = [f"{number}{'x' * 1000}" for number in range(2000)]
    pipe.check(wanted * 2)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == (["driver.probe"] if where == "files" else [])


def test_a_large_stream_is_staged_in_files_which_are_gone_afterwards(pipe: Pipe, tmp_path: Path) -> None:
    folder = tmp_path / "staging"
    frame = pipe.frame().selectExpr("value || repeat('x', 1000) value")
    for first in (0, 1000):
        pipe.put(*range(first, first + 1000))
        pipe.run(frame, stagingLocation=str(folder))
    pipe.check(f"{number}{'x' * 1000}" for number in range(2000))
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["driver.probe"]


def test_a_staging_location_that_is_not_there_is_refused_at_the_start(pipe: Pipe) -> None:
    pipe.put(1)
    assert "there is no such topic" in refused(pipe, stagingLocation="topic:nowhere")
    assert "cannot be written to or read by the driver" in refused(pipe, stagingLocation="/proc/nowhere")
    pipe.run()
    pipe.check([1])
