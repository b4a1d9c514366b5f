"""A measured limit in the planner of a stream, beside the limits that are set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.planning.stream_clusters import Clock, Cluster

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.limits import Limits
from pyspark_kafka_direct.planning.positions import Earliest
from pyspark_kafka_direct.planning.stream import StreamPlanner, StreamTuning

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def planner(measured: int | None, limits: Limits | None = None) -> StreamPlanner:
    cluster = Cluster({A: (0, 300), B: (0, 100)})
    tuning = StreamTuning(Earliest(), limits or Limits())
    return StreamPlanner(tuning, cluster, Clock(), measured_limit=lambda start: measured)


@pytest.mark.parametrize(
    ("measured", "most", "sizes"),
    [
        (40, None, (30, 10)),
        (40, 80, (30, 10)),
        (80, 40, (30, 10)),
        (None, 40, (30, 10)),
        (None, None, (300, 100)),
        (10_000, None, (300, 100)),
        (1, None, (1, 1)),
    ],
)
def test_the_lower_limit_is_divided_by_lag(measured: int | None, most: int | None, sizes: tuple[int, int]) -> None:
    plans = planner(measured, Limits(max_offsets=most))
    assert plans.next_end(plans.initial()) == {A: sizes[0], B: sizes[1]}


def test_is_asked_for_the_start_of_each_batch() -> None:
    asked: list[Mapping[TopicPartition, int]] = []

    def measured(start: Mapping[TopicPartition, int]) -> int:
        asked.append(start)
        return 40

    cluster = Cluster({A: (0, 300), B: (0, 100)})
    plans = StreamPlanner(StreamTuning(Earliest()), cluster, Clock(), measured_limit=measured)
    second = plans.next_end(plans.initial())
    plans.next_end(second)
    assert asked == [{A: 0, B: 0}, {A: 30, B: 10}]


def test_once_has_no_limit() -> None:
    plans = planner(40)
    assert plans.next_end(plans.initial(), unlimited=True) == {A: 300, B: 100}


def test_frozen_ends_are_limited_too() -> None:
    plans = planner(40)
    plans.freeze()
    assert plans.next_end(plans.initial()) == {A: 30, B: 10}
