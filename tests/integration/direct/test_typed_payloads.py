"""``arrow(valueFormat="json")`` of RDDs and direct streams, and a malformed record in each mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.direct.streaming_contexts import BatchResults, direct_stream, streaming

from pyspark_kafka_direct import MalformedPayloadError, OptionError, error_of
from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD

VALUES = [b'{"n": 1, "unwanted": [{}]}', b'{"n": 2', None, b'{"n": "\xff"}', b'{"n": 3}']
SCHEMAS = {"PERMISSIVE": "n int, _corrupt_record binary", "DROPMALFORMED": "n int"}
MODES = {
    "PERMISSIVE": [(1, None), (None, VALUES[1]), None, (None, VALUES[3]), (3, None)],
    "DROPMALFORMED": [(1, None), None, (3, None)],
}


@pytest.fixture
def rdd(spark: SparkSession, bench: Workbench) -> KafkaRDD:
    topic = bench.make_topic()
    bench.write(topic, VALUES)
    params = {"bootstrap.servers": bench.bootstrap_servers}
    return KafkaUtils.createRDD(spark.sparkContext, params, [OffsetRange(topic, 0, 0, len(VALUES))])


def structs(batches: list[pa.RecordBatch]) -> list[Any]:
    rows = [row["value"] for batch in batches for row in batch.to_pylist()]
    return [row and (row["n"], row.get("_corrupt_record")) for row in rows]


@pytest.mark.parametrize("mode", MODES)
def test_a_malformed_record_in_an_rdd(rdd: KafkaRDD, mode: str) -> None:
    batches = rdd.arrow(["value", "partition"], valueFormat="json", valueSchema=SCHEMAS[mode], mode=mode).collect()
    assert structs(batches) == MODES[mode]
    assert batches[0].schema.names == ["value", "partition"]


def test_a_malformed_record_can_fail_the_job(rdd: KafkaRDD) -> None:
    with pytest.raises(Exception, match="cannot be decoded as JSON: the JSON is incomplete") as caught:
        rdd.arrow(["value"], valueFormat="json", valueSchema="n int", mode="failfast").collect()
    error = error_of(caught.value)
    assert isinstance(error, MalformedPayloadError)
    assert error.offset == 1


def test_errors_of_malformed_records_are_a_column(rdd: KafkaRDD) -> None:
    batches = rdd.arrow(["_error", "value"], valueFormat="json", valueSchema="variant").collect()
    assert batches[0].schema.names == ["_error", "value"]
    errors = [row["_error"] for batch in batches for row in batch.to_pylist()]
    assert [error and (error["side"], error["stage"], error["class"]) for error in errors] == [
        None,
        ("value", "parse", "MalformedPayloadError"),
        None,
        None,  # a VARIANT may have bytes that are not UTF-8
        None,
    ]
    assert errors[1]["message"] == "the JSON is incomplete, at byte 7"


def test_keys_and_values_are_decoded_as_by_the_data_source(rdd: KafkaRDD) -> None:
    (batch,) = rdd.arrow(keyFormat="string", valueFormat="json", valueSchema="struct<n int, f array<float>>").collect()
    assert batch.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert [str(batch.schema.field(name).type) for name in ("key", "value")] == [
        "string",
        "struct<n: int32, f: list<element: float>>",
    ]
    assert batch.column("offset").to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"valueFormat": "json"}, "valueFormat=json needs the wanted fields"),
        ({"valueFormat": "jsn"}, "valueFormat must be binary, string, json, avro, protobuf or module:factory"),
        ({"valueFormat": "json", "valueSchema": "n integr"}, "valueSchema must be DDL such as .*got 'n integr'"),
        (
            {"valueFormat": "json", "valueSchema": "n interval day to second"},
            "column 'value': field 'n' has the type duration",
        ),
        ({"columns": ["_error"]}, "_error has the errors of keys and values that are decoded from JSON"),
        ({"columns": ["_error", "_error"], "valueFormat": "json"}, "a column is named twice: _error, _error"),
        (
            {"columns": ["_error", "key"], "valueFormat": "json", "valueSchema": "n int"},
            "there is none; set valueFormat=json, avro or protobuf and add the column value",
        ),
        (
            {"columns": ["_error", "value"], "valueFormat": "json", "valueSchema": "n int", "mode": "FAILFAST"},
            "'_error' has malformed records, of which mode=FAILFAST returns none",
        ),
        ({"valueSchema": "n int"}, "valueSchema is the schema of JSON, Avro or Protobuf, and valueFormat is binary"),
        ({"valueFormat": "json", "valueSchema": "n int", "mode": "IGNORE"}, "mode must be PERMISSIVE"),
    ],
)
def test_an_invalid_argument_is_rejected(rdd: KafkaRDD, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        rdd.arrow(**arguments)


def test_kafka_params_name_the_method_that_decodes(spark: SparkSession) -> None:
    with pytest.raises(OptionError, match=r"valueFormat.*rdd\.arrow\(valueFormat"):
        KafkaUtils.createRDD(spark.sparkContext, {"bootstrap.servers": "b:9092", "valueFormat": "json"}, [])


@pytest.mark.parametrize("mode", MODES)
def test_a_malformed_record_in_a_direct_stream(
    spark: SparkSession, kafka: EmbeddedKafka, bench: Workbench, mode: str
) -> None:
    topic = bench.make_topic()
    bench.write(topic, VALUES)
    results = BatchResults()
    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        with pytest.raises(OptionError, match="valueFormat=json needs the wanted fields"):
            stream.arrow(valueFormat="json")
        with pytest.raises(TypeError, match="valueFormt"):
            stream.arrow(valueFormt="json")
        columns = ["value", "_error"] if mode == "PERMISSIVE" else ["value"]
        decoded = stream.arrow(columns, valueFormat="json", valueSchema=SCHEMAS[mode], mode=mode)
        decoded.foreachRDD(lambda rdd: results.add(rdd.collect()))
        ssc.start()
        results.wait_for_elements(1)
    assert structs(results.flat) == MODES[mode]
    if mode == "PERMISSIVE":
        errors = [row["_error"] for batch in results.flat for row in batch.to_pylist()]
        assert [error and error["stage"] for error in errors] == [None, "parse", None, "convert", None]


def test_a_malformed_record_can_fail_a_batch(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Callable[..., None]
) -> None:
    topic = make_topic()
    put(topic, ["{"])
    results = BatchResults()

    def collect(rdd: Any) -> None:
        if not rdd.isEmpty():
            results.add([rdd.count()])

    def failing(rdd: Any) -> None:
        try:
            collect(rdd)
        except Exception as error:
            results.add([error_of(error)])

    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        stream.arrow(valueFormat="json", valueSchema="n int", mode="FAILFAST").foreachRDD(failing)
        ssc.start()
        results.wait_for_elements(1)
    error = results.flat[0]
    assert isinstance(error, MalformedPayloadError)
    assert (error.topic, error.partition, error.offset) == (topic, 0, 0)
