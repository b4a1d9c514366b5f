"""Errors of this package without stack traces: in PySpark's reports, and from public functions."""

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
from pyspark.sql.types import StructType

from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.datasource.writers import KafkaBatchWriter
from pyspark_kafka_direct.errors import BrokerUnreachableError, KafkaDirectError, QueryRunError, TopicNotFoundError
from pyspark_kafka_direct.spark.error_parser import error_of
from pyspark_kafka_direct.spark.stack_traces import hide_stack_traces, without_stack_trace
from pyspark_kafka_direct.spark.worker_lifecycle import begin_task

if TYPE_CHECKING:
    from collections.abc import Callable

UTIL: Any = pyspark.util
MESSAGE = "pyspark_kafka_direct.errors.TopicNotFoundError: no such topic: flihgts [topic flihgts]"


@pytest.fixture(autouse=True)
def _hidden_stack_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pyspark.util, pyspark.streaming.util):
        monkeypatch.setattr(module, "traceback", traceback)
    hide_stack_traces()


def fail() -> None:
    try:
        raise ConnectionRefusedError(111, "refused")
    except ConnectionRefusedError as error:
        raise TopicNotFoundError("no such topic: flihgts", topic="flihgts") from error


def sent_by_worker(error: BaseException) -> str:
    """Return the text that a PySpark worker sends to the JVM for an error."""
    sent = io.BytesIO()
    try:
        raise error
    except BaseException as raised:
        pyspark.util.handle_worker_exception(raised, sent)
    sent.seek(0)
    read_int(sent)  # type: ignore[no-untyped-call] # the marker of an error
    return sent.read(read_int(sent)).decode()  # type: ignore[no-untyped-call]


def raised() -> BaseException:
    with pytest.raises(TopicNotFoundError) as caught:
        fail()
    return caught.value


@pytest.mark.parametrize("simplified", ["", "1"])
def test_a_worker_sends_only_the_message(simplified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    assert sent_by_worker(raised()) == MESSAGE + "\n"


@pytest.mark.parametrize("simplified", ["", "1"])
def test_other_errors_are_sent_with_stack_traces(simplified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    text = sent_by_worker(KeyError("a bug"))
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("KeyError: 'a bug'\n")
    assert "in sent_by_worker" in text


class UserError(TopicNotFoundError):
    """An error class that user code derived."""


@pytest.mark.parametrize("simplified", ["", "1"])
def test_an_error_that_the_cleanup_of_pyspark_replaces(simplified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's planner of a stream calls ``reader.stop()`` even if ``streamReader`` has raised an error."""
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    provider = KafkaSourceProvider(
        {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "startingOffsets": "committed"}
    )

    def plan() -> None:
        try:
            reader = provider.streamReader(StructType())
        finally:
            reader.stop()

    with pytest.raises(UnboundLocalError) as caught:
        plan()
    assert sent_by_worker(caught.value).strip() == (
        "pyspark_kafka_direct.errors.OptionError: startingOffsets=committed requires the consumer group that committed "
        "the offsets; set commitGroupId"
    )
    with pytest.raises(UnboundLocalError) as caught:
        exec("def f():\n    x\n    x = 1\nf()")
    assert "Traceback" in sent_by_worker(caught.value), "an error of other code"


def test_a_derived_error_class_of_user_code_keeps_its_stack_trace() -> None:
    @without_stack_trace
    def run() -> None:
        raise UserError("mine") from KeyError("why")

    text = sent_by_worker(UserError("mine"))
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("UserError: mine\n")
    with pytest.raises(UserError) as caught:
        run()
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_function_of_a_dstream_reports_only_the_message() -> None:
    class Context:
        _jsc = "running"

    function: Any = pyspark.streaming.util.TransformFunction(Context(), lambda time: fail())  # type: ignore[no-untyped-call]
    function.call(0, [])
    assert function.getLastFailure() == MESSAGE + "\n"


def test_pyspark_4_3_reports_only_the_message(caplog: pytest.LogCaptureFixture) -> None:
    """It formats errors by ``traceback.TracebackException``."""

    def formatted(error: BaseException) -> str:
        try:
            raise error
        except BaseException as raised:
            found = UTIL.traceback.TracebackException(type(raised), raised, raised.__traceback__)
            return "".join(found.format())

    with caplog.at_level(logging.DEBUG, "pyspark_kafka_direct.errors"):
        assert formatted(raised()) == MESSAGE + "\n"
        assert "in fail" in caplog.text
        assert formatted(KeyError("a bug")).startswith("Traceback (most recent call last):\n")
        assert len(caplog.records) == 1
    assert UTIL.traceback.StackSummary is traceback.StackSummary


def test_error_of_restores_a_sent_error() -> None:
    found = error_of(RuntimeError(f"[STREAM_FAILED] failed: {sent_by_worker(raised())} SQLSTATE: 38000"))
    assert type(found) is TopicNotFoundError
    assert (found.message, found.topic) == ("no such topic: flihgts", "flihgts")


@pytest.mark.parametrize("simplified", ["", "1"])
def test_the_stack_trace_is_logged_at_debug(
    simplified: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its causes, which PySpark drops from simplified tracebacks, its default."""
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    with caplog.at_level(logging.DEBUG, "pyspark_kafka_direct.errors"):
        sent_by_worker(raised())
    assert "in fail" in caplog.text
    assert "ConnectionRefusedError" in caplog.text
    assert len(caplog.records) == 1


def test_a_public_function_raises_errors_without_internal_frames(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(TopicNotFoundError) as caught:
        without_stack_trace(fail)()
    assert "in fail" in caplog.text
    text = "".join(traceback.format_exception(caught.value))
    assert text.endswith(MESSAGE + "\n")
    assert text.count("Traceback") == 1
    assert "in fail" not in text
    assert isinstance(caught.value.__context__, ConnectionRefusedError)


def test_query_run_errors_keep_their_cause() -> None:
    @without_stack_trace
    def run() -> None:
        raise QueryRunError("the query has failed") from KeyError("a bug")

    with pytest.raises(QueryRunError) as caught:
        run()
    assert isinstance(caught.value.__cause__, KeyError)


def test_other_errors_of_public_functions_are_not_changed() -> None:
    @without_stack_trace
    def divide(divisor: int) -> float:
        return 1 / divisor

    assert divide(2) == 0.5
    with pytest.raises(ZeroDivisionError) as caught:
        divide(0)
    assert "return 1 / divisor" in "".join(traceback.format_exception(caught.value))


def test_messages_with_several_lines_and_notes_are_complete() -> None:
    error = BrokerUnreachableError("one\ntwo", broker="h:1")
    error.add_note("a note")
    assert sent_by_worker(error).splitlines() == [
        "pyspark_kafka_direct.errors.BrokerUnreachableError: one",
        "two [broker h:1]",
        "a note",
    ]
    assert isinstance(error, KafkaDirectError)


def create_source() -> None:
    KafkaSourceProvider({})


def unpickle_source() -> None:
    source = pickle.dumps(KafkaSourceProvider({}))
    UTIL.traceback = traceback
    pickle.loads(source)


def unpickle_writer() -> None:
    # Spark sends it without a data source to the process that commits a batch.
    pickle.loads(pickle.dumps(KafkaBatchWriter(None, None)))  # type: ignore[arg-type]


@pytest.mark.parametrize("prepare", [create_source, unpickle_source, unpickle_writer, begin_task])
def test_every_process_of_spark_hides_stack_traces(prepare: Callable[[], None]) -> None:
    UTIL.traceback = traceback
    prepare()
    assert sent_by_worker(raised()) == MESSAGE + "\n"
