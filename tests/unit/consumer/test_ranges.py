"""Reading, counting and sampling offset ranges on a simulated cluster."""

from __future__ import annotations

import struct
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.examples import seeds
from tests.settings import task_settings
from tests.unit.consumer.polling import ONE, ConsumerCluster

from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_counter import count_range
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.consumer.record_size import measure_batches, sample_record_size
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.planning.read_limits import RecordSizeSample

if TYPE_CHECKING:
    import random

    from tests.settings import TaskSettings

    from pyspark_kafka_direct.options.settings import IsolationLevel

ISOLATION_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
BATCH_PREFIX = struct.Struct(">qi")


def task(until: int, start: int = 0) -> RangeTask:
    return RangeTask(OffsetRange(ONE.topic, ONE.partition, start, until))


def config(
    cluster: ConsumerCluster, isolation_level: IsolationLevel = "read_uncommitted", **fetch: Any
) -> TaskSettings:
    return task_settings(cluster.client().settings, FetchSettings(isolation_level, **fetch))


def append_transactions(cluster: ConsumerCluster) -> None:
    """Append three committed records, two aborted ones, and a gap of four offsets; the end is 12."""
    cluster.append(ONE, 3, producer_id=7)
    cluster.end_transaction(ONE, 7, commit=True)
    cluster.append(ONE, 2, producer_id=8)
    cluster.end_transaction(ONE, 8, commit=False)
    cluster.append_gap(ONE, 4)
    cluster.append(ONE, 1)


def test_the_counts_of_a_read_have_records_markers_aborted_records_and_gaps(cluster: ConsumerCluster) -> None:
    append_transactions(cluster)
    counts, pool = ReadCounts(), cluster.client().pool
    batches = list(read_range(*config(cluster, "read_committed"), task(12), ("offset",), counts, pool=pool))
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == [0, 1, 2, 11]
    assert (counts.records, counts.control, counts.aborted, counts.gaps) == (4, 2, 2, 4)
    assert 0 < counts.wait_seconds <= counts.total_seconds < 1


def test_the_counts_of_a_read_have_what_was_read_before_and_behind_lost_records(cluster: ConsumerCluster) -> None:
    for _ in range(3):
        cluster.append(ONE, 10, size=1000)
    counts, pool = ReadCounts(), cluster.client().pool
    settings = config(cluster, fetch_max_bytes=100, fail_on_data_loss=False)
    batches = read_range(*settings, task(30), ("offset",), counts, pool=pool, max_rows=10)
    offsets = next(batches).column("offset").to_pylist()
    cluster.event("delete_records", topic=ONE.topic, partition=ONE.partition, fraction=25 / 30)
    offsets += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets[:10] == list(range(10))
    assert offsets[-5:] == list(range(25, 30))
    assert counts.records == len(offsets)


def test_a_count_is_that_of_the_read(cluster: ConsumerCluster) -> None:
    append_transactions(cluster)
    counts, pool = ReadCounts(), cluster.client().pool
    assert count_range(*config(cluster, "read_committed"), task(12), counts=counts, pool=pool) == 4
    assert counts.records == 4
    assert count_range(*config(cluster), task(12), pool=pool) == 6
    assert count_range(*config(cluster), task(11, 2), pool=pool) == 3


def append_any(cluster: ConsumerCluster, rng: random.Random) -> None:
    """Append records, a gap, or a transaction that ends."""
    kind, count = rng.randrange(4), rng.randint(1, 5)
    if kind == 0:
        cluster.append(ONE, count, size=rng.choice([0, 1000]))
    elif kind == 1:
        cluster.append_gap(ONE, count)
    else:
        cluster.append(ONE, count, producer_id=7)
        cluster.end_transaction(ONE, 7, commit=kind == 2)


def check_counts_of_adjacent_ranges(rng: random.Random) -> None:
    with ConsumerCluster(1, earliest_local=rng.random() < 0.5) as cluster:
        for _ in range(rng.randint(1, 10)):
            append_any(cluster, rng)
        log, pool = cluster.log(ONE), cluster.client().pool
        bounds = sorted({0, log.end, *(rng.randint(0, log.end) for _ in range(3))})
        isolation_level = rng.choice(ISOLATION_LEVELS)
        settings = config(cluster, isolation_level, fetch_max_bytes=rng.choice([1, 1 << 20]), fail_on_data_loss=False)
        for _ in range(rng.randrange(3)):
            start = rng.randint(0, log.end)
            cluster.before("Fetch", *[lambda: None] * rng.randrange(3))
            cluster.before("Fetch", partial(cluster.delete_records, ONE, start))
        for first, until in pairwise(bounds):
            counts = ReadCounts()
            batches = list(read_range(*settings, task(until, first), ("offset",), counts, pool=pool))
            offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
            assert offsets == sorted({*offsets} & {*range(first, until)})
            assert counts.records == len(offsets)
            assert counts.records + counts.control + counts.aborted + counts.gaps + counts.lost == until - first
            assert sum(counts.skipped.values()) == counts.lost + counts.unproven_gaps


def test_each_offset_counts_once_in_one_of_adjacent_ranges() -> None:
    """It is a record, a marker, an aborted record, a gap or lost, also if records are deleted several times."""
    seeds(25)(check_counts_of_adjacent_ranges)()


@pytest.mark.parametrize(("limit", "fetches", "counted"), [(1, 1, 10), (10, 1, 10), (11, 2, 20), (None, 4, 40)])
def test_a_count_stops_after_the_fetch_that_reaches_its_limit(
    cluster: ConsumerCluster, limit: int | None, fetches: int, counted: int
) -> None:
    for _ in range(4):
        cluster.append(ONE, 10, size=1000)
    pool = cluster.client().pool
    assert count_range(*config(cluster, fetch_max_bytes=100), task(40), limit=limit, pool=pool) == counted
    assert len(cluster.fetched()) == fetches


@pytest.mark.parametrize("limit", [0, -1])
def test_a_count_without_records_to_count_sends_nothing(cluster: ConsumerCluster, limit: int) -> None:
    cluster.append(ONE, 10)
    assert count_range(*config(cluster), task(10), limit=limit, pool=cluster.client().pool) == 0
    assert cluster.requests == []


def test_a_sample_has_the_bytes_and_offsets_of_the_complete_batches(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 10, size=100)
    cluster.append_gap(ONE, 5)
    cluster.append(ONE, 10, size=100)
    client = cluster.client()
    fetch = FetchSettings(fetch_min_bytes=1 << 20, fetch_max_wait_ms=30_000)
    start = cluster.now

    def sample(offset: int) -> RecordSizeSample | None:
        return sample_record_size(client.settings, fetch, ONE, offset, client.deadline(), pool=client.pool)

    log_bytes = sum(len(batch.data) for batch in cluster.log(ONE).batches)
    assert sample(0) == sample(3) == RecordSizeSample(log_bytes, 25)
    assert sample(25) is None
    first, second = (bytes(batch.data) for batch in cluster.log(ONE).batches)
    assert measure_batches(first + second[:-1], 0) == RecordSizeSample(len(first), 10)
    assert cluster.now - start < 1, "it does not wait for fetch.min.bytes"


def test_a_sample_may_have_one_record(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 1)
    data = bytes(cluster.log(ONE).batches[0].data)
    assert measure_batches(data, 0) == RecordSizeSample(len(data), 1)


@pytest.mark.parametrize("length", [-1, 0, 40, 1 << 30])
def test_bytes_without_a_complete_batch_are_no_sample(length: int) -> None:
    assert measure_batches(BATCH_PREFIX.pack(5, length), 5) is None
    assert measure_batches(b"", 5) is None
