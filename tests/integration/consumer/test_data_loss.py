"""Data loss: its cause, whether it is an error, and which records are still read (never twice)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.consumer import fetch_channel
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.errors import DataLossError

if TYPE_CHECKING:
    from tests.integration.workbench import Read, Workbench

BATCHES, BATCH_SIZE = 10, 10
COUNT = BATCHES * BATCH_SIZE

ONE_BATCH = {"max.partition.fetch.bytes": 1}
"""A fetch returns one batch, because the broker returns at least that."""


@pytest.fixture
def topic(bench: Workbench) -> str:
    """A topic of ten batches of ten records."""
    topic = bench.make_topic()
    fill(bench, topic)
    return topic


def fill(bench: Workbench, topic: str, batches: int = BATCHES, text: str = "first") -> None:
    starts = range(0, batches * BATCH_SIZE, BATCH_SIZE)
    bench.write(
        topic, *([f"{text}-{offset}".encode() for offset in range(start, start + BATCH_SIZE)] for start in starts)
    )


def assert_numbers(read: Read, *, records: int, lost: int, gaps: int = 0) -> None:
    assert (read.counts.records, read.counts.lost, read.counts.gaps) == (records, lost, gaps)


# Expired: the log start offset is beyond the wanted offset. 35 lies in the middle of a batch.


def test_expired_records_are_an_error(bench: Workbench, topic: str) -> None:
    bench.delete_records(topic, 35)
    with pytest.raises(DataLossError, match=r"aged out.*\[20, 35\).*retention.*log now holds \[35, 100\)") as caught:
        bench.read(topic, 20, COUNT)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 20)


@pytest.mark.parametrize("settings", [{}, ONE_BATCH])
def test_unexpired_records_are_read(bench: Workbench, topic: str, settings: dict[str, object]) -> None:
    bench.delete_records(topic, 35)
    read = bench.read(topic, 20, COUNT, fail_on_data_loss=False, kafka=settings)
    assert read.offsets == list(range(35, COUNT))
    assert_numbers(read, records=65, lost=15)


def test_completely_expired_range_is_empty(bench: Workbench, topic: str) -> None:
    bench.delete_records(topic, 35)
    read = bench.read(topic, 10, 30, fail_on_data_loss=False)
    assert read.offsets == []
    assert_numbers(read, records=0, lost=20)


def test_records_read_from_earliest_may_expire(bench: Workbench, topic: str) -> None:
    bench.delete_records(topic, 35)
    read = bench.read(topic, 0, COUNT, from_earliest=True)
    assert read.offsets == list(range(35, COUNT))
    assert_numbers(read, records=65, lost=0)


def test_records_that_expire_between_others_are_lost_from_earliest_too(bench: Workbench, topic: str) -> None:
    counts = ReadCounts()
    batches = bench.open(bench.request(topic, 0, COUNT, from_earliest=True), counts, **ONE_BATCH)
    assert next(batches).column("offset").to_pylist() == list(range(10))
    bench.delete_records(topic, 75)
    with pytest.raises(DataLossError, match=r"aged out.*, 75\).*retention.*log now holds \[75, 100\)"):
        list(batches)
    assert counts.records in (10, 20)  # the prefetched response may be in flight


def test_records_that_expire_during_a_read(bench: Workbench, topic: str) -> None:
    counts = ReadCounts()
    batches = bench.open(bench.request(topic, 0, COUNT, fail_on_data_loss=False), counts, **ONE_BATCH)
    offsets = next(batches).column("offset").to_pylist()
    bench.delete_records(topic, 75)
    for batch in batches:
        offsets.extend(batch.column("offset").to_pylist())
    # The prefetched response may be in flight already; no other deleted records are returned.
    read_before = len([offset for offset in offsets if offset < 75])
    assert read_before in (10, 20)
    assert offsets == [*range(read_before), *range(75, COUNT)]
    assert (counts.lost, counts.gaps, counts.records) == (75 - read_before, 0, len(offsets))


# Beyond the end.


def test_end_beyond_the_log_is_an_error_after_the_existing_records(bench: Workbench, topic: str) -> None:
    batches = bench.open(bench.request(topic, 50, 150))
    assert next(batches).column("offset").to_pylist() == list(range(50, COUNT))
    with pytest.raises(DataLossError, match=r"beyond the end of the log.*\[100, 150\).*log now holds \[0, 100\)"):
        next(batches)


def test_existing_records_before_the_end_are_read(bench: Workbench, topic: str) -> None:
    read = bench.read(topic, 50, 150, fail_on_data_loss=False)
    assert read.offsets == list(range(50, COUNT))
    assert_numbers(read, records=50, lost=50)


def test_start_beyond_the_end_is_data_loss(bench: Workbench, topic: str) -> None:
    with pytest.raises(DataLossError, match=r"beyond the end of the log.*\[150, 160\)"):
        bench.read(topic, 150, 160)
    read = bench.read(topic, 150, 160, fail_on_data_loss=False)
    assert_numbers(read, records=0, lost=10)


# Deleted and recreated.


def test_a_deleted_topic(bench: Workbench, topic: str) -> None:
    request = bench.request(topic, 20, COUNT)
    lenient = bench.request(topic, 20, COUNT, fail_on_data_loss=False)
    bench.delete_topic(topic)
    with pytest.raises(DataLossError, match=r"topic or partition deleted.*\[20, 100\)"):
        bench.run(request)
    read = bench.run(lenient)
    assert_numbers(read, records=0, lost=80)
    assert read.counts.total_seconds >= 5, "one response is not enough: the broker's metadata may be stale"


def test_topic_deleted_during_a_read(bench: Workbench, topic: str) -> None:
    counts = ReadCounts()
    batches = bench.open(bench.request(topic, 0, COUNT, fail_on_data_loss=False), counts, **ONE_BATCH)
    offsets = next(batches).column("offset").to_pylist()
    bench.delete_topic(topic)
    for batch in batches:
        offsets.extend(batch.column("offset").to_pylist())
    assert offsets == list(range(len(offsets)))
    assert len(offsets) <= 20
    assert counts.lost == COUNT - len(offsets)


@pytest.mark.parametrize(
    ("fetch_version", "batches"),
    [
        pytest.param(fetch_channel.NEWEST_VERSION, 2, marks=pytest.mark.soak),
        (fetch_channel.NEWEST_VERSION, BATCHES),
        pytest.param(12, 2 * BATCHES, marks=pytest.mark.soak),
    ],
)
def test_recreated_topic_is_not_the_planned_one(
    bench: Workbench, topic: str, fetch_version: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer, as many and more records; the last also with fetch requests without topic ids."""
    leader = bench.known_leader(topic)  # the new topic has the same one at the same epoch
    request = bench.request(topic, 20, COUNT, leader=leader)
    lenient = bench.request(topic, 20, COUNT, leader=leader, fail_on_data_loss=False)
    bench.recreate_topic(topic)
    assert bench.known_leader(topic) == leader
    fill(bench, topic, batches, "second")
    monkeypatch.setattr(fetch_channel, "NEWEST_VERSION", fetch_version)
    with pytest.raises(DataLossError, match=rf"deleted and recreated.*\[20, 100\).*id was {request.task.topic_id}"):
        bench.run(request)
    read = bench.run(lenient)
    assert read.values == []
    assert_numbers(read, records=0, lost=80)


