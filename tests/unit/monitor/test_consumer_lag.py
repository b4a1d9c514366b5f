"""Lag computed from progress reports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.monitor.progress_reports import SOURCE, report, source

from pyspark_kafka_direct.monitor.consumer_lag import (
    LagTracker,
    QueryLag,
    SourceBatch,
    parse_source_progress,
)
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from tests.unit.monitor.progress_reports import Offsets

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH_START = 1795254410.0  # 2026-11-21T09:46:50Z, the start of the batch in the reports


def batch(start: Offsets, end: Offsets, latest: Offsets, **fields: Any) -> SourceBatch:
    source_progress = source(start, end, latest)
    parsed = parse_source_progress(report(source_progress, **fields), source_progress)
    assert parsed is not None
    return parsed


class TestParsing:
    def test_a_batch(self) -> None:
        parsed = batch({"t": {"0": 5, "1": 1}}, {"t": {"0": 9, "1": 4}}, {"t": {"0": 12, "1": 4}})
        assert parsed == SourceBatch(
            SOURCE, BATCH_START * 1000, BATCH_START * 1000 + 2000, 10, {A: 5, B: 1}, {A: 9, B: 4}, {A: 12, B: 4}
        )
        assert parsed.records == 7

    def test_the_first_batch_has_no_start_offsets(self) -> None:
        parsed = batch(None, {"t": {"0": 9}}, {"t": {"0": 12}})
        assert parsed.start == {}
        assert parsed.records == 10

    @pytest.mark.parametrize("no_offsets", [None, "None", "null"])
    def test_null_offsets_as_formatted_by_pyspark(self, no_offsets: str | None) -> None:
        # StreamingQueryProgress.fromJObject converts Java's null to "None", and fromJson converts it to "null".
        source_progress = {**source(None, {"t": {"0": 9}}, None), "startOffset": no_offsets, "latestOffset": no_offsets}
        parsed = parse_source_progress(report(source_progress), source_progress)
        assert parsed is not None
        assert (parsed.start, parsed.end, parsed.latest) == ({}, {A: 9}, {})

    def test_rows_are_counted_if_partitions_are_new(self) -> None:
        assert batch({"t": {"0": 5}}, {"t": {"0": 9, "1": 100}}, None).records == 10

    def test_without_end_offsets(self) -> None:
        assert batch(None, {"t": {"0": 9}}, None).latest == {}

    @pytest.mark.parametrize("end", [None, "None", "null", "5", '{"files": "a"}', "not JSON", '{"t":[1]}'])
    def test_offsets_of_other_sources(self, end: str | None) -> None:
        other = {**source(None, None, None), "endOffset": end}
        assert parse_source_progress(report(other), other) is None

    def test_an_incomplete_report(self) -> None:
        source_progress = source(None, {"t": {"0": 9}}, None)
        assert parse_source_progress({}, source_progress) is None


class TestLag:
    def test_the_statistics_that_spark_reports(self) -> None:
        lag = LagTracker().update(
            batch({"t": {"0": 0, "1": 0}}, {"t": {"0": 10, "1": 20}}, {"t": {"0": 11, "1": 25}}), "g"
        )
        assert (lag.min_offsets_behind, lag.max_offsets_behind, lag.avg_offsets_behind, lag.total) == (1, 5, 3.0, 6)

    def test_the_lag_of_each_partition(self) -> None:
        lag = LagTracker().update(batch({"t": {"1": 5}}, {"t": {"0": 1, "1": 15}}, {"t": {"0": 1, "1": 15}}), "g")
        first, second = lag.partitions
        assert (first.partition, first.offset, first.latest, first.lag, first.seconds) == (0, 1, 1, 0, 0.0)
        assert (first.rate, second.rate, lag.rate) == (0.0, 5.0, 5.0)

    def test_no_partitions(self) -> None:
        lag = LagTracker().update(batch({"t": {"0": 5}}, {"t": {"0": 9}}, None), "g")
        assert (lag.partitions, lag.total, lag.avg_offsets_behind, lag.max_seconds_behind) == ((), 0, 0.0, None)
        assert (lag.min_offsets_behind, lag.max_offsets_behind, lag.rate) == (0, 0, 0.0)

    def test_an_outdated_end_offset_gives_no_negative_lag(self) -> None:
        lag = LagTracker().update(batch(None, {"t": {"0": 9}}, {"t": {"0": 7}}), "g")
        assert lag.partitions[0].lag == 0

    def test_seconds_from_earlier_batches(self) -> None:
        tracker = LagTracker()
        first = tracker.update(batch(None, {"t": {"0": 0}}, {"t": {"0": 100}}, started="2026-11-21T09:46:40.000Z"), "g")
        assert first.max_seconds_behind is None
        # 150 was the end 5 s before this batch was planned, and it took 2 s.
        second = tracker.update(batch({"t": {"0": 0}}, {"t": {"0": 150}}, {"t": {"0": 200}}), "g")
        assert second.max_seconds_behind == 7.0

    @pytest.mark.parametrize(("fetched_after", "seconds"), [(None, 7.0), (1.0, 7.0), (30.0, 35.0)])
    def test_the_lag_grows_while_no_batch_ends(self, fetched_after: float | None, seconds: float) -> None:
        """150 was the end 5 s before the batch, which took 2 s. End offsets may be fetched later."""
        tracker = LagTracker()
        tracker.update(batch(None, {"t": {"0": 0}}, {"t": {"0": 100}}, started="2026-11-21T09:46:40.000Z"), "g")
        planned = batch({"t": {"0": 0}}, {"t": {"0": 150}}, {"t": {"0": 200}})
        assert tracker.update(planned, "g").max_seconds_behind == 7.0
        if fetched_after is not None:
            later = replace(planned, latest={A: 250}, latest_fetched_ms=planned.began_ms + 1000 * fetched_after)
            assert tracker.update(later, "g").max_seconds_behind == seconds

    def test_deleted_partitions_are_dropped(self) -> None:
        tracker = LagTracker()
        found = []
        for minute, partitions in (("46", "012"), ("47", "0"), ("48", "012")):
            ends, latest = dict.fromkeys(partitions, 0), dict.fromkeys(partitions, int(minute))
            found.append(
                tracker.update(batch(None, {"t": ends}, {"t": latest}, started=f"2026-11-21T09:{minute}:50.000Z"), "g")
            )
        assert [each.partition for each in found[1].partitions] == [0]
        is_known = [each.seconds is not None for each in found[2].partitions]
        assert is_known == [True, False, False], "a recreated partition has another log"


class TestFormatting:
    def lag(self) -> QueryLag:
        tracked = LagTracker().update(
            batch({"t": {"0": 0, "1": 0}}, {"t": {"0": 10, "1": 20}}, {"t": {"0": 15, "1": 20}}), "g"
        )
        other = LagTracker().update(batch({"u": {"0": 0}}, {"u": {"0": 4}}, {"u": {"0": 6}}), "g")
        return QueryLag("id", "run", "orders", 7, BATCH_START, (tracked, other))

    def test_the_summary(self) -> None:
        assert self.lag().summary == (
            "query orders, batch 7: 5 offsets behind in 2 partitions (min 0, max 5, average 2.5, at most 0.0 s), 15 "
            "offsets/s; 2 offsets behind in 1 partitions (min 2, max 2, average 2.0, time unknown), 2 offsets/s"
        )

    def test_a_query_without_a_name_has_its_id(self) -> None:
        for lag, shown in ((self.lag(), "orders"), (replace(self.lag(), name=None), "id")):
            assert lag.summary.startswith(f"query {shown}, batch 7: ")
            assert str(lag).startswith(f"{shown}, batch 7: 5 offsets behind in 2 partitions")

    def test_the_full_text(self) -> None:
        assert str(self.lag()).splitlines()[1:] == [
            "  t-0: offset 10, latest 15, lag 5 (time unknown), 5/s",
            "  t-1: offset 20, latest 20, lag 0 (0.0 s), 10/s",
            "  u-0: offset 4, latest 6, lag 2 (time unknown), 2/s",
        ]
