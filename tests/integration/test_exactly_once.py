"""Exactly-once writes from Spark and their errors; read back by librdkafka with read_committed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException
from tests.integration.exactly_once import PARTITIONS, Pipe, package_error_line, reset_token_in, wait_for
from tests.integration.sessions import setting

from pyspark_kafka_direct import enable, foreach_batch_writer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def pipe(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Pipe:
    return Pipe(spark, kafka.bootstrap_servers, make_topic(PARTITIONS), make_topic(PARTITIONS), tmp_path / "checkpoint")


def error_of_run(pipe: Pipe, /, **more: str) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        pipe.run(**more)
    return package_error_line(caught.value)


@pytest.mark.smoke
def test_each_batch_is_written_once_over_restarts(pipe: Pipe) -> None:
    for first in (0, 10, 20):
        pipe.produce_numbers(*range(first, first + 10))
        pipe.run()
    pipe.run()  # nothing to do
    pipe.check(range(30))


def test_a_batch_missing_in_the_commit_log_is_not_written_again(pipe: Pipe) -> None:
    pipe.produce_numbers(*range(10))
    pipe.run()
    for _ in range(2):
        pipe.undo_commit()
        pipe.run()
    pipe.check(range(10))
    pipe.produce_numbers(*range(10, 20))
    pipe.run()
    pipe.check(range(20))


def test_a_query_that_wrote_at_least_once_before_requires_a_token(pipe: Pipe) -> None:
    pipe.produce_numbers(1, 2)
    pipe.run(deliveryGuarantee="at-least-once")
    pipe.produce_numbers(3, 4)
    message = error_of_run(pipe)
    assert message.startswith("TransactionStateError: Exactly-once delivery with transactional id ")
    assert "batch 1 of query" in message
    assert "there is no sink state record of an earlier batch" in message
    pipe.run(resetTransactionState=reset_token_in(message))
    pipe.check([1, 2, 3, 4])
    pipe.produce_numbers(5)
    pipe.run(resetTransactionState=reset_token_in(message))  # a used token has no effect
    pipe.check([1, 2, 3, 4, 5])


def test_one_of_two_queries_with_copied_checkpoints_is_rejected(pipe: Pipe, tmp_path: Path) -> None:
    pipe.produce_numbers(1)
    pipe.run()
    copy = replace(pipe, checkpoint=pipe.copy_checkpoint(tmp_path / "copy"))
    pipe.produce_numbers(2)
    pipe.run()
    pipe.produce_numbers(3)
    message = error_of_run(copy)  # its batch 1 has other records
    assert "batch 1" in message
    assert "with other content: the digest of the checkpoint's offsets was" in message
    pipe.check([1, 2])
    pipe.run()
    pipe.check([1, 2, 3])


def test_a_restored_checkpoint_is_rejected_without_a_token(pipe: Pipe, tmp_path: Path) -> None:
    pipe.produce_numbers(1)
    pipe.run()
    backup = pipe.copy_checkpoint(tmp_path / "backup")
    for number in (2, 3):
        pipe.produce_numbers(number)
        pipe.run()
    restored = replace(pipe, checkpoint=backup)
    message = error_of_run(restored)
    assert "batch 1 of query" in message
    assert "the last one sent is batch 2" in message
    assert "resetTransactionState" in error_of_run(restored, resetTransactionState="0123456789abcdef")
    restored.run(resetTransactionState=reset_token_in(message))
    pipe.check([1, 2, 2, 3, 3])  # as the error explains
    restored.produce_numbers(4)
    restored.run(resetTransactionState=reset_token_in(message))
    pipe.check([1, 2, 2, 3, 3, 4])


def test_another_query_with_the_same_prefix_is_rejected(pipe: Pipe, tmp_path: Path) -> None:
    pipe.produce_numbers(1)
    pipe.run()
    message = error_of_run(replace(pipe, checkpoint=tmp_path / "other"))
    assert "Another query uses this transactionalIdPrefix" in message
    pipe.check([1])


def test_complete_writes_each_result_once(pipe: Pipe) -> None:
    pipe.produce_numbers("a", "a", "b")
    counts = pipe.frame().groupBy("value").count().selectExpr("concat(value, ' ', count) value")
    pipe.run(counts, mode="complete")
    pipe.undo_commit()
    pipe.run(counts, mode="complete")
    pipe.check(["a 2", "b 1"])
    pipe.produce_numbers("b")
    pipe.run(counts, mode="complete")
    pipe.check(["a 2", "b 1", "a 2", "b 2"])


def test_too_long_a_transaction_timeout_is_rejected_before_any_task(pipe: Pipe) -> None:
    pipe.produce_numbers(1)
    message = error_of_run(pipe, kafka_transaction_timeout_ms="1000000")
    assert message.startswith(
        "OptionError: kafka.transaction.timeout.ms is 1000000, but the brokers allow at most 900000"
    )
    pipe.run()
    pipe.check([1])


def write(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("kafka-direct").options(**options).mode("append").save()


def test_a_job_submitted_twice_is_written_once(pipe: Pipe) -> None:
    frame = pipe.spark.range(20).selectExpr("cast(id as string) value")
    for job in ("monday", "tuesday", "monday"):
        write(frame, pipe.sink_options(jobId=job))
    pipe.check([*range(20), *range(20)])
    write(frame, pipe.sink_options())
    write(frame, pipe.sink_options())
    pipe.check([*range(20)] * 4)


def test_a_failed_batch_leaves_nothing(pipe: Pipe) -> None:
    frame = pipe.spark.range(0, 100, 1, 4).selectExpr("if(id = 90, raise_error('no'), cast(id as string)) value")
    with pytest.raises(PySparkException, match="no"):
        write(frame, pipe.sink_options())
    pipe.check([])


def test_foreach_batch_writes_each_batch_once(pipe: Pipe) -> None:
    pipe.produce_numbers("a", "a", "b")
    counts = pipe.frame().groupBy("value").count().selectExpr("concat(value, ' ', count) value")
    to_kafka = foreach_batch_writer(pipe.sink_options())
    pipe.run_foreach(to_kafka, frame=counts, mode="update")
    pipe.undo_commit()
    pipe.run_foreach(to_kafka, frame=counts, mode="update")
    pipe.check(["a 2", "b 1"])
    pipe.produce_numbers("b", "c")
    pipe.run_foreach(to_kafka, frame=counts, mode="update")
    pipe.check(["a 2", "b 1", "b 2", "c 1"])


@pytest.mark.parametrize("through", ["foreach_batch_writer", "checkpointLocation"])
def test_copies_of_a_foreach_batch_query_are_detected_by_the_checkpoint(
    pipe: Pipe, tmp_path: Path, through: str
) -> None:
    def run(query: Pipe) -> None:
        if through == "foreach_batch_writer":  # reads the checkpoint with Spark
            query.run_foreach(foreach_batch_writer(query.sink_options()))
            return
        options = query.sink_options(checkpointLocation=str(query.checkpoint))
        query.run_foreach(lambda frame, _: write(frame, options))

    pipe.produce_numbers(1)
    run(pipe)
    copy = replace(pipe, checkpoint=pipe.copy_checkpoint(tmp_path / "copy"))
    pipe.produce_numbers(2)
    run(pipe)
    pipe.produce_numbers(3)
    with pytest.raises(StreamingQueryException) as caught:
        run(copy)
    assert "with other content: the digest of the checkpoint's offsets was" in str(caught.value)
    pipe.check([1, 2])
    pipe.undo_commit()
    pipe.run()  # the digest is the same for a stream
    pipe.check([1, 2, 3])


def test_a_write_in_foreach_batch_that_cannot_read_the_checkpoint_is_rejected(pipe: Pipe) -> None:
    pipe.produce_numbers(1)
    for options, words in (
        (pipe.sink_options(), "Write with foreach_batch_writer, or give the write the checkpointLocation"),
        (
            pipe.sink_options(checkpointLocation="/no/such/checkpoint"),
            "checkpointLocation '/no/such/checkpoint' cannot",
        ),
    ):
        with pytest.raises(StreamingQueryException) as caught:
            pipe.run_foreach(lambda frame, _, options=options: write(frame, options))  # type: ignore[misc]
        assert words in str(caught.value)
    pipe.check([])


def test_a_stream_whose_checkpoint_cannot_be_read_is_rejected_before_any_task(pipe: Pipe) -> None:
    """Without a digest, another query with a copy of the checkpoint would skip its different batch."""
    pipe.produce_numbers(1)
    folder = str(pipe.checkpoint.parent / "by configuration")
    with setting(pipe.spark, "spark.sql.streaming.checkpointLocation", folder):
        writer = pipe.frame().writeStream.format("kafka-direct").options(**pipe.sink_options())
        with pytest.raises(StreamingQueryException) as caught:
            wait_for(writer.trigger(availableNow=True).start())
    assert "OptionError: checkpointLocation is not an option of the query" in str(caught.value)
    pipe.check([])


def test_written_records_are_reported(pipe: Pipe) -> None:
    monitor = enable(pipe.spark)
    pipe.produce_numbers(*range(10))
    query = pipe.start()
    wait_for(query)
    written = monitor.written(query)
    assert written is not None
    assert (written.query_id, written.batch_id, written.records) == (str(query.id), 0, 10)
    assert {each.topic for each in written.partitions} == {pipe.target}  # the sink state topic is not reported
    write(pipe.spark.range(5).selectExpr("cast(id as string) value"), replace(pipe, prefix="another").sink_options())
    written = monitor.written()
    assert written is not None
    assert (written.query_id, written.batch_id, written.records) == (None, None, 5)


def test_foreach_batch_without_a_sink_state_record_is_rejected(pipe: Pipe) -> None:
    """A replayed batch with another prefix was written again."""
    for number in (1, 2):
        pipe.produce_numbers(number)
        pipe.run_foreach(foreach_batch_writer(pipe.sink_options()))
    pipe.undo_commit()
    moved = replace(pipe, prefix=f"{pipe.prefix}-b")
    with pytest.raises(StreamingQueryException) as caught:
        pipe.run_foreach(foreach_batch_writer(moved.sink_options()))
    message = package_error_line(caught.value)
    assert "there is no sink state record of an earlier batch" in message
    pipe.check([1, 2])
    pipe.run_foreach(foreach_batch_writer(moved.sink_options(resetTransactionState=reset_token_in(message))))
    pipe.check([1, 2, 2])  # as the error says
    pipe.produce_numbers(3)
    pipe.run_foreach(foreach_batch_writer(moved.sink_options()))
    pipe.check([1, 2, 2, 3])


def test_an_empty_foreach_batch_has_a_sink_state_record(pipe: Pipe) -> None:
    pipe.produce_numbers(1)
    to_kafka = foreach_batch_writer(pipe.sink_options())
    pipe.run_foreach(to_kafka, frame=pipe.frame().where("value = 'none'"))
    pipe.produce_numbers(2)
    pipe.run_foreach(to_kafka)
    pipe.check([2])


def test_foreach_batch_may_skip_batches_and_writes_each_once_per_prefix(pipe: Pipe) -> None:
    options = pipe.sink_options(checkpointLocation=str(pipe.checkpoint))

    def first_only(frame: DataFrame, number: int) -> None:
        if number != 1:
            write(frame, options)

    for number in range(3):
        pipe.produce_numbers(number)
        pipe.run_foreach(first_only)
    pipe.check([0, 2])

    def twice(frame: DataFrame, _: int) -> None:
        write(frame, options)
        write(frame, options)

    pipe.produce_numbers(3)
    with pytest.raises(StreamingQueryException) as caught:
        pipe.run_foreach(twice)
    assert "was already sent by this run. foreachBatch may write each batch once" in str(caught.value)
    pipe.check([0, 2, 3])


def test_foreach_batch_with_a_job_id_or_a_job_group_is_rejected(pipe: Pipe) -> None:
    def named(frame: DataFrame, _: int) -> None:
        write(frame, pipe.sink_options(jobId="mine"))

    def grouped(frame: DataFrame, _: int) -> None:
        frame.sparkSession.sparkContext.setJobGroup("mine", "of mine")
        write(frame, pipe.sink_options())

    pipe.produce_numbers(1)
    for function, words in ((named, "jobId cannot be used within foreachBatch"), (grouped, "The job group is 'mine'")):
        with pytest.raises(StreamingQueryException) as caught:
            pipe.run_foreach(function)
        assert words in str(caught.value)
    pipe.check([])


ROWS = "cast(id as string) || repeat('x', 1000) value"


def test_a_backlog_is_staged_in_the_checkpoint(pipe: Pipe) -> None:
    """A first small batch, and then one of 2 MB, without a ``stagingLocation``."""
    frame = pipe.frame().selectExpr("value || repeat('x', 1000) value")
    pipe.produce_numbers(0)
    pipe.run(frame)
    pipe.produce_numbers(*range(1, 2000))
    pipe.run(frame)
    pipe.check(f"{number}{'x' * 1000}" for number in range(2000))
    folder = pipe.checkpoint / "kafka-direct-staging" / f"{pipe.prefix}.sink"
    assert [path.name for path in folder.iterdir()] == ["driver.probe"]


def test_a_large_batch_write_is_staged_in_a_temporary_folder(pipe: Pipe) -> None:
    write(pipe.spark.range(0, 2000, 1, 2).selectExpr(ROWS), pipe.sink_options())
    pipe.check(f"{number}{'x' * 1000}" for number in range(2000))


def test_large_batches_are_staged_in_the_staging_location(pipe: Pipe, tmp_path: Path) -> None:
    folder = tmp_path / "staging"
    frame = pipe.spark.range(0, 2000, 1, 4).selectExpr(ROWS)
    for job in ("one", "one", "two"):
        write(frame, pipe.sink_options(stagingLocation=folder.as_uri(), jobId=job))
    wanted = [f"{number}{'x' * 1000}" for number in range(2000)]
    pipe.check(wanted * 2)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["driver.probe"]


def test_a_large_stream_is_staged_in_files_which_are_deleted_afterwards(pipe: Pipe, tmp_path: Path) -> None:
    folder = tmp_path / "staging"
    frame = pipe.frame().selectExpr("value || repeat('x', 1000) value")
    for first in (0, 1000):
        pipe.produce_numbers(*range(first, first + 1000))
        pipe.run(frame, stagingLocation=str(folder))
    pipe.check(f"{number}{'x' * 1000}" for number in range(2000))
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["driver.probe"]


def test_a_missing_staging_location_is_rejected_at_the_start(pipe: Pipe) -> None:
    pipe.produce_numbers(1)
    assert "cannot be opened" in error_of_run(pipe, stagingLocation="topic:nowhere")
    assert "cannot be written to or read by the driver" in error_of_run(pipe, stagingLocation="/proc/nowhere")
    pipe.run()
    pipe.check([1])
