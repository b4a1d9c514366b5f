"""Which errors end a continuous query, and the restart backoff after others."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.continuous.continuous_epochs import final_error
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    CheckpointFencedError,
    DataLossError,
    KafkaDirectError,
    OptionError,
    ProducerFencedError,
    QueryRunError,
    TaskStartTimeoutError,
    TruncatedError,
)


def task_error(cause_class: str | None) -> QueryRunError:
    error = QueryRunError("Task 0 failed", topic="t", partition=1)
    error.cause_class = cause_class
    return error


@pytest.mark.parametrize("error_class", [AuthorizationError, CheckpointFencedError, DataLossError, OptionError])
def test_an_error_that_a_restart_cannot_resolve_is_final(error_class: type[KafkaDirectError]) -> None:
    error = error_class("message")
    assert final_error(error) is error


@pytest.mark.parametrize(
    "error",
    [
        BrokerTimeoutError("late"),
        TaskStartTimeoutError("late"),
        ValueError("x"),
        task_error(None),
        ProducerFencedError("a late InitProducerId of this query, too"),
    ],
)
def test_an_error_that_a_restart_may_resolve_is_not_final(error: Exception) -> None:
    assert final_error(error) is None


@pytest.mark.parametrize(
    "cause_class",
    ["ZeroDivisionError", "TopicNotFoundError", "TopicRecreatedError", "BrokerError", "ProducerFencedError"],
)
def test_an_error_of_a_task_that_a_restart_may_resolve_is_not_final(cause_class: str) -> None:
    assert final_error(task_error(cause_class)) is None


def test_a_final_error_of_a_task_gets_its_own_class() -> None:
    error = final_error(task_error("TruncatedError"))
    assert type(error) is TruncatedError
    assert (error.topic, error.partition, error.message) == ("t", 1, "Task 0 failed")
    assert isinstance(error.__cause__, QueryRunError)


def test_a_job_that_was_cancelled_is_final() -> None:
    error = QueryRunError("The Spark job of the query failed: [SPARK_JOB_CANCELLED] Job 3 cancelled")
    error.cause_class = "SPARK_JOB_CANCELLED"
    assert final_error(error) is error
