"""The schemas that a sink writes with: given ones, and those that it derives from the types of its columns."""

from __future__ import annotations

import base64
import json
import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)
from tests.fake_registry import FakeRegistry, Request
from tests.unit.payloads.protobuf_data import file_descriptor

from pyspark_kafka_direct.datasource.writers import batch_writer
from pyspark_kafka_direct.errors import (
    ColumnError,
    OptionError,
    SchemaError,
    SchemaNotFoundError,
    SchemaRegistryUnavailableError,
)
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.payloads import written_schemas
from pyspark_kafka_direct.payloads.column_encoder import ColumnEncoder, InvalidRowError, SchemaMismatchError
from pyspark_kafka_direct.payloads.json.encoder_settings import JsonEncoderSettings
from pyspark_kafka_direct.payloads.json.json_values import variant_type
from pyspark_kafka_direct.payloads.payload_encoders import PayloadEncoders
from pyspark_kafka_direct.payloads.registry.registry_client import registry_client
from pyspark_kafka_direct.payloads.spark.avro_functions import parse_to_avro, to_avro_function
from pyspark_kafka_direct.payloads.spark.writer_schemas import resolve_writer_schemas

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark_kafka_direct.payloads.column_encoder import EncoderSettings

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'

SHORT_OUTAGE = {"schema.registry.api.timeout.ms": "200"}
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
def test_a_registry_does_not_get_a_set_of_descriptors(registry: FakeRegistry, registers: str) -> None:
    schema = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[PROTO]).SerializeToString()).decode()
    options = {**PROTOBUF, "schema.registry.url": registry.url, "auto.register.schemas": registers}
    payloads = parse_sink_options({**options, "valueSchema": schema}, streaming=False).payloads
    with pytest.raises(OptionError, match="valueSchema is a set of descriptors, but a schema registry"):
        resolve_writer_schemas(payloads, None, "t")
    assert registry.requests == []


@pytest.mark.parametrize("registers", ["true", "false"])
def test_a_registry_gets_the_descriptor_of_one_file(registry: FakeRegistry, registers: str) -> None:
    schema = base64.b64encode(PROTO.SerializeToString()).decode()  # as Confluent's client for Python
    registry.add("t-value", schema, schemaType="PROTOBUF")
    options = {**PROTOBUF, "schema.registry.url": registry.url, "auto.register.schemas": registers}
    payloads = parse_sink_options({**options, "valueSchema": schema}, streaming=False).payloads
    assert resolve_writer_schemas(payloads, None, "t")["value"].prefix == b"\0\0\0\0\1\0"


@pytest.mark.parametrize("framing", ["confluent", "header"])
@pytest.mark.parametrize("option", [{"valueSchema": SCHEMA}, {"valueSchemaVersion": "1"}, {}])
def test_an_application_writes_while_the_registry_is_down(
    registry: FakeRegistry, option: dict[str, str], framing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "valueFormat": "avro", "valueFraming": framing}
    options |= option
    registry.add("t-value", SCHEMA)
    options |= {"schema.registry.url": registry.url}
    found = resolve_writer_schemas(parse_sink_options(options, streaming=True).payloads, None, "t")
    registry.stop()
    payloads = parse_sink_options({**options, **SHORT_OUTAGE}, streaming=True).payloads
    for cached in (written_schemas._registered, written_schemas._fetch_version):  # a later batch has another process
        cached.cache_clear()
    registry_client.cache_clear()
    again = resolve_writer_schemas(payloads, None, "t")
    assert again == found
    if framing == "confluent":
        assert found["value"].prefix == b"\0\0\0\0\1"
    else:
        assert found["value"].header == ("__value_schema_id", b"\1" + registry.guid_of(1).bytes)


