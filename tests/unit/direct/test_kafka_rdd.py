"""The arithmetic of ``KafkaRDD.take``; all other tests of it need a broker (tests/integration/direct)."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.direct.kafka_rdd import _partitions_needed


@pytest.mark.parametrize(
    ("record_count", "offset_counts", "expected"),
    [
        (1, [10, 10], 1),
        (10, [10, 10], 1),
        (11, [10, 10], 2),
        (15, [10, 2, 2, 2], 4),
        (100, [10, 10], 2),
        (1, [], 0),
    ],
)
def test_how_many_partitions_contain_the_offsets(record_count: int, offset_counts: list[int], expected: int) -> None:
    assert _partitions_needed(record_count, offset_counts) == expected
