"""The errors about subjects that a registry does not have say which option to set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_kafka_direct.errors import OptionError, SchemaNotFoundError
from pyspark_kafka_direct.functions import to_avro
from pyspark_kafka_direct.options.read_options import parse_batch_options
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.payloads.spark.reader_schemas import with_reader_schemas
from pyspark_kafka_direct.payloads.spark.writer_schemas import resolve_writer_schemas

if TYPE_CHECKING:
    from tests.fake_registry import FakeRegistry

BASE = {"kafka.bootstrap.servers": "b:9092"}
VERSION = {"valueSchemaVersion": "7"}
SHORT = {"valueSubjectNameStrategy": "record", "valueMessage": "Flight"}
FULL_NAME = (
    "With valueSubjectNameStrategy=record, valueMessage must be the full name of the message, such as flights.Flight. "
    "Or set valueSubject."
)


@pytest.mark.parametrize(
    ("payload_format", "options", "advice"),
    [
        ("avro", {}, "Register a schema, or set valueSchema and auto.register.schemas=true to register it."),
        ("avro", VERSION, "Set valueSubject and valueSchemaVersion to those of a schema."),
        ("protobuf", {}, "Register a schema, or set valueSchema and auto.register.schemas=true to register it."),
        ("protobuf", SHORT, FULL_NAME),
        ("protobuf", {**SHORT, "valueSubject": "Flight"}, "Register a schema, or set valueSchema and auto.register"),
    ],
)
def test_a_write(registry: FakeRegistry, payload_format: str, options: dict[str, str], advice: str) -> None:
    given = {**BASE, "topic": "t", "valueFormat": payload_format, "schema.registry.url": registry.url, **options}
    payloads = parse_sink_options(given, streaming=False).payloads
    with pytest.raises(SchemaNotFoundError) as raised:
        resolve_writer_schemas(payloads, None, "t")
    assert f'not found."). {advice}' in raised.value.message


def test_a_write_of_columns_whose_types_are_known(registry: FakeRegistry) -> None:
    given = {**BASE, "topic": "t", "valueFormat": "avro", "schema.registry.url": registry.url}
    columns = StructType().add("value", StringType())
    payloads = parse_sink_options(given, streaming=False).payloads
    with pytest.raises(SchemaNotFoundError, match=r"set auto.register.schemas=true to register that of the column\."):
        resolve_writer_schemas(payloads, columns, "t")
    payloads = parse_sink_options({**given, "auto.register.schemas": "true"}, streaming=False).payloads
    assert resolve_writer_schemas(payloads, columns, "t")["value"].prefix


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        ("", SchemaNotFoundError, "'s'.*set jsonFormatSchema and auto.register.schemas=true to register it"),
        ('"string"', SchemaNotFoundError, "'s'.*register it, or set auto.register.schemas=true"),
        ("{", OptionError, "to_avro: an Avro schema is JSON"),
    ],
)
def test_to_avro(registry: FakeRegistry, schema: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        to_avro("data", schema, {}, "s", registry.url)


@pytest.mark.parametrize(
    ("payload_format", "options", "advice"),
    [
        ("avro", {}, "Set valueSubject to that of the schema, or valueSchema to an Avro schema."),
        (
            "avro",
            VERSION,
            "Set valueSubject and valueSchemaVersion to those of the schema, or valueSchema to an Avro sche",
        ),
        ("protobuf", {}, "Set valueSubject to that of the schema, or valueSchema to a Protobuf schema."),
        ("protobuf", SHORT, FULL_NAME),
    ],
)
def test_a_read(registry: FakeRegistry, payload_format: str, options: dict[str, str], advice: str) -> None:
    given = {**BASE, "subscribe": "t", "valueFormat": payload_format, "schema.registry.url": registry.url, **options}
    payloads = parse_batch_options(given).payloads
    with pytest.raises(SchemaNotFoundError) as raised:
        with_reader_schemas(payloads)
    assert f'not found."). {advice}' in raised.value.message


@pytest.mark.parametrize("payload_format", ["avro", "protobuf"])
def test_a_read_with_the_columns_of_an_earlier_load(registry: FakeRegistry, payload_format: str) -> None:
    given = {**BASE, "subscribe": "t", "valueFormat": payload_format, "schema.registry.url": registry.url}
    value = StructField("value", StructType(), metadata={"comment": "version 3 of t-value, schema id 77"})
    with pytest.raises(SchemaNotFoundError, match="Schema id 77") as raised:
        with_reader_schemas(parse_batch_options(given).payloads, StructType([value]))
    assert "The comment of the column value contains this id. Call load() again, without" in raised.value.message