def test_an_application_knows_the_id_of_each_schema_while_the_registry_is_down(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    texts = ['{"type": "string"}', '{"type": "bytes"}', '{"type": "boolean"}']
    options = [
        {**option, "topic": topic}
        for topic in "tu"
        for option in (*({"valueSchema": text} for text in texts[:2]), *({"valueSchemaVersion": n} for n in "12"), {})
    ]
    for topic in "tu":
        for text in texts:
            registry.add(f"{topic}-value", text, metadata=topic)  # so that its id is another one in each subject

    def prefix(option: Mapping[str, str]) -> bytes:
        for cached in (written_schemas._registered, written_schemas._fetch_version, registry_client):
            cached.cache_clear()
        given = {"kafka.bootstrap.servers": "b:9092", "valueFormat": "avro", "schema.registry.url": registry.url}
        payloads = parse_sink_options({**given, **option}, streaming=True).payloads
        return resolve_writer_schemas(payloads, None, option["topic"])["value"].prefix

    found = [prefix(option) for option in options]
    assert len(set(found)) == 6
    registry.stop()
    assert [prefix({**option, **SHORT_OUTAGE}) for option in options] == found
    json_schema = {"valueFormat": "json", "valueFraming": "confluent"}
    for other in (
        {"valueSchemaVersion": "3"},
        {"valueSchema": texts[2]},
        *({**json_schema, **option} for option in options[:5:2]),
    ):
        with pytest.raises(SchemaRegistryUnavailableError):
            prefix({"topic": "t", **other, **SHORT_OUTAGE})


def test_a_client_of_spark_connect_has_no_files_for_an_outage(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("pyspark.SparkFiles")  # the package pyspark-client lacks it
    registry.add("t-value", SCHEMA)
    settings = parse_to_avro(None, {}, "t-value", registry.url)
    assert settings is not None
    assert settings.prefix == b"\0\0\0\0\1"
    registry.stop()
    with pytest.raises(SchemaRegistryUnavailableError):
        parse_to_avro(None, {"schema.registry.api.timeout.ms": "200"}, "t-value", registry.url)


@pytest.mark.parametrize("option", [{}, {"valueSchemaVersion": "1"}])
def test_the_schema_of_another_format_does_not_replace_that_of_a_registry_that_is_down(
    registry: FakeRegistry, option: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    registry.add("t-value", SCHEMA)
    options = {**PROTOBUF, **option, "schema.registry.url": registry.url}
    avro = parse_sink_options({**options, "valueFormat": "avro"}, streaming=True).payloads
    assert resolve_writer_schemas(avro, None, "t")
    registry.stop()
    registry_client.cache_clear()
    with pytest.raises(SchemaRegistryUnavailableError):
        resolve_writer_schemas(parse_sink_options({**options, **SHORT_OUTAGE}, streaming=True).payloads, None, "t")


@pytest.mark.parametrize("option", [{"valueSchema": SCHEMA}, {"valueSchemaVersion": "1"}, {}])
def test_the_same_schema_of_another_subject_does_not_replace_that_of_a_registry_that_is_down(
    registry: FakeRegistry, option: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its id may be another one, for example in a context of Confluent's registry."""
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    options = {"kafka.bootstrap.servers": "b:9092", "valueFormat": "avro", **option}
    options |= {"schema.registry.url": registry.url}
    for topic in ("t", "u"):
        registry.add(f"{topic}-value", SCHEMA)
    assert resolve_writer_schemas(parse_sink_options({**options, "topic": "t"}, streaming=True).payloads, None, "t")
    registry.stop()
    registry_client.cache_clear()
    payloads = parse_sink_options({**options, **SHORT_OUTAGE, "topic": "u"}, streaming=True).payloads
    with pytest.raises(SchemaRegistryUnavailableError):
        resolve_writer_schemas(payloads, None, "u")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"valueSchemaVersion": "1"},
        {"valueSchema": SCHEMA},
        {"valueSchema": SCHEMA, "auto.register.schemas": "true"},
        {"use.latest.version": "false"},
        {"auto.register.schemas": "true"},
    ],
)
def test_values_that_a_rule_would_encrypt_are_not_written(registry: FakeRegistry, options: dict[str, str]) -> None:
    column = StructType().add("a", IntegerType(), nullable=False)
    derived = {"type": "record", "name": "topLevelRecord", "fields": [{"name": "a", "type": "int"}]}
    text = SCHEMA if "valueSchema" in options or len(options) == 0 else json.dumps(derived)
    registry.add("t-value", text, ruleSet={"domainRules": [{"name": "pii", "type": "ENCRYPT"}]})
    encrypted = registry.respond(Request("GET", "/subjects/t-value/versions/1", {}, None))
    # Confluent's registry gives a new version the rules of the previous one.
    registry.fault = lambda request: encrypted if request.path == "/subjects/t-value/versions" else None
    given = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "valueFormat": "avro", **options}
    parsed = parse_sink_options({**given, "schema.registry.url": registry.url}, streaming=False)
    with pytest.raises(SchemaError) as raised:
        batch_writer(parsed, StructType().add("value", column), None)
    assert "has rules that encrypt fields or values ('pii'), which is not supported: " in raised.value.message
    assert raised.value.message.endswith(
        "they would be written without encryption, and read as encrypted bytes. Write or read these records as binary, "
        "or use a subject without such rules."
    )


