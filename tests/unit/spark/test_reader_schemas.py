"""The schemas that a query reads with, in processes that plan it while the registry is down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructField, StructType

from pyspark_kafka_direct.config.read_options import parse_batch_options
from pyspark_kafka_direct.errors import SchemaRegistryUnavailableError
from pyspark_kafka_direct.registry.registry_client import registry_client
from pyspark_kafka_direct.spark.reader_schemas import with_reader_schemas

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fake_registry import FakeRegistry

    from pyspark_kafka_direct.config.payload_parser import PayloadOptions

NAME = '{"type": "record", "name": "Name", "fields": [{"name": "first", "type": "string"}]}'
PERSON = '{"type": "record", "name": "Person", "fields": [{"name": "name", "type": "Name"}]}'
NAME_PROTO = 'syntax = "proto3"; message Name { string first = 1; }'
PERSON_PROTO = 'syntax = "proto3"; import "name.proto"; message Person { Name name = 1; }'


@pytest.fixture(params=["avro", "protobuf"])
def payloads(
    request: pytest.FixtureRequest, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> PayloadOptions:
    """Return the options of a query whose schema refers to another one."""
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    if request.param == "avro":
        registry.add("name", NAME)
        reference, schema = "Name", PERSON
    else:
        registry.add("name", NAME_PROTO, schemaType="PROTOBUF")
        reference, schema = "name.proto", PERSON_PROTO
    references = [{"name": reference, "subject": "name", "version": 1}]
    registry.add("t-value", schema, references=references, schemaType=request.param.upper())
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "valueFormat": request.param}
    registry_options = {"schema.registry.url": registry.url, "schema.registry.api.timeout.ms": "200"}
    return parse_batch_options({**given, **registry_options}).payloads


def columns(comment: str) -> StructType:
    return StructType([StructField("value", StructType(), metadata={"comment": comment})])


def test_an_application_plans_queries_while_the_registry_is_down(
    payloads: PayloadOptions, registry: FakeRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = with_reader_schemas(payloads)
    comment = loaded.settings.registry.value.source if loaded.settings.registry else ""
    assert comment == "version 1 of t-value, schema id 2"
    registry.stop()
    registry_client.cache_clear()  # the plan of the query is made in another process
    assert with_reader_schemas(payloads, columns(comment)) == loaded
    assert with_reader_schemas(payloads) == loaded
    assert caplog.messages == [f"no schema registry is available; the last known schema is used: {comment}"] * 2


def test_another_application_does_not(payloads: PayloadOptions, registry: FakeRegistry) -> None:
    registry.stop()
    for schema in (None, columns("version 1 of t-value, schema id 2")):
        with pytest.raises(SchemaRegistryUnavailableError, match="Start the query again when a registry is available"):
            with_reader_schemas(payloads, schema)
