"""``arrow`` of RDDs and direct streams with the schemas of a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.direct.streaming_contexts import BatchResults, direct_stream, streaming
from tests.integration.test_avro_with_registry import V1, V2, Orders

from pyspark_kafka_direct import OptionError, PayloadSchemaError, SchemaRegistryError, error_of
from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.fake_registry import FakeRegistry
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import KafkaRDD


@pytest.fixture
def orders(kafka: EmbeddedKafka, make_topic: MakeTopic, registry: FakeRegistry) -> Orders:
    return Orders(kafka.bootstrap_servers, make_topic(1), registry)


def create_rdd(spark: SparkSession, kafka: EmbeddedKafka, *ranges: OffsetRange) -> KafkaRDD:
    return KafkaUtils.createRDD(spark.sparkContext, {"bootstrap.servers": kafka.bootstrap_servers}, list(ranges))


def values(batches: list[pa.RecordBatch]) -> list[Any]:
    return [row["value"] for batch in batches for row in batch.to_pylist()]


def test_an_rdd_of_several_writer_schemas(
    spark: SparkSession, kafka: EmbeddedKafka, orders: Orders, registry: FakeRegistry
) -> None:
    orders.write(V1, {"id": 1})
    orders.write(V2, {"id": 2, "name": "b"}, in_headers=True)
    orders.write_bytes(b"bare")
    orders.write_bytes(b"\0\0\0\0\x4d\2")  # an unknown id
    rdd = create_rdd(spark, kafka, OffsetRange(orders.topic, 0, 0, 4))
    options = {"schema.registry.url": registry.url, "valueFraming": "header"}
    (batch,) = rdd.arrow(["value", "_error"], valueFormat="avro", mode="PERMISSIVE", options=options).collect()
    assert batch.schema.field("value").type.names == ["id", "name"]
    none = {"id": None, "name": None}
    assert values([batch]) == [{"id": 1, "name": None}, {"id": 2, "name": "b"}, none, none]
    errors = batch.column("_error").to_pylist()
    assert [error and (error["stage"], error["schema_id"]) for error in errors] == [
        None,
        None,
        ("parse", None),
        ("schema", 77),
    ]
    failing = create_rdd(spark, kafka, OffsetRange(orders.topic, 0, 3, 4)).arrow(valueFormat="avro", options=options)
    with pytest.raises(Exception, match="Schema id 77 has to be in the registry") as caught:
        failing.collect()
    error = error_of(caught.value)
    assert isinstance(error, PayloadSchemaError)
    assert "mode=" not in error.message
    first = rdd.arrow(
        ["value"], valueFormat="avro", options={**options, "valueSchemaVersion": "1"}, mode="dropmalformed"
    )
    assert values(first.collect()) == [{"id": 1}, {"id": 2}]


def test_a_given_schema_needs_no_registry(spark: SparkSession, kafka: EmbeddedKafka, orders: Orders) -> None:
    orders.write_bytes(b"\2\x0e")
    rdd = create_rdd(spark, kafka, OffsetRange(orders.topic, 0, 0, 1))
    assert values(rdd.arrow(["value"], valueFormat="avro", valueSchema=V1).collect()) == [{"id": 7}]


def test_values_that_are_no_records(spark: SparkSession, kafka: EmbeddedKafka, orders: Orders) -> None:
    orders.write_bytes(b"\2a")
    orders.write_bytes(b"\2")
    rdd = create_rdd(spark, kafka, OffsetRange(orders.topic, 0, 0, 2))
    decoded = rdd.arrow(["value"], valueFormat="avro", valueSchema='"string"', mode="PERMISSIVE")
    assert values(decoded.collect()) == ["a", None]


def test_options_of_an_rdd_that_are_rejected(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, orders: Orders, registry: FakeRegistry
) -> None:
    url = {"schema.registry.url": registry.url, "schema.registry.api.timeout.ms": "500"}
    one = create_rdd(spark, kafka, OffsetRange(orders.topic, 0, 0, 0))
    two = create_rdd(spark, kafka, OffsetRange(orders.topic, 0, 0, 0), OffsetRange(make_topic(1), 0, 0, 0))
    with pytest.raises(OptionError, match=r"set valueSubject, or valueSchema"):
        two.arrow(valueFormat="avro", options=url)
    with pytest.raises(OptionError, match=r"takes a dict of names and values"):
        one.arrow(valueFormat="avro", options="schema.registry.url")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="startingOffsets is neither an option of a schema registry nor"):
        one.arrow(valueFormat="avro", options={**url, "startingOffsets": "earliest"})
    with pytest.raises(SchemaRegistryError, match=f"{orders.topic}-value"):
        one.arrow(valueFormat="avro", options=url)


def test_a_direct_stream_keeps_the_schema_of_its_start(
    spark: SparkSession, kafka: EmbeddedKafka, orders: Orders, registry: FakeRegistry
) -> None:
    orders.write(V1, {"id": 1})
    results = BatchResults()
    options = {"schema.registry.url": registry.url, "valueSubject": f"{orders.topic}-value"}
    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, orders.topic, None)
        with pytest.raises(OptionError, match=r"set valueSubject"):
            stream.arrow(valueFormat="avro", options={"schema.registry.url": registry.url})
        decoded = stream.arrow(["value"], valueFormat="avro", options=options)
        decoded.foreachRDD(lambda rdd: results.add(rdd.collect()))
        ssc.start()
        results.wait_for_elements(1)
        orders.write(V2, {"id": 2, "name": "b"})
        results.wait_for_elements(2)
    assert values(results.flat) == [{"id": 1}, {"id": 2}]


def test_a_direct_stream_with_the_id_of_its_schema(spark: SparkSession, kafka: EmbeddedKafka, bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"\0\0\0\0\7\2\x0a", b"\0\0\0\0\x08\2\x0c", b"\2\x0e", None, b"\0\0\0\0\7\2\x10"])
    results = BatchResults()
    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        with pytest.raises(OptionError, match=r"valueFraming=confluent needs a registry.* or valueSchemaId"):
            stream.arrow(valueFormat="avro", valueSchema=V1, options={"valueFraming": "confluent"})
        decoded = stream.arrow(
            ["value"], valueFormat="avro", valueSchema=V1, mode="PERMISSIVE", options={"valueSchemaId": "7"}
        )
        decoded.foreachRDD(lambda rdd: results.add(rdd.collect()))
        ssc.start()
        results.wait_for_elements(1)
    assert values(results.flat) == [{"id": 5}, {"id": None}, {"id": None}, None, {"id": 8}]


def test_a_direct_stream_of_protobuf_and_json_with_schema_ids(
    spark: SparkSession, kafka: EmbeddedKafka, bench: Workbench, registry: FakeRegistry
) -> None:
    topic = bench.make_topic()
    schema_id = registry.add("n-value", 'syntax = "proto3"; message N { int32 n = 1; }', schemaType="PROTOBUF")
    header = b"\0" + schema_id.to_bytes(4, "big")
    bench.write(topic, [header + b"\0\x08\5", None, header + b"\x02\x02\x08\6", header + b'{"n":7}', b'{"n":8}'])
    protobuf, json = BatchResults(), BatchResults()
    options = {"schema.registry.url": registry.url, "valueSubject": "n-value"}
    with streaming(spark.sparkContext, 1) as ssc:
        stream = direct_stream(ssc, kafka.bootstrap_servers, topic, None)
        messages = stream.arrow(["value"], valueFormat="protobuf", mode="PERMISSIVE", options=options)
        messages.foreachRDD(lambda rdd: protobuf.add(rdd.collect()))
        structs = stream.arrow(
            ["value"], valueFormat="json", valueSchema="n int", options={"valueFraming": "confluent"}
        )
        structs.foreachRDD(lambda rdd: json.add(rdd.collect()))
        ssc.start()
        protobuf.wait_for_elements(1)
        json.wait_for_elements(1)
    numbers = [[value and value["n"] for value in values(results.flat)] for results in (protobuf, json)]
    assert numbers == [[5, None, None, None, None], [None, None, None, 7, None]]