def test_topic_recreated_during_a_read(bench: Workbench, topic: str) -> None:
    counts = ReadCounts()
    batches = bench.open(bench.request(topic, 0, COUNT, fail_on_data_loss=False), counts, **ONE_BATCH)
    values = next(batches).column("value").to_pylist()
    bench.recreate_topic(topic)
    fill(bench, topic, text="second")
    for batch in batches:
        values.extend(batch.column("value").to_pylist())
    assert values == [f"first-{offset}".encode() for offset in range(len(values))]
    assert counts.lost == COUNT - len(values) > 0


def test_without_a_known_topic_id_a_shorter_log_is_loss(bench: Workbench, topic: str) -> None:
    """As with ranges of offsets only."""
    bench.recreate_topic(topic)
    fill(bench, topic, 2, "second")
    with pytest.raises(DataLossError, match=r"beyond the end of the log.*\[30, 100\).*recreated"):
        bench.read(topic, 30, COUNT, topic_id=None)


def test_missing_partition_is_data_loss(bench: Workbench, topic: str) -> None:
    with pytest.raises(DataLossError, match=r"topic or partition deleted.*\[5, 9\)"):
        bench.read(topic, 5, 9, partition=7)


def test_warning_names_the_skipped_offsets(bench: Workbench, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    bench.delete_records(topic, 35)
    with caplog.at_level("WARNING", logger="pyspark_kafka_direct.consumer"):
        bench.read(topic, 20, 60, fail_on_data_loss=False)
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "pyspark_kafka_direct.consumer"]
    assert "aged out" in warning
    assert "[20, 35)" in warning
    assert "failOnDataLoss=false" in warning
