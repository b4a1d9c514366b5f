"""The checks of the columns of a frame before it is written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as spark_types
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from pyspark_kafka_direct.datasource import writers
from pyspark_kafka_direct.datasource.write_task import WriteTaskContext, WrittenCommitMessage
from pyspark_kafka_direct.datasource.writers import batch_writer, stream_writer
from pyspark_kafka_direct.errors import ColumnError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.spark.write_report import BatchWriteReport, PartitionWriteReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import WriterCommitMessage
    from tests.fake_registry import FakeRegistry

OPTIONS = {"kafka.bootstrap.servers": "broker:9092"}


@pytest.fixture(autouse=True)
def _warnings_are_repeated() -> Iterator[None]:
    option_messages.warn_once.cache_clear()
    yield
    option_messages.warn_once.cache_clear()


def schema(*names: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_columns_that_are_not_written_cause_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    options = parse_sink_options({**OPTIONS, "topic": "t"}, streaming=False)
    batch_writer(options, schema("key", "Value", "topic", "offset", "carrier"), None)
    assert warnings(caplog) == [
        "the columns topic, offset, carrier are not written, but Spark serializes them for Python; select only the "
        "columns to write"
    ]


def test_other_frames_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with_topic = parse_sink_options({**OPTIONS, "topic": "t"}, streaming=True)
    stream_writer(with_topic, schema("key", "value"), None, starting=True)
    stream_writer(parse_sink_options(OPTIONS, streaming=True), schema("value", "topic"), None, starting=True)
    # The process that commits a batch has no rows.
    stream_writer(with_topic, schema("value", "offset"), None, starting=False)
    assert warnings(caplog) == []


def test_the_messages_of_all_tasks_and_partitions_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[tuple[BatchWriteReport, str]] = []
    monkeypatch.setattr(writers, "save_write_report", lambda *given: saved.append(given))
    written = {TopicPartition("t", number): PartitionWriteReport(0, 3, 3, 30) for number in range(2)}
    writer = batch_writer(parse_sink_options({**OPTIONS, "topic": "t"}, streaming=False), schema("value"), None)
    messages: list[WriterCommitMessage | None] = [
        None,
        WrittenCommitMessage(WriteTaskContext(job_group="mine"), written),
    ]
    writer.commit(messages)
    assert saved == [(BatchWriteReport(None, None, written), "mine")]
    writer.abort(messages)
    assert "6 records of 1 finished tasks remain in Kafka" in caplog.text


@pytest.mark.parametrize(
    "data_type", [VariantType(), ArrayType(VariantType()), StructType([StructField("variant", VariantType())])]
)
@pytest.mark.parametrize("side", ["key", "value"])
def test_a_variant_is_not_written_as_json_with_schema_ids(side: str, data_type: DataType) -> None:
    registry = {"schema.registry.url": "http://localhost:1", "schema.registry.api.timeout.ms": "1"}
    framed = {f"{side}Format": "json", f"{side}Framing": "confluent", **registry}
    frame = StructType([StructField("value", StringType())] * (side == "key") + [StructField(side, data_type)])
    for options in (OPTIONS, {**OPTIONS, **framed}):
        parsed = parse_sink_options({**options, "topic": "t"}, streaming=False)
        with pytest.raises(ColumnError, match=f"{side} attribute.* variant"):
            batch_writer(parsed, frame, None)


SPATIAL = [
    getattr(spark_types, name)(4326)  # Spark 4.1
    for name in ("GeometryType", "GeographyType")
    if hasattr(spark_types, name)
]
VARIANT_RECORD = (
    '{"type": "record", "name": "V", "fields": [{"name": "value", "type": "bytes"},'
    ' {"name": "metadata", "type": "bytes"}, {"name": "srid", "type": "int", "default": 0},'
    ' {"name": "wkb", "type": "bytes", "default": ""}]}'
)
VARIANT_MESSAGE = 'syntax = "proto3"; message V { bytes value = 1; bytes metadata = 2; int32 srid = 3; bytes wkb = 4; }'


@pytest.mark.parametrize("internal", [VariantType(), *SPATIAL], ids=lambda each: each.typeName())
@pytest.mark.parametrize(
    "options",
    [
        {"valueFormat": "avro", "auto.register.schemas": "true"},
        {"valueFormat": "avro", "use.latest.version": "false"},
        {"valueFormat": "avro", "valueSchema": VARIANT_RECORD},
        {"valueFormat": "protobuf", "valueSchema": VARIANT_MESSAGE},
    ],
    ids=["auto.register", "by-type", "avro", "protobuf"],
)
def test_internal_structs_of_spark_are_neither_written_nor_registered(
    internal: DataType, options: dict[str, str], registry: FakeRegistry
) -> None:
    has_schema = "valueSchema" in options
    given = {**OPTIONS, "topic": "t", **options} | ({} if has_schema else {"schema.registry.url": registry.url})
    parsed = parse_sink_options(given, streaming=False)
    in_struct = StructType([StructField("v", internal)])
    others = (in_struct, ArrayType(in_struct), MapType(StringType(), internal))
    for data_type in (internal, *(() if has_schema else others)):
        with pytest.raises(ColumnError, match=f"value attribute.* {internal.typeName()}.*in the query"):
            batch_writer(parsed, StructType([StructField("value", data_type)]), None)
    assert not [request for request in registry.requests if request.method == "POST"]
