"""The user's functions: what they are given, and that nothing they raise gets out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.unit.log.clusters import batch, tp

from pyspark_kafka_direct.errors import AuthorizationError, KafkaDirectError, TruncatedError
from pyspark_kafka_direct.log import LogRecord
from pyspark_kafka_direct.log._handlers import Handlers
from pyspark_kafka_direct.log.record import COLUMNS, records_of
from pyspark_kafka_direct.records import arrow_schema


def raising(_: Any) -> None:
    raise ZeroDivisionError


def test_records_have_the_fields_of_their_row() -> None:
    rows = [
        {"key": b"k", "value": b"v", "offset": 5, "timestamp": 1_700_000_000_123_456, "headers": None},
        {"key": None, "value": None, "offset": 9, "timestamp": -1000, "headers": [{"key": "h", "value": None}]},
    ]
    found = list(records_of(tp(3), pa.RecordBatch.from_pylist(rows, arrow_schema(COLUMNS))))
    assert found == [
        LogRecord(b"k", b"v", 3, 5, 1_700_000_000_123, (), "settings"),
        LogRecord(None, None, 3, 9, -1, (("h", None),), "settings"),
    ]


def test_the_first_error_of_a_batch_is_told_and_all_records_are_handed_out() -> None:
    seen: list[int] = []
    errors = {1: ZeroDivisionError(), 2: KeyError()}

    def apply(record: LogRecord) -> None:
        seen.append(record.offset)
        if record.offset in errors:
            raise errors[record.offset]

    handlers = Handlers(on_record=apply)
    assert handlers.apply(tp(0), batch(range(4))) is errors[1]
    assert seen == [0, 1, 2, 3]
    assert handlers.apply(tp(0), batch(range(3, 5))) is None


def test_an_error_of_a_function_of_batches() -> None:
    assert isinstance(Handlers(on_batch=lambda *_: raising(0)).apply(tp(0), batch(range(2))), ZeroDivisionError)
    assert Handlers().apply(tp(0), batch(range(2))) is None


def test_only_errors_of_reading_are_told(caplog: pytest.LogCaptureFixture) -> None:
    told: list[KafkaDirectError] = []
    handlers = Handlers(on_error=told.append)
    error = AuthorizationError("no")
    handlers.failed(error)
    handlers.failed(ZeroDivisionError("a bug"))
    Handlers().failed(error)
    assert told == [error]
    assert "a bug" in caplog.text
    assert caplog.text.count("no") >= 2


def test_functions_that_raise_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    handlers = Handlers(on_error=raising, on_reset=raising)
    handlers.failed(AuthorizationError("no"))
    assert handlers.reset(TruncatedError("cut"))  # nobody knows what it has kept, so it is given everything again
    assert "on_error raised" in caplog.text
    assert "on_reset raised" in caplog.text


@pytest.mark.parametrize(("answer", "all_again"), [(None, False), (False, False), (True, True)])
def test_the_answer_after_records_were_taken_back(answer: bool | None, all_again: bool) -> None:
    assert Handlers(on_reset=lambda _: answer).reset(TruncatedError("cut")) is all_again
    assert not Handlers().reset(TruncatedError("cut"))


def test_records_or_batches() -> None:
    with pytest.raises(ValueError, match="not both"):
        Handlers(on_record=raising, on_batch=lambda *_: None)
    with pytest.raises(ValueError, match="for on_batch"):
        Handlers(on_record=raising, columns=("key",))
