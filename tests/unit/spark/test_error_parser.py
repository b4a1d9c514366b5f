"""``error_of`` restores errors of this package from exceptions of Spark."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct import errors
from pyspark_kafka_direct.errors import BrokerTimeoutError, DataLossError, KafkaDirectError
from pyspark_kafka_direct.spark.error_parser import error_of

ERROR_CLASSES = [
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, KafkaDirectError)
]  # fmt: skip

JVM_STACK = (
    "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)\n\tat java.base/java.lang.Thread.run"
)


def spark_message(error: BaseException) -> str:
    python_traceback = "".join(traceback.format_exception(error))
    return (
        "[STREAM_FAILED] Query terminated with exception: Job aborted: org.apache.spark.PythonException: "
        f"{python_traceback}\n{JVM_STACK}"
    )


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        if cause is None:
            raise error
        try:
            raise cause
        except Exception:
            raise error  # noqa: B904 (the text says "during handling")
    except Exception as caught:
        return caught


@given(
    st.sampled_from(ERROR_CLASSES),
    st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1).map(str.strip).filter(bool),
    st.none() | st.from_regex(r"[a-zA-Z0-9._-]{1,9}", fullmatch=True),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(-2, 1 << 62),
    st.none() | st.sampled_from(["one:9092", "[::1]:9092"]),
)
def test_the_error_is_restored(
    error_class: Any, message: str, topic: Any, partition: Any, offset: Any, broker: Any
) -> None:
    error = error_class(message, topic=topic, partition=partition, offset=offset, broker=broker)
    found = error_of(RuntimeError(spark_message(raised(error))))
    assert found is not None
    assert type(found) is error_class
    assert str(found) == str(error)
    if not message.endswith("]"):
        assert (found.topic, found.partition, found.offset, found.broker) == (topic, partition, offset, broker)


def test_the_last_of_several_errors_is_restored() -> None:
    error = raised(DataLossError("deleted", topic="t", partition=1), BrokerTimeoutError("late", broker="b:1"))
    found = error_of(RuntimeError(spark_message(error)))
    assert type(found) is DataLossError
    assert (found.message, found.topic, found.partition) == ("deleted", "t", 1)


def test_the_location_is_found_before_notes() -> None:
    """Python prints notes after the location."""
    error = BrokerTimeoutError("late", broker="b:1")
    notes = ["Tried 5 times.", "The last attempt took 3 s."]
    for note in notes:
        error.add_note(note)
    found = error_of(RuntimeError(spark_message(raised(error))))
    assert type(found) is BrokerTimeoutError
    assert (found.message, found.broker, found.__notes__) == ("late", "b:1", notes)


@pytest.mark.parametrize("lines", [1, 3])
def test_the_location_is_found_behind_quoted_ones(lines: int) -> None:
    """The message may quote the errors of brokers, one a line."""
    message = "\n".join(
        ["no broker responded:", *["late [topic other, partition 7, broker c:1]"] * lines, "all failed"]
    )
    error = DataLossError(message, topic="t", partition=1)
    error.add_note("Tried 5 times.")
    found = error_of(RuntimeError(spark_message(raised(error))))
    assert found is not None
    assert (found.message, found.topic, found.partition, found.broker) == (message, "t", 1, None)
    assert found.__notes__ == ["Tried 5 times."]


def test_a_name_that_is_no_error_is_skipped() -> None:
    """A newer release on the executors may have more classes."""
    error = raised(raised(KafkaDirectError("of a newer release")), DataLossError("deleted", topic="t"))
    text = spark_message(error).replace("errors.KafkaDirectError", "errors.Nonsense")
    found = error_of(RuntimeError(text))
    assert type(found) is DataLossError
    assert found.topic == "t"


@pytest.mark.parametrize("message", ["what is [offset of]", "a [partition x, broker]", "b [topic]", "c [broker a b]"])
def test_text_that_only_looks_like_a_location(message: str) -> None:
    found = error_of(RuntimeError(spark_message(raised(DataLossError(message)))))
    assert found is not None
    assert (found.message, found.offset, found.partition, found.broker) == (message, None, None, None)


@pytest.mark.parametrize("first", ["__cause__", "__context__"])
@pytest.mark.parametrize("second", ["__cause__", "__context__"])
def test_an_error_that_is_the_cause(first: str, second: str) -> None:
    error = DataLossError("deleted")
    outer, inner = RuntimeError("query failed"), RuntimeError("job aborted")
    setattr(outer, first, inner)
    setattr(inner, second, error)
    assert error_of(outer) is error
    assert error_of(error) is error
    setattr(inner, second, outer)
    assert error_of(outer) is None, "the causes form a cycle"


@pytest.mark.parametrize("other", [None, ValueError("no"), RuntimeError("pyspark_kafka_direct.errors.Nonsense: no")])
def test_other_exceptions(other: BaseException | None) -> None:
    assert error_of(other) is None


def test_a_long_message_that_looks_like_many_locations_is_parsed() -> None:
    """Messages quote other programs; the time must not grow with the square of their length."""
    text = " [topic x, partition 1" * 20_000
    found = error_of(Exception(f"pyspark_kafka_direct.errors.BrokerError: {text}."))
    assert found is not None
    assert (found.message, found.topic) == (f"{text}.", None)
