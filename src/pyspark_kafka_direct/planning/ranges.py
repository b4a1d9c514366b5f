"""Splitting offset ranges into the pieces that become Spark tasks.

The arithmetic is that of Spark's ``KafkaOffsetRangeCalculator`` (SPARK-23541, SPARK-28489, SPARK-30656, SPARK-36576,
SPARK-49259): the same options give the same tasks. Two things differ.

With both options set, Spark leaves a whole partition unsplit when one of its pieces is too small to be split again.
Then it misses ``minPartitions``. Here each piece is looked at by itself.

Spark sets preferred executors on unsplit ranges. They are left out here: Python data sources cannot ask for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.offsets import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable


def split_ranges(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Cut ranges into pieces; empty ranges are dropped, order is kept, no offset is lost or repeated.

    Args:
        ranges: What is to be read; a topic-partition may occur more than once.
        min_partitions: At least about this many pieces: large ranges are divided in proportion to their size.
            Rounding can give some more or fewer. Fewer than there are ranges changes nothing.
        max_records_per_partition: No piece spans more offsets than this; applied before ``min_partitions``.
    """
    pieces = [r for r in ranges if r.count() > 0]
    if max_records_per_partition is not None:
        pieces = [
            piece for whole in pieces for piece in _divide(whole, _ceil_div(whole.count(), max_records_per_partition))
        ]
    if min_partitions is not None and min_partitions > len(pieces):
        pieces = _reach(pieces, min_partitions)
    return pieces


def _reach(ranges: list[OffsetRange], target: int) -> list[OffsetRange]:
    # Ranges too small for a second piece are taken out first: their share would otherwise be lost by the large ones.
    total = sum(r.count() for r in ranges)
    whole = {index for index, r in enumerate(ranges) if _share(r.count(), total, target) == 1}
    large_total = total - sum(ranges[index].count() for index in whole)
    large_target = max(target - len(whole), 1)
    return [
        piece
        for index, r in enumerate(ranges)
        for piece in _divide(r, 1 if index in whole else _share(r.count(), large_total, large_target))
    ]


def _share(count: int, total: int, target: int) -> int:
    """Return ``count`` over ``total`` times ``target``, rounded half up as Java's Math.round does, and at least 1."""
    return max((2 * count * target + total) // (2 * total), 1)


def _divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    pieces = []
    start = whole.from_offset
    # More parts than offsets would only make empty pieces.
    parts = min(parts, whole.count())
    for left in range(parts, 0, -1):
        # Integer division of what remains: the last pieces take the remainder.
        end = start + (whole.until_offset - start) // left
        pieces.append(OffsetRange(whole.topic, whole.partition, start, end))
        start = end
    return pieces


def _ceil_div(count: int, size: int) -> int:
    return -(-count // size)
