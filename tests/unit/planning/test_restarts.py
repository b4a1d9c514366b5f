"""Which errors end a continuous query, and how long it waits after others."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    CheckpointTakenError,
    DataLossError,
    FencedError,
    KafkaDirectError,
    OptionError,
    RunFailedError,
    TaskStartError,
    TruncatedError,
)
from pyspark_kafka_direct.planning.restarts import final, pause_before


def told(cause: str | None) -> RunFailedError:
    error = RunFailedError("Task 0 failed", topic="t", partition=1)
    error.cause = cause
    return error


@pytest.mark.parametrize("kind", [AuthorizationError, CheckpointTakenError, DataLossError, FencedError, OptionError])
def test_what_no_restart_mends(kind: type[KafkaDirectError]) -> None:
    error = kind("it is so")
    assert final(error) is error


@pytest.mark.parametrize("error", [BrokerTimeoutError("late"), TaskStartError("late"), ValueError("x"), told(None)])
def test_what_a_restart_may_mend(error: Exception) -> None:
    assert final(error) is None


@pytest.mark.parametrize("cause", ["ZeroDivisionError", "TopicNotFoundError", "TopicRecreatedError", "BrokerError"])
def test_what_a_task_has_told_may_pass(cause: str) -> None:
    assert final(told(cause)) is None


def test_what_a_task_has_told_has_its_own_class_again() -> None:
    error = final(told("TruncatedError"))
    assert type(error) is TruncatedError
    assert (error.topic, error.partition, error.message) == ("t", 1, "Task 0 failed")
    assert isinstance(error.__cause__, RunFailedError)


def test_pauses_grow() -> None:
    pauses = [pause_before(restart) for restart in range(1, 12)]
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pause_before(10_000) == 10.0
