"""The schemas that a query reads with, in processes that plan it while the registry is down."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.fake_registry import FakeRegistry

from pyspark_kafka_direct.datasource.read_schema import kafka_schema
from pyspark_kafka_direct.errors import (
    OptionError,
    SchemaError,
    SchemaNotFoundError,
    SchemaRegistryUnavailableError,
)
from pyspark_kafka_direct.options.read_options import parse_batch_options
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.payloads.registry import registry_client as client_module
from pyspark_kafka_direct.payloads.registry.registry_client import registry_client
from pyspark_kafka_direct.payloads.spark.avro_functions import parse_from_avro
from pyspark_kafka_direct.payloads.spark.payload_schema import typed_schema
from pyspark_kafka_direct.payloads.spark.reader_schemas import with_reader_schemas

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.options.payload_settings import PayloadSettings

NAME = '{"type": "record", "name": "Name", "fields": [{"name": "first", "type": "string"}]}'
TOWN = '{"type": "record", "name": "Town", "fields": [{"name": "zip", "type": "string"}]}'
PERSON = (
    '{"type": "record", "name": "Person", "fields": [{"name": "name", "type": "Name"}, {"name": "at", "type": "Town"}]}'
)
NAME_PROTO = 'syntax = "proto3"; message Name { string first = 1; }'
TOWN_PROTO = 'syntax = "proto3"; message Town { string zip = 1; }'
PERSON_PROTO = (
    'syntax = "proto3"; import "name.proto"; import "town.proto"; message Person { Name name = 1; Town at = 2; }'
)


@pytest.fixture(params=["avro", "protobuf"])
def options(
    request: pytest.FixtureRequest, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> dict[str, str]:
    """Return the options of a query whose schema refers to two others."""
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    if request.param == "avro":
        others, schema = {"Name": NAME, "Town": TOWN}, PERSON
    else:
        others, schema = {"name.proto": NAME_PROTO, "town.proto": TOWN_PROTO}, PERSON_PROTO
    for name, text in others.items():
        registry.add(name, text, schemaType=request.param.upper())
    references = [{"name": name, "subject": name, "version": 1} for name in others]
    registry.add("t-value", schema, references=references, schemaType=request.param.upper())
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "valueFormat": request.param}
    return {**given, "schema.registry.url": registry.url}


def parse(options: dict[str, str], **more: str) -> PayloadSettings:
    return parse_batch_options({**options, **{name.replace("_", "."): value for name, value in more.items()}}).payloads


def without_timeout(payloads: PayloadSettings) -> PayloadSettings:
    """Return options that are equal apart from the timeout."""
    assert payloads.registry is not None
    return replace(payloads, registry=replace(payloads.registry, api_timeout_ms=0))


def columns(comment: str) -> StructType:
    value = StructField("value", StructType(), metadata={"comment": comment})
    return StructType([StructField("key", BinaryType()), value])


def test_an_application_plans_queries_while_the_registry_is_down(
    options: dict[str, str], registry: FakeRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = with_reader_schemas(parse(options))
    comment = loaded.value.source
    assert comment == "version 1 of t-value, schema id 3"
    assert len(loaded.value.references) == 2
    ddl = typed_schema(kafka_schema(include_headers=False), loaded)
    assert "`value` struct<`name`: struct<`first`: string>,`at`: struct<`zip`: string>>" in ddl
    registry.stop()
    # The plan of the query is made in another process.
    payloads = parse(options, schema_registry_api_timeout_ms="200")
    for schema in (columns(comment), None):
        assert without_timeout(with_reader_schemas(payloads, schema)) == without_timeout(loaded)
    assert caplog.messages == [f"no schema registry is available; the last known schema is used: {comment}"] * 2


def test_from_avro_takes_the_schema_of_a_subject_while_the_registry_is_down(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    monkeypatch.setattr("pyspark.sql.types.DataType.fromDDL", str)  # which needs a JVM
    for name, text in {"Name": NAME, "Town": TOWN}.items():
        registry.add(name, text)
    references = [{"name": name, "subject": name, "version": 1} for name in ("Name", "Town")]
    registry.add("s", PERSON, references=references)
    found = parse_from_avro(None, {}, "s", registry.url)
    registry.stop()
    outage = {"schema.registry.api.timeout.ms": "200"}
    again = parse_from_avro(None, outage, "s", registry.url)
    assert (again.data_type, again.settings.reader) == (found.data_type, found.settings.reader)


def avro(name: str, *fields: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": each, "type": "int"} for each in fields]})


def test_the_schemas_of_both_columns_are_those_of_their_comments(registry: FakeRegistry) -> None:
    sources = {}
    for side in ("key", "value"):
        ids = [registry.add(f"t-{side}", avro(side, *fields)) for fields in (["a"], ["a", "b"])]
        sources[side] = f"version 1 of t-{side}, schema id {ids[0]}"
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "keyFormat": "avro", "valueFormat": "avro"}
    payloads = parse({**options, "schema.registry.url": registry.url})
    fields = [StructField(side, StructType(), metadata={"comment": source}) for side, source in sources.items()]
    found = with_reader_schemas(payloads, StructType(fields))
    for side, each in (("key", found.key), ("value", found.value)):
        assert (each.schema, each.source) == (avro(side, "a"), sources[side])


def test_only_what_was_requested_in_the_same_way_is_known_while_the_registry_is_down(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    base = {"kafka.bootstrap.servers": "b:9092", "valueFormat": "avro", "schema.registry.url": registry.url}
    ways = [
        {**base, "subscribe": topic, "valueSchemaVersion": version}
        for topic in "tu"
        for version in ("1", "2", "latest")
    ]
    for topic in "tu":
        for count in (1, 2, 3):
            registry.add(f"{topic}-value", avro(topic.upper(), *"abc"[:count]))
    for way in ways:
        with_reader_schemas(parse(way))
    for topic in "tu":  # a later version replaces what was saved as the latest one
        registry.add(f"{topic}-value", avro(topic.upper(), *"abcd"))
    loaded = [with_reader_schemas(parse(way)) for way in ways]
    assert [each.value.source.partition(" of ")[0] for each in loaded] == ["version 1", "version 2", "version 4"] * 2
    with FakeRegistry() as other:
        other.add("t-value", avro("Other", "x"))
        other_way = {**ways[0], "schema.registry.url": other.url}
        assert with_reader_schemas(parse(other_way)).value.schema == avro("Other", "x")
    registry.stop()
    outage = {"schema.registry.api.timeout.ms": "200"}
    registry_client.cache_clear()
    again = [with_reader_schemas(parse({**way, **outage})).value for way in ways]
    assert again == [each.value for each in loaded]
    for change in (
        {"valueSchemaVersion": "3"},
        {"subscribe": "v"},
        {"valueFormat": "protobuf"},
        {"schema.registry.url": f"{registry.url}/other"},
    ):
        with pytest.raises(SchemaRegistryUnavailableError):
            with_reader_schemas(parse({**ways[0], **outage, **change}))


def test_another_application_does_not(options: dict[str, str], registry: FakeRegistry) -> None:
    registry.stop()
    payloads = parse(options, schema_registry_api_timeout_ms="200")
    for schema in (None, columns("version 1 of t-value, schema id 3")):
        with pytest.raises(SchemaRegistryUnavailableError, match="Start the query again when a registry is available"):
            with_reader_schemas(payloads, schema)


TOKEN = {"schema.registry.bearer.auth.token": "token"}
CLUSTER = "schema.registry.bearer.auth.logical.cluster"
CLIENT = "schema.registry.bearer.auth.client.id"
OAUTH = {
    "schema.registry.bearer.auth.credentials.source": "OAUTHBEARER",
    "schema.registry.bearer.auth.issuer.endpoint.url": "https://localhost:1/token",
    "schema.registry.bearer.auth.client.secret": "secret",
}
USER_INFO = "schema.registry.basic.auth.user.info"


@pytest.mark.parametrize(
    ("login", "other_login"),
    [
        ({USER_INFO: "one:secret"}, {USER_INFO: "other:secret"}),
        (TOKEN, {"schema.registry.bearer.auth.token": "other"}),
        ({**TOKEN, CLUSTER: "lsrc-1"}, {**TOKEN, CLUSTER: "lsrc-2"}),
        ({**OAUTH, CLIENT: "one"}, {**OAUTH, CLIENT: "other"}),
    ],
)
def test_a_query_with_another_login_may_have_another_registry(
    options: dict[str, str],
    registry: FakeRegistry,
    login: dict[str, str],
    other_login: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "retrieve_token", lambda *_: SimpleNamespace(value=Secret("token")))
    # In Confluent Cloud, many registries have the same URL.
    loaded = with_reader_schemas(parse({**options, **login}))
    registry.stop()
    again = with_reader_schemas(parse({**options, **login}, schema_registry_api_timeout_ms="200"))
    assert without_timeout(again) == without_timeout(loaded)
    with pytest.raises(SchemaRegistryUnavailableError):
        with_reader_schemas(parse({**options, **other_login}, schema_registry_api_timeout_ms="200"))


def test_a_given_schema_is_named_by_its_option(registry: FakeRegistry) -> None:
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "valueFormat": "avro", "valueSchema": NAME}
    loaded = with_reader_schemas(parse({**given, "schema.registry.url": registry.url}))
    assert loaded.value.source == "valueSchema"
    assert registry.requests == []


def test_fields_of_a_json_schema(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    registry.add("t-key", '{"type": "object", "properties": {"k": {"type": "string"}}}', schemaType="JSON")
    registry.add("t-value", '{"type": "object", "properties": {"v": {"type": "integer"}}}', schemaType="JSON")
    registry.add("t-value", '{"type": "object", "properties": {"v": {"type": "number"}}}', schemaType="JSON")
    registry.add("array", '{"type": "array"}', schemaType="JSON")
    registry.add("avro", '"int"')
    options = {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "t",
        "keyFormat": "json",
        "valueFormat": "json",
        "schema.registry.url": registry.url,
    }
    ddl = typed_schema(kafka_schema(include_headers=False), with_reader_schemas(parse(options)))
    assert "`key` struct<`k`: string> COMMENT 'version 1 of t-key, schema id 1'" in ddl
    assert "`value` struct<`v`: double> COMMENT 'version 2 of t-value, schema id 3'" in ddl
    first = typed_schema(
        kafka_schema(include_headers=False), with_reader_schemas(parse(options, valueSchemaVersion="1"))
    )
    assert "`value` struct<`v`: bigint> COMMENT 'version 1 of t-value, schema id 2'" in first
    # The fields of an option, or of .schema(), take precedence.
    given = typed_schema(
        kafka_schema(include_headers=False),
        with_reader_schemas(parse(options, keySchema="a int", valueSchema="variant")),
    )
    assert "`key` struct<a int>" in given
    assert "`value` variant" in given
    comment = "version 1 of t-value, schema id 2"
    known = with_reader_schemas(parse(options), columns(comment))
    assert known.value.schema is None
    # Who registers the schema of JSON writes its id, too; with fields of the query, the default is plain JSON.
    framings = {
        "confluent": (with_reader_schemas(parse(options)), known),
        "none": (
            with_reader_schemas(parse(options), columns("")),
            with_reader_schemas(parse(options, valueSchema="v int")),
            with_reader_schemas(parse(options, valueFraming="none")),
            with_reader_schemas(parse(options, valueFraming="none"), columns(comment)),
        ),
        "header": (with_reader_schemas(parse(options, valueFraming="header"), columns(comment)),),
    }
    for framing, found in framings.items():
        assert {each.value.framing for each in found} == {framing}
    assert known.for_tasks().registry is None, "tasks do not need its credentials"
    for more, error_class, message in (
        (
            {"valueSubject": "no"},
            SchemaNotFoundError,
            "Set valueSubject to that of the schema, or valueSchema to the w",
        ),
        ({"valueSubject": "avro"}, SchemaError, "schema id 5 is a schema of AVRO, not a JSON Schema"),
        (
            {"subscribe": "t,u"},
            OptionError,
            "the subject does not follow from the topics .*valueSchema to the wanted f|key",
        ),
    ):
        with pytest.raises(error_class, match=message):
            with_reader_schemas(parse({**options, **more}))
    with pytest.raises(
        OptionError,
        match=r"^version 1 of array, schema id 4: the JSON Schema is not that of an object .*name the wanted",
    ):
        typed_schema(kafka_schema(include_headers=False), with_reader_schemas(parse(options, valueSubject="array")))
    registry.stop()
    payloads = parse(options, schema_registry_api_timeout_ms="200")
    assert typed_schema(kafka_schema(include_headers=False), with_reader_schemas(payloads)) == ddl


def test_options_of_subjects_of_json() -> None:
    base = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "valueFormat": "json", "valueSubject": "s"}
    with_registry = {**base, "schema.registry.url": "http://r:8081"}
    assert parse(with_registry).value.subject == "s"
    for rejected in (base, {**with_registry, "valueSchema": "a int"}, {**with_registry, "valueSchemaId": "7"}):
        with pytest.raises(OptionError, match=r"valueSubject|valueSchemaId"):
            parse(rejected)
