"""The checkpointed state of a direct stream, and its pickled format."""

from __future__ import annotations

import pickle
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.direct.checkpoint_data import (
    CHECKPOINT_DATA_VERSION,
    BatchRetention,
    StreamCheckpointData,
    UnwrittenBatches,
)
from pyspark_kafka_direct.direct.direct_stream_planner import StreamPosition
from pyspark_kafka_direct.errors import InvalidOffsetsError, KafkaDirectError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

TOPIC_IDS = {"flights": uuid4(), "orders": uuid4()}


def ranges(start: int, end: int, partitions: int = 2) -> tuple[OffsetRange, ...]:
    """Ranges of partitions that alternate between two topics."""
    topics = tuple(TOPIC_IDS)
    return tuple(OffsetRange(topics[number % 2], number // 2, start, end) for number in range(partitions))


def common_offset(state: StreamCheckpointData) -> int:
    """The offset of all partitions."""
    (offset,) = set(state.position.offsets.values())
    return offset


def generate(state: StreamCheckpointData, time_ms: int, start: int, end: int) -> None:
    """Generate a batch, with one plain output."""
    state.begin_generation(time_ms)
    assert state.find_ranges(time_ms) is None
    state.add_batch(time_ms, ranges(start, end), TOPIC_IDS)
    state.end_generation()


def fail_generation(state: StreamCheckpointData, time_ms: int, start: int, end: int) -> None:
    """Start to generate a batch, but do not end the generation, as if another output raised."""
    state.begin_generation(time_ms)
    assert state.find_ranges(time_ms) is None
    state.add_batch(time_ms, ranges(start, end), TOPIC_IDS)


def started_state() -> StreamCheckpointData:
    state = StreamCheckpointData()
    state.start(StreamPosition({each.topic_partition: 0 for each in ranges(0, 0)}, TOPIC_IDS))
    return state


def restored(state: StreamCheckpointData) -> StreamCheckpointData:
    copy: StreamCheckpointData = pickle.loads(pickle.dumps(state))
    return copy


def test_a_batch_keeps_its_ranges_and_the_next_starts_at_its_end() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    generate(state, 2000, 5, 9)
    assert state.find_ranges(1000) == ranges(0, 5)
    assert state.position.offsets == {TopicPartition("flights", 0): 9, TopicPartition("orders", 0): 9}


def test_an_unplanned_batch_is_empty_once_a_later_batch_is_planned() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    generate(state, 3000, 5, 9)
    assert state.find_ranges(2000) == ()


def test_a_failed_generation_is_empty_and_the_next_starts_at_the_same_offsets() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    fail_generation(state, 2000, 5, 9)
    assert state.unfinished_batches() == [2000]
    state.roll_back_generation()
    assert state.unfinished_batches() == []
    assert (state.find_ranges(2000), common_offset(state)) == ((), 5)
    generate(state, 3000, 5, 12)
    assert (state.find_ranges(2000), state.find_ranges(3000)) == ((), ranges(5, 12))


def test_several_failed_generations_in_a_row() -> None:
    state = started_state()
    for number in range(1, 4):
        fail_generation(state, number * 1000, 0, number)
        state.roll_back_generation()
    generate(state, 4000, 0, 7)
    assert [state.find_ranges(number * 1000) for number in range(1, 5)] == [(), (), (), ranges(0, 7)]


def test_new_partitions_of_a_failed_generation_are_rolled_back() -> None:
    state = started_state()
    late = uuid4()
    state.begin_generation(1000)
    state.add_batch(1000, [*ranges(0, 5), OffsetRange("late", 0, 3, 4)], {**TOPIC_IDS, "late": late})
    state.roll_back_generation()
    assert TopicPartition("late", 0) not in state.position.offsets
    assert "late" not in state.position.topic_ids


def test_a_failed_generation_without_a_plan_is_empty() -> None:
    """Otherwise a window of the next batch would plan it, and no plain output would see its records."""
    state = started_state()
    generate(state, 1000, 0, 5)
    state.begin_generation(2000)  # planning failed
    state.roll_back_generation()
    state.begin_generation(3000)
    assert state.find_ranges(2000) == ()
    assert state.find_ranges(3000) is None


@pytest.mark.parametrize("is_first_requested", [True, False])
def test_a_generation_that_never_started_is_empty(is_first_requested: bool) -> None:
    """Also if no ranges of an earlier batch were requested, before those of another one were."""
    state = started_state()
    if not is_first_requested:
        state.begin_generation(500)
        state.end_generation()
    generate(state, 1000, 0, 5)
    state.begin_generation(3000)
    assert state.find_ranges(2000) == (), "requested by a window, before this batch"
    assert state.find_ranges(3000) is None


@pytest.mark.parametrize("order", [(1000, 2000, 3000), (3000, 1000, 2000), (2000, 3000, 1000)])
def test_the_ranges_of_any_dropped_batch_are_an_error(order: tuple[int, ...]) -> None:
    """Windows plan batches in another order than that of their times."""
    state = started_state()
    for time_ms in (1000, 2000, 3000):
        state.begin_generation(time_ms)
        state.end_generation()
    state.begin_generation(4000)
    for number, time_ms in enumerate((*order, 4000)):
        state.add_batch(time_ms, ranges(number, number + 1), TOPIC_IDS)
    state.end_generation()
    assert sorted(state.forget_batches(lambda time_ms: time_ms == 4000)) == [1000, 2000, 3000]
    for each in (state, restored(state)):
        for time_ms in order:
            with pytest.raises(InvalidOffsetsError, match="no longer available"):
                each.find_ranges(time_ms)


def test_a_slice_of_the_future_does_not_block_batches() -> None:
    """A thread of the application may slice while Spark generates; earlier batches must not become empty."""
    state = started_state()
    state.begin_generation(1000)
    with pytest.raises(KafkaDirectError, match="the batch at 9000 ms was requested before"):
        state.find_ranges(9000)
    assert state.find_ranges(1000) is None


def test_unrequested_batches_are_planned_when_a_window_slides_over_them() -> None:
    state = started_state()
    for time_ms in (1000, 2000):
        state.begin_generation(time_ms)
        state.end_generation()
    state.begin_generation(3000)
    for number in range(3):
        assert state.find_ranges((number + 1) * 1000) is None
        state.add_batch((number + 1) * 1000, ranges(number, number + 1), TOPIC_IDS)
    assert state.unfinished_batches() == [1000, 2000, 3000]
    assert restored(state).find_ranges(1000) == (), "while the generation may still fail"
    state.roll_back_generation()
    assert [state.find_ranges(time_ms) for time_ms in (1000, 2000, 3000)] == [(), (), ()]
    assert common_offset(state) == 0
    for time_ms in (4000, 5000):
        state.begin_generation(time_ms)
        state.end_generation()
    state.begin_generation(6000)
    assert state.find_ranges(3000) == ()
    assert state.find_ranges(4000) is None


def test_a_failed_generation_among_unrequested_ones() -> None:
    state = started_state()
    state.begin_generation(1000)
    state.end_generation()
    state.begin_generation(2000)
    state.roll_back_generation()
    state.begin_generation(3000)
    assert [state.find_ranges(time_ms) for time_ms in (1000, 2000, 3000)] == [(), (), None]


def test_a_regenerated_batch_keeps_its_ranges_if_the_generation_fails() -> None:
    """After a restart its ranges are fixed, and the next restart generates it once more."""
    state = started_state()
    generate(state, 1000, 0, 5)
    copy = restored(state)
    copy.begin_generation(1000)
    assert restored(copy).find_ranges(1000) == ranges(0, 5)
    copy.roll_back_generation()
    assert (copy.find_ranges(1000), common_offset(copy)) == (ranges(0, 5), 5)


def test_a_checkpoint_treats_a_generation_in_progress_as_failed() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    fail_generation(state, 2000, 5, 9)
    copy = restored(state)
    assert (copy.find_ranges(2000), common_offset(copy)) == ((), 5)
    assert state.find_ranges(2000) == ranges(5, 9), "pickling changes nothing"
    state.end_generation()
    assert restored(state).find_ranges(2000) == ranges(5, 9)


def test_a_checkpoint_from_before_a_failed_generation_plans_it_again() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    copy = restored(state)
    fail_generation(state, 2000, 5, 9)
    generate(copy, 2000, 5, 11)
    assert copy.find_ranges(2000) == ranges(5, 11)


def test_no_batch_is_planned_outside_a_generation() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    with pytest.raises(KafkaDirectError, match="batch at 2000 ms was requested while Spark was not generating a batch"):
        state.find_ranges(2000)
    assert state.find_ranges(1000) == ranges(0, 5)


def test_a_forgotten_batch_is_not_treated_as_empty() -> None:
    state = started_state()
    for number in range(1, 6):
        generate(state, number * 1000, number, number + 1)
    assert state.forget_batches(lambda time_ms: time_ms >= 4000) == [1000, 2000, 3000]
    with pytest.raises(InvalidOffsetsError, match="batch at 2000 ms are no longer available"):
        state.find_ranges(2000)
    assert state.find_ranges(4000) == ranges(4, 5)


def test_a_forgotten_batch_stays_forgotten_after_its_generation_failed() -> None:
    """As an empty batch it would replace its results."""
    state = started_state()
    for number in range(1, 6):
        generate(state, number * 1000, number, number + 1)
    state.forget_batches(lambda time_ms: time_ms >= 4000)
    state.begin_generation(2000)
    assert 2000 not in restored(state).__getstate__()["batches"]
    state.roll_back_generation()
    with pytest.raises(InvalidOffsetsError, match="batch at 2000 ms are no longer available"):
        state.find_ranges(2000)


def test_the_newest_batch_is_never_forgotten() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    assert state.forget_batches(lambda _: False) == []


def test_a_generation_in_progress_is_not_forgotten() -> None:
    state = started_state()
    for time_ms in (1000, 2000):
        state.begin_generation(time_ms)
        state.end_generation()
    state.begin_generation(3000)
    for time_ms in (1000, 2000, 3000):
        state.add_batch(time_ms, ranges(0, 0), TOPIC_IDS)
    assert state.forget_batches(lambda _: False) == []


def test_batches_without_all_checkpoints_are_needed() -> None:
    """A restart may start at any of them: Spark writes a checkpoint when a batch is done, and may fall behind."""
    times = range(1000, 21_000, 1000)

    def needed(**changes: object) -> list[int]:
        arguments = {"now_ms": 20_000, "processed_ms": 19_000, "pending": (), "look_back_ms": 2000, **changes}
        return [time_ms for time_ms in times if BatchRetention(**arguments).is_needed(time_ms)]  # type: ignore[arg-type]

    assert needed() == [17_000, 18_000, 19_000, 20_000]
    assert needed(processed_ms=12_000) == list(range(10_000, 21_000, 1000)), "all of these may be generated again"
    assert needed(pending=(5000,)) == [3000, 4000, 5000, 17_000, 18_000, 19_000, 20_000], "its jobs have failed"
    assert needed(now_ms=15_000, processed_ms=20_000) == list(range(13_000, 21_000, 1000)), "a window looks back"
    assert needed(processed_ms=None) == list(times), "right after a restart"


class Batches:
    """The batches of a context with concurrent jobs."""

    def __init__(self) -> None:
        self.unwritten = UnwrittenBatches()
        self.pending: set[int] = set()
        self.failed: set[int] = set()
        self.processed: int | None = None

    def generate(self, time_ms: int) -> int:
        oldest = self.unwritten.oldest(time_ms, self.processed, sorted(self.pending), self.failed.__contains__)
        self.pending.add(time_ms)
        return oldest

    def end(self, *times_ms: int, written: bool = True) -> None:
        self.pending -= set(times_ms)
        if written:
            self.processed = times_ms[-1]


def test_a_batch_that_still_runs_will_write_a_checkpoint() -> None:
    batches = Batches()
    assert batches.generate(1) == 1
    for time_ms in range(2, 6):
        assert batches.generate(time_ms) == 1
        batches.end(time_ms)
    batches.end(1, written=False)
    assert batches.generate(6) == 1, "its checkpoint is not written yet, and would be the newest"
    batches.processed = 1
    assert batches.generate(7) == 1
    batches.end(6)
    assert batches.generate(8) == 6


def test_a_window_that_looks_back_says_nothing_about_later_batches() -> None:
    batches = Batches()
    for time_ms in (1, 2, 3):
        batches.generate(time_ms)
    batches.end(3)
    batches.end(1, written=False)
    assert batches.unwritten.oldest(2, batches.processed, sorted(batches.pending), lambda _: False) == 1
    assert batches.generate(4) == 1, "batch 3 was done before batch 1"


def test_a_batch_that_has_failed_writes_no_checkpoint() -> None:
    batches = Batches()
    for time_ms in (1, 2, 3):
        batches.generate(time_ms)
    batches.failed |= {1, 2}
    assert batches.generate(4) == 1
    batches.end(3, 4)
    assert batches.generate(5) == 3, "batch 4 was generated after the others had failed"
    batches.end(5)
    assert batches.generate(6) == 5
    assert batches.pending == {1, 2, 6}


def test_a_context_that_keeps_up_needs_its_last_batch() -> None:
    batches = Batches()
    for time_ms in range(1, 9):
        assert batches.generate(time_ms) == max(time_ms - 1, 1)
        batches.end(time_ms)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5), st.booleans()), max_size=20), st.integers(0, 20_000))
