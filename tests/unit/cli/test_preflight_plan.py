"""What a query would read first from a checkpoint, and what is missing."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.cli.preflight_plan import (
    FirstBatch,
    Log,
    PartitionPlan,
    State,
    is_other_query,
    plan_first_batch,
    spark_accepts_start,
)
from pyspark_kafka_direct.offsets import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
LOGS = {A: Log(10, 30, 25), B: Log(0, 8, 8)}


@pytest.mark.parametrize(
    ("start", "end", "log", "expected"),
    [
        (10, None, LOGS[A], (State.OK, 10, 25, 0)),
        (28, None, LOGS[A], (State.OK, 28, 28, 0)),  # an open transaction begins before it
        (7, None, LOGS[A], (State.EXPIRED, 10, 25, 3)),
        (30, None, LOGS[A], (State.OK, 30, 30, 0)),  # the query has read all
        (31, None, LOGS[A], (State.BEYOND_END, 31, None, None)),
        (12, 20, LOGS[A], (State.OK, 12, 20, 0)),
        (2, 5, LOGS[A], (State.EXPIRED, 10, 10, 3)),
        (2, 20, LOGS[A], (State.EXPIRED, 10, 20, 8)),
        (12, 31, LOGS[A], (State.BEYOND_END, 12, 31, None)),
        (12, 20, None, (State.DELETED, 12, None, 8)),
        (0, 8, None, (State.DELETED, 0, None, 8)),
        (0, 0, None, (State.DELETED, 0, None, 0)),
        (0, None, LOGS[A], (State.EXPIRED, 10, 25, 10)),
        (0, 10, LOGS[A], (State.EXPIRED, 10, 10, 10)),
        (12, None, None, (State.DELETED, 12, None, None)),
    ],
)
def test_a_partition_of_the_checkpoint(
    start: int, end: int | None, log: Log | None, expected: tuple[State, int | None, int | None, int | None]
) -> None:
    batch = FirstBatch({A: start}, None if end is None else {A: end})
    assert plan_first_batch(batch, {} if log is None else {A: log}, {A}) == [PartitionPlan(A, *expected)]


def test_partitions_that_only_the_checkpoint_or_the_options_have() -> None:
    planned = plan_first_batch(FirstBatch({A: 12}, None), LOGS, {B})
    assert [(each.partition, each.state, each.start) for each in planned] == [
        (A, State.NOT_SELECTED, 12),
        (B, State.NEW, 0),
    ]
    first = plan_first_batch(FirstBatch({}, None), LOGS, {A})
    assert first == [PartitionPlan(A, State.NEW, 10, 25, 0)]
    late = plan_first_batch(FirstBatch({B: 3}, None), LOGS, {A, B})
    assert late[0] == PartitionPlan(A, State.EXPIRED, 10, 25, 10)
    in_flight = plan_first_batch(FirstBatch({A: 12, B: 1}, {A: 20}), LOGS, {A, B})
    assert [each.state for each in in_flight] == [State.OK, State.LEFT_OUT]
    at_0 = plan_first_batch(FirstBatch({A: 12, B: 0}, {A: 20}), LOGS, {A, B})
    assert [each.state for each in at_0] == [State.OK, State.LEFT_OUT]
    added = plan_first_batch(FirstBatch({A: 12}, {A: 20}), LOGS, {A, B})
    assert [each.state for each in added] == [State.OK, State.NEW]


def test_the_checkpoint_of_another_query_has_no_topic_of_the_options() -> None:
    assert is_other_query(FirstBatch({A: 1}, None), {B})
    assert not is_other_query(FirstBatch({A: 1, B: 1}, None), {B})
    assert not is_other_query(FirstBatch({A: 1}, None), {A, B})
    assert not is_other_query(FirstBatch({}, None), {B})


@pytest.mark.parametrize(
    ("value", "accepted"),
    [("earliest", True), ("LATEST", True), ('{"a":{"0":-2}}', True), ("committed", False), ('{"a":{"*":1}}', False)],
)
def test_start_options_of_sparks_source(value: str, accepted: bool) -> None:
    assert spark_accepts_start(value) is accepted
