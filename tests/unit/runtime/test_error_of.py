"""Errors of this package, found again in what Spark makes of them."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct import errors
from pyspark_kafka_direct.errors import BrokerTimeoutError, DataLossError, KafkaDirectError
from pyspark_kafka_direct.runtime.error_of import error_of

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KafkaDirectError)
]  # fmt: skip

JVM = (
    "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)\n\tat java.base/java.lang.Thread.run"
)


def as_spark_tells(error: BaseException) -> str:
    told = "".join(traceback.format_exception(error))
    return (
        f"[STREAM_FAILED] Query terminated with exception: Job aborted: org.apache.spark.PythonException: {told}\n{JVM}"
    )


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        if cause is None:
            raise error
        try:
            raise cause
        except Exception:
            raise error  # noqa: B904 (the text says "during handling")
    except Exception as told:
        return told


@given(
    st.sampled_from(KINDS),
    st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1).map(str.strip).filter(bool),
    st.none() | st.from_regex(r"[a-zA-Z0-9._-]{1,9}", fullmatch=True),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(-2, 1 << 62),
    st.none() | st.sampled_from(["one:9092", "[::1]:9092"]),
)
def test_the_error_comes_back(kind: Any, message: str, topic: Any, partition: Any, offset: Any, broker: Any) -> None:
    error = kind(message, topic=topic, partition=partition, offset=offset, broker=broker)
    found = error_of(RuntimeError(as_spark_tells(raised(error))))
    assert found is not None
    assert type(found) is kind
    assert str(found) == str(error)
    if not message.endswith("]"):
        assert (found.topic, found.partition, found.offset, found.broker) == (topic, partition, offset, broker)


def test_of_several_the_last_one_raised() -> None:
    told = raised(DataLossError("gone", topic="t", partition=1), BrokerTimeoutError("late", broker="b:1"))
    found = error_of(RuntimeError(as_spark_tells(told)))
    assert type(found) is DataLossError
    assert (found.message, found.topic, found.partition) == ("gone", "t", 1)


def test_the_place_is_found_before_notes() -> None:
    """Tries that were used up are told in a note, and Python writes it behind the place."""
    error = BrokerTimeoutError("late", broker="b:1")
    error.add_note("Tried 5 times.")
    found = error_of(RuntimeError(as_spark_tells(raised(error))))
    assert type(found) is BrokerTimeoutError
    assert (found.message, found.broker, found.__notes__) == ("late", "b:1", ["Tried 5 times."])


@pytest.mark.parametrize("message", ["what is [offset of]", "a [partition x, broker]", "b [topic]", "c [broker a b]"])
def test_what_looks_like_a_place_and_is_none(message: str) -> None:
    found = error_of(RuntimeError(as_spark_tells(raised(DataLossError(message)))))
    assert found is not None
    assert (found.message, found.offset, found.partition, found.broker) == (message, None, None, None)


def test_an_error_that_is_the_cause() -> None:
    error = DataLossError("gone")
    outer = RuntimeError("query failed")
    outer.__cause__ = error
    assert error_of(outer) is error
    assert error_of(error) is error


@pytest.mark.parametrize("other", [None, ValueError("no"), RuntimeError("pyspark_kafka_direct.errors.Nonsense: no")])
def test_what_tells_of_none(other: BaseException | None) -> None:
    assert error_of(other) is None
