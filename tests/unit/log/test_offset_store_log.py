"""Runs of one query on a fake topic: interleaved steps, killed runs, unknown outcomes and stale leaders."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.unit.log.fake_offset_store import (
    STORE_PARTITION,
    FakeRecord,
    FakeStoreTopic,
    store_log,
)
from tests.unit.producer.fake_transactions import interleaved

from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerUnreachableError,
    KafkaDirectError,
    OutcomeUnknownError,
    ProducerFencedError,
)
from pyspark_kafka_direct.log.offset_store_records import StoredOffset, offset_key, read_stored_state
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.log.offset_store_log import OffsetStoreLog

PARTITION = TopicPartition("t", 0)
LAST_OFFSET = 6


@pytest.fixture
def topic() -> FakeStoreTopic:
    return FakeStoreTopic()


def save(store: OffsetStoreLog, offset: int) -> None:
    store.write({PARTITION: StoredOffset(offset, None, "run")})


def saved_offset(store: OffsetStoreLog) -> int:
    return store.offsets[PARTITION].offset if PARTITION in store.offsets else 0


def committed_offsets(topic: FakeStoreTopic) -> list[int]:
    """All committed offsets in log order."""
    key = offset_key("q", PARTITION)
    rows = [each for each in topic.log if each.key == key and each.state == "committed"]
    return [int(each.value.split(b":")[1].split(b",")[0]) for each in rows if each.value is not None]


def test_a_run_reads_the_offsets_of_the_previous_run(topic: FakeStoreTopic) -> None:
    first = store_log(topic, "1")
    first.acquire()
    save(first, 1)
    save(first, 2)
    second = store_log(topic, "2")
    second.acquire()
    assert saved_offset(second) == 2
    with pytest.raises(ProducerFencedError, match="acquired by run 2, process 1 on host host"):
        save(first, 3)
    save(second, 4)
    assert committed_offsets(topic) == [1, 2, 4]


def test_earlier_runs_are_fenced_before_offsets_are_read(topic: FakeStoreTopic) -> None:
    """Otherwise offsets that the previous run commits in between are missed."""
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.acquire()
    steps: list[str] = []

    def step(name: str) -> None:
        if name == "init":
            topic.step = steps.append
            save(first, 1)
            topic.step = step
        steps.append(name)

    topic.step = step
    second.acquire()
    assert saved_offset(second) == 1
    names = [name for name in steps if name in ("init", "stable_end")]
    assert names == ["init", "stable_end"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_overlapping_runs(topic: FakeStoreTopic, seed: int) -> None:
    """Offsets are saved only after their work was done, and no saved offset is lost."""
    rng = random.Random(seed)
    topic.unknown_outcome = lambda: rng.choice([None, None, None, True, False])
    topic.lag = lambda: rng.choice([0] * 12 + [1, 2, 3])
    runs = iter(range(10_000))
    done: set[int] = set()

    def drive() -> None:
        while not committed_offsets(topic) or committed_offsets(topic)[-1] < LAST_OFFSET:
            store = store_log(topic, f"run-{next(runs)}")
            try:
                store.acquire()
                for number in range(saved_offset(store), LAST_OFFSET):
                    topic.step("work")
                    done.add(number)
                    save(store, number + 1)
                    assert committed_offsets(topic)[-1] >= number + 1
            except KafkaDirectError:
                topic.step("restart")

    drivers = interleaved(topic, [drive, drive, drive])  # type: ignore[arg-type]
    for _ in range(20_000):
        alive = [driver for driver in drivers if not driver.done]
        if not alive:
            break
        rng.choice(alive).step_once(kill=len(alive) > 1 and rng.random() < 0.005)
        offsets = committed_offsets(topic)
        assert offsets == sorted(offsets)
        assert done >= set(range(max(offsets, default=0)))
    assert committed_offsets(topic)[-1] == LAST_OFFSET


@pytest.mark.parametrize("received", [True, False], ids=["received", "not-received"])
def test_a_run_with_an_unknown_outcome_does_not_fence_its_successor(topic: FakeStoreTopic, received: bool) -> None:
    """It looks for a newer run before it sends InitProducerId again."""
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.acquire()
    save(first, 1)
    topic.unknown_outcome = lambda: received

    def meanwhile(name: str) -> None:
        if name == "unknown outcome":
            topic.step, topic.unknown_outcome = (lambda _: None), (lambda: None)
            second.acquire()

    topic.step = meanwhile
    with pytest.raises(ProducerFencedError, match="acquired by run 2"):
        save(first, 2)
    save(second, saved_offset(second) + 1)
    assert committed_offsets(topic)[-1] == saved_offset(second)


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
def test_records_that_a_stale_leader_lacks_are_not_skipped(topic: FakeStoreTopic, missing: int) -> None:
    first = store_log(topic, "1")
    first.acquire()
    save(first, 1)
    save(first, 2)
    topic.lag = lambda: missing
    with pytest.raises(KafkaDirectError):
        store_log(topic, "2").acquire()
    topic.lag = lambda: 0
    third = store_log(topic, "3")
    third.acquire()
    assert saved_offset(third) == 2


def test_records_of_other_queries_are_ignored(topic: FakeStoreTopic) -> None:
    """They may lie between the end that was read and the first record of this run."""
    store = store_log(topic, "1")
    others = [FakeRecord(b'["r"]', b"{}", "open"), FakeRecord(b'["r","t",0]', b'{"offset":3}', "open")]
    topic.step = lambda name: topic.log.extend(others) if name == "send" and len(topic.log) < 2 else None
    store.acquire()
    save(store, 1)
    assert committed_offsets(topic) == [1]


def test_an_outcome_that_stays_unknown_is_an_error(topic: FakeStoreTopic) -> None:
    store = store_log(topic, "1")
    store.acquire()
    topic.unknown_outcome = lambda: True
    steps: list[str] = []

    def step(name: str) -> None:
        if name == "init" and "unknown outcome" in steps:
            raise BrokerUnreachableError("unreachable")
        steps.append(name)

    topic.step = step
    with pytest.raises(OutcomeUnknownError, match="unreachable"):
        save(store, 1)
    topic.step, topic.unknown_outcome = (lambda _: None), (lambda: None)
    before = len(committed_offsets(topic))
    save(store, 1)  # the commit was received, so nothing is written
    assert len(committed_offsets(topic)) == before == 1


def test_a_failed_save_is_aborted_and_the_next_one_succeeds(topic: FakeStoreTopic) -> None:
    store = store_log(topic, "1")
    store.acquire()
    save(store, 1)
    failures = ["flush"]

    def step(name: str) -> None:
        if name in failures:
            failures.remove(name)
            raise BrokerUnreachableError("unreachable")

    topic.step = step
    with pytest.raises(BrokerUnreachableError):
        save(store, 2)
    assert all(each.state != "open" for each in topic.log)
    save(store, 3)
    assert committed_offsets(topic) == [1, 3]


def test_every_save_after_a_truncation_fails(topic: FakeStoreTopic) -> None:
    """The log was truncated between two saves."""
    store = store_log(topic, "1")
    store.acquire()
    store.write({TopicPartition("t", 1): StoredOffset(7, None, "run")})
    save(store, 1)
    del topic.log[2:]
    for message in ("had reached offset 5 before", *["offset 7 of t-1.* is missing"] * 2):
        with pytest.raises(BrokerError, match=message):
            save(store, 2)
    assert committed_offsets(topic) == []


def test_lost_offsets_are_detected_when_the_query_is_acquired_again(topic: FakeStoreTopic) -> None:
    store = store_log(topic, "1")
    store.acquire()
    store.write({TopicPartition("t", 1): StoredOffset(7, None, "run")})
    topic.unknown_outcome = lambda: False

    def step(name: str) -> None:
        if name == "unknown outcome":
            topic.step, topic.unknown_outcome = (lambda _: None), (lambda: None)
            topic.log[2] = FakeRecord(b"x", b"", "committed")

    topic.step = step
    with pytest.raises(BrokerError, match=r"The offset 7 of t-1, which this run saved, is missing"):
        save(store, 2)


def test_offsets_are_deleted(topic: FakeStoreTopic) -> None:
    store = store_log(topic, "1")
    store.acquire()
    save(store, 1)
    store.write({PARTITION: None})
    store.write({PARTITION: None})
    assert saved_offset(store) == 0
    assert sum(each.key == offset_key("q", PARTITION) for each in topic.log) == 2
    second = store_log(topic, "2")
    second.acquire()
    assert second.offsets == {}


def test_an_empty_topic_has_no_offsets() -> None:
    assert read_stored_state("q", [], STORE_PARTITION.topic) == ({}, [])


def test_a_run_that_fences_its_successor_keeps_the_successors_offsets(topic: FakeStoreTopic) -> None:
    """The successor starts between the search for a newer run and InitProducerId."""
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.acquire()
    save(first, 1)
    topic.unknown_outcome = lambda: False

    def step(name: str) -> None:
        if name == "unknown outcome":
            topic.unknown_outcome = lambda: None
        elif name == "init":
            topic.step = lambda _: None
            second.acquire()
            save(second, 5)

    topic.step = step
    with pytest.raises(ProducerFencedError, match="acquired by run 2"):
        save(first, 2)
    with pytest.raises(ProducerFencedError):
        save(second, 6)
    assert committed_offsets(topic) == [1, 5]


def test_an_ended_transaction_leads_to_the_search_for_a_successor(topic: FakeStoreTopic) -> None:
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.acquire()

    def step(name: str) -> None:
        if name == "commit":
            topic.step = lambda _: None
            second.acquire()
            raise BrokerError("INVALID_TXN_STATE")

    topic.step = step
    for _ in range(2):
        with pytest.raises(ProducerFencedError, match="acquired by run 2"):
            save(first, 1)
    save(second, 1)


def test_a_run_continues_after_its_transactional_id_expired(topic: FakeStoreTopic) -> None:
    """Brokers respond as if another run had fenced it."""
    first = store_log(topic, "1")
    first.acquire()
    save(first, 1)
    for offset in (2, 3):
        topic.expire_transactional_id()
        save(first, offset)
    assert committed_offsets(topic) == [1, 2, 3]


@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
def test_a_run_whose_transactional_id_expired_does_not_fence_its_successor(topic: FakeStoreTopic, both: bool) -> None:
    first, second = store_log(topic, "1"), store_log(topic, "2")
    first.acquire()
    save(first, 1)
    topic.expire_transactional_id()
    second.acquire()
    save(second, 5)
    if both:
        topic.expire_transactional_id()
    with pytest.raises(ProducerFencedError, match="acquired by run 2"):
        save(first, 2)
    save(second, 6)
    assert committed_offsets(topic) == [1, 5, 6]
