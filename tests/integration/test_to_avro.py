"""``functions.to_avro``: each source of the schema, with ``from_avro`` as its inverse, and invalid arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pyspark_kafka_direct import ColumnError, OptionError, SchemaNotFoundError, error_of
from pyspark_kafka_direct.functions import from_avro, to_avro

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.fake_registry import FakeRegistry

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "b", "type": "string"}, {"name": "n", "type": ["null", "long"]}],
    }
)
CONTEXT = SerializationContext("t", MessageField.VALUE)


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT named_struct('n', n, 'b', 'x') AS data FROM VALUES (1L), (NULL) AS t(n)").repartition(1)


def test_a_given_schema_and_back(frame: DataFrame) -> None:
    encoded = frame.select(to_avro("data", SCHEMA).alias("data"))
    assert sorted(row.data for row in encoded.collect()) == [b"\2x\0", b"\2x\2\2"]
    decoded = encoded.select(from_avro("data", SCHEMA).alias("data")).collect()
    assert {(row.data.b, row.data.n) for row in decoded} == {("x", 1), ("x", None)}


def test_the_schema_of_the_type_is_that_of_spark(spark: SparkSession) -> None:
    values = "1 AS i, cast(NULL AS string) AS s, array(1.50BD, NULL) AS d, timestamp_micros(1) AS t"
    frame = spark.sql(f"SELECT named_struct('v', struct({values})) AS data UNION ALL SELECT NULL")
    first, null = (row[0] for row in frame.repartition(1).select(to_avro("data")).collect())
    # Unions are [T, "null"], and decimals are fixed: three digits take two bytes.
    assert bytes(first) == b"\2" + b"\2" + b"\4\0\0\x96\2\0" + b"\2"
    assert null is None


def test_with_a_registry_and_back(frame: DataFrame, registry: FakeRegistry) -> None:
    options = {"schema.registry.api.timeout.ms": "2000"}
    with pytest.raises(SchemaNotFoundError, match="Subject 's'"):
        to_avro("data", options=options, subject="s", schemaRegistryAddress=registry.url)
    given = {**options, "auto.register.schemas": "true"}
    registered = frame.select(to_avro("data", SCHEMA, given, "s", registry.url).alias("data"))
    latest = frame.select(to_avro("data", "", options, "s", registry.url).alias("data"))
    datums = sorted(row.data for row in registered.union(latest).collect())
    assert datums == [b"\0\0\0\0\1\2x\0"] * 2 + [b"\0\0\0\0\1\2x\2\2"] * 2
    client = SchemaRegistryClient({"url": registry.url})
    assert AvroDeserializer(client)(bytes(datums[-1]), CONTEXT) == {"b": "x", "n": 1}
    theirs = AvroSerializer(client, SCHEMA, conf={"subject.name.strategy": lambda *_: "s"})({"b": "y", "n": 2}, CONTEXT)
    written = latest.union(frame.sparkSession.createDataFrame([(theirs,)], "data binary"))
    decoded = written.select(from_avro("data", None, options, "s", registry.url).alias("data")).collect()
    assert {(row.data.b, row.data.n) for row in decoded} == {("x", 1), ("x", None), ("y", 2)}
    narrow = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "long"]}]})
    selected = written.select(from_avro("data", narrow, options, schemaRegistryAddress=registry.url).alias("data"))
    assert selected.schema["data"].dataType.simpleString() == "struct<n:bigint>"


def test_a_value_or_a_type_that_the_schema_does_not_allow(frame: DataFrame) -> None:
    for schema, message in (
        (SCHEMA.replace('["null", "long"]', '"long"'), "A value cannot be encoded as Avro: value.n is null"),
        (SCHEMA.replace('"long"', '"int"'), "to_avro: value.n is int64, which is not written as"),
    ):
        with pytest.raises(Exception, match=message) as raised:
            frame.select(to_avro("data", schema)).collect()
        assert isinstance(error_of(raised.value), ColumnError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{",), "to_avro: an Avro schema is JSON"),
        ((SCHEMA, {"mode": "FAILFAST"}), "to_avro: the option mode is not supported without schemaRegistryAddress"),
        ((SCHEMA, {}, "s"), "to_avro: the subject needs schemaRegistryAddress"),
        ((SCHEMA, {}, None, "http://localhost:1"), "to_avro: schemaRegistryAddress needs the subject"),
        ((SCHEMA, {}, "s", "localhost:1"), "to_avro: schema.registry.url must be URLs such as"),
        (("", {"auto.register.schemas": "true"}, "s", "http://localhost:1"), "auto.register.schemas needs jsonFormat"),
    ],
)
def test_an_invalid_argument_of_to_avro(spark: SparkSession, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        to_avro("data", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "from_avro: jsonFormatSchema is missing"),
        ((None, {}, "s"), "from_avro: the subject needs schemaRegistryAddress"),
        ((None, {}, None, "http://localhost:1"), "from_avro: set the subject whose latest schema"),
    ],
)
def test_an_invalid_argument_of_from_avro(spark: SparkSession, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_avro("data", *arguments)
