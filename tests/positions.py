"""Positions of starts and ends as Spark's options give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.options.offset_specs import OffsetSpec
from pyspark_kafka_direct.options.positions import AtTime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.positions import NoMatchStrategy


def at_time(timestamp: int, on_no_match: NoMatchStrategy = "error", option: str = "timestamp") -> OffsetSpec:
    """One timestamp for all partitions, as ``startingTimestamp``."""
    return OffsetSpec(others=AtTime(timestamp, on_no_match), option=option)


def at_times(
    timestamps: Mapping[TopicPartition, int], on_no_match: NoMatchStrategy = "error", option: str = "timestamps"
) -> OffsetSpec:
    """A timestamp for each partition, as ``startingOffsetsByTimestamp``."""
    return OffsetSpec({tp: AtTime(timestamp, on_no_match) for tp, timestamp in timestamps.items()}, option=option)
