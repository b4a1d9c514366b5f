"""What one task did, as a line of the log."""

from __future__ import annotations

from pyspark_kafka_direct.reading.counts import ReadCounts
from pyspark_kafka_direct.records import DecodeCounts


def test_a_plain_read_is_told_without_what_did_not_happen() -> None:
    counts = ReadCounts(wait_seconds=0.25, total_seconds=1.5)
    counts.fetched("one:9092", 700)
    counts.fetched("one:9092", 300)
    counts.take(DecodeCounts(records=10, bytes=900))
    assert str(counts) == "10 records, 1000 bytes in 2 fetches from one:9092, 0.250 s of 1.500 s waiting for brokers"


def test_what_did_happen_is_named() -> None:
    counts = ReadCounts(retries=1, throttled=2, holes=3, unproven=2, lost=4)
    counts.fetched("leader:9092", 0)
    counts.fetched("follower:9092", 0)
    counts.take(DecodeCounts(control=5, aborted=6, holes=7))
    counts.take(DecodeCounts(control=1))
    assert " from leader:9092, follower:9092, " in str(counts)
    assert str(counts).endswith("(1 retries, 2 throttled, 6 control, 6 aborted, 10 holes, 2 of them unproven, 4 lost)")


def test_a_read_that_needed_no_broker_says_so() -> None:
    assert str(ReadCounts()).startswith("0 records, 0 bytes in 0 fetches from no broker, ")
