"""The commit step against a made-up Kafka: drivers in any order of steps, deaths, unclear ends, stale leaders."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.unit.writing.drivers import Kafka, Session, Store, cluster, interleaved, text

from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
    FencedError,
    KafkaDirectError,
    OutcomeUnknownError,
)
from pyspark_kafka_direct.planning.delivery import Attempt
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.writing import exactly_once
from pyspark_kafka_direct.writing.exactly_once import Delivered, Delivery, deliver

if TYPE_CHECKING:
    from collections.abc import Callable

BATCHES = 4


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()
    monkeypatch.setattr(exactly_once, "TransactionalSession", lambda *_: Session(made))
    return made


def commit(kafka: Kafka, batch: int, run: str = "run-1") -> Delivered:
    attempt = Attempt("stream", "query", run, batch, f"offsets of {batch}")
    batches = [("t", text(b"%d-%d" % (batch, part))) for part in range(2)]
    return deliver(cluster(), ProduceSettings(), Store(kafka), Delivery("p"), attempt, lambda: batches)


def whole(batches: int) -> list[str]:
    return [f"{batch}-{part}" for batch in range(batches) for part in range(2)]


def then(*values: object) -> Callable[[], object]:
    """These, one at each call, then the last one."""
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_each_batch_is_sent_once(kafka: Kafka) -> None:
    for batch in range(3):
        assert commit(kafka, batch).sent
    assert not commit(kafka, 2, "run-2").sent
    assert kafka.data == whole(3)


@pytest.mark.parametrize("heard", [True, False])
def test_where_the_end_is_unclear_the_marker_tells(kafka: Kafka, heard: bool) -> None:
    kafka.unclear = then(heard, None)  # type: ignore[assignment]
    assert commit(kafka, 0).sent
    assert kafka.data == whole(1)


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
def test_a_marker_that_a_stale_leader_does_not_know_is_not_passed_over(kafka: Kafka, missing: int) -> None:
    """It was cut off before the newest marker, or before the record that commits it, and does not know it."""
    commit(kafka, 0)
    commit(kafka, 1)
    kafka.lag = lambda: missing
    with pytest.raises(KafkaDirectError):
        commit(kafka, 1, "run-2")  # would be sent again by the marker of batch 0
    with pytest.raises(KafkaDirectError):
        commit(kafka, 0, "run-2")
    kafka.lag = lambda: 0
    assert not commit(kafka, 1, "run-2").sent
    assert kafka.data == whole(2)


@pytest.mark.parametrize("seed", range(100))
def test_two_drivers_and_their_successors(kafka: Kafka, seed: int) -> None:
    """They share a checkpoint. What it says was committed is in Kafka, and nothing is there twice, or out of order."""
    chance = random.Random(seed)
    kafka.unclear = lambda: chance.choice([None, None, None, True, False])
    kafka.lag = lambda: chance.choice([0, 0, 0, 0, 1, 2, 3])
    checkpoint: set[int] = set()
    runs = iter(range(1_000))

    def drive() -> None:
        while len(checkpoint) < BATCHES:
            run = f"run-{next(runs)}"
            try:
                for batch in range(len(checkpoint), BATCHES):
                    commit(kafka, batch, run)
                    kafka.step("checkpoint")
                    checkpoint.add(batch)
            except KafkaDirectError:
                kafka.step("restart")

    drivers = interleaved(kafka, [drive, drive, drive])
    for _ in range(5_000):
        alive = [driver for driver in drivers if not driver.done]
        if not alive:
            break
        kill = len(alive) > 1 and chance.random() < 0.01
        chance.choice(alive).go_on(kill=kill)
        assert kafka.data == whole(len(kafka.data) // 2)
        assert len(checkpoint) <= len(kafka.data) // 2
    assert kafka.data == whole(BATCHES)


@pytest.mark.parametrize("later", ["init", "find"])
def test_an_end_that_stays_unclear_is_not_called_a_failure(kafka: Kafka, later: str) -> None:
    """Whoever reads that nothing was sent may send it again."""
    kafka.unclear = lambda: True
    ended: list[str] = []

    def step(name: str) -> None:
        if name == later and "unclear" in ended:
            raise BrokerUnreachableError("nobody there")
        ended.append(name)

    kafka.step = step
    with pytest.raises(OutcomeUnknownError, match="nobody there"):
        commit(kafka, 0)
    assert kafka.data == whole(1)


def test_what_fails_after_the_marker_has_told_is_a_failure(kafka: Kafka) -> None:
    kafka.unclear = then(False, None)  # type: ignore[assignment]
    ended: list[str] = []

    def step(name: str) -> None:
        if name == "send" and "unclear" in ended:
            raise BrokerUnreachableError("nobody there")
        ended.append(name)

    kafka.step = step
    with pytest.raises(BrokerUnreachableError):
        commit(kafka, 0)
    assert kafka.data == []


def test_who_is_fenced_while_the_end_is_unclear_is_fenced(kafka: Kafka) -> None:
    kafka.unclear = lambda: True
    ended: list[str] = []

    def step(name: str) -> None:
        if name == "init" and "unclear" in ended:
            raise FencedError("taken over")
        ended.append(name)

    kafka.step = step
    with pytest.raises(FencedError):
        commit(kafka, 0)
