"""``count_range`` returns the number of records that a read returns, on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.open_transactions import COMMITTED

from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.errors import DataLossError

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench


def count(bench: Workbench, topic: str, start: int, until: int, limit: int | None = None, **kafka: Any) -> int:
    return bench.count(bench.request(topic, start, until), limit=limit, **kafka)


@pytest.mark.parametrize("settings", [{}, COMMITTED], ids=["uncommitted", "committed"])
def test_transactions(bench: Workbench, mixed: str, settings: dict[str, Any]) -> None:
    end = bench.end(mixed)
    for start in range(end):
        for until in {start + 1, (start + end + 1) // 2, end}:
            assert count(bench, mixed, start, until, **settings) == len(
                bench.read(mixed, start, until, kafka=settings).rows
            )


def test_compaction(bench: Workbench, compacted: str) -> None:
    end = bench.end(compacted)
    for start in range(0, end, max(1, end // 7)):
        assert count(bench, compacted, start, end) == len(bench.read(compacted, start, end).rows)


def test_many_fetches(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"x" * 100] * 20_000, batch_size=10_000, compression_type="lz4")
    counts = ReadCounts()
    request = bench.request(topic, 7, 19_993)
    assert bench.count(request, counts, max_partition_fetch_bytes=20_000) == 19_986
    assert counts.records == 19_986
    assert counts.fetches > 5


def test_limit_ends_the_count_early(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, *[[b"x" * 1000] * 10 for _ in range(20)])
    counts = ReadCounts()
    request = bench.request(topic, 0, 200)
    assert 1 <= bench.count(request, counts, limit=1, max_partition_fetch_bytes=15_000) < 200
    assert counts.fetches == 1


def test_lost_records_are_an_error(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"x"] * 10)
    with pytest.raises(DataLossError, match="10"):
        count(bench, topic, 0, 11)
    bench.delete_records(topic, 4)
    with pytest.raises(DataLossError):
        count(bench, topic, 3, 10)
    assert count(bench, topic, 4, 10) == 6


def test_transient_errors_are_retried(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"x"] * 10)
    unreachable = PartitionLeader(Node(99, "127.0.0.1", 1), 0)  # the planned leader
    counts = ReadCounts()
    assert bench.count(bench.request(topic, 0, 10, leader=unreachable), counts) == 10
    assert counts.retries >= 1


def test_recreated_topic_is_data_loss(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"x"])
    request = bench.request(topic, 0, 1)
    bench.recreate_topic(topic)
    bench.write(topic, [b"y"])
    with pytest.raises(DataLossError, match="deleted and recreated"):
        bench.count(request)
