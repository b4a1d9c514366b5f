"""Lag from progress reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.monitor.reports import SOURCE, report, source

from pyspark_kafka_direct.monitor._lag import LagTracker, QueryLag, SourceBatch, source_batch
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from tests.unit.monitor.reports import Offsets

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TEN_TO_TEN = 1795254410.0  # 2026-11-21T09:46:50Z in seconds


def batch(start: Offsets, end: Offsets, latest: Offsets, **more: Any) -> SourceBatch:
    one = source(start, end, latest)
    read = source_batch(report(one, **more), one)
    assert read is not None
    return read


class TestReading:
    def test_a_batch(self) -> None:
        read = batch({"t": {"0": 5}}, {"t": {"0": 9}}, {"t": {"0": 12}})
        assert read == SourceBatch(SOURCE, TEN_TO_TEN * 1000, TEN_TO_TEN * 1000 + 2000, 10, {A: 5}, {A: 9}, {A: 12})
        assert read.records == 4

    def test_the_first_has_no_start(self) -> None:
        read = batch(None, {"t": {"0": 9}}, {"t": {"0": 12}})
        assert read.start == {}
        assert read.records == 10

    @pytest.mark.parametrize("nothing", [None, "None", "null"])
    def test_no_offset_in_the_words_of_pyspark(self, nothing: str | None) -> None:
        # "None" is what StreamingQueryProgress.fromJObject makes of Java's null, "null" is fromJson's.
        one = {**source(None, {"t": {"0": 9}}, None), "startOffset": nothing, "latestOffset": nothing}
        read = source_batch(report(one), one)
        assert read is not None
        assert (read.start, read.end, read.latest) == ({}, {A: 9}, {})

    def test_rows_stand_for_offsets_where_partitions_are_new(self) -> None:
        assert batch({"t": {"0": 5}}, {"t": {"0": 9, "1": 100}}, None).records == 10

    def test_without_latest(self) -> None:
        assert batch(None, {"t": {"0": 9}}, None).latest == {}

    @pytest.mark.parametrize("end", [None, "None", "null", "5", '{"files": "a"}', "not JSON", '{"t":[1]}'])
    def test_offsets_of_other_sources(self, end: str | None) -> None:
        other = {**source(None, None, None), "endOffset": end}
        assert source_batch(report(other), other) is None

    def test_a_report_that_lacks_something(self) -> None:
        one = source(None, {"t": {"0": 9}}, None)
        assert source_batch({}, one) is None


class TestLag:
    def test_numbers_that_spark_reports(self) -> None:
        lag = LagTracker().after(
            batch({"t": {"0": 0, "1": 0}}, {"t": {"0": 10, "1": 20}}, {"t": {"0": 15, "1": 21}}), "g"
        )
        assert (lag.min_offsets_behind, lag.max_offsets_behind, lag.avg_offsets_behind, lag.total) == (1, 5, 3.0, 6)

    def test_by_partition(self) -> None:
        lag = LagTracker().after(batch({"t": {"1": 5}}, {"t": {"0": 1, "1": 15}}, {"t": {"0": 1, "1": 15}}), "g")
        first, second = lag.partitions
        assert (first.partition, first.offset, first.latest, first.lag, first.seconds) == (0, 1, 1, 0, 0.0)
        assert (first.rate, second.rate, lag.rate) == (0.0, 5.0, 5.0)

    def test_no_partitions(self) -> None:
        lag = LagTracker().after(batch({"t": {"0": 5}}, {"t": {"0": 9}}, None), "g")
        assert (lag.partitions, lag.total, lag.avg_offsets_behind, lag.max_seconds_behind) == ((), 0, 0.0, None)

    def test_an_end_that_lags_is_no_negative_lag(self) -> None:
        lag = LagTracker().after(batch(None, {"t": {"0": 9}}, {"t": {"0": 7}}), "g")
        assert lag.partitions[0].lag == 0

    def test_seconds_from_earlier_batches(self) -> None:
        tracker = LagTracker()
        first = tracker.after(batch(None, {"t": {"0": 0}}, {"t": {"0": 100}}, at="2026-11-21T09:46:40.000Z"), "g")
        assert first.max_seconds_behind is None
        # 150 was the end 5 s before this batch was planned, and it took 2 s.
        second = tracker.after(batch({"t": {"0": 0}}, {"t": {"0": 150}}, {"t": {"0": 200}}), "g")
        assert second.max_seconds_behind == 7.0

    def test_a_partition_that_is_gone_is_forgotten(self) -> None:
        tracker = LagTracker()
        tracker.after(batch(None, {"t": {"0": 0, "1": 0}}, {"t": {"0": 1, "1": 1}}), "g")
        lag = tracker.after(batch(None, {"t": {"0": 0}}, {"t": {"0": 1}}), "g")
        assert [each.partition for each in lag.partitions] == [0]


class TestText:
    def lag(self) -> QueryLag:
        tracked = LagTracker().after(
            batch({"t": {"0": 0, "1": 0}}, {"t": {"0": 10, "1": 20}}, {"t": {"0": 15, "1": 20}}), "g"
        )
        return QueryLag("id", "run", "orders", 7, TEN_TO_TEN, (tracked,))

    def test_one_line(self) -> None:
        assert self.lag().line == (
            "query orders, batch 7: 5 offsets behind in 2 partitions (min 0, max 5, average 2.5, 0.0 s), 15 offsets/s"
        )

    def test_all(self) -> None:
        assert str(self.lag()).splitlines()[1:] == [
            "  t-0: offset 10, latest 15, lag 5 (unknown s), 5/s",
            "  t-1: offset 20, latest 20, lag 0 (0.0 s), 10/s",
        ]
