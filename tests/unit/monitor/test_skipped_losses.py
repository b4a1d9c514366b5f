"""Data loss that planners skip, as the monitor and Prometheus show it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.monitor import LossTotal, MalformedTotal, Monitor
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.spark.loss_counts import LossCounter

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

    import pytest

    from pyspark_kafka_direct.monitor.prometheus_metrics import LagCollector

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
EXPIRED = (DataLossCause.AGED_OUT, {A0: 40})
DELETED = (DataLossCause.DELETED, {A0: 0, A1: 0})


def test_losses_of_all_planners_are_summed(tmp_path: Path) -> None:
    monitor = Monitor(shared_folder=tmp_path)
    assert not monitor.losses
    first, second = LossCounter(SYSTEM, lambda: tmp_path), LossCounter(SYSTEM, lambda: tmp_path)
    first.add(*EXPIRED)
    first.add(*EXPIRED)
    second.add(*EXPIRED)
    second.add(*DELETED)
    assert monitor.losses == (
        LossTotal("a", 0, "aged_out", 3, 120),
        LossTotal("a", 0, "deleted", 1, 0),
        LossTotal("a", 1, "deleted", 1, 0),
    )
    assert not monitor.malformed_records


def test_malformed_records_are_no_losses(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    monitor = Monitor(shared_folder=tmp_path)
    monitor.register_metrics(registry)
    counter = LossCounter(SYSTEM, lambda: tmp_path)
    counter.add_malformed("DROPMALFORMED", {A0: 2, A1: 1})
    counter.add_malformed("DROPMALFORMED", {A0: 3})
    LossCounter(SYSTEM, lambda: tmp_path).add_malformed("PERMISSIVE", {A0: 7})
    assert monitor.losses == ()
    assert monitor.malformed_records == (
        MalformedTotal("a", 0, "DROPMALFORMED", 5),
        MalformedTotal("a", 0, "PERMISSIVE", 7),
        MalformedTotal("a", 1, "DROPMALFORMED", 1),
    )
    labels = {"topic": "a", "partition": "0", "mode": "DROPMALFORMED"}
    assert registry.get_sample_value("kafka_direct_malformed_records_total", labels) == 5
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert not names & {"kafka_direct_data_losses_total", "kafka_direct_skipped_offsets_total"}


def test_records_whose_schema_cannot_be_used_are_counted_apart(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    monitor = Monitor(shared_folder=tmp_path)
    monitor.register_metrics(registry)
    counter = LossCounter(SYSTEM, lambda: tmp_path)
    counter.add_malformed("PERMISSIVE", {A0: 2}, {A0: 3, A1: 1})
    LossCounter(SYSTEM, lambda: tmp_path).add_malformed("PERMISSIVE", {}, {A0: 4})
    assert monitor.malformed_records == (
        MalformedTotal("a", 0, "PERMISSIVE", 2, 7),
        MalformedTotal("a", 1, "PERMISSIVE", 0, 1),
    )
    for partition, malformed, schema_errors in ((0, 2, 7), (1, 0, 1)):
        labels = {"topic": "a", "partition": str(partition), "mode": "PERMISSIVE"}
        assert registry.get_sample_value("kafka_direct_malformed_records_total", labels) == malformed
        assert registry.get_sample_value("kafka_direct_schema_error_records_total", labels) == schema_errors


def test_prometheus_shows_losses_once_for_the_sessions_of_an_application(tmp_path: Path) -> None:
    counter = LossCounter(SYSTEM, lambda: tmp_path)
    counter.add(*EXPIRED)
    counter.add(*DELETED)
    registry = CollectorRegistry()
    collectors: MutableMapping[CollectorRegistry, LagCollector] = {}
    Monitor(collectors=collectors).register_metrics(registry)  # Spark Connect has no folder
    for _ in range(2):
        Monitor(shared_folder=tmp_path, collectors=collectors).register_metrics(registry)

    def sample(name: str, partition: int, cause: str) -> float | None:
        labels = {"topic": "a", "partition": str(partition), "cause": cause}
        return registry.get_sample_value(f"kafka_direct_{name}_total", labels)

    assert (sample("skipped_offsets", 0, "aged_out"), sample("data_losses", 0, "aged_out")) == (40, 1)
    assert [sample("data_losses", partition, "deleted") for partition in (0, 1)] == [1, 1]
    another = tmp_path / "application"
    another.mkdir()
    LossCounter(SYSTEM, lambda: another).add(*EXPIRED)
    Monitor(shared_folder=another, collectors=collectors).register_metrics(registry)
    assert (sample("skipped_offsets", 0, "aged_out"), sample("data_losses", 1, "deleted")) == (80, 1)


def test_losses_before_enable_are_saved_with_the_next_one(tmp_path: Path) -> None:
    folders = [None, tmp_path]
    counter = LossCounter(SYSTEM, lambda: folders.pop(0))
    counter.add(*EXPIRED)
    assert list(tmp_path.iterdir()) == []
    counter.add(*EXPIRED)
    assert Monitor(shared_folder=tmp_path).losses == (LossTotal("a", 0, "aged_out", 2, 80),)


def test_a_file_that_cannot_be_written_or_read_fails_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        LossCounter(SYSTEM, lambda: tmp_path / "missing").add(*EXPIRED)
    assert "cannot save the count of skipped offsets" in caplog.text
    (tmp_path / "broken.losses").write_text("[[[1, 2]], []]")
    (tmp_path / "older.losses").write_text("[]")
    LossCounter(SYSTEM, lambda: tmp_path).add(*EXPIRED)
    assert [loss.offsets for loss in Monitor(shared_folder=tmp_path).losses] == [40]
    assert "broken.losses" in caplog.text
    assert "older.losses" in caplog.text
