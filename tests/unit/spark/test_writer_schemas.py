"""The schemas that a sink writes with: given ones, and those that it derives from the types of its columns."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql.types import DataType, DoubleType, IntegerType, MapType, StructType
from tests.fake_registry import FakeRegistry
from tests.unit.formats.protobuf_data import file_descriptor

from pyspark_kafka_direct.config.sink_options import parse_sink_options
from pyspark_kafka_direct.errors import ColumnError, OptionError, SchemaRegistryUnavailableError
from pyspark_kafka_direct.registry.registry_client import registry_client
from pyspark_kafka_direct.spark import writer_schemas
from pyspark_kafka_direct.spark.writer_schemas import resolve_writer_schemas

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'

REGISTRY = {"schema.registry.url": "http://localhost:1", "schema.registry.api.timeout.ms": "1"}


@pytest.mark.parametrize(
    ("data_type", "message"),
    [
        (
            StructType().add("unit price", DoubleType()),
            "value attribute cannot be written as Avro: not an Avro schema: this is no name of a field: unit price: "
            "rename or cast it in the query",
        ),
        (
            StructType().add("v", MapType(IntegerType(), IntegerType())),
            "value attribute cannot be written as Avro: topLevelRecord has the type map<int32, int32>",
        ),
    ],
)
def test_a_column_whose_type_has_no_schema(data_type: DataType, message: str) -> None:
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "valueFormat": "avro", "use.latest.version": "false"}
    payloads = parse_sink_options({**options, **REGISTRY}, streaming=False).payloads
    with pytest.raises(ColumnError) as raised:
        resolve_writer_schemas(payloads, StructType().add("value", data_type), "t")
    assert message in str(raised.value)


PROTOBUF = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "valueFormat": "protobuf"}
PROTO = file_descriptor('syntax = "proto3"; message M { int32 i = 1; }')


@pytest.mark.parametrize("registers", ["true", "false"])
def test_a_registry_does_not_get_a_set_of_descriptors(registers: str) -> None:
    schema = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[PROTO]).SerializeToString()).decode()
    with FakeRegistry() as registry:
        options = {**PROTOBUF, "schema.registry.url": registry.url, "auto.register.schemas": registers}
        payloads = parse_sink_options({**options, "valueSchema": schema}, streaming=False).payloads
        with pytest.raises(OptionError, match="valueSchema is a set of descriptors, but a schema registry"):
            resolve_writer_schemas(payloads, None, "t")
    assert registry.requests == []


@pytest.mark.parametrize("registers", ["true", "false"])
def test_a_registry_gets_the_descriptor_of_one_file(registers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "localhost")
    schema = base64.b64encode(PROTO.SerializeToString()).decode()  # as Confluent's client for Python
    with FakeRegistry() as registry:
        registry.add("t-value", schema, schemaType="PROTOBUF")
        options = {**PROTOBUF, "schema.registry.url": registry.url, "auto.register.schemas": registers}
        payloads = parse_sink_options({**options, "valueSchema": schema}, streaming=False).payloads
        assert resolve_writer_schemas(payloads, None, "t")["value"].prefix == b"\0\0\0\0\1\0"


@pytest.mark.parametrize("option", [{"valueSchema": SCHEMA}, {"valueSchemaVersion": "1"}, {}])
def test_an_application_writes_while_the_registry_is_down(
    option: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("no_proxy", "localhost")
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "valueFormat": "avro", **option}
    with FakeRegistry() as registry:
        registry.add("t-value", SCHEMA)
        options |= {"schema.registry.url": registry.url, "schema.registry.api.timeout.ms": "200"}
        payloads = parse_sink_options(options, streaming=True).payloads
        found = resolve_writer_schemas(payloads, None, "t")
    for cached in (writer_schemas._registered, writer_schemas._fetch_version):  # a later batch has another process
        cached.cache_clear()
    registry_client.cache_clear()
    again = resolve_writer_schemas(payloads, None, "t")
    assert again["value"].prefix == found["value"].prefix == b"\0\0\0\0\1"


@pytest.mark.parametrize("option", [{}, {"valueSchemaVersion": "1"}])
def test_the_schema_of_another_format_does_not_replace_that_of_a_registry_that_is_down(
    option: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("no_proxy", "localhost")
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    with FakeRegistry() as registry:
        registry.add("t-value", SCHEMA)
        options = {**PROTOBUF, **option, "schema.registry.url": registry.url, "schema.registry.api.timeout.ms": "200"}
        avro = parse_sink_options({**options, "valueFormat": "avro"}, streaming=True).payloads
        assert resolve_writer_schemas(avro, None, "t")
    registry_client.cache_clear()
    with pytest.raises(SchemaRegistryUnavailableError):
        resolve_writer_schemas(parse_sink_options(options, streaming=True).payloads, None, "t")
