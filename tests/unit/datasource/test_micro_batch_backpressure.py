"""The backpressure limit in the micro-batch planner, combined with the configured limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader

from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.offset_specs import Earliest
from pyspark_kafka_direct.options.settings import ReadLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def planner(measured: int | None, limits: ReadLimits | None = None) -> MicroBatchPlanner:
    reader = FakeOffsetReader({A: (0, 300), B: (0, 100)})
    options = read_settings(Earliest(), limits or ReadLimits())
    return MicroBatchPlanner(options, reader, FakeClock(), backpressure_limit=lambda start: measured)


@pytest.mark.parametrize(
    ("measured", "max_offsets", "sizes"),
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
def test_the_lower_limit_is_divided_by_lag(
    measured: int | None, max_offsets: int | None, sizes: tuple[int, int]
) -> None:
    plans = planner(measured, ReadLimits(max_offsets=max_offsets))
    assert plans.next_end_offsets(plans.initial_offsets()) == {A: sizes[0], B: sizes[1]}


def test_the_limit_is_requested_for_the_start_of_each_batch() -> None:
    starts: list[Mapping[TopicPartition, int]] = []

    def measured(start: Mapping[TopicPartition, int]) -> int:
        starts.append(start)
        return 40

    reader = FakeOffsetReader({A: (0, 300), B: (0, 100)})
    plans = MicroBatchPlanner(read_settings(Earliest()), reader, FakeClock(), backpressure_limit=measured)
    second = plans.next_end_offsets(plans.initial_offsets())
    plans.next_end_offsets(second)
    assert starts == [{A: 0, B: 0}, {A: 30, B: 10}]


def test_trigger_once_has_no_limit() -> None:
    plans = planner(40)
    assert plans.next_end_offsets(plans.initial_offsets(), unlimited=True) == {A: 300, B: 100}


def test_fixed_ends_are_limited_too() -> None:
    plans = planner(40)
    plans.fix_end_offsets()
    assert plans.next_end_offsets(plans.initial_offsets()) == {A: 30, B: 10}
