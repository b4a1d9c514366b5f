"""Structs, arrays and maps are written as JSON by every kind of write, as ``to_json`` would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.integration.exactly_once import PARTITIONS, Pipe
from tests.integration.read_back import consume, values
from tests.integration.sessions import setting

from pyspark_kafka_direct import SchemaNotFoundError, error_of, foreach_batch_writer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.fake_registry import FakeRegistry

    from pyspark_kafka_direct.broker import EmbeddedKafka

STRUCT = "named_struct('n', cast(value AS int), 'text', concat('\"', value), 'none', NULL) AS value"
KEY = "array(value) AS key"


def expected(*numbers: int) -> list[str]:
    return sorted(f'{{"n":{number},"text":"\\"{number}"}}' for number in numbers)


@pytest.fixture
def pipe(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Pipe:
    return Pipe(spark, kafka.bootstrap_servers, make_topic(PARTITIONS), make_topic(PARTITIONS), tmp_path / "checkpoint")


@pytest.mark.smoke
def test_a_batch(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        frame = spark.sql(
            "SELECT map('at', timestamp_millis(1719792000123)) AS key, struct(1.5D AS d, NULL AS n) AS value"
        )
        sparks = frame.selectExpr("to_json(key) AS key").collect()
        writer = frame.write.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer.option("topic", topic).mode("append").save()
    (record,) = consume(kafka.bootstrap_servers, topic)
    assert record.key == b'{"at":"2024-06-30T20:00:00.123-04:00"}' == sparks[0].key.encode()
    assert record.value == b'{"d":1.5}'


def test_a_stream_and_foreach_batch(pipe: Pipe) -> None:
    pipe.produce_numbers(1, 2)
    typed = pipe.frame().selectExpr(STRUCT, KEY)
    pipe.run(typed)
    assert sorted(pipe.committed_values()) == expected(1, 2)
    pipe.produce_numbers(3)
    pipe.run_foreach(foreach_batch_writer(pipe.sink_options()), frame=typed)
    assert sorted(pipe.committed_values()) == expected(1, 2, 3)
    assert {record.key for record in consume(pipe.servers, pipe.target)} >= {b'["1"]', b'["2"]', b'["3"]'}


def test_a_stream_at_least_once(pipe: Pipe) -> None:
    pipe.produce_numbers(7)
    options = {
        "kafka.bootstrap.servers": pipe.servers,
        "topic": pipe.target,
        "checkpointLocation": str(pipe.checkpoint),
    }
    writer = pipe.frame().selectExpr(STRUCT).writeStream.format("kafka-direct").options(**options)
    assert writer.trigger(availableNow=True).start().awaitTermination(600)
    assert values(pipe.servers, pipe.target) == expected(7)


SCHEMA = """{
    "title": "N",
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "text": {"type": "string"},
        "none": {"oneOf": [{"type": "null"}, {"type": "string"}]}
    },
    "required": ["n", "none"]
}"""


@pytest.mark.parametrize("framing", ["confluent", "header"])
def test_confluents_deserializer_reads_what_each_kind_of_write_writes_with_ids(
    pipe: Pipe, registry: FakeRegistry, framing: str
) -> None:
    options = {"valueFormat": "json", "valueFraming": framing, "schema.registry.url": registry.url}
    pipe.produce_numbers(1)
    typed = pipe.frame().selectExpr(STRUCT)
    with pytest.raises(Exception, match="SchemaNotFoundError") as raised:
        pipe.run(typed, **options)
    assert isinstance(error_of(raised.value), SchemaNotFoundError)
    schema_id = registry.add(f"{pipe.target}-value", SCHEMA, schemaType="JSON")
    pipe.run(typed, **options)
    pipe.produce_numbers(2)
    pipe.run_foreach(foreach_batch_writer({**pipe.sink_options(), **options}), frame=typed)
    batch = pipe.spark.sql('SELECT \'{"n":3,"none":null}\' AS value')
    given = {"kafka.bootstrap.servers": pipe.servers, "topic": pipe.target, **options}
    batch.write.format("kafka-direct").options(**given).mode("append").save()
    records = consume(pipe.servers, pipe.target)
    if framing == "confluent":
        assert {record.value[:5] for record in records if record.value} == {b"\0" + schema_id.to_bytes(4, "big")}
    read: list[Any] = []
    deserializer = JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": registry.url}))
    for record in records:
        headers = [(name, value or b"") for name, value in record.headers]
        context = SerializationContext(pipe.target, MessageField.VALUE, headers)
        assert bool(headers) == (framing == "header")
        read.append(deserializer(record.value, context))
    assert sorted(value["n"] for value in read) == [1, 2, 3]
    assert [value["none"] for value in read] == [None] * 3  # the deserializer checks that it is not missing
    rows = pipe.spark.read.format("kafka-direct").options(subscribe=pipe.target, valueSchema="n int", **given)
    assert sorted(row.value.n for row in rows.load().collect()) == [1, 2, 3]
