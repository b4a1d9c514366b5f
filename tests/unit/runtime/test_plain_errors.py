"""What is told of an error: its sentence, in a text that PySpark makes and in what a user's own call raises."""

from __future__ import annotations

import io
import logging
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pyspark.streaming.util
import pyspark.util
import pytest
from pyspark.serializers import read_int

from pyspark_kafka_direct.errors import BrokerUnreachableError, KafkaDirectError, RunFailedError, TopicNotFoundError
from pyspark_kafka_direct.runtime.error_of import error_of
from pyspark_kafka_direct.runtime.plain_errors import plain_errors, tell_plainly
from pyspark_kafka_direct.runtime.worker import begin_task
from pyspark_kafka_direct.structured.sink import KafkaBatchWriter
from pyspark_kafka_direct.structured.source import KafkaDirectSource

if TYPE_CHECKING:
    from collections.abc import Callable

UTIL: Any = pyspark.util
SENTENCE = "pyspark_kafka_direct.errors.TopicNotFoundError: no such topic: flihgts [topic flihgts]"


@pytest.fixture(autouse=True)
def _told_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pyspark.util, pyspark.streaming.util):
        monkeypatch.setattr(module, "traceback", traceback)
    tell_plainly()


def fail() -> None:
    try:
        raise ConnectionRefusedError(111, "refused")
    except ConnectionRefusedError as error:
        raise TopicNotFoundError("no such topic: flihgts", topic="flihgts") from error


def sent_by_a_worker(error: BaseException) -> str:
    """What PySpark's worker sends to the JVM for an error, called as it calls it."""
    sent = io.BytesIO()
    try:
        raise error
    except BaseException as raised:
        pyspark.util.handle_worker_exception(raised, sent)
    sent.seek(0)
    read_int(sent)  # type: ignore[no-untyped-call] # which says that it is an error
    return sent.read(read_int(sent)).decode()  # type: ignore[no-untyped-call]


def raised() -> BaseException:
    with pytest.raises(TopicNotFoundError) as caught:
        fail()
    return caught.value


@pytest.mark.parametrize("simplified", ["", "1"])
def test_a_worker_sends_the_sentence_only(simplified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    assert sent_by_a_worker(raised()) == SENTENCE + "\n"


@pytest.mark.parametrize("simplified", ["", "1"])
def test_an_error_of_others_is_sent_as_ever(simplified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    text = sent_by_a_worker(KeyError("a bug"))
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("KeyError: 'a bug'\n")
    assert "in sent_by_a_worker" in text


class OfAUserError(TopicNotFoundError):
    """What a user's code has derived and raises is a bug of that code, or its business."""


def test_an_error_that_a_user_has_derived_keeps_its_stack_trace() -> None:
    @plain_errors
    def run() -> None:
        raise OfAUserError("mine") from KeyError("why")

    text = sent_by_a_worker(OfAUserError("mine"))
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("OfAUserError: mine\n")
    with pytest.raises(OfAUserError) as caught:
        run()
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_function_of_a_dstream_tells_the_sentence_only() -> None:
    class Context:
        _jsc = "running"

    function: Any = pyspark.streaming.util.TransformFunction(Context(), lambda time: fail())  # type: ignore[no-untyped-call]
    function.call(0, [])
    assert function.getLastFailure() == SENTENCE + "\n"


def test_the_error_is_found_again_in_what_is_sent() -> None:
    found = error_of(RuntimeError(f"[STREAM_FAILED] failed: {sent_by_a_worker(raised())} SQLSTATE: 38000"))
    assert type(found) is TopicNotFoundError
    assert (found.message, found.topic) == ("no such topic: flihgts", "flihgts")


@pytest.mark.parametrize("simplified", ["", "1"])
def test_the_stack_trace_is_logged_for_those_who_ask(
    simplified: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what led to it: PySpark drops the cause of what it tells simplified, as it does by default."""
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    with caplog.at_level(logging.DEBUG, "pyspark_kafka_direct.errors"):
        sent_by_a_worker(raised())
    assert "in fail" in caplog.text
    assert "ConnectionRefusedError" in caplog.text
    assert len(caplog.records) == 1


def test_a_call_of_a_user_raises_the_sentence_without_what_led_to_it() -> None:
    with pytest.raises(TopicNotFoundError) as caught:
        plain_errors(fail)()
    text = "".join(traceback.format_exception(caught.value))
    assert text.endswith(SENTENCE + "\n")
    assert text.count("Traceback") == 1
    assert "in fail" not in text
    assert isinstance(caught.value.__context__, ConnectionRefusedError)


def test_what_a_run_has_failed_of_is_told() -> None:
    @plain_errors
    def run() -> None:
        raise RunFailedError("the query has failed") from KeyError("a bug")

    with pytest.raises(RunFailedError) as caught:
        run()
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_call_that_raises_anything_else_is_left_alone() -> None:
    @plain_errors
    def divide(by: int) -> float:
        return 1 / by

    assert divide(2) == 0.5
    with pytest.raises(ZeroDivisionError) as caught:
        divide(0)
    assert "return 1 / by" in "".join(traceback.format_exception(caught.value))


def test_a_sentence_of_several_lines_and_notes_is_told_whole() -> None:
    error = BrokerUnreachableError("one\ntwo", broker="h:1")
    error.add_note("a note")
    assert sent_by_a_worker(error).splitlines() == [
        "pyspark_kafka_direct.errors.BrokerUnreachableError: one",
        "two [broker h:1]",
        "a note",
    ]
    assert isinstance(error, KafkaDirectError)


def make_source() -> None:
    KafkaDirectSource({})


def unpickle_source() -> None:
    source = pickle.dumps(KafkaDirectSource({}))
    UTIL.traceback = traceback
    pickle.loads(source)


def unpickle_writer() -> None:
    # Spark sends it to where a batch is committed, and no source with it.
    pickle.loads(pickle.dumps(KafkaBatchWriter(None)))  # type: ignore[arg-type]


@pytest.mark.parametrize("begin", [make_source, unpickle_source, unpickle_writer, begin_task])
def test_every_process_of_sparks_tells_plainly(begin: Callable[[], None]) -> None:
    UTIL.traceback = traceback
    begin()
    assert sent_by_a_worker(raised()) == SENTENCE + "\n"
