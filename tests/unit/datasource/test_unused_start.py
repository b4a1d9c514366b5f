"""A start that is given to a query with a checkpoint has no effect, which a warning says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.positions import at_time, at_times

from pyspark_kafka_direct.continuous.continuous_start_planner import ContinuousStartPlanner
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    CommittedStart,
    OffsetSpec,
    StartingOffsetSpec,
)
from pyspark_kafka_direct.options.positions import BeforeNow, LastOffsets

if TYPE_CHECKING:
    from tests.unit.planning.planner_cluster import NewCluster

T0 = TopicPartition("t", 0)

POSITIONS: list[tuple[StartingOffsetSpec, str | None]] = [
    (at_time(5, "error", "startingTimestamp"), "startingTimestamp"),
    (at_times({T0: 5}, "error", "startingOffsetsByTimestamp"), "startingOffsetsByTimestamp"),
    (OffsetSpec({T0: 5}, option="startingOffsets"), "startingOffsets"),
    (OffsetSpec({}, {"t": BeforeNow(5)}, option="startingOffsets"), "startingOffsets"),
    (OffsetSpec(others=BeforeNow(5)), None),
    (OffsetSpec(others=LastOffsets(5)), None),
    (AT_EARLIEST, None),
    (AT_LATEST, None),
    (CommittedStart(), None),
]


def warnings_about(option: str | None) -> list[str]:
    if option is None:
        return []
    return [
        f"{option} has no effect, because the query resumes from its checkpoint. To start there, use a new "
        "checkpointLocation."
    ]


@pytest.mark.parametrize(("start", "option"), POSITIONS)
def test_a_stream(cluster: NewCluster, start: StartingOffsetSpec, option: str | None) -> None:
    brokers = cluster(9)
    brokers.commit({T0: 1})
    new = brokers.planner(start)
    end = new.next_end_offsets(new.initial_offsets())
    new.plan(new.initial_offsets(), end)
    new.next_end_offsets(end)
    assert brokers.warnings == []
    resumed = brokers.planner(start)
    resumed.plan({T0: 2}, {T0: 3})  # a batch that was not finished
    for offset in (3, 9, 9):
        resumed.next_end_offsets({T0: offset})
    assert brokers.warnings == warnings_about(option)
    brokers.warnings.clear()
    first_again = brokers.planner(start)  # the first batch was not finished: the start is used again
    first_again.initial_offsets()
    first_again.plan({T0: 5}, {T0: 9}, {T0: 5})
    first_again.next_end_offsets({T0: 9})
    assert brokers.warnings == []


@pytest.mark.parametrize(("start", "option"), POSITIONS)
def test_a_continuous_query(cluster: NewCluster, start: StartingOffsetSpec, option: str | None) -> None:
    brokers = cluster(9)
    brokers.commit({T0: 1})
    settings = brokers.settings(start)
    new = ContinuousStartPlanner(settings, brokers.reader(settings))
    new.resume_offsets(new.initial_offsets())  # the next run of the same query
    assert brokers.warnings == []
    resumed = ContinuousStartPlanner(settings, brokers.reader(settings))
    for offset in (3, 9):
        resumed.resume_offsets({T0: offset})
    assert brokers.warnings == warnings_about(option)
