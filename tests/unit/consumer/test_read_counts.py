"""The counters of a read in its log line."""

from __future__ import annotations

from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.records import DecodeCounts


def test_zero_counts_are_omitted() -> None:
    counts = ReadCounts(wait_seconds=0.25, total_seconds=1.5)
    counts.add_fetch("one:9092", 700)
    counts.add_fetch("one:9092", 300)
    counts.add_decoded(DecodeCounts(records=10, bytes=900))
    assert str(counts) == "10 records, 1000 bytes in 2 fetches from one:9092, 0.250 s of 1.500 s waiting for brokers"


def test_nonzero_counts_are_listed() -> None:
    counts = ReadCounts(retries=1, throttled=2, gaps=3, unproven_gaps=2, lost=4)
    counts.add_fetch("leader:9092", 0)
    counts.add_fetch("follower:9092", 0)
    counts.add_decoded(DecodeCounts(control=5, aborted=6, gaps=7))
    counts.add_decoded(DecodeCounts(control=1))
    assert " from leader:9092, follower:9092, " in str(counts)
    assert str(counts).endswith(
        "(1 retries, 2 throttled, 6 control, 6 aborted, 10 offset gaps, 2 of them unproven, 4 lost)"
    )


def test_read_without_a_broker() -> None:
    assert str(ReadCounts()).startswith("0 records, 0 bytes in 0 fetches from no broker, ")