def test_the_state_survives_a_restart(steps: list[tuple[int, int, bool]], kept_from_ms: int) -> None:
    state = started_state()
    position, newest = 0, -1
    for number, (more, partitions, fails) in enumerate(steps, 1):
        newest = number * 1000
        state.begin_generation(newest)
        state.add_batch(newest, ranges(position, position + more, partitions + 1), TOPIC_IDS)
        if fails:
            state.roll_back_generation()
        else:
            state.end_generation()
            position += more
    state.forget_batches(lambda time_ms: time_ms >= kept_from_ms)
    copy = restored(state)
    assert copy.position == state.position
    assert set(copy.position.offsets.values()) == {position}
    assert copy.__getstate__() == state.__getstate__()
    if newest > 0:
        assert copy.find_ranges(newest) == state.find_ranges(newest)
    copy.begin_generation(newest + 1000)
    assert copy.find_ranges(newest + 1000) is None


def test_the_topics_of_earlier_batches_survive_a_restart() -> None:
    state = started_state()
    batches = [("flights",), ("orders", "late"), ("orders",)]
    for number, topics in enumerate(batches):
        state.begin_generation(number)
        state.add_batch(number, [OffsetRange(topic, 0, 0, 5) for topic in topics], TOPIC_IDS)
        state.end_generation()
    for number, topics in enumerate(batches):
        assert [each.topic for each in restored(state).planned_ranges(number)] == [*topics]