JSON_SCHEMA = '{"title": "shop.Order", "type": "object", "properties": {"n": {"type": "integer"}}}'
JSON = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "valueFormat": "json", "valueFraming": "confluent"}


def resolve_json(
    registry: FakeRegistry, options: Mapping[str, str], columns: StructType | None = None
) -> EncoderSettings:
    options = {**JSON, "schema.registry.url": registry.url, **options}
    return resolve_writer_schemas(parse_sink_options(options, streaming=False).payloads, columns, "t")["value"]


UNION = '["null", "int"]'
ONE_MESSAGE = 'syntax = "proto3"; message M { int32 i = 1; }'
TWO_MESSAGES = 'syntax = "proto3"; message A { int32 i = 1; } message B { int32 i = 1; }'


def resolve_value(registry: FakeRegistry, options: Mapping[str, str], *, has_registry: bool = True) -> EncoderSettings:
    given = {"kafka.bootstrap.servers": "b:9092", "topic": "t", **options}
    if has_registry:
        given["schema.registry.url"] = registry.url
    return resolve_writer_schemas(parse_sink_options(given, streaming=False).payloads, None, "t")["value"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"valueSchema": JSON_SCHEMA},
        {"valueSchema": JSON_SCHEMA, "auto.register.schemas": "true"},
        {"valueSchema": JSON_SCHEMA, "valueSubjectNameStrategy": "record"},
        {"valueSchema": JSON_SCHEMA, "valueSubjectNameStrategy": "topic-record"},
    ],
)
def test_json_has_the_id_of_its_schema(registry: FakeRegistry, options: dict[str, str]) -> None:
    for subject in ("t-value", "shop.Order", "t-shop.Order"):
        registry.add(subject, JSON_SCHEMA, schemaType="JSON", schema_id=7)
    settings = resolve_json(registry, options)
    assert (settings.prefix, settings.header) == (b"\0\0\0\0\7", None)
    settings = resolve_json(registry, {"valueFraming": "header", **options})
    name, header = settings.header or ("", b"")
    assert (settings.prefix, name, header[0]) == (b"", "__value_schema_id", 1)  # the GUID


def test_keys_and_values_have_ids_in_headers_of_their_own(registry: FakeRegistry) -> None:
    guids = {}
    for side in ("key", "value"):
        schema_id = registry.add(f"t-{side}", json.dumps({**json.loads(JSON_SCHEMA), "title": side}), schemaType="JSON")
        guids[f"__{side}_schema_id"] = b"\1" + registry.guid_of(schema_id).bytes
    options = {**JSON, "keyFormat": "json", "keyFraming": "header", "valueFraming": "header"}
    payloads = parse_sink_options({**options, "schema.registry.url": registry.url}, streaming=False).payloads
    found = resolve_writer_schemas(payloads, None, "t")
    assert {side: each.header for side, each in found.items()} == dict(
        zip(("key", "value"), guids.items(), strict=True)
    )
    assert PayloadEncoders(found, "t").headers == guids


