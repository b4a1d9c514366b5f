"""The read of an input partition in a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, StructField, StructType
from tests.settings import parse_client_params, task_settings

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.consumer.client_rack import with_client_rack
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.datasource.partition_reader import KafkaInputPartition, KafkaPartitionReader
from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.records import arrow_schema
from pyspark_kafka_direct.spark import loss_channel, range_task_reader
from pyspark_kafka_direct.spark.loss_channel import LossReceiver
from pyspark_kafka_direct.spark.loss_counts import MalformedTotal, ReportedTotals, load_totals
from pyspark_kafka_direct.spark.range_task_reader import RangeTaskReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.options.payload_settings import MalformedMode

SETTINGS = parse_client_params({"bootstrap.servers": "nowhere.invalid:9092", "client.rack": "a"})
CONFIG = task_settings(*SETTINGS, rack_environment_variable="MY_RACK")
TASK = RangeTask(OffsetRange("t", 0, 0, 1))


def test_the_rack_comes_from_the_environment_of_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_RACK", "b")
    assert with_client_rack(CONFIG.fetch).client_rack == "b"
    assert with_client_rack(SETTINGS.fetch) is SETTINGS.fetch


def test_without_the_variable_the_option_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_RACK", raising=False)
    assert with_client_rack(CONFIG.fetch) is CONFIG.fetch
    assert CONFIG.fetch.client_rack == "a"


@pytest.mark.parametrize("rack", ["us-east-1a", " b.1_2\n", "x" * 64])
def test_a_rack(monkeypatch: pytest.MonkeyPatch, rack: str) -> None:
    monkeypatch.setenv("MY_RACK", rack)
    assert with_client_rack(CONFIG.fetch).client_rack == rack.strip()


@pytest.mark.parametrize(
    "value", ["x" * 65, "mysql://u:hunter2@db/x", "a hunter2", "{hunter2}", "/rack/hunter2", "hunter2=", "hunter2\nb"]
)
def test_a_value_that_is_not_a_rack_is_neither_sent_nor_shown(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MY_RACK", value)
    with pytest.raises(OptionError, match=r"option rackEnvironmentVariable: the value of MY_RACK") as e:
        next(RangeTaskReader(*CONFIG).read(TASK, ()))
    assert value not in e.value.message
    assert "hunter2" not in e.value.message


def test_the_partition_that_spark_adds_to_an_empty_plan_has_no_rows() -> None:
    reader = KafkaPartitionReader(RangeTaskReader(*CONFIG), read_schema(kafka_schema(False)))
    assert list(reader.read(InputPartition(None))) == []


@pytest.fixture(autouse=True)
def _rack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_RACK", raising=False)


@pytest.fixture(autouse=True)
def waits_for_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a task wait for the driver's acknowledgement, as long as a loaded machine takes."""
    monkeypatch.setattr(loss_channel, "_MAX_TASK_DELAY", 120)
    monkeypatch.setattr(loss_channel, "_ATTEMPT_SECONDS", (120,))


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "PERMISSIVE"])
def test_malformed_records_are_reported_to_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: MalformedMode
) -> None:
    def read_range(
        _connection: object, _fetch: object, task: object, columns: tuple[str, ...], counts: object
    ) -> Iterator[Any]:
        for values in ([b'{"a":1}', b"{"], [b"[]"]):
            yield pa.RecordBatch.from_pydict({"value": values}, arrow_schema(columns))

    monkeypatch.setattr("pyspark_kafka_direct.consumer.fetcher.read_range", read_range)
    schema = StructType([StructField("value", StructType([StructField("a", IntegerType())]))])
    payloads = PayloadSettings(value=SidePayload("value", "json"), mode=mode)
    receiver = LossReceiver(tmp_path, "127.0.0.1", "127.0.0.1", SYSTEM)
    try:
        reader = KafkaPartitionReader(RangeTaskReader(*CONFIG, receiver.channel), read_schema(schema, payloads))
        rows = [row["value"] for batch in reader.read(KafkaInputPartition(TASK)) for row in batch.to_pylist()]
        assert rows == [{"a": 1}] + [{"a": None}] * (2 if mode == "PERMISSIVE" else 0)
        assert load_totals(tmp_path) == ReportedTotals((), (MalformedTotal("t", 0, mode, 2),))
    finally:
        receiver.close()


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "PERMISSIVE"])
def test_records_whose_schema_cannot_be_used_are_reported_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: MalformedMode, caplog: pytest.LogCaptureFixture
) -> None:
    def read_range(
        _connection: object, _fetch: object, task: object, columns: tuple[str, ...], counts: object
    ) -> Iterator[Any]:
        for values in ([b"\0\0\0\0\7\2", b"\0\0\0\0\x08\4"], [b"\0\0\0\0\x08\6", b"bare"]):
            yield pa.RecordBatch.from_pydict({"value": values}, arrow_schema(columns))

    monkeypatch.setattr("pyspark_kafka_direct.consumer.fetcher.read_range", read_range)
    avro = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    schema = StructType([StructField("value", StructType([StructField("a", IntegerType())]))])
    payloads = PayloadSettings(
        value=SidePayload("value", "avro", schema=avro, framing="confluent", schema_id=7), mode=mode
    )
    receiver = LossReceiver(tmp_path, "127.0.0.1", "127.0.0.1", SYSTEM)
    try:
        reader = KafkaPartitionReader(RangeTaskReader(*CONFIG, receiver.channel), read_schema(schema, payloads))
        rows = [row["value"] for batch in reader.read(KafkaInputPartition(TASK)) for row in batch.to_pylist()]
        assert rows == [{"a": 1}] + [{"a": None}] * (3 if mode == "PERMISSIVE" else 0)
        assert load_totals(tmp_path) == ReportedTotals((), (MalformedTotal("t", 0, mode, 1, 2),))
    finally:
        receiver.close()
    (line,) = [each.getMessage() for each in caplog.records if "because of their schema" in each.getMessage()]
    assert line.startswith("t, values: 2 values, which may be valid, were ")
    assert "the schema id of the value is 8, and that of the query is 7. Schema id 8 can be read by a query" in line


def test_a_task_prepares_its_worker_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless Spark ends it early, as for ``show``; then the worker ends, too."""
    events: list[str] = []

    def read_range(
        _connection: object, _fetch: object, task: object, columns: tuple[str, ...], counts: object
    ) -> Iterator[Any]:
        for number in range(2):
            events.append(f"read {number}")
            yield pa.RecordBatch.from_pydict({"offset": [number]})

    monkeypatch.setattr("pyspark_kafka_direct.consumer.fetcher.read_range", read_range)
    monkeypatch.setattr(range_task_reader, "begin_task", lambda: events.append("begin"))
    monkeypatch.setattr(range_task_reader, "end_task", lambda: events.append("end"))
    assert len(list(RangeTaskReader(*CONFIG).read(TASK, ("offset",)))) == 2
    assert events == ["begin", "read 0", "read 1", "end"]
    events.clear()
    rows = RangeTaskReader(*CONFIG).read(TASK, ("offset",))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert events == ["begin", "read 0"]