def test_the_first_topic_id_is_kept() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    state.begin_generation(2000)
    state.add_batch(2000, ranges(5, 6), {"flights": uuid4(), "late": (late := uuid4())})
    state.end_generation()
    assert state.position.topic_ids == {**TOPIC_IDS, "late": late}


def test_a_thousand_partitions_are_small_when_pickled() -> None:
    state = started_state()
    for number in range(10):
        state.begin_generation(number * 1000)
        state.add_batch(number * 1000, ranges(number << 33, (number + 1) << 33, 1000), TOPIC_IDS)
        state.end_generation()
    assert len(pickle.dumps(state)) < 300_000, "about 25 bytes a range"


def test_the_format_of_another_release_is_rejected() -> None:
    state = started_state()
    message = rf"of version 99, but this release reads version {CHECKPOINT_DATA_VERSION}\. Continue with"
    with pytest.raises(InvalidOffsetsError, match=message):
        state.__setstate__({**state.__getstate__(), "version": 99})


def test_a_batch_before_an_empty_one_is_empty_outside_of_a_generation() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    state.begin_generation(5000)
    assert state.find_ranges(3000) == ()
    state.end_generation()
    assert state.find_ranges(2000) == ()


def test_the_ranges_of_an_unknown_batch_are_an_error() -> None:
    state = started_state()
    generate(state, 1000, 0, 5)
    assert state.planned_ranges(1000) == ranges(0, 5)
    with pytest.raises(InvalidOffsetsError, match="no offset ranges are known for a batch at 2000 ms"):
        state.planned_ranges(2000)
