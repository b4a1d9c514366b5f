"""The settings of a table, and a table whose log no longer runs."""

from __future__ import annotations

import pickle

import pytest

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import IllegalLogStateError, OptionError
from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

PARAMS = {"bootstrap.servers": "127.0.0.1:1"}


def test_keys_cannot_be_ignored() -> None:
    with pytest.raises(OptionError, match=r"partitioner\.ignore\.keys=true is not possible with a table"):
        KafkaTable("t", {**PARAMS, "partitioner.ignore.keys": "true"})
    KafkaTable("t", {**PARAMS, "partitioner.ignore.keys": "false"})
    KafkaBasedLog("t", {**PARAMS, "partitioner.ignore.keys": "true"})


@pytest.mark.parametrize(
    ("params", "expected"),
    [({}, "read_committed"), ({"isolation.level": "read_uncommitted"}, "read_uncommitted")],
)
def test_a_table_reads_committed_records_by_default(params: dict[str, str], expected: str) -> None:
    assert KafkaTable("t", {**PARAMS, **params}).log._clients.fetch.isolation_level == expected
    assert KafkaBasedLog("t", PARAMS)._clients.fetch.isolation_level == "read_uncommitted"


def test_a_table_whose_thread_has_failed_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    table = KafkaTable("t", PARAMS)
    monkeypatch.setattr(table.log._worker, "run", lambda: 1 // 0)
    table.log._thread.start_thread()
    table.log._thread.join(Deadline.after(120))
    for read in (table.snapshot, lambda: len(table), lambda: b"k" in table, lambda: table[b"k"], table.read_to_end):
        with pytest.raises(IllegalLogStateError, match=r"ZeroDivisionError.* out of date"):
            read()
    assert repr(table) == "KafkaTable('t', failed)"


def test_a_table_cannot_be_pickled() -> None:
    """Such as in the closure of a Spark function."""
    table = KafkaTable("t", PARAMS)
    for each in (table, table.log):
        with pytest.raises(TypeError, match=rf"{type(each).__name__} of topic t cannot be pickled.*in each process"):
            pickle.dumps(each)
