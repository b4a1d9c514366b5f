"""Runs of one query against a made-up topic: in any order of steps, with deaths, unclear ends and stale leaders."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.unit.log.brokers import STORE, Record, Topic, store_log
from tests.unit.writing.drivers import interleaved

from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerUnreachableError,
    FencedError,
    KafkaDirectError,
    OutcomeUnknownError,
)
from pyspark_kafka_direct.log._stored_offsets import StoredOffset, offset_key, read_stored
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.log._store_log import StoreLog

PLACE = TopicPartition("t", 0)
GOAL = 6


@pytest.fixture
def topic() -> Topic:
    return Topic()


def save(store: StoreLog, offset: int) -> None:
    store.write({PLACE: StoredOffset(offset, None, "run")})


def at(store: StoreLog) -> int:
    return store.offsets[PLACE].offset if PLACE in store.offsets else 0


def saved(topic: Topic) -> list[int]:
    """All offsets that were committed, in their order."""
    key = offset_key("q", PLACE)
    rows = [each for each in topic.log if each.key == key and each.state == "committed"]
    return [int(each.value.split(b":")[1].split(b",")[0]) for each in rows if each.value is not None]


def test_a_run_finds_what_the_one_before_has_saved(topic: Topic) -> None:
    first = store_log(topic, "1")
    first.take_over()
    save(first, 1)
    save(first, 2)
    second = store_log(topic, "2")
    second.take_over()
    assert at(second) == 2
    with pytest.raises(FencedError, match="taken over by run 2, process 1 on host host"):
        save(first, 3)
    save(second, 4)
    assert saved(topic) == [1, 2, 4]


def test_the_order_of_taking_over(topic: Topic) -> None:
    """Read before InitProducerId, and what the run before commits in between is missed."""
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.take_over()
    steps: list[str] = []

    def step(name: str) -> None:
        if name == "init":
            topic.step = steps.append
            save(first, 1)
            topic.step = step
        steps.append(name)

    topic.step = step
    second.take_over()
    assert at(second) == 1
    names = [name for name in steps if name in ("init", "stable_end")]
    assert names == ["init", "stable_end"]


@pytest.mark.parametrize("seed", range(100))
def test_runs_that_overlap(topic: Topic, seed: int) -> None:
    """Nothing is saved that was not done, and nothing that was saved is taken back."""
    chance = random.Random(seed)
    topic.unclear = lambda: chance.choice([None, None, None, True, False])
    topic.lag = lambda: chance.choice([0] * 12 + [1, 2, 3])
    runs = iter(range(10_000))
    done: set[int] = set()

    def drive() -> None:
        while not saved(topic) or saved(topic)[-1] < GOAL:
            store = store_log(topic, f"run-{next(runs)}")
            try:
                store.take_over()
                for number in range(at(store), GOAL):
                    topic.step("work")
                    done.add(number)
                    save(store, number + 1)
                    assert saved(topic)[-1] >= number + 1
            except KafkaDirectError:
                topic.step("restart")

    drivers = interleaved(topic, [drive, drive, drive])  # type: ignore[arg-type]
    for _ in range(20_000):
        alive = [driver for driver in drivers if not driver.done]
        if not alive:
            break
        chance.choice(alive).go_on(kill=len(alive) > 1 and chance.random() < 0.005)
        offsets = saved(topic)
        assert offsets == sorted(offsets)
        assert done >= set(range(max(offsets, default=0)))
    assert saved(topic)[-1] == GOAL


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "not-heard"])
def test_a_successor_outlives_whoever_waits_for_an_answer(topic: Topic, heard: bool) -> None:
    """The earlier run finds out that it was succeeded before it asks for the id again."""
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.take_over()
    save(first, 1)
    topic.unclear = lambda: heard

    def meanwhile(name: str) -> None:
        if name == "unclear":
            topic.step, topic.unclear = (lambda _: None), (lambda: None)
            second.take_over()

    topic.step = meanwhile
    with pytest.raises(FencedError, match="taken over by run 2"):
        save(first, 2)
    save(second, at(second) + 1)
    assert saved(topic)[-1] == at(second)


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
def test_what_a_stale_leader_does_not_know_is_not_passed_over(topic: Topic, missing: int) -> None:
    first = store_log(topic, "1")
    first.take_over()
    save(first, 1)
    save(first, 2)
    topic.lag = lambda: missing
    with pytest.raises(KafkaDirectError):
        store_log(topic, "2").take_over()
    topic.lag = lambda: 0
    third = store_log(topic, "3")
    third.take_over()
    assert at(third) == 2


def test_others_that_write_there_do_not_matter(topic: Topic) -> None:
    """Their records may lie between the end that was read and the first of this run."""
    store = store_log(topic, "1")
    others = [Record(b'["r"]', b"{}", "open"), Record(b'["r","t",0]', b'{"offset":3}', "open")]
    topic.step = lambda name: topic.log.extend(others) if name == "send" and len(topic.log) < 2 else None
    store.take_over()
    save(store, 1)
    assert saved(topic) == [1]


def test_an_end_that_stays_unclear_is_told(topic: Topic) -> None:
    store = store_log(topic, "1")
    store.take_over()
    topic.unclear = lambda: True
    told: list[str] = []

    def step(name: str) -> None:
        if name == "init" and "unclear" in told:
            raise BrokerUnreachableError("nobody there")
        told.append(name)

    topic.step = step
    with pytest.raises(OutcomeUnknownError, match="nobody there"):
        save(store, 1)
    topic.step, topic.unclear = (lambda _: None), (lambda: None)
    before = len(saved(topic))
    save(store, 1)  # it was heard, so there is nothing to do
    assert len(saved(topic)) == before == 1


def test_a_failure_is_aborted_and_the_next_save_goes_on(topic: Topic) -> None:
    store = store_log(topic, "1")
    store.take_over()
    save(store, 1)
    failures = ["flush"]

    def step(name: str) -> None:
        if name in failures:
            failures.remove(name)
            raise BrokerUnreachableError("nobody there")

    topic.step = step
    with pytest.raises(BrokerUnreachableError):
        save(store, 2)
    assert all(each.state != "open" for each in topic.log)
    save(store, 3)
    assert saved(topic) == [1, 3]


def test_a_loss_is_told_again_and_again(topic: Topic) -> None:
    """The log was cut back while the run did not look."""
    store = store_log(topic, "1")
    store.take_over()
    store.write({TopicPartition("t", 1): StoredOffset(7, None, "run")})
    save(store, 1)
    del topic.log[2:]
    for message in ("had reached offset 5 before", *["offset 7 of t-1 .* is not there any more"] * 2):
        with pytest.raises(BrokerError, match=message):
            save(store, 2)
    assert saved(topic) == []


def test_a_second_take_over_sees_what_was_lost(topic: Topic) -> None:
    store = store_log(topic, "1")
    store.take_over()
    store.write({TopicPartition("t", 1): StoredOffset(7, None, "run")})
    topic.unclear = lambda: False

    def step(name: str) -> None:
        if name == "unclear":
            topic.step, topic.unclear = (lambda _: None), (lambda: None)
            topic.log[2] = Record(b"x", b"", "committed")

    topic.step = step
    with pytest.raises(BrokerError, match=r"The offset 7 of t-1 was saved by this run, and is not there any more"):
        save(store, 2)


def test_offsets_are_taken_away(topic: Topic) -> None:
    store = store_log(topic, "1")
    store.take_over()
    save(store, 1)
    store.write({PLACE: None})
    store.write({PLACE: None})
    assert at(store) == 0
    assert sum(each.key == offset_key("q", PLACE) for each in topic.log) == 2
    second = store_log(topic, "2")
    second.take_over()
    assert second.offsets == {}


def test_a_topic_has_nothing_of_a_query_at_first() -> None:
    assert read_stored("q", [], STORE.topic) == ({}, [])


def test_who_takes_the_id_back_by_chance_leaves_what_the_successor_saved(topic: Topic) -> None:
    """It was looked for, and began after that and before InitProducerId."""
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.take_over()
    save(first, 1)
    topic.unclear = lambda: False

    def step(name: str) -> None:
        if name == "unclear":
            topic.unclear = lambda: None
        elif name == "init":
            topic.step = lambda _: None
            second.take_over()
            save(second, 5)

    topic.step = step
    with pytest.raises(FencedError, match="taken over by run 2"):
        save(first, 2)
    with pytest.raises(FencedError):
        save(second, 6)
    assert saved(topic) == [1, 5]


def test_a_broker_that_only_says_that_the_transaction_has_ended_tells_of_a_successor(topic: Topic) -> None:
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.take_over()

    def step(name: str) -> None:
        if name == "commit":
            topic.step = lambda _: None
            second.take_over()
            raise BrokerError("INVALID_TXN_STATE")

    topic.step = step
    for _ in range(2):
        with pytest.raises(FencedError, match="taken over by run 2"):
            save(first, 1)
    save(second, 1)


def test_a_run_that_was_quiet_for_a_week_goes_on(topic: Topic) -> None:
    """The brokers have forgotten its transactional id; that is not as if another run had taken over."""
    first = store_log(topic, "1")
    first.take_over()
    save(first, 1)
    for offset in (2, 3):
        topic.forget()
        save(first, offset)
    assert saved(topic) == [1, 2, 3]


@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
def test_a_run_that_was_quiet_for_a_week_leaves_the_id_to_its_successor(topic: Topic, both: bool) -> None:
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.take_over()
    save(first, 1)
    topic.forget()
    second.take_over()
    save(second, 5)
    if both:
        topic.forget()
    with pytest.raises(FencedError, match="taken over by run 2"):
        save(first, 2)
    save(second, 6)
    assert saved(topic) == [1, 5, 6]
