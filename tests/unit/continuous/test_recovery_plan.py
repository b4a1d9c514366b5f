"""The state of the logs, and how a query resumes from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.continuous.checkpoint_log_format import OffsetLogEntry
from pyspark_kafka_direct.continuous.checkpoint_logs import (
    CheckpointState,
    RecoveryPlan,
    checkpoint_state,
    epochs_to_purge,
    plan_recovery,
)
from pyspark_kafka_direct.errors import InvalidOffsetsError
from pyspark_kafka_direct.offsets import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
DONE = {A: 10, B: 20}
FURTHER = {A: 15, B: 25}


@pytest.mark.parametrize(
    ("offsets", "commits", "state"),
    [
        ([], [], CheckpointState(None, ())),
        ([0], [], CheckpointState(None, (0,))),
        ([1, 0], [0, 1], CheckpointState(1, ())),
        ([7, 6, 8], [6, 7], CheckpointState(7, (8,))),
        ([7, 8, 9], [7], CheckpointState(7, (8, 9))),
        ([3, 6, 9], [3, 6], CheckpointState(6, (9,))),
        ([7, 8], [5, 6, 7, 8], CheckpointState(8, ())),
    ],
    ids=["new", "first", "done", "ahead", "far-ahead", "gaps", "half-purged"],
)
def test_checkpoint_state(offsets: list[int], commits: list[int], state: CheckpointState) -> None:
    assert checkpoint_state(offsets, commits, "here") == state
    assert state.next_epoch == (0 if state.committed is None else state.committed + 1)


@pytest.mark.parametrize(
    ("offsets", "commits", "message"),
    [
        ([6], [6, 7], "here has commits/7 but not offsets/7: it is damaged"),
        ([], [0], "here has commits/0 but not offsets/0"),
        ([7, 8], [], "here has offsets/8 but no files in commits/"),
        ([0, 1], [], "here has offsets/1 but no files in commits/"),
    ],
)
def test_inconsistent_logs(offsets: list[int], commits: list[int], message: str) -> None:
    with pytest.raises(InvalidOffsetsError, match=message):
        checkpoint_state(offsets, commits, "here")


@pytest.mark.parametrize(
    ("newest", "retain", "purged"),
    [(9, 100, []), (9, 4, [0, 1, 2, 3, 4]), (9, 9, []), (9, 8, [0]), (9, 1, list(range(8))), (9, 0, list(range(8)))],
)
def test_epochs_to_purge(newest: int, retain: int, purged: list[int]) -> None:
    """A micro-batch query needs the newest epoch and the one before it."""
    assert epochs_to_purge(reversed(range(newest + 1)), newest, retain) == purged


def test_a_new_query() -> None:
    assert plan_recovery(CheckpointState(), {}, None, "here") == RecoveryPlan(None, 0)
    assert plan_recovery(CheckpointState(), {}, {}, "here") == RecoveryPlan(None, 0)


@pytest.mark.parametrize("offsets_ahead", [None, {}], ids=["at-least-once", "exactly-once"])
def test_a_start_that_was_not_committed(offsets_ahead: dict[TopicPartition, int] | None) -> None:
    """No record was read yet, so it does not matter which kind of query wrote it."""
    entries = {0: OffsetLogEntry(DONE, is_start=True)}
    assert plan_recovery(CheckpointState(None, (0,)), entries, offsets_ahead, "here") == RecoveryPlan(DONE, 1, commit=0)


@pytest.mark.parametrize("offsets_ahead", [None, {}], ids=["at-least-once", "exactly-once"])
def test_an_incomplete_first_batch_is_rejected(offsets_ahead: dict[TopicPartition, int] | None) -> None:
    with pytest.raises(InvalidOffsetsError, match=r"here: the first batch of a micro-batch query has not completed"):
        plan_recovery(CheckpointState(None, (0,)), {0: OffsetLogEntry(DONE)}, offsets_ahead, "here")


@pytest.mark.parametrize("uncommitted", [(), (0,)])
def test_deleted_logs(uncommitted: tuple[int, ...]) -> None:
    with pytest.raises(InvalidOffsetsError, match="its logs are empty"):
        plan_recovery(CheckpointState(None, uncommitted), {0: OffsetLogEntry(DONE, is_start=True)}, {A: 11}, "here")


def test_at_least_once_repeats_a_planned_epoch_to_its_end() -> None:
    assert plan_recovery(CheckpointState(7), {7: OffsetLogEntry(DONE)}, None, "here") == RecoveryPlan(DONE, 8)
    entries = {7: OffsetLogEntry(DONE), 8: OffsetLogEntry(FURTHER), 9: OffsetLogEntry(FURTHER)}
    recovery = RecoveryPlan(DONE, 8, planned_end=FURTHER)
    assert plan_recovery(CheckpointState(7, (8,)), entries, None, "here") == recovery
    assert plan_recovery(CheckpointState(7, (8, 9)), entries, None, "here") == recovery


def test_exactly_once_without_newer_transactions() -> None:
    assert plan_recovery(CheckpointState(7), {7: OffsetLogEntry(DONE)}, {}, "here") == RecoveryPlan(DONE, 8)
    assert plan_recovery(CheckpointState(7), {7: OffsetLogEntry(DONE)}, {A: 10}, "here") == RecoveryPlan(DONE, 8)


@pytest.mark.parametrize("offsets_ahead", [{A: 15}, {A: 15, B: 25}, {C: 1}], ids=["one", "all", "new"])
def test_exactly_once_resumes_at_the_committed_offsets(offsets_ahead: dict[TopicPartition, int]) -> None:
    expected = RecoveryPlan({**DONE, **offsets_ahead}, 9, write=8)
    assert plan_recovery(CheckpointState(7), {7: OffsetLogEntry(DONE)}, offsets_ahead, "here") == expected


@pytest.mark.parametrize(
    ("planned", "offsets_ahead"),
    [
        (FURTHER, FURTHER),
        ({A: 15, B: 20}, {A: 15}),
        ({**FURTHER, C: 0}, FURTHER),
        (DONE, {}),
        ({A: 15}, {A: 15}),
    ],
    ids=["all", "one", "new-partition", "nothing", "partition-deleted"],
)
def test_exactly_once_commits_an_epoch_that_the_transactions_have_reached(
    planned: dict[TopicPartition, int], offsets_ahead: dict[TopicPartition, int]
) -> None:
    entries = {7: OffsetLogEntry(DONE), 8: OffsetLogEntry(planned)}
    assert plan_recovery(CheckpointState(7, (8,)), entries, offsets_ahead, "here") == RecoveryPlan(planned, 9, commit=8)


@pytest.mark.parametrize(
    ("planned", "offsets_ahead", "start"),
    [
        (FURTHER, {A: 15, B: 26}, {A: 15, B: 26}),
        ({A: 15, B: 20}, FURTHER, FURTHER),
        (FURTHER, {**FURTHER, C: 3}, {**FURTHER, C: 3}),
        ({**FURTHER, C: 2}, {A: 16, B: 25}, {A: 16, B: 25, C: 2}),
        ({A: 15}, {A: 16}, {A: 16}),
    ],
    ids=["one", "another", "new-partition", "none-of-a-new-one", "partition-deleted"],
)
def test_exactly_once_when_transactions_are_ahead_of_an_uncommitted_epoch(
    planned: dict[TopicPartition, int], offsets_ahead: dict[TopicPartition, int], start: dict[TopicPartition, int]
) -> None:
    """Transactions were committed after the driver had started to write the epoch, whose end does not change."""
    entries = {7: OffsetLogEntry(DONE), 8: OffsetLogEntry(planned)}
    expected = RecoveryPlan(start, 10, commit=8, write=9)
    assert plan_recovery(CheckpointState(7, (8,)), entries, offsets_ahead, "here") == expected


@pytest.mark.parametrize(
    ("planned", "offsets_ahead"),
    [(FURTHER, {}), (FURTHER, {A: 15}), (FURTHER, {A: 14, B: 26}), (FURTHER, {A: 15, C: 3})],
    ids=["nothing", "a-part", "elsewhere", "another-partition"],
)
def test_exactly_once_rejects_an_unknown_outcome(
    planned: dict[TopicPartition, int], offsets_ahead: dict[TopicPartition, int]
) -> None:
    with pytest.raises(InvalidOffsetsError, match="here has offsets/8 without a commit, and the transactions"):
        plan_recovery(
            CheckpointState(7, (8,)), {7: OffsetLogEntry(DONE), 8: OffsetLogEntry(planned)}, offsets_ahead, "here"
        )


@pytest.mark.parametrize("uncommitted", [(8, 9), (9,)], ids=["two", "gap"])
def test_exactly_once_rejects_several_uncommitted_epochs(uncommitted: tuple[int, ...]) -> None:
    entries = {7: OffsetLogEntry(DONE), 8: OffsetLogEntry(FURTHER), 9: OffsetLogEntry(FURTHER)}
    names = ", ".join(f"offsets/{epoch}" for epoch in uncommitted)
    with pytest.raises(InvalidOffsetsError, match=f"here has {names} without a commit"):
        plan_recovery(CheckpointState(7, uncommitted), entries, FURTHER, "here")


OFFSETS = st.fixed_dictionaries({A: st.integers(0, 9), B: st.integers(0, 9)})


@given(OFFSETS, st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 9)))
def test_recovery_is_idempotent(committed: dict[TopicPartition, int], offsets_ahead: dict[TopicPartition, int]) -> None:
    """A crash between the two writes does not change the result."""
    first = plan_recovery(CheckpointState(7), {7: OffsetLogEntry(committed)}, offsets_ahead, "here")
    assert first.start == {**committed, **offsets_ahead}
    if first.write is not None and first.start is not None:
        entries = {7: OffsetLogEntry(committed), 8: OffsetLogEntry(first.start)}
        assert plan_recovery(CheckpointState(7, (8,)), entries, offsets_ahead, "here") == RecoveryPlan(
            first.start, 9, commit=8
        )
        assert plan_recovery(CheckpointState(8), entries, {}, "here") == RecoveryPlan(first.start, 9)
