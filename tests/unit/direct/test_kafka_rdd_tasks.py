"""The tasks of a KafkaRDD: their requests, and their pickled form."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import UUID

import pytest
from tests.settings import parse_client_params, task_settings

from pyspark_kafka_direct import OffsetRange
from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.consumer import fetcher, range_counter
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.direct.arrow_columns import ArrowColumns
from pyspark_kafka_direct.direct.kafka_rdd import CountRecords, ReadArrow, ReadRecords
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.spark import loss_channel
from pyspark_kafka_direct.spark.loss_channel import LossChannel, LossReceiver
from pyspark_kafka_direct.spark.loss_counts import LossTotal, load_totals
from pyspark_kafka_direct.spark.range_task_reader import RangeTaskReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TASK = RangeTask(OffsetRange("t", 1, 5, 9), UUID(int=7), PartitionLeader(Node(3, "broker", 9092), 2))
CONFIG = task_settings(*parse_client_params({"bootstrap.servers": "broker:9092"}))


def test_a_task_reads_with_the_rack_of_its_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: list[object] = []

    def read_range(*given: object, **limits: object) -> Iterator[object]:
        arguments[:] = (*given, limits)
        yield from ()

    def count_range(*given: object, **_: object) -> int:
        arguments[:] = given
        return 0

    monkeypatch.setattr(fetcher, "read_range", read_range)
    monkeypatch.setattr(range_counter, "count_range", count_range)
    config = task_settings(*CONFIG, rack_environment_variable="RACK_OF_A_TEST")
    reader = RangeTaskReader(*config)
    list(reader.read(TASK, ("value",), max_rows=7))
    assert arguments == [*config, TASK, ("value",), ReadCounts(), {"max_rows": 7}]
    monkeypatch.setenv("RACK_OF_A_TEST", "rack-1")
    on_executor = [config.connection, replace(config.fetch, client_rack="rack-1")]
    list(reader.read(TASK, ("value",)))
    assert arguments[:2] == on_executor
    reader.count(TASK, None)
    assert arguments == [*on_executor, TASK]


def test_an_empty_range_opens_no_connection() -> None:
    """The host does not exist, so a connection would fail."""
    reader = RangeTaskReader(*task_settings(*parse_client_params({"bootstrap.servers": "no-such-host.invalid:9092"})))
    empty = [RangeTask(OffsetRange("t", 0, 3, 3))]
    assert list(ReadRecords(reader, None, None)(0, empty)) == []
    assert list(ReadArrow(reader, ArrowColumns(("value",)))(0, empty)) == []
    assert list(CountRecords(reader)(0, empty)) == []


def test_a_task_is_small_and_does_not_contain_the_password() -> None:
    """As documented in docs/security.md: executors authenticate themselves, so the reader contains the password."""
    client_params = parse_client_params(
        {
            "bootstrap.servers": "broker:9092",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "swordfish",
        }
    )
    assert len(pickle.dumps(TASK)) < 600
    assert pickle.loads(pickle.dumps(TASK)) == TASK
    read_records = ReadRecords(RangeTaskReader(*task_settings(*client_params)), None, None)
    assert b"swordfish" in pickle.dumps(read_records)
    assert "swordfish" not in repr(read_records)
    assert "swordfish" not in repr(RangeTaskReader(*task_settings(*client_params)))
    page = " ".join((Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8").split())
    assert "Spark sends settings to the executors in its tasks, unencrypted" in page


@pytest.mark.parametrize("reads", ["records", "arrow", "count"])
def test_a_task_reports_what_it_skipped(reads: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def skip(counts: ReadCounts) -> None:
        counts.add_skipped(DataLossCause.AGED_OUT, 3)
        counts.add_skipped(DataLossCause.TRUNCATED, 0)

    def read_range(*arguments: object, **_: object) -> Iterator[object]:
        skip(cast("ReadCounts", arguments[-1]))
        yield from ()

    def count_range(*_: object, limit: int | None, counts: ReadCounts) -> int:
        skip(counts)
        return 0

    monkeypatch.setattr(fetcher, "read_range", read_range)
    monkeypatch.setattr(range_counter, "count_range", count_range)
    monkeypatch.setattr(loss_channel, "_MAX_TASK_DELAY", 120)
    monkeypatch.setattr(loss_channel, "_ATTEMPT_SECONDS", (120,))
    receiver = LossReceiver(tmp_path, "127.0.0.1", "127.0.0.1", SYSTEM)
    try:
        reader = RangeTaskReader(*CONFIG, receiver.channel)
        functions: dict[str, Callable[[int, list[RangeTask]], Iterable[object]]] = {
            "records": ReadRecords(reader, None, None),
            "arrow": ReadArrow(reader, ArrowColumns(("value",))),
            "count": CountRecords(reader),
        }
        list(functions[reads](0, [TASK]))
    finally:
        receiver.close()
    assert load_totals(tmp_path).losses == (LossTotal("t", 1, "aged_out", 1, 3), LossTotal("t", 1, "truncated", 1, 0))


def test_a_driver_that_does_not_confirm_a_report_fails_no_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def count_range(*_: object, limit: int | None, counts: ReadCounts) -> int:
        counts.add_skipped(DataLossCause.AGED_OUT, 3)
        return 7

    monkeypatch.setattr(range_counter, "count_range", count_range)
    channel = LossChannel("no-such-host.invalid", 9, "swordfish")
    assert RangeTaskReader(*CONFIG, channel).count(TASK, None) == 7
    deadline = SYSTEM.monotonic() + 120
    while "t-1: the driver did not confirm what was skipped" not in caplog.text:
        assert SYSTEM.monotonic() < deadline
        SYSTEM.sleep(0.01)
    assert "UDP port 9 of no-such-host.invalid" in caplog.text
    assert "swordfish" not in caplog.text
