"""The Arrow columns of decoded keys and values, in a process without PySpark."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_parser import parse_payload_arguments
from pyspark_kafka_direct.payloads.arrow_columns import ERROR_TYPE, decoded_columns
from pyspark_kafka_direct.payloads.json.json_values import variant_type
from pyspark_kafka_direct.payloads.reader_schemas import with_reader_schemas
from pyspark_kafka_direct.payloads.record_columns import checked_columns
from pyspark_kafka_direct.payloads.type_names import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fake_registry import FakeRegistry

AVRO = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}'
PROTOBUF = 'syntax = "proto3"; message R { int64 n = 1; string s = 2; }'
JSON_SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}'
ROW = pa.struct({"n": pa.int64(), "s": pa.string()})

# For the options of each line, finds the columns, and decodes values that are no text.
WITHOUT_PYSPARK = """
import json, sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
import pyarrow as pa
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.payload_parser import parse_payload_arguments
from pyspark_kafka_direct.payloads.arrow_columns import decoded_columns
from pyspark_kafka_direct.payloads.reader_schemas import with_reader_schemas
rows = pa.RecordBatch.from_pylist([{"value": b"\\xff"}], pa.schema({"value": pa.binary()}))
for line in sys.stdin:
    settings = with_reader_schemas(parse_payload_arguments(json.loads(line), topic="t"))
    found = decoded_columns(["value", "_error"], settings)
    decoder = found.decoder()
    columns = [rows.column("value") if name == "value" else pa.array([7]) for name in decoder.record_columns]
    batches = decoder.decode([pa.RecordBatch.from_arrays(columns, decoder.record_columns)], TopicPartition("t", 0))
    decoded = [batch.to_pylist() for batch in batches]
    print(json.dumps([str(found.schema.field("value").type), found.time_zone, decoded]), flush=True)
