"""What a direct stream remembers, and in what form."""

from __future__ import annotations

import pickle
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.direct._state import VERSION, StreamState
from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

IDS = {"flights": uuid4()}


def ranges(start: int, end: int, partitions: int = 2) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("flights", number, start, end) for number in range(partitions))


def test_a_batch_keeps_its_ranges_and_the_next_begins_at_its_end() -> None:
    state = StreamState()
    assert state.ranges(1000) is None
    state.add(1000, ranges(0, 5), IDS)
    state.add(2000, ranges(5, 9), IDS)
    assert state.ranges(1000) == ranges(0, 5)
    assert state.current == {TopicPartition("flights", 0): 9, TopicPartition("flights", 1): 9}
    assert state.ranges(3000) is None


def test_a_batch_that_was_never_planned_is_empty_once_a_later_one_was() -> None:
    state = StreamState()
    state.add(1000, ranges(0, 5), IDS)
    state.add(3000, ranges(5, 9), IDS)
    assert state.ranges(2000) == ()


def test_what_was_forgotten_is_not_taken_for_empty() -> None:
    state = StreamState()
    for number in range(1, 6):
        state.add(number * 1000, ranges(number, number + 1), IDS)
    assert state.forget(lambda time_ms: time_ms >= 4000) == [1000, 2000, 3000]
    with pytest.raises(OffsetPlanError, match="batch of 2000 ms are no longer known"):
        state.ranges(2000)
    assert state.ranges(4000) == ranges(4, 5)


def test_the_newest_batch_is_never_forgotten() -> None:
    state = StreamState()
    state.add(1000, ranges(0, 5), IDS)
    assert state.forget(lambda _: False) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=20), st.integers(0, 20_000))
def test_all_of_it_survives_a_restart(steps: list[tuple[int, int]], keep_from: int) -> None:
    state = StreamState()
    position = 0
    for number, (more, partitions) in enumerate(steps, 1):
        state.add(number * 1000, ranges(position, position + more, partitions + 1), IDS)
        position += more
    state.forget(lambda time_ms: time_ms >= keep_from)
    back: StreamState = pickle.loads(pickle.dumps(state))
    assert (back.current, back.topic_ids) == (state.current, state.topic_ids)
    assert back.__getstate__() == state.__getstate__()
    newest = len(steps) * 1000
    assert back.ranges(newest) == state.ranges(newest)
    assert back.ranges(newest + 1000) is None


def test_the_first_id_of_a_topic_is_kept() -> None:
    state = StreamState()
    state.add(1000, ranges(0, 5), IDS)
    state.add(2000, ranges(5, 6), {"flights": uuid4(), "late": (late := uuid4())})
    assert state.topic_ids == {**IDS, "late": late}


def test_a_thousand_partitions_stay_small() -> None:
    state = StreamState()
    for number in range(10):
        state.add(number * 1000, ranges(number << 33, (number + 1) << 33, 1000), IDS)
    assert len(pickle.dumps(state)) < 300_000, "about 25 bytes a range"


def test_the_form_of_another_release_is_refused() -> None:
    state = StreamState()
    with pytest.raises(OffsetPlanError, match=f"of version 99, this release reads version {VERSION}; go on with"):
        state.__setstate__({**state.__getstate__(), "version": 99})
