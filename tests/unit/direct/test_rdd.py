"""The arithmetic of KafkaRDD.take; everything else needs a broker (tests/integration/direct)."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.direct.rdd import _reaching


@pytest.mark.parametrize(
    ("wanted", "counts", "expected"),
    [
        (1, [10, 10], 1),
        (10, [10, 10], 1),
        (11, [10, 10], 2),
        (15, [10, 2, 2, 2], 4),
        (100, [10, 10], 2),
        (1, [], 0),
    ],
)
def test_how_many_partitions_hold_so_many_offsets(wanted: int, counts: list[int], expected: int) -> None:
    assert _reaching(wanted, counts) == expected