"""


@pytest.fixture(scope="module")
def without_pyspark() -> Iterator[Callable[[dict[str, str]], Any]]:
    """One process without PySpark, because each one imports Arrow and the package."""
    command = [sys.executable, "-c", WITHOUT_PYSPARK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def run(options: dict[str, str]) -> Any:
            print(json.dumps(options), file=stdin, flush=True)
            return json.loads(stdout.readline())

        yield run
        stdin.close()
        assert process.wait(300) == 0


@pytest.mark.parametrize("typed", ["key", "value"])
def test_errors_are_those_of_either_side(typed: str) -> None:
    other = "value" if typed == "key" else "key"
    options = {f"{typed}Format": "json", f"{typed}Schema": "n bigint", f"{other}Format": "string"}
    found = decoded_columns(["key", "_error", "value"], parse_payload_arguments(options))
    assert found is not None
    assert found.schema.field("_error").type == ERROR_TYPE
    with pytest.raises(OptionError, match="column _error has the errors of keys and values"):
        decoded_columns([other, "_error"], parse_payload_arguments(options))


def test_any_column_may_be_decoded() -> None:
    settings = parse_payload_arguments({"valueFormat": "json", "valueSchema": "n bigint"})
    assert decoded_columns(["offset", "key"], settings) is None
    for columns in (["value", "offset"], ["offset", "value"], ["key", "offset", "value"]):
        found = decoded_columns(columns, settings)
        assert found is not None
        assert found.schema.names == columns
        assert found.schema.field("value").type == pa.struct({"n": pa.int64()})


def test_a_field_for_malformed_records_needs_a_mode_only_if_a_format_can_have_them() -> None:
    options = {"keyFormat": "json", "keySchema": "n bigint", "mode": "FAILFAST"}
    settings = parse_payload_arguments(
        {**options, "valueFormat": "shop:decoder", "valueSchema": "_corrupt_record string"}
    )
    found = decoded_columns(["key", "value"], settings)
    assert found is not None
    assert found.schema.field("value").type == pa.struct({"_corrupt_record": pa.string()})


def test_names_of_columns_are_checked() -> None:
    assert checked_columns(["key", "_error", "offset"], "columns") == ("key", "_error", "offset")
    for names in (["key", "vlue"], ["_error", "vlue"]):
        with pytest.raises(OptionError, match="columns: there is no column 'vlue'"):
            checked_columns(names, "columns")


@pytest.mark.parametrize(
    ("payload_format", "schema"), [("json", "n bigint, s string"), ("avro", AVRO), ("protobuf", PROTOBUF)]
)
def test_values_are_decoded_by_a_schema_that_is_given(
    without_pyspark: Callable[[dict[str, str]], Any], payload_format: str, schema: str
) -> None:
    options = {"valueFormat": payload_format, "valueSchema": schema, "mode": "PERMISSIVE"}
    data_type, time_zone, [[row]] = without_pyspark(options)
    assert (data_type, time_zone) == (str(ROW), "UTC")
    assert row["value"] is None or row["value"] == {"n": None, "s": None}
    assert row["_error"]["side"] == "value"


@pytest.mark.parametrize(("payload_format", "schema"), [("json", JSON_SCHEMA), ("avro", AVRO), ("protobuf", PROTOBUF)])
def test_values_are_decoded_by_the_schema_of_a_registry(
    without_pyspark: Callable[[dict[str, str]], Any], registry: FakeRegistry, payload_format: str, schema: str
) -> None:
    registry.add("t-value", schema, schemaType=payload_format.upper())
    options = {"valueFormat": payload_format, "schema.registry.url": registry.url, "mode": "PERMISSIVE"}
    data_type, _, [[row]] = without_pyspark(options)
    assert data_type == str(ROW)
    assert row["_error"]["side"] == "value"
    payloads = with_reader_schemas(parse_payload_arguments({**options, "valueSubject": "t-value"}))
    assert "schema id 1" in payloads.value.source


def columns_of(names: list[str], **options: str) -> Any:
    return decoded_columns(names, parse_payload_arguments(options))


def test_the_columns_keep_their_order() -> None:
    found = columns_of(["offset", "_error", "value", "key"], valueFormat="json", valueSchema="n bigint, s string")
    assert found.columns == ("offset", "_error", "value", "key")
    assert found.schema.types == [pa.int64(), ERROR_TYPE, ROW, pa.binary()]
    assert found.time_zone == "UTC"
    assert columns_of(["key", "offset"], valueFormat="json", valueSchema="a int") is None


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["value"], {"valueFormat": "json", "valueSchema": "a int not null"}, "field 'a' may be missing"),
        (["value"], {"valueFormat": "json", "valueSchema": "a interval day"}, "'a' has the type duration.* cast it"),
        (["value"], {"valueFormat": "json", "valueSchema": "a int, b interval"}, "valueSchema.*: field b cannot be"),
        (["key"], {"keyFormat": "json", "keySchema": "a strng"}, "keySchema must be DDL .* did you mean 'string'"),
        (["value"], {"valueFormat": "json"}, "valueFormat=json needs the wanted fields"),
        (
            ["value"],
            {"valueFormat": "json", "valueSchema": "_corrupt_record string", "mode": "FAILFAST"},
            r"'value\._corrupt_record' has malformed records, of which mode=FAILFAST returns none",
        ),
        (["_error"], {"valueFormat": "json", "valueSchema": "a int"}, "_error has the errors .* there is none"),
    ],
)
def test_the_rules_are_those_of_queries(columns: list[str], options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        columns_of(columns, **options)


@pytest.mark.parametrize(
    "data_type",
    [
        *[pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()],
        *[pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(5), pa.date32(), pa.time64("ns")],
        *[pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.duration("us"), pa.decimal128(7, 2), variant_type()],
        pa.struct({"a": pa.list_(pa.int32()), "b": pa.map_(pa.string(), pa.struct({"c": pa.date32()}))}),
    ],
    ids=str,
)
def test_types_have_the_names_of_spark(data_type: pa.DataType) -> None:
    assert type_name(data_type) == from_arrow_type(data_type).simpleString()


def test_types_that_spark_does_not_have_keep_their_names() -> None:
    assert type_name(pa.list_(pa.uint8())) == "array<uint8>"
    assert type_name(pa.dictionary(pa.int8(), pa.string())).startswith("dictionary<")
