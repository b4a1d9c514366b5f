"""What a direct stream remembers, and in what form."""

from __future__ import annotations

import pickle
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.direct._state import VERSION, Needs, StreamState
from pyspark_kafka_direct.errors import KafkaDirectError, OffsetPlanError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.direct import Position

IDS = {"flights": uuid4()}


def ranges(start: int, end: int, partitions: int = 2) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("flights", number, start, end) for number in range(partitions))


def offset(state: StreamState) -> int:
    """Where all partitions are."""
    (found,) = set(state.position.offsets.values())
    return found


def generate(state: StreamState, time_ms: int, start: int, end: int) -> None:
    """A batch that Spark generates, with one plain output."""
    state.begin(time_ms)
    assert state.ranges(time_ms) is None
    state.add(time_ms, ranges(start, end), IDS)
    state.end()


def fail(state: StreamState, time_ms: int, start: int, end: int) -> None:
    """The same, but something else raises: there is no end."""
    state.begin(time_ms)
    assert state.ranges(time_ms) is None
    state.add(time_ms, ranges(start, end), IDS)


def started() -> StreamState:
    state = StreamState()
    state.start(Position({TopicPartition("flights", number): 0 for number in range(2)}, IDS))
    return state


def again(state: StreamState) -> StreamState:
    back: StreamState = pickle.loads(pickle.dumps(state))
    return back


def test_a_batch_keeps_its_ranges_and_the_next_begins_at_its_end() -> None:
    state = started()
    generate(state, 1000, 0, 5)
    generate(state, 2000, 5, 9)
    assert state.ranges(1000) == ranges(0, 5)
    assert state.position.offsets == {TopicPartition("flights", 0): 9, TopicPartition("flights", 1): 9}


def test_a_batch_that_was_never_planned_is_empty_once_a_later_one_was() -> None:
    state = started()
    generate(state, 1000, 0, 5)
    generate(state, 3000, 5, 9)
    assert state.ranges(2000) == ()


def test_a_failed_generation_is_empty_and_the_next_begins_where_it_began() -> None:
    state = started()
    generate(state, 1000, 0, 5)
    fail(state, 2000, 5, 9)
    assert state.unfinished() == [2000]
    state.take_back()
    assert state.unfinished() == []
    assert (state.ranges(2000), offset(state)) == ((), 5)
    generate(state, 3000, 5, 12)
    assert (state.ranges(2000), state.ranges(3000)) == ((), ranges(5, 12))


def test_generations_that_fail_one_after_another() -> None:
    state = started()
    for number in range(1, 4):
        fail(state, number * 1000, 0, number)
        state.take_back()
    generate(state, 4000, 0, 7)
    assert [state.ranges(number * 1000) for number in range(1, 5)] == [(), (), (), ranges(0, 7)]


def test_partitions_that_a_failed_generation_has_found_are_found_again() -> None:
    state = started()
    late = uuid4()
    state.begin(1000)
    state.add(1000, [*ranges(0, 5), OffsetRange("late", 0, 3, 4)], {**IDS, "late": late})
    state.take_back()
    assert TopicPartition("late", 0) not in state.position.offsets
    assert "late" not in state.position.topic_ids


def test_a_failed_generation_that_planned_nothing_is_empty_too() -> None:
    """Else a window of the next batch would have it planned, and no plain output would see its records."""
    state = started()
    generate(state, 1000, 0, 5)
    state.begin(2000)  # no broker could be asked
    state.take_back()
    state.begin(3000)
    assert state.ranges(2000) == ()
    assert state.ranges(3000) is None


def test_a_generation_that_never_began_is_empty_too() -> None:
    state = started()
    generate(state, 1000, 0, 5)
    state.begin(3000)
    assert state.ranges(2000) == (), "asked for by a window, before this batch"
    assert state.ranges(3000) is None


def test_a_slice_of_the_future_stops_no_batch() -> None:
    """A thread of the application may ask while Spark generates; it must not make the batches up to there empty."""
    state = started()
    state.begin(1000)
    with pytest.raises(KafkaDirectError, match="the batch of 9000 ms was asked for before"):
        state.ranges(9000)
    assert state.ranges(1000) is None


def test_batches_that_nobody_asked_for_are_planned_when_a_window_slides_over_them() -> None:
    state = started()
    for time_ms in (1000, 2000):
        state.begin(time_ms)
        state.end()
    state.begin(3000)
    for number in range(3):
        assert state.ranges((number + 1) * 1000) is None
        state.add((number + 1) * 1000, ranges(number, number + 1), IDS)
    assert state.unfinished() == [1000, 2000, 3000]
    assert again(state).ranges(1000) == (), "as long as it is not certain"
    state.take_back()
    assert [state.ranges(time_ms) for time_ms in (1000, 2000, 3000)] == [(), (), ()]
    assert offset(state) == 0
    for time_ms in (4000, 5000):
        state.begin(time_ms)
        state.end()
    state.begin(6000)
    assert state.ranges(3000) == ()
    assert state.ranges(4000) is None


def test_a_failed_generation_among_them() -> None:
    state = started()
    state.begin(1000)
    state.end()
    state.begin(2000)
    state.take_back()
    state.begin(3000)
    assert [state.ranges(time_ms) for time_ms in (1000, 2000, 3000)] == [(), (), None]


