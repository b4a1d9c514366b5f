"""Partitions, and what comes of polling a tail of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.reading.made_up import Brokers

    from pyspark_kafka_direct.reading.tail import Polled, Tail

ONE, TWO, THREE = (TopicPartition("flights", number) for number in range(3))
OTHER = TopicPartition("ships", 0)


def offsets(polled: list[Polled]) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for partition, rows in polled:
        assert rows.num_rows
        found.setdefault(partition, []).extend(rows.column("offset").to_pylist())
    return found


def take(tail: Tail, until: Callable[[], bool], seconds: float = 120.0) -> dict[TopicPartition, list[int]]:
    """Polls until something is so, and returns what came."""
    found: dict[TopicPartition, list[int]] = {}
    for _ in range(10_000):
        if until():
            return found
        for partition, more in offsets(tail.poll(seconds)).items():
            found.setdefault(partition, []).extend(more)
    raise AssertionError(f"never so: {tail.positions}, {tail.trouble}")


def at_end(brokers: Brokers, tail: Tail) -> Callable[[], bool]:
    return lambda: all(position == brokers.logs[name].high_watermark for name, position in tail.positions.items())


def failure(tail: Tail, kind: type[Exception], seconds: float = 600.0) -> Any:
    """Polls until an error of this kind, and returns it."""
    limit = tail._system.monotonic() + seconds
    while tail._system.monotonic() < limit:
        try:
            tail.poll(limit - tail._system.monotonic())
        except kind as error:
            return error
    raise AssertionError(f"no {kind.__name__}")
