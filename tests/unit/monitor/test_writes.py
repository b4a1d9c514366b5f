"""What queries have written: the last batch, and sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest

from pyspark_kafka_direct.monitor._writes import SinkTotal, WriteLog
from pyspark_kafka_direct.monitor.monitor import Monitor
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.written import BatchWritten, PartitionWritten
from pyspark_kafka_direct.runtime.written_files import leave

if TYPE_CHECKING:
    from pathlib import Path

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def written(query_id: str | None, batch_id: int | None, *partitions: TopicPartition) -> BatchWritten:
    return BatchWritten(query_id, batch_id, dict.fromkeys(partitions, PartitionWritten(5, 8, 3, 30)))


def test_the_last_batch_by_id_by_name_and_of_batch_queries(tmp_path: Path) -> None:
    log = WriteLog(tmp_path)
    first, second, job = written("q", 0, A0), written("q", 1, A0, B0), written(None, None, A1)
    assert log.last() is None
    leave(first, "q", tmp_path)
    assert log.last("q") == first  # at once: Spark's report is still on its way
    leave(second, "q", tmp_path)
    log.batch_ended("q", "delays", 1)
    assert log.last("q") == log.last("delays") == second
    leave(job, "", tmp_path)
    assert log.last() == job


def test_sums_count_each_batch_that_was_reported(tmp_path: Path) -> None:
    log = WriteLog(tmp_path)
    for number, partitions in enumerate([(A0, A1), (A0,), (), (B0,)]):
        if partitions:
            leave(written("q", number, *partitions), "q", tmp_path)
        log.batch_ended("q", "delays", number)
    leave(written("r", 7, A0), "r", tmp_path)
    log.batch_ended("r", None, 7)
    assert log.totals == (
        SinkTotal("delays", "a", 9, 90),
        SinkTotal("delays", "b", 3, 30),
        SinkTotal("r", "a", 3, 30),
    )


def test_prometheus_gets_the_sums(tmp_path: Path) -> None:
    log = WriteLog(tmp_path)
    leave(written("q", 0, A0, A1), "q", tmp_path)
    log.batch_ended("q", "delays", 0)
    registry = CollectorRegistry()
    Monitor(writes=log).register_metrics(registry)
    labels = {"query": "delays", "topic": "a"}
    assert registry.get_sample_value("kafka_direct_sink_records_total", labels) == 6
    assert registry.get_sample_value("kafka_direct_sink_bytes_total", labels) == 60


def test_queries_of_one_name_are_one_series(tmp_path: Path) -> None:
    """A query that is started again without its checkpoint has another id."""
    log = WriteLog(tmp_path)
    for query_id in ("q", "r"):
        leave(written(query_id, 0, A0), query_id, tmp_path)
        log.batch_ended(query_id, "delays", 0)
    registry = CollectorRegistry()
    Monitor(writes=log).register_metrics(registry)
    text = generate_latest(registry).decode()
    assert text.count('kafka_direct_sink_records_total{query="delays",topic="a"}') == 1
    assert registry.get_sample_value("kafka_direct_sink_records_total", {"query": "delays", "topic": "a"}) == 6


def test_without_a_folder_nothing_is_known() -> None:
    log = WriteLog(None)
    log.batch_ended("q", None, 0)
    assert log.last("q") is None
    assert log.totals == ()