def test_json_is_registered(registry: FakeRegistry) -> None:
    assert resolve_json(registry, {"valueSchema": JSON_SCHEMA, "auto.register.schemas": "true"}).prefix
    (posted,) = [request for request in registry.requests if request.path == "/subjects/t-value/versions"]
    assert posted.content["schemaType"] == "JSON"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, SchemaNotFoundError, "Subject 't-value'.*set valueSchema and auto.register"),
        ({"valueSubject": "avro"}, SchemaError, "schema id 1 is a schema of AVRO, not a JSON Schema"),
        ({"valueSchema": "id bigint"}, OptionError, "valueSchema: not a JSON Schema: "),
        ({"valueSchema": "[]"}, OptionError, "valueSchema: not a JSON Schema, which is an object, true or false"),
        (
            {"valueSchema": "{}", "valueSubjectNameStrategy": "record"},
            OptionError,
            "needs the title of the JSON Schema; set valueSubject, or valueSchema to a JSON Schema that has one",
        ),
        ({"valueSubjectNameStrategy": "record"}, OptionError, "valueSubjectNameStrategy=record needs the title"),
    ],
)
def test_json_whose_schema_is_not_found(
    registry: FakeRegistry, options: dict[str, str], error: type[Exception], message: str
) -> None:
    registry.add("avro", SCHEMA)
    with pytest.raises(error, match=message):
        resolve_json(registry, options)


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"valueFormat": "avro"}, "needs the name of the record; set valueSubject, or valueSchema to an Avro schema"),
        ({"valueFormat": "avro", "valueSchema": UNION}, "needs the name of the record; set valueSubject, or"),
        ({"valueFormat": "protobuf"}, "needs the name of the message; set valueSubject, or valueMessage"),
    ],
)
@pytest.mark.parametrize("strategy", ["record", "topic-record"])
def test_a_subject_that_has_the_name_of_a_record_needs_that_name(
    registry: FakeRegistry, options: dict[str, str], needed: str, strategy: str
) -> None:
    with pytest.raises(OptionError, match=rf"valueSubjectNameStrategy={strategy} {needed}"):
        resolve_value(registry, {**options, "valueSubjectNameStrategy": strategy})
    assert registry.requests == []
    payload_format = options["valueFormat"]
    registry.add("s", UNION if payload_format == "avro" else ONE_MESSAGE, schemaType=payload_format.upper())
    named = {**options, "valueSubject": "s", "valueSubjectNameStrategy": strategy}
    settings = resolve_value(registry, named)
    assert settings.prefix.startswith(b"\0\0\0\0\1")
    assert settings.format_name.lower() == payload_format


@pytest.mark.parametrize(("payload_format", "name"), [("avro", "R"), ("protobuf", "M")])
@pytest.mark.parametrize(("strategy", "prefix"), [("topic", "t-value"), ("record", ""), ("topic-record", "t-")])
def test_the_subject_of_a_given_schema(
    registry: FakeRegistry, payload_format: str, name: str, strategy: str, prefix: str
) -> None:
    schema = SCHEMA if payload_format == "avro" else ONE_MESSAGE
    options = {"valueFormat": payload_format, "valueSchema": schema, "auto.register.schemas": "true"}
    assert resolve_value(registry, {**options, "valueSubjectNameStrategy": strategy}).prefix
    subject = prefix if strategy == "topic" else prefix + name
    assert registry.paths[0] == f"POST /subjects/{subject}/versions"


@pytest.mark.parametrize("payload_format", ["avro", "protobuf"])
def test_a_subject_with_a_schema_of_another_format(registry: FakeRegistry, payload_format: str) -> None:
    registry.add("t-value", JSON_SCHEMA, schemaType="JSON")
    with pytest.raises(SchemaError, match="version 1 of t-value, schema id 1 is a schema of JSON, not"):
        resolve_value(registry, {"valueFormat": payload_format})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueSchema": "message {"}, "valueSchema: "),
        ({"valueSchema": ONE_MESSAGE, "valueMessage": "N"}, "valueMessage: .*'?N'?"),
    ],
)
@pytest.mark.parametrize("has_registry", [True, False])
def test_a_protobuf_schema_without_the_message(
    registry: FakeRegistry, options: dict[str, str], message: str, has_registry: bool
) -> None:
    with pytest.raises(OptionError, match=message):
        resolve_value(registry, {"valueFormat": "protobuf", **options}, has_registry=has_registry)


def test_a_registered_protobuf_schema_without_the_message(registry: FakeRegistry) -> None:
    registry.add("t-value", ONE_MESSAGE, schemaType="PROTOBUF")
    with pytest.raises(OptionError, match="valueMessage: "):
        resolve_value(registry, {"valueFormat": "protobuf", "valueMessage": "N"})


