"""``valueFormat`` in continuous queries, and a malformed record in each mode."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.fake_registry import FakeRegistry
from tests.integration.continuous.continuous_queries import await_failure

from pyspark_kafka_direct.errors import ColumnError, MalformedPayloadError, OptionError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.continuous.continuous_queries import Queries

VALUES = ('{"n": 1, "unwanted": {}}', '{"n": 2', '{"n": "x"}', '{"n": 3}')
SCHEMAS = {"PERMISSIVE": "n int, _corrupt_record binary", "DROPMALFORMED": "n int"}


def structs_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    structs = batch.column("value").to_pylist()
    values = [json.dumps([struct["n"], (struct.get("_corrupt_record") or b"").decode()]) for struct in structs]
    return pa.record_batch({"value": values})


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("PERMISSIVE", ['[1, ""]', '[3, ""]', *(json.dumps([None, value]) for value in VALUES[1:3])]),
        ("DROPMALFORMED", ['[1, ""]', '[3, ""]']),
    ],
)
def test_a_malformed_record(queries: Queries, make_topic: MakeTopic, mode: str, expected: list[str]) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, VALUES)
    typed = queries.read(subscribe=source, valueFormat="json", valueSchema=SCHEMAS[mode], mode=mode)
    query = queries.start(typed.select("value").map_batches(structs_as_text).to_kafka(output))
    query.processAllAvailable()
    queries.put(source, ["[]"])  # if it is dropped, its batch is empty
    queries.put(source, ['{"n": 4}'])
    more = ['[4, ""]'] if mode == "DROPMALFORMED" else ['[null, "[]"]', '[4, ""]']
    queries.expect(output, [*expected, *more], query)
    query.processAllAvailable()
    assert queries.end_offsets(queries.epochs("offsets")[-1]) == {source: {"0": 6}}


def errors_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    assert batch.schema.names == ["_error", "value"]
    return pa.record_batch({"value": [error["message"] if error else "good" for error in batch[0].to_pylist()]})


def test_errors_of_malformed_records_are_a_column(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, VALUES)
    typed = queries.read(subscribe=source, valueFormat="json", valueSchema="variant")
    query = queries.start(typed.select("_error", "value").map_batches(errors_as_text).to_kafka(output))
    queries.expect(output, ["good", "the JSON is incomplete, at byte 7", "good", "good"], query)


def test_a_malformed_record_can_fail_the_query(queries: Queries, make_topic: MakeTopic) -> None:
    """It ends at once, because a restart reads the same record."""
    source, output = make_topic(), make_topic()
    queries.put(source, VALUES)
    typed = queries.read(subscribe=source, valueFormat="json", valueSchema="n int", mode="FAILFAST")
    query = queries.start(typed.select("value").map_batches(structs_as_text).to_kafka(output))
    error = await_failure(query)
    assert isinstance(error, MalformedPayloadError)
    assert f"[topic {source}, partition 0, offset 1]" in str(error)
    assert "mode=DROPMALFORMED" in str(error)
    query = queries.start(
        queries.read(subscribe=source, valueFormat="json", valueSchema=SCHEMAS["DROPMALFORMED"], mode="DROPMALFORMED")
        .select("value", "offset")
        .map_batches(structs_as_text)
        .to_kafka(output)
    )
    queries.expect(output, ['[1, ""]', '[3, ""]'], query)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueFormat": "json"}, "valueFormat=json needs the wanted fields"),
        ({"valueFormat": "json", "valueSchema": "n integr"}, "valueSchema must be DDL such as"),
        ({"valueFormat": "json", "valueSchema": "n interval day to second"}, "field 'n' has the type duration"),
    ],
)
def test_an_invalid_schema_is_rejected_at_the_start(
    queries: Queries, make_topic: MakeTopic, options: dict[str, str], message: str
) -> None:
    query = queries.read(subscribe=make_topic(), **options).to_kafka("output")
    with pytest.raises(OptionError, match=message):
        queries.start(query)


def test_errors_without_a_decoded_column_are_rejected(queries: Queries, make_topic: MakeTopic) -> None:
    query = queries.read(subscribe=make_topic()).select("value", "_error").to_kafka("output")
    with pytest.raises(OptionError, match="set valueFormat=json, avro or protobuf and add the column value"):
        queries.start(query)


def test_decoded_columns_are_written_as_json(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, ['{"unwanted": [1], "n" : 1}', "{"])
    query = queries.start(
        queries.read(subscribe=source, valueFormat="json", valueSchema=SCHEMAS["PERMISSIVE"])
        .select("value")
        .to_kafka(output)
    )
    queries.expect(output, ['{"n":1}', '{"_corrupt_record":"ew=="}'], query)


def test_decoded_columns_are_written_as_avro(
    queries: Queries, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "localhost")
    source, output = make_topic(), make_topic()
    queries.put(source, ['{"n": 1}', '{"n": 2}'])
    decoded = queries.read(subscribe=source, valueFormat="json", valueSchema="n int").select("value")
    fields = [{"name": "n", "type": ["null", "int"]}]
    with FakeRegistry() as registry:
        registry.add(f"{output}-value", json.dumps({"type": "record", "name": "R", "fields": fields}))
        options = {"valueFormat": "avro", "schema.registry.url": registry.url}
        query = queries.start(decoded.to_kafka(output, options))
        queries.expect(output, ["\0\0\0\0\1\2\2", "\0\0\0\0\1\2\4"], query)
        assert registry.paths == [f"GET /subjects/{output}-value/versions/latest"]


JSON_SCHEMA = '{"title": "N", "type": "object"}'
MESSAGE = 'syntax = "proto3"; message N { int32 n = 1; }'


@pytest.mark.parametrize(
    ("payload_format", "schema", "values"),
    [
        ("json", JSON_SCHEMA, ['\0\0\0\0\1{"n":1}', '\0\0\0\0\1{"n":2}']),
        ("protobuf", MESSAGE, ["\0\0\0\0\1\0\x08\1", "\0\0\0\0\1\0\x08\2"]),
    ],
)
def test_values_with_schema_ids_are_written_and_read(
    queries: Queries,
    make_topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
    payload_format: str,
    schema: str,
    values: list[str],
) -> None:
    monkeypatch.setenv("no_proxy", "localhost")
    source, framed, output = make_topic(), make_topic(), make_topic()
    queries.put(source, ['{"n": 1}', '{"n": 2}'])
    decoded = queries.read(subscribe=source, valueFormat="json", valueSchema="n int").select("value")
    with FakeRegistry() as registry:
        registry.add(f"{framed}-value", schema, schemaType=payload_format.upper())
        options = {
            "valueFormat": payload_format,
            "valueFraming": "confluent",
            "schema.registry.url": registry.url,
        }
        query = queries.start(decoded.to_kafka(framed, options))
        queries.expect(framed, values, query)
        query.stop()
        if payload_format == "json":
            options["valueSchema"] = "n int"
        read = queries.read(subscribe=framed, startingOffsets="earliest", **options).select("value")
        queries.expect(output, ['{"n":1}', '{"n":2}'], queries.start(read.to_kafka(output), "second"))


@pytest.mark.parametrize(
    ("payload_format", "schema"),
    [
        ("avro", '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'),
        ("protobuf", 'syntax = "proto2"; message R { required int32 n = 1; }'),
    ],
)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_row_that_cannot_be_encoded_fails_the_query(
    queries: Queries, make_topic: MakeTopic, payload_format: str, schema: str, guarantee: str
) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, ['{"n": null}'])
    decoded = queries.read(subscribe=source, valueFormat="json", valueSchema="n int").select("value")
    options = {"valueFormat": payload_format, "valueSchema": schema, "deliveryGuarantee": guarantee}
    if guarantee == "exactly-once":
        options["transactionalIdPrefix"] = output
    query = queries.start(decoded.to_kafka(output, options))
    error = await_failure(query)
    assert isinstance(error, ColumnError)
    message = f"A row for topic {output} cannot be written as {payload_format.capitalize()}: value.n is null"
    assert message in error.message
    assert "Filter out such rows" in error.message
    assert queries.epochs("commits") in ([], [0])  # the start, if the query writes it


def test_values_are_decoded_by_a_function_of_the_user(
    spark: SparkSession, queries: Queries, make_topic: MakeTopic, tmp_path: Path
) -> None:
    file = tmp_path / "upper_case_decoder.py"
    file.write_text(
        "import pyarrow.compute as pc\n"
        "def create(data_type):\n    return lambda values: pc.utf8_upper(values.cast(data_type))\n"
    )
    spark.sparkContext.addPyFile(str(file))
    source, output = make_topic(), make_topic()
    queries.put(source, ["one", "two"])
    typed = queries.read(subscribe=source, valueFormat="upper_case_decoder:create", valueSchema="string")
    query = queries.start(typed.select("value").to_kafka(output))
    queries.expect(output, ["ONE", "TWO"], query)


def numbers_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch({"value": batch.column("value").cast(pa.string())})


def test_avro_that_is_no_record(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, ["\2", "\4"])
    typed = queries.read(subscribe=source, valueFormat="avro", valueSchema='"long"')
    query = queries.start(typed.select("value").map_batches(numbers_as_text).to_kafka(output))
    queries.expect(output, ["1", "2"], query)