def test_a_batch_that_spark_generates_again_keeps_its_ranges_if_that_fails() -> None:
    """After a restart: its ranges are certain, and the next restart generates it once more."""
    state = started()
    generate(state, 1000, 0, 5)
    back = again(state)
    back.begin(1000)
    assert again(back).ranges(1000) == ranges(0, 5)
    back.take_back()
    assert (back.ranges(1000), offset(back)) == (ranges(0, 5), 5)


def test_a_checkpoint_takes_a_generation_under_way_for_a_failed_one() -> None:
    state = started()
    generate(state, 1000, 0, 5)
    fail(state, 2000, 5, 9)
    back = again(state)
    assert (back.ranges(2000), offset(back)) == ((), 5)
    assert state.ranges(2000) == ranges(5, 9), "writing it changes nothing"
    state.end()
    assert again(state).ranges(2000) == ranges(5, 9)


def test_a_checkpoint_from_before_a_failed_generation_has_it_planned_anew() -> None:
    state = started()
    generate(state, 1000, 0, 5)
    back = again(state)
    fail(state, 2000, 5, 9)
    generate(back, 2000, 5, 11)
    assert back.ranges(2000) == ranges(5, 11)


def test_nothing_is_planned_while_spark_generates_nothing() -> None:
    state = started()
    generate(state, 1000, 0, 5)
    with pytest.raises(KafkaDirectError, match="batch of 2000 ms was asked for while Spark generated none"):
        state.ranges(2000)
    assert state.ranges(1000) == ranges(0, 5)


def test_what_was_forgotten_is_not_taken_for_empty() -> None:
    state = started()
    for number in range(1, 6):
        generate(state, number * 1000, number, number + 1)
    assert state.forget(lambda time_ms: time_ms >= 4000) == [1000, 2000, 3000]
    with pytest.raises(OffsetPlanError, match="batch of 2000 ms are no longer known"):
        state.ranges(2000)
    assert state.ranges(4000) == ranges(4, 5)


def test_the_newest_batch_is_never_forgotten() -> None:
    state = started()
    generate(state, 1000, 0, 5)
    assert state.forget(lambda _: False) == []


def test_a_generation_that_may_fail_is_not_forgotten() -> None:
    state = started()
    for time_ms in (1000, 2000):
        state.begin(time_ms)
        state.end()
    state.begin(3000)
    for time_ms in (1000, 2000, 3000):
        state.add(time_ms, ranges(0, 0), IDS)
    assert state.forget(lambda _: False) == []


def test_batches_whose_checkpoints_are_not_all_written_are_needed() -> None:
    """A restart may begin at any of them: Spark writes one under a batch's time when it is done, and may be behind."""
    times = range(1000, 21_000, 1000)

    def needed(**more: object) -> list[int]:
        given = {"now_ms": 20_000, "processed_ms": 19_000, "pending": (), "look_back_ms": 2000, **more}
        return [time_ms for time_ms in times if Needs(**given).batch(time_ms)]  # type: ignore[arg-type]

    assert needed() == [17_000, 18_000, 19_000, 20_000]
    assert needed(processed_ms=12_000) == list(range(10_000, 21_000, 1000)), "all of these may be generated again"
    assert needed(pending=(5000,)) == [3000, 4000, 5000, 17_000, 18_000, 19_000, 20_000], "its jobs have failed"
    assert needed(now_ms=15_000, processed_ms=20_000) == list(range(13_000, 21_000, 1000)), "a window looks back"
    assert needed(processed_ms=None) == list(times), "as right after a restart"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5), st.booleans()), max_size=20), st.integers(0, 20_000))
def test_all_of_it_survives_a_restart(steps: list[tuple[int, int, bool]], keep_from: int) -> None:
    state = started()
    position, newest = 0, -1
    for number, (more, partitions, fails) in enumerate(steps, 1):
        newest = number * 1000
        state.begin(newest)
        state.add(newest, ranges(position, position + more, partitions + 1), IDS)
        if fails:
            state.take_back()
        else:
            state.end()
            position += more
    state.forget(lambda time_ms: time_ms >= keep_from)
    back = again(state)
    assert back.position == state.position
    assert set(back.position.offsets.values()) == {position}
    assert back.__getstate__() == state.__getstate__()
    if newest > 0:
        assert back.ranges(newest) == state.ranges(newest)
    back.begin(newest + 1000)
    assert back.ranges(newest + 1000) is None


def test_the_first_id_of_a_topic_is_kept() -> None:
    state = started()
    generate(state, 1000, 0, 5)
    state.begin(2000)
    state.add(2000, ranges(5, 6), {"flights": uuid4(), "late": (late := uuid4())})
    state.end()
    assert state.position.topic_ids == {**IDS, "late": late}


def test_a_thousand_partitions_stay_small() -> None:
    state = started()
    for number in range(10):
        state.begin(number * 1000)
        state.add(number * 1000, ranges(number << 33, (number + 1) << 33, 1000), IDS)
        state.end()
    assert len(pickle.dumps(state)) < 300_000, "about 25 bytes a range"


def test_the_form_of_another_release_is_refused() -> None:
    state = started()
    with pytest.raises(OffsetPlanError, match=f"of version 99, this release reads version {VERSION}; go on with"):
        state.__setstate__({**state.__getstate__(), "version": 99})