@pytest.mark.parametrize("framing", ["confluent", "none"])
def test_the_prefix_of_protobuf_follows_the_framing(registry: FakeRegistry, framing: str) -> None:
    registry.add("t-value", TWO_MESSAGES, schemaType="PROTOBUF", schema_id=258)
    options = {"valueFormat": "protobuf", "valueMessage": "B", "valueFraming": framing}
    expected = b"\0\0\0\1\2" + b"\2\2" if framing == "confluent" else b""  # one index, which is 1
    assert resolve_value(registry, options).prefix == expected
    without = {**options, "valueSchema": TWO_MESSAGES, "valueFraming": "none"}
    assert resolve_value(registry, without, has_registry=False).prefix == b""


def test_columns_that_are_written_as_json(registry: FakeRegistry) -> None:
    registry.add("t-value", JSON_SCHEMA, schemaType="JSON")
    allowed: list[DataType] = [StructType().add("n", IntegerType()), StringType(), BinaryType()]
    for data_type in (*allowed, ArrayType(DoubleType())):
        assert resolve_json(registry, {}, StructType().add("value", data_type)).prefix
    rejected: list[tuple[DataType, str]] = [
        (IntegerType(), "value is int32, but a struct"),
        (MapType(BinaryType(), IntegerType()), "the keys of the map"),
    ]
    for data_type, message in rejected:
        with pytest.raises(ColumnError, match=f"value attribute cannot be written as JSON: {message}"):
            resolve_json(registry, {}, StructType().add("value", data_type))


def test_nulls_of_fields_that_a_registered_json_schema_requires(registry: FakeRegistry) -> None:
    zip_type = {"oneOf": [{"type": "null"}, {"$ref": "zip.json"}]}
    schema = {"properties": {"id": {"type": "integer"}, "zip": zip_type}, "required": ["id", "zip"]}
    columns = StructType().add("value", StructType().add("id", IntegerType()).add("zip", IntegerType()))
    rows = pa.array([{"id": 1, "zip": None}, {"id": None, "zip": 1}], pa.struct({"id": pa.int32(), "zip": pa.int32()}))
    registry.add("zip", '{"type": "integer"}', schemaType="JSON")
    references = [{"name": "zip.json", "subject": "zip", "version": 1}]
    registry.add("t-value", json.dumps(schema), schemaType="JSON", references=references)
    settings = pickle.loads(pickle.dumps(resolve_json(registry, {}, columns)))
    encoder = ColumnEncoder("value", settings)
    assert encoder.encode(rows.slice(0, 1)).to_pylist() == [settings.prefix + b'{"id":1,"zip":null}']
    with pytest.raises(InvalidRowError, match=r"value\.id is null, which the JSON schema does not allow"):
        encoder.encode(rows)
    with pytest.raises(ColumnError, match=r"value lacks the field zip, which the JSON Schema requires \(version 1"):
        resolve_json(registry, {}, StructType().add("value", StructType().add("id", IntegerType())))


def test_json_with_ids_is_encoded() -> None:
    encoder = ColumnEncoder("value", JsonEncoderSettings(b"\0\0\0\0\7"))
    structs = pa.array([{"n": 1, "t": "é"}, None, {"n": None, "t": None}])
    assert encoder.encode(structs).to_pylist() == [b'\0\0\0\0\7{"n":1,"t":"\xc3\xa9"}', None, b"\0\0\0\0\7{}"]
    for texts in (
        pa.array(["{}", None, ""]),
        pa.array([b"{}", None, b""]),
        pa.array(["{}", None, ""], pa.large_string()),
    ):
        assert encoder.encode(texts).to_pylist() == [b"\0\0\0\0\7{}", None, b"\0\0\0\0\7"]
    assert encoder.encode(pa.nulls(1)).to_pylist() == [None]
    assert ColumnEncoder("value", JsonEncoderSettings()).encode(structs).to_pylist()[2] == b"{}"


def test_a_variant_of_a_continuous_query_is_not_encoded() -> None:
    values = pa.nulls(1, pa.struct([("v", variant_type())]))
    with pytest.raises(SchemaMismatchError, match=r"value\.v is variant, .* convert it with to_json in the query"):
        ColumnEncoder("value", JsonEncoderSettings(b"\0\0\0\0\7")).encode(values)
    with pytest.raises(ColumnError, match=r"to_avro: value\.v is variant, .* convert it with to_json in the query"):
        to_avro_function(None)(values)
