"""Splits offset ranges into the ranges of Spark tasks.

The arithmetic is that of Spark's ``KafkaOffsetRangeCalculator`` (SPARK-23541, SPARK-28489, SPARK-30656, SPARK-36576,
SPARK-49259): the same options give the same tasks, with two exceptions. With both options set, Spark leaves a whole
partition unsplit if one of its pieces is too small to be split again, and misses ``minPartitions``; here each piece is
considered by itself. And there are no preferred executors, because Python data sources cannot request them.
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
    """Split ranges; drop empty ones, keep the order and neither lose nor repeat an offset.

    ``max_records_per_partition`` is applied first. Then large ranges are split in proportion to their size until there
    are about ``min_partitions``; rounding can give some more or fewer.
    """
    pieces = [r for r in ranges if r.count() > 0]
    if max_records_per_partition is not None:
        pieces = [
            piece
            for large in pieces
            for piece in _split_evenly(large, _ceil_div(large.count(), max_records_per_partition))
        ]
    if min_partitions is not None and min_partitions > len(pieces):
        pieces = _split_to_count(pieces, min_partitions)
    return pieces


def _split_to_count(ranges: list[OffsetRange], target: int) -> list[OffsetRange]:
    """Split large ranges in proportion to their size, so that there are about ``target`` ranges."""
    # Ranges too small to be split are excluded first: each takes a whole task, so the others share the remaining tasks.
    total = sum(r.count() for r in ranges)
    unsplit = {index for index, r in enumerate(ranges) if _proportional_share(r.count(), total, target) == 1}
    large_total = total - sum(ranges[index].count() for index in unsplit)
    large_target = max(target - len(unsplit), 1)
    return [
        piece
        for index, r in enumerate(ranges)
        for piece in _split_evenly(
            r, 1 if index in unsplit else _proportional_share(r.count(), large_total, large_target)
        )
    ]


def _proportional_share(count: int, total: int, target: int) -> int:
    """Return ``count * target / total``, rounded half up as in Java's Math.round, and at least 1."""
    return max((2 * count * target + total) // (2 * total), 1)


def _split_evenly(offset_range: OffsetRange, parts: int) -> list[OffsetRange]:
    """Split a range into parts whose sizes differ by at most one, the smaller ones first."""
    pieces = []
    start = offset_range.from_offset
    parts = min(parts, offset_range.count())  # so that no part is empty
    for remaining_parts in range(parts, 0, -1):
        end = start + (offset_range.until_offset - start) // remaining_parts
        pieces.append(OffsetRange(offset_range.topic, offset_range.partition, start, end))
        start = end
    return pieces


def _ceil_div(count: int, size: int) -> int:
    return -(-count // size)
