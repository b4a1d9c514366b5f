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
        ({"valueFormat": "avro"}, "valueFormat must be binary, string or json, got 'avro'"),
        ({"mode": "IGNORE"}, "mode must be PERMISSIVE, DROPMALFORMED or FAILFAST, got 'IGNORE'"),
        (
            {"valueSchema": "a int"},
            "valueSchema is the schema of JSON, and valueFormat is binary; set valueFormat=json",
        ),
        ({"keySchema": "a int", "keyFormat": "string"}, "keySchema is the schema of JSON, and keyFormat is string"),
        ({"valueFormt": "json"}, "valueFormat"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, str], message: str) -> None:
    for parse in (parse_batch_options, parse_stream_options, parse_columns):
        with pytest.raises(OptionError, match=message):
            parse({**BASE, **options})


def test_options_of_json_alone_are_ignored_with_a_warning() -> None:
    warnings = parse_batch_options({**BASE, "mode": "FAILFAST", "valueFormat": "string"}).warnings
    assert [warning for warning in warnings if "mode" in warning and "nothing is decoded from JSON" in warning] != []


def test_a_continuous_query_has_the_same_options() -> None:
    options = {**BASE, "valueFormat": "json", "valueSchema": "a int", "mode": "DROPMALFORMED"}
    assert parse_continuous_options(options).payloads == parse_batch_options(options).payloads


def test_options_can_be_arguments_of_a_method() -> None:
    arguments = {"valueFormat": "json", "valueSchema": "a int", "mode": None, "keyFormat": None}
    assert parse_payload_arguments(arguments) == parse_batch_options({**BASE, **arguments}).payloads  # type: ignore[dict-item]
    with pytest.raises(OptionError, match="valueFormat must be binary, string or json"):
        parse_payload_arguments({"valueFormat": "avro"})
