"""The options that define how keys and values are decoded."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.config.payload_parser import PayloadOptions, parse_payload_arguments
from pyspark_kafka_direct.config.payload_settings import PayloadSettings
from pyspark_kafka_direct.config.read_options import (
    parse_batch_options,
    parse_columns,
    parse_continuous_options,
    parse_stream_options,
)
from pyspark_kafka_direct.config.spark_definitions import PAYLOAD_DECODERS_VARIABLE
from pyspark_kafka_direct.errors import OptionError

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def test_payloads_are_bytes_by_default() -> None:
    assert parse_batch_options(BASE).payloads == PayloadOptions(PayloadSettings())
    assert parse_stream_options(BASE).payloads == PayloadOptions(PayloadSettings())
    assert not PayloadSettings().decodes


def test_formats_schemas_and_mode() -> None:
    options = {
        **BASE,
        "VALUEFORMAT": "JSON",
        "keyformat": "string",
        "valueSchema": "a int",
        "mode": "failfast",
        "columnNameOfCorruptRecord": "text",
    }
    expected = PayloadOptions(PayloadSettings("string", "json", "FAILFAST", "text"), None, "a int")
    assert parse_batch_options(options).payloads == expected
    assert parse_stream_options(options).payloads == expected
    assert parse_columns(options) == (False, expected)
    assert [expected.settings.format_of(column) for column in ("key", "value", "topic")] == ["string", "json", "binary"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"valueFormat": "xml"},
            "valueFormat must be binary, string, json, avro, protobuf or module:factory, got 'xml'",
        ),
        ({"mode": "IGNORE"}, "mode must be PERMISSIVE, DROPMALFORMED or FAILFAST, got 'IGNORE'"),
        (
            {"valueSchema": "a int"},
            "valueSchema is the schema of JSON, Avro or Protobuf, and valueFormat is binary; set valueFormat=json",
        ),
        (
            {"keySchema": "a int", "keyFormat": "string"},
            "keySchema is the schema of JSON, Avro or Protobuf, and keyFormat is str",
        ),
        ({"valueFormt": "json"}, "valueFormat"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, str], message: str) -> None:
    for parse in (parse_batch_options, parse_stream_options, parse_columns):
        with pytest.raises(OptionError, match=message):
            parse({**BASE, **options})


def test_avro_fails_at_malformed_data_by_default() -> None:
    avro = {"valueFormat": "avro", "valueSchema": '"int"'}
    expected = PayloadSettings("json", "avro", "FAILFAST", value_avro_schema='"int"')
    options = {**BASE, **avro, "keyFormat": "json", "keySchema": "a int"}
    assert parse_batch_options(options).payloads == PayloadOptions(expected, "a int", '"int"')
    assert parse_batch_options({**BASE, **avro, "mode": "permissive"}).payloads.settings.mode == "PERMISSIVE"


def test_options_of_json_alone_are_ignored_with_a_warning() -> None:
    warnings = parse_batch_options({**BASE, "mode": "FAILFAST", "valueFormat": "string"}).warnings
    assert [warning for warning in warnings if "mode" in warning and "nothing is decoded from JSON" in warning] != []


def test_a_continuous_query_has_the_same_options() -> None:
    options = {**BASE, "valueFormat": "json", "valueSchema": "a int", "mode": "DROPMALFORMED"}
    assert parse_continuous_options(options).payloads == parse_batch_options(options).payloads


def test_options_can_be_arguments_of_a_method() -> None:
    arguments = {"valueFormat": "json", "valueSchema": "a int", "mode": None, "keyFormat": None}
    assert parse_payload_arguments(arguments) == parse_batch_options({**BASE, **arguments}).payloads  # type: ignore[dict-item]
    with pytest.raises(OptionError, match="valueFormat must be binary, string, json, avro, protobuf or module:factory"):
        parse_payload_arguments({"valueFormat": "xml"})


def test_decoders_of_the_user_must_be_allowed_unless_the_options_are_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {**BASE, "valueFormat": "decoders:Csv.make", "valueSchema": "a int"}
    message = r"valueFormat: 'decoders:Csv\.make' is not allowed, because this function would run on the executors"
    for parse in (parse_batch_options, parse_stream_options):
        monkeypatch.delenv(PAYLOAD_DECODERS_VARIABLE, raising=False)
        with pytest.raises(OptionError, match=message):
            parse(options)
        monkeypatch.setenv(PAYLOAD_DECODERS_VARIABLE, "decoders:Csv, other:make")
        with pytest.raises(OptionError, match=message):
            parse(options)
        monkeypatch.setenv(PAYLOAD_DECODERS_VARIABLE, "other:make, decoders:Csv.make")
        assert parse(options).payloads == PayloadOptions(PayloadSettings("binary", "decoders:Csv.make"), None, "a int")
    monkeypatch.delenv(PAYLOAD_DECODERS_VARIABLE)
    assert parse_continuous_options(options).payloads.settings.value_format == "decoders:Csv.make"
    assert parse_payload_arguments({"keyFormat": "decoders:make"}).settings.key_format == "decoders:make"


@pytest.mark.parametrize("value", ["decoders:", ":make", "decoders:make()", "deco ders:make", "a:b:c", "json:"])
def test_a_decoder_is_the_name_of_a_function(value: str) -> None:
    with pytest.raises(
        OptionError, match="valueFormat must be binary, string, json, avro, protobuf or module:factory, got"
    ):
        parse_batch_options({**BASE, "valueFormat": value})


def test_payloads_are_parsed_although_another_option_is_invalid() -> None:
    """Otherwise, Spark would report first that the query uses a field of a column of bytes."""
    # A batch does not start at latest, and a stream does not have these limits: the errors differ.
    invalid = {**BASE, "startingOffsets": "latest", "maxOffsetsPerTrigger": "many", "includeHeaders": "true"}
    typed = {"valueFormat": "json", "VALUESCHEMA": "a int", "mode": "failfast"}
    settings = PayloadSettings("binary", "json", "FAILFAST")
    assert parse_columns({**invalid, **typed}) == (True, PayloadOptions(settings, None, "a int"))
    with pytest.raises(OptionError, match="mode must be PERMISSIVE, DROPMALFORMED or FAILFAST"):
        parse_columns({**invalid, **typed, "mode": "quickly"})
    assert parse_columns(invalid) == (True, PayloadOptions(PayloadSettings()))


AVRO = {**BASE, "valueFormat": "avro", "schema.registry.url": "https://one:8081"}


def test_a_registry_of_avro() -> None:
    registry = parse_batch_options({**AVRO, "schemaEvolutionMode": "restart"}).payloads.settings.registry
    assert registry is not None
    assert registry.settings.urls == ("https://one:8081",)
    assert (registry.value.subject, registry.key.subject, registry.evolution) == ("t-value", "t-key", "restart")
    for parsed in (parse_stream_options(AVRO), parse_continuous_options(AVRO)):
        assert parsed.payloads.settings.registry == parse_batch_options(AVRO).payloads.settings.registry
    assert parse_batch_options({**BASE, "valueFormat": "avro", "valueSchema": "x"}).payloads.settings.registry is None


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"subscribe": " t "}, "t-value"),
        ({"assign": '{"t": [0, 1]}'}, "t-value"),
        ({"offsetRanges": '[{"topic": "t", "partition": 0, "fromOffset": 0, "untilOffset": 1}]'}, "t-value"),
        ({"subscribe": "t,u"}, None),
        ({"subscribePattern": "t.*"}, None),
        ({"subscribe": "t", "valueSubjectNameStrategy": "record"}, None),
        ({"subscribe": "t,u", "valueSubject": " s "}, " s "),
    ],
)
def test_the_subject_follows_from_a_single_topic(options: dict[str, str], subject: str | None) -> None:
    given = {name: value for name, value in AVRO.items() if name != "subscribe"} | options
    registry = parse_batch_options(given).payloads.settings.registry
    assert registry is not None
    assert registry.value.subject == subject


def test_options_of_a_registry_without_effect() -> None:
    def warnings(options: dict[str, str]) -> list[str]:
        return [warning for warning in parse_batch_options({**BASE, **options}).warnings if "egistr" in warning]

    assert warnings({"schema.registry.url": "https://one:8081"}) == [
        "the option schema.registry.url is ignored: nothing is decoded from Avro or Protobuf"
    ]
    avro = {"valueFormat": "avro", "valueSchema": "x"}
    assert parse_batch_options({**BASE, **avro, "valueSubject": "s"}).warnings == (
        "the option valueSubject is ignored: schema.registry.url is not set",
    )
    assert warnings(AVRO) == []
    assert parse_batch_options({**BASE, **avro, "valueFraming": "none"}).warnings == ()  # that is what is read
    assert parse_batch_options({**BASE, **avro, "valueFraming": "confluent"}).warnings == (
        "the option valueFraming is ignored: schema.registry.url is not set",
    )
    assert parse_batch_options({**BASE, "valueSubject": "s"}).warnings == (
        "the option valueSubject is ignored: nothing is decoded from Avro or Protobuf",
    )
    for key in ({}, {"keyFormat": "string"}):
        assert parse_batch_options({**AVRO, **key, "keyFraming": "confluent", "keySubject": "s"}).warnings == (
            "the option keySubject is ignored: keys are not decoded from Avro or Protobuf",
            "the option keyFraming is ignored: keys are not decoded from Avro or Protobuf",
        )


@pytest.mark.parametrize(
    ("options", "framing"),
    [
        ({}, "none"),
        ({"valueFraming": "confluent"}, "confluent"),
        ({"valueFraming": "header"}, "header"),
        ({"schema.registry.url": "https://one:8081"}, "none"),
        ({"schema.registry.url": "https://one:8081", "valueFraming": "confluent"}, "confluent"),
    ],
)
def test_where_the_schema_id_of_json_is(options: dict[str, str], framing: str) -> None:
    given = {**BASE, "valueFormat": "json", "valueSchema": "a int", **options}
    for parse in (parse_batch_options, parse_stream_options):
        parsed = parse(given)
        settings = parsed.payloads.settings
        assert (settings.json_framing_of("value"), settings.json_framing_of("key")) == (framing, "none")
        assert settings.registry is None
        ignored = [warning for warning in parsed.warnings if "ignored" in warning]
        assert bool(ignored) == (list(options) == ["schema.registry.url"])


def test_json_has_no_single_object_encoding() -> None:
    with pytest.raises(OptionError, match="valueFraming is confluent, header or none with valueFormat=json"):
        parse_batch_options({**BASE, "valueFormat": "json", "valueFraming": "single-object"})


def test_the_error_about_another_option_is_not_one_about_a_schema_that_the_registry_has() -> None:
    # A batch does not start at latest, and a stream does not have these limits: the errors differ.
    invalid = {**AVRO, "startingOffsets": "latest", "maxOffsetsPerTrigger": "many"}
    assert parse_columns(invalid) == (False, PayloadOptions(PayloadSettings()))
