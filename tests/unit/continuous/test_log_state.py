"""What the logs say, and how a query goes on by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.continuous._log_format import Entry
from pyspark_kafka_direct.continuous._log_state import LogState, Settlement, log_state, settle, to_purge
from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.offsets import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
DONE = {A: 10, B: 20}
FURTHER = {A: 15, B: 25}


@pytest.mark.parametrize(
    ("offsets", "commits", "state"),
    [
        ([], [], LogState(None, ())),
        ([0], [], LogState(None, (0,))),
        ([1, 0], [0, 1], LogState(1, ())),
        ([7, 6, 8], [6, 7], LogState(7, (8,))),
        ([7, 8, 9], [7], LogState(7, (8, 9))),
        ([3, 6, 9], [3, 6], LogState(6, (9,))),
        ([7, 8], [5, 6, 7, 8], LogState(8, ())),
    ],
    ids=["new", "first", "done", "ahead", "far-ahead", "gaps", "half-purged"],
)
def test_what_the_logs_say(offsets: list[int], commits: list[int], state: LogState) -> None:
    assert log_state(offsets, commits, "here") == state
    assert state.next_epoch == (0 if state.committed is None else state.committed + 1)


@pytest.mark.parametrize(
    ("offsets", "commits", "message"),
    [
        ([6], [6, 7], "here has commits/7 and no offsets/7: it is damaged"),
        ([], [0], "here has commits/0 and no offsets/0"),
        ([7, 8], [], "here has offsets/8 and nothing in commits/"),
        ([0, 1], [], "here has offsets/1 and nothing in commits/"),
    ],
)
def test_logs_that_do_not_belong_together(offsets: list[int], commits: list[int], message: str) -> None:
    with pytest.raises(OffsetPlanError, match=message):
        log_state(offsets, commits, "here")


@pytest.mark.parametrize(
    ("newest", "retain", "gone"),
    [(9, 100, []), (9, 4, [0, 1, 2, 3, 4]), (9, 9, []), (9, 8, [0]), (9, 1, list(range(8))), (9, 0, list(range(8)))],
)
def test_what_is_not_kept_any_longer(newest: int, retain: int, gone: list[int]) -> None:
    """A micro-batch query needs the newest epoch and the one before it."""
    assert to_purge(reversed(range(newest + 1)), newest, retain) == gone


def test_a_new_query() -> None:
    assert settle(LogState(), {}, None, "here") == Settlement(None, 0)
    assert settle(LogState(), {}, {}, "here") == Settlement(None, 0)


@pytest.mark.parametrize("reached", [None, {}], ids=["at-least-once", "exactly-once"])
def test_a_start_that_was_not_committed(reached: dict[TopicPartition, int] | None) -> None:
    """Nothing is read before; so it does not matter who wrote it."""
    entries = {0: Entry(DONE, is_start=True)}
    assert settle(LogState(None, (0,)), entries, reached, "here") == Settlement(DONE, 1, commit=0)


@pytest.mark.parametrize("reached", [None, {}], ids=["at-least-once", "exactly-once"])
def test_a_first_batch_that_was_not_done_is_refused(reached: dict[TopicPartition, int] | None) -> None:
    with pytest.raises(OffsetPlanError, match=r"here: the first batch .* do not say where it began"):
        settle(LogState(None, (0,)), {0: Entry(DONE)}, reached, "here")


@pytest.mark.parametrize("unfinished", [(), (0,)])
def test_logs_that_were_removed_while_transactions_went_on(unfinished: tuple[int, ...]) -> None:
    with pytest.raises(OffsetPlanError, match="whose logs are empty"):
        settle(LogState(None, unfinished), {0: Entry(DONE, is_start=True)}, {A: 11}, "here")


def test_at_least_once_reads_again_what_has_no_commit() -> None:
    assert settle(LogState(7), {7: Entry(DONE)}, None, "here") == Settlement(DONE, 8)
    entries = {7: Entry(DONE), 8: Entry(FURTHER), 9: Entry(FURTHER)}
    assert settle(LogState(7, (8, 9)), entries, None, "here") == Settlement(DONE, 8, remove=(9, 8))


def test_exactly_once_with_nothing_new() -> None:
    assert settle(LogState(7), {7: Entry(DONE)}, {}, "here") == Settlement(DONE, 8)
    assert settle(LogState(7), {7: Entry(DONE)}, {A: 10}, "here") == Settlement(DONE, 8)


@pytest.mark.parametrize("reached", [{A: 15}, {A: 15, B: 25}, {C: 1}], ids=["one", "all", "new"])
def test_exactly_once_goes_on_where_transactions_got_to(reached: dict[TopicPartition, int]) -> None:
    expected = Settlement({**DONE, **reached}, 9, write=8, commit=8)
    assert settle(LogState(7), {7: Entry(DONE)}, reached, "here") == expected


@pytest.mark.parametrize(
    ("planned", "reached"),
    [
        (FURTHER, FURTHER),
        ({A: 15, B: 20}, {A: 15}),
        ({**FURTHER, C: 0}, FURTHER),
        (DONE, {}),
        ({A: 15}, {A: 15}),
    ],
    ids=["all", "one", "new-partition", "nothing", "partition-gone"],
)
def test_exactly_once_commits_what_transactions_have_reached(
    planned: dict[TopicPartition, int], reached: dict[TopicPartition, int]
) -> None:
    entries = {7: Entry(DONE), 8: Entry(planned)}
    assert settle(LogState(7, (8,)), entries, reached, "here") == Settlement(planned, 9, commit=8)


@pytest.mark.parametrize(
    ("planned", "reached", "begin"),
    [
        (FURTHER, {A: 15, B: 26}, {A: 15, B: 26}),
        ({A: 15, B: 20}, FURTHER, FURTHER),
        (FURTHER, {**FURTHER, C: 3}, {**FURTHER, C: 3}),
        ({**FURTHER, C: 2}, {A: 16, B: 25}, {A: 16, B: 25, C: 2}),
        ({A: 15}, {A: 16}, {A: 16}),
    ],
    ids=["one", "another", "new-partition", "none-of-a-new-one", "partition-gone"],
)
def test_exactly_once_where_the_logs_lag_behind(
    planned: dict[TopicPartition, int], reached: dict[TopicPartition, int], begin: dict[TopicPartition, int]
) -> None:
    """Transactions went on after the driver had begun to write the epoch."""
    entries = {7: Entry(DONE), 8: Entry(planned)}
    expected = Settlement(begin, 9, remove=(8,), write=8, commit=8)
    assert settle(LogState(7, (8,)), entries, reached, "here") == expected


@pytest.mark.parametrize(
    ("planned", "reached"),
    [(FURTHER, {}), (FURTHER, {A: 15}), (FURTHER, {A: 14, B: 26}), (FURTHER, {A: 15, C: 3})],
    ids=["nothing", "a-part", "elsewhere", "another-partition"],
)
def test_exactly_once_refuses_what_a_micro_batch_may_have_published(
    planned: dict[TopicPartition, int], reached: dict[TopicPartition, int]
) -> None:
    with pytest.raises(OffsetPlanError, match="here has offsets/8 without a commit, and the transactions"):
        settle(LogState(7, (8,)), {7: Entry(DONE), 8: Entry(planned)}, reached, "here")


@pytest.mark.parametrize("unfinished", [(8, 9), (9,)], ids=["two", "gap"])
def test_exactly_once_refuses_more_than_one_epoch_without_commits(unfinished: tuple[int, ...]) -> None:
    entries = {7: Entry(DONE), 8: Entry(FURTHER), 9: Entry(FURTHER)}
    names = ", ".join(f"offsets/{epoch}" for epoch in unfinished)
    with pytest.raises(OffsetPlanError, match=f"here has {names} without a commit"):
        settle(LogState(7, unfinished), entries, FURTHER, "here")


OFFSETS = st.fixed_dictionaries({A: st.integers(0, 9), B: st.integers(0, 9)})


@given(OFFSETS, st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 9)))
def test_settling_twice_is_settling_once(
    committed: dict[TopicPartition, int], reached: dict[TopicPartition, int]
) -> None:
    """And a crash between the two files, before it is settled again, changes nothing."""
    first = settle(LogState(7), {7: Entry(committed)}, reached, "here")
    assert first.begin == {**committed, **reached}
    if first.write is not None and first.begin is not None:
        entries = {7: Entry(committed), 8: Entry(first.begin)}
        assert settle(LogState(7, (8,)), entries, reached, "here") == Settlement(first.begin, 9, commit=8)
        assert settle(LogState(8), entries, {}, "here") == Settlement(first.begin, 9)
