"""The callbacks of a log: their arguments, and that their errors are caught."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.unit.log.log_cluster import LogCluster, tp

from pyspark_kafka_direct.errors import AuthorizationError, KafkaDirectError, TruncatedError
from pyspark_kafka_direct.log import LogRecord
from pyspark_kafka_direct.log.record_callbacks import LOG_COLUMNS, LogCallbacks, to_log_records
from pyspark_kafka_direct.records import arrow_schema

HEADERS = [{"key": "h", "value": None}, {"key": "i", "value": b"2"}, {"key": "h", "value": b"3"}]


def batch(offsets: range) -> pa.RecordBatch:
    rows = [{"key": b"k", "value": b"v", "offset": each, "timestamp": 0, "headers": None} for each in offsets]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(LOG_COLUMNS))


def raising(_: Any) -> None:
    raise ZeroDivisionError


def test_records_have_the_fields_of_their_row() -> None:
    rows = [
        {"key": b"k", "value": b"v", "offset": 5, "timestamp": 1_700_000_000_123_456, "headers": None},
        {"key": None, "value": None, "offset": 9, "timestamp": -1000, "headers": HEADERS},
    ]
    found = list(to_log_records(tp(3), pa.RecordBatch.from_pylist(rows, arrow_schema(LOG_COLUMNS))))
    assert found == [
        LogRecord(b"k", b"v", 3, 5, 1_700_000_000_123, (), "settings"),
        LogRecord(None, None, 3, 9, -1, (("h", None), ("i", b"2"), ("h", b"3")), "settings"),
    ]


def test_the_first_error_is_returned_and_all_records_are_delivered() -> None:
    seen: list[int] = []
    errors = {1: ZeroDivisionError(), 2: KeyError()}

    def deliver(record: LogRecord) -> None:
        seen.append(record.offset)
        if record.offset in errors:
            raise errors[record.offset]

    callbacks = LogCallbacks(on_record=deliver)
    assert callbacks.deliver(tp(0), batch(range(4))) is errors[1]
    assert seen == [0, 1, 2, 3]
    assert callbacks.deliver(tp(0), batch(range(3, 5))) is None


def test_the_first_error_of_several_partitions_fails_the_start(cluster: LogCluster) -> None:
    errors: list[KeyError] = []

    def deliver(record: LogRecord) -> None:
        errors.append(KeyError(record.partition))
        raise errors[-1]

    cluster.append(tp(0), 1)
    cluster.append(tp(1), 1)
    with pytest.raises(KeyError) as caught:
        cluster.log_of(on_record=deliver).start()
    assert len(errors) == 2
    assert caught.value is errors[0]


def test_an_error_of_on_batch_is_returned() -> None:
    assert isinstance(LogCallbacks(on_batch=lambda *_: raising(0)).deliver(tp(0), batch(range(2))), ZeroDivisionError)
    assert LogCallbacks().deliver(tp(0), batch(range(2))) is None


def test_on_error_gets_only_errors_of_the_package(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[KafkaDirectError] = []
    callbacks = LogCallbacks(on_error=reported.append)
    error = AuthorizationError("no")
    callbacks.report_error(error)
    callbacks.report_error(ZeroDivisionError("a bug"))
    LogCallbacks().report_error(error)
    assert reported == [error]
    assert "a bug" in caplog.text
    assert caplog.text.count("no") >= 2


def test_errors_of_callbacks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = LogCallbacks(on_error=raising, on_reset=raising)
    callbacks.report_error(AuthorizationError("no"))
    # The state of the application is unknown, so the log is read from the beginning.
    assert callbacks.report_reset(TruncatedError("truncated"))
    assert "on_error raised" in caplog.text
    assert "on_reset raised" in caplog.text


@pytest.mark.parametrize(("returned", "read_again"), [(None, False), (False, False), (True, True)])
def test_on_reset_decides_whether_the_log_is_read_again(returned: bool | None, read_again: bool) -> None:
    assert LogCallbacks(on_reset=lambda _: returned).report_reset(TruncatedError("truncated")) is read_again
    assert not LogCallbacks().report_reset(TruncatedError("truncated"))


def test_a_log_takes_on_record_or_on_batch() -> None:
    with pytest.raises(ValueError, match="not both"):
        LogCallbacks(on_record=raising, on_batch=lambda *_: None)
    with pytest.raises(ValueError, match="for on_batch"):
        LogCallbacks(on_record=raising, columns=("key",))
