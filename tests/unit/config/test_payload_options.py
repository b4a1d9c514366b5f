"""The options that define how keys and values are decoded."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.config.payload_parser import PayloadOptions
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


def test_a_continuous_query_rejects_formats() -> None:
    with pytest.raises(OptionError, match=r"valueFormat.*decode payloads in the function of the query"):
        parse_continuous_options({**BASE, "valueFormat": "json"})
