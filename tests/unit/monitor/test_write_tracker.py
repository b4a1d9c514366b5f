"""What queries have written: the last batch, and totals."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pyspark_kafka_direct.monitor import query_status
from pyspark_kafka_direct.monitor.query_monitor import Monitor
from pyspark_kafka_direct.monitor.query_status import SinkTotal, WriteTracker
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark.listener_files import load_write_report, save_write_report
from pyspark_kafka_direct.spark.write_report import BatchWriteReport, PartitionWriteReport

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

    from pyspark_kafka_direct.monitor.prometheus_metrics import LagCollector

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def written(query_id: str | None, batch_id: int | None, *partitions: TopicPartition) -> BatchWriteReport:
    return BatchWriteReport(query_id, batch_id, dict.fromkeys(partitions, PartitionWriteReport(5, 8, 3, 30)))


def test_the_last_batch_by_id_and_name_and_of_batch_queries(tmp_path: Path) -> None:
    tracker = WriteTracker(tmp_path)
    first, second, batch_query = written("q", 0, A0), written("q", 1, A0, B0), written(None, None, A1)
    assert tracker.last_batch() is None
    save_write_report(first, "q", tmp_path)
    assert tracker.last_batch("q") == first  # immediately, before Spark's report arrives
    save_write_report(second, "q", tmp_path)
    tracker.batch_ended("q", "delays", 1)
    assert tracker.last_batch("q") == tracker.last_batch("delays") == second
    save_write_report(batch_query, "", tmp_path)
    assert tracker.last_batch() == batch_query


def test_totals_include_each_reported_batch(tmp_path: Path) -> None:
    tracker = WriteTracker(tmp_path)
    for number, partitions in enumerate([(A0, A1), (A0,), (), (B0,)]):
        if partitions:
            save_write_report(written("q", number, *partitions), "q", tmp_path)
        tracker.batch_ended("q", "delays", number)
    save_write_report(written("r", 7, A0), "r", tmp_path)
    tracker.batch_ended("r", None, 7)
    assert tracker.totals == (
        SinkTotal("delays", "a", 9, 90),
        SinkTotal("delays", "b", 3, 30),
        SinkTotal("r", "a", 3, 30),
    )


def test_the_totals_in_prometheus(tmp_path: Path) -> None:
    tracker = WriteTracker(tmp_path)
    save_write_report(written("q", 0, A0, A1, B0), "q", tmp_path)
    tracker.batch_ended("q", "delays", 0)
    registry = CollectorRegistry()
    collectors: MutableMapping[CollectorRegistry, LagCollector] = {}
    Monitor(collectors=collectors).register_metrics(registry)
    monitor = Monitor(write_tracker=tracker, collectors=collectors)
    monitor.register_metrics(registry)
    assert monitor.written("delays") == monitor.written("q") == written("q", 0, A0, A1, B0)
    assert monitor.written("another") is None
    assert monitor.sink_totals == (SinkTotal("delays", "a", 6, 60), SinkTotal("delays", "b", 3, 30))
    for topic, records in (("a", 6), ("b", 3)):
        labels = {"query": "delays", "topic": topic}
        assert registry.get_sample_value("kafka_direct_sink_records_total", labels) == records
        assert registry.get_sample_value("kafka_direct_sink_bytes_total", labels) == 10 * records


def test_queries_with_the_same_name_are_one_series(tmp_path: Path) -> None:
    """A query that restarts without its checkpoint has another id."""
    tracker = WriteTracker(tmp_path)
    for query_id in ("q", "r"):
        save_write_report(written(query_id, 0, A0), query_id, tmp_path)
        tracker.batch_ended(query_id, "delays", 0)
    registry = CollectorRegistry()
    Monitor(write_tracker=tracker).register_metrics(registry)
    metrics = generate_latest(registry).decode()
    assert metrics.count('kafka_direct_sink_records_total{query="delays",topic="a"}') == 1
    assert registry.get_sample_value("kafka_direct_sink_records_total", {"query": "delays", "topic": "a"}) == 6


def test_queries_that_wrote_longest_ago_are_forgotten(tmp_path: Path) -> None:
    tracker = WriteTracker(tmp_path)
    for number in range(250):
        query_id = f"q{number}"
        save_write_report(written(query_id, 0, A0), query_id, tmp_path)
        tracker.batch_ended(query_id, f"run {number}", 0)
    assert len(tracker.totals) == len(list(tmp_path.iterdir())) == 100
    for known, expected in (("run 149", None), ("q149", None), ("run 150", "q150"), ("q150", "q150")):
        last = tracker.last_batch(known)
        assert (None if last is None else last.query_id) == expected


@pytest.mark.parametrize("seed", range(12))
def test_what_many_queries_have_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Queries restart under another name, share names, and write to several partitions of a topic."""
    monkeypatch.setattr(query_status, "_MAX_SINK_QUERIES", 4)
    rng, tracker = random.Random(seed), WriteTracker(tmp_path)
    labels: dict[str, str] = {}  # by query id; the query that wrote last is the last one
    totals: dict[str, dict[str, SinkTotal]] = {}  # by query id and topic
    last: dict[str, BatchWriteReport] = {}
    for batch in range(60):
        query_id, name = rng.choice("pqrstu"), rng.choice([None, "copies", "orders"])
        written_to = rng.sample([A0, A1, B0], rng.randint(0, 3))
        counts = {tp: PartitionWriteReport(0, 0, rng.randrange(9), rng.randrange(99)) for tp in written_to}
        if counts:
            last[query_id] = BatchWriteReport(query_id, batch, counts)
            save_write_report(last[query_id], query_id, tmp_path)
            labels.pop(query_id, None)
            labels[query_id] = label = name or query_id
            own = totals.setdefault(query_id, {})
            for topic in {tp.topic for tp in counts}:
                before = own.get(topic, SinkTotal(label, topic, 0, 0))
                found = [count for tp, count in counts.items() if tp.topic == topic]
                records, size = (sum(getattr(each, unit) for each in found) for unit in ("records", "bytes"))
                own[topic] = SinkTotal(label, topic, before.records + records, before.bytes + size)
            for evicted in list(labels)[:-4]:
                del labels[evicted], totals[evicted], last[evicted]
        tracker.batch_ended(query_id, name, batch)
        assert set(tracker.totals) == {total for each in totals.values() for total in each.values()}
        assert {query_id: tracker.last_batch(query_id) for query_id in "pqrstu"} == {
            query_id: last.get(query_id) for query_id in "pqrstu"
        }
        for label in ("copies", "orders"):
            newest = next((query_id for query_id in reversed(labels) if labels[query_id] == label), None)
            assert tracker.last_batch(label) == (None if newest is None else last[newest])


def test_without_a_folder_nothing_is_known() -> None:
    tracker = WriteTracker(None)
    tracker.batch_ended("q", None, 0)
    assert tracker.last_batch("q") is None
    assert tracker.totals == ()


def test_a_query_that_continues_to_write_is_kept(tmp_path: Path) -> None:
    tracker = WriteTracker(tmp_path)

    def write(query_id: str, batch: int) -> None:
        save_write_report(written(query_id, batch, A0), query_id, tmp_path)
        tracker.batch_ended(query_id, None, batch)

    write("old", 0)
    write("kept", 0)
    for number in range(query_status._MAX_SINK_QUERIES - 1):
        write(f"q{number}", 0)
        write("kept", number + 1)
    queries = [total.query for total in tracker.totals]
    assert ("old" in queries, "kept" in queries) == (False, True)
    assert load_write_report(tmp_path, "old") is None
