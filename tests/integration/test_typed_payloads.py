"""``valueFormat`` and ``keyFormat``: typed columns in batches and streams, and a malformed record in each mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.types import LongType, StructField, StructType
from tests.integration.sessions import setting

from pyspark_kafka_direct import MalformedPayloadError, OptionError, error_of
from pyspark_kafka_direct.functions import infer_schema
from pyspark_kafka_direct.payloads.spark.json_inference import infer_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.stream_queries import Stream

    from pyspark_kafka_direct.broker import EmbeddedKafka

pytestmark = pytest.mark.smoke

FIELDS = "origin string, dep_delay double, legs array<struct<dest string>>, _corrupt_record string"
ERROR = "struct<side string, stage string, class string, message string, schema_id int>"
VALUES = [
    b'{"origin": "JFK", "dep_delay": 2.5, "unwanted": {"a": [1]}, "legs": [{"dest": "MIA"}, {}]}',
    b'{"origin": "LGA", "dep_delay": null}',
    b'{"origin": "EWR", "dep_de',
    None,
    b'{"dep_delay": "late", "origin": "BOS"}',
    b'{"dep_delay": 7, "origin": "SFO"}',
]


@pytest.fixture(scope="module")
def flights(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, b'{"id": %d}' % number, partition=0)
    assert producer.flush(300) == 0
    return topic


@pytest.fixture(scope="module")
def read(spark: SparkSession, kafka: EmbeddedKafka, flights: str) -> Callable[..., DataFrame]:
    def read(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        reader = reader.option("subscribe", flights).options(**options)
        return reader.schema(schema).load() if schema else reader.load()

    return read


def test_only_the_fields_of_the_schema_are_read(read: Callable[..., DataFrame]) -> None:
    frame = read(f"offset bigint, Value struct<{FIELDS}>, key string", valueFormat="json", keyFormat="string")
    rows = [row.asDict(True) for row in frame.orderBy("offset").collect()]
    corrupt = [None, None, VALUES[2].decode(), None, VALUES[4].decode(), None]  # type: ignore[union-attr]
    expected: list[tuple[Any, ...] | None] = [
        ("JFK", 2.5, [{"dest": "MIA"}, {"dest": None}]),
        ("LGA", None, None),
        (None, None, None),
        None,
        ("BOS", None, None),
        ("SFO", 7.0, None),
    ]
    names = ("origin", "dep_delay", "legs")
    assert [row["Value"] for row in rows] == [
        None if values is None else dict(zip(names, values, strict=True)) | {"_corrupt_record": text}
        for values, text in zip(expected, corrupt, strict=True)
    ]
    assert [row["key"] for row in rows] == [f'{{"id": {number}}}' for number in range(6)]


def test_the_schema_can_be_an_option(read: Callable[..., DataFrame]) -> None:
    frame = read(keyFormat="json", keySchema="id int", valueFormat="json", valueSchema=f"struct<{FIELDS}>")
    assert frame.schema["timestamp"].dataType.simpleString() == "timestamp"
    assert frame.schema["value"].dataType.simpleString().startswith("struct<origin:string,dep_delay:double")
    assert len(frame.columns) == 7
    by_origin = {row.origin: row[1] for row in frame.groupBy("value.origin").sum("key.id").collect()}
    assert by_origin == {"JFK": 0, "LGA": 1, None: 2 + 3, "BOS": 4, "SFO": 5}


def test_errors_of_malformed_records_are_a_column(read: Callable[..., DataFrame]) -> None:
    frame = read(f"offset bigint, value struct<dep_delay double>, _error {ERROR}", valueFormat="json")
    rows = {row.offset: row._error.asDict() for row in frame.where("_error IS NOT NULL").collect()}
    common = {"side": "value", "class": "MalformedPayloadError", "schema_id": None}
    assert rows == {
        2: common | {"stage": "parse", "message": "the JSON is incomplete, at byte 25"},
        4: common | {"stage": "convert", "message": "the value does not have the type of its column, at byte 14"},
    }


def test_malformed_records_can_be_dropped(read: Callable[..., DataFrame]) -> None:
    frame = read("offset bigint, value struct<dep_delay double>", valueFormat="json", mode="DROPMALFORMED")
    assert sorted(row.offset for row in frame.collect()) == [0, 1, 3, 5]


def test_a_malformed_record_can_fail_the_query(read: Callable[..., DataFrame], flights: str) -> None:
    frame = read("value struct<dep_delay double>", valueFormat="json", mode="FAILFAST")
    with pytest.raises(
        Exception, match="The value cannot be decoded as JSON: the JSON is incomplete, at byte"
    ) as caught:
        frame.collect()
    error = error_of(caught.value)
    assert error is not None
    assert "mode=DROPMALFORMED" in str(error)
    assert f"[topic {flights}, partition 0, offset 2]" in str(error)
    assert isinstance(error, MalformedPayloadError)


def test_the_schema_can_be_inferred_from_a_sample(
    spark: SparkSession, kafka: EmbeddedKafka, flights: str, make_topic: MakeTopic
) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": flights, "valueFormat": "json"}
    inferred = infer_schema(spark, options)
    assert inferred.simpleString() == (
        "struct<dep_delay:string,legs:array<struct<dest:string>>,origin:string,unwanted:struct<a:array<bigint>>>"
    )
    texts = spark.sparkContext.parallelize([value.decode() for value in VALUES if value is not None and b"}" in value])
    assert inferred == spark.read.json(texts).schema
    assert infer_schema(spark, options, 1).simpleString().startswith("struct<dep_delay:double,")
    assert infer_schema(spark, options, column="key").simpleString() == "struct<id:bigint>"
    with pytest.raises(OptionError, match="none of 0 sampled records has a value that is a JSON object"):
        infer_schema(spark, options | {"subscribe": make_topic(1)})


def test_sampled_values_are_in_no_plan(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b'{"card": "4000-0000-0000-0002"}', partition=0)
    assert producer.flush(300) == 0
    jvm: Any = spark
    executions = jvm._jsparkSession.sharedState().statusStore()
    earlier = executions.executionsList().size()
    with setting(spark, "spark.sql.ui.explainMode", "extended"):  # also plans before they are optimized
        infer_schema(spark, {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic})
    jvm.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    plans = executions.executionsList()
    texts = [plans.apply(index).physicalPlanDescription() for index in range(earlier, plans.size())]
    assert any("Relation" in text for text in texts)
    assert [text for text in texts if "4000-0000" in text] == []


SAMPLES = [
    [b'{"b": true, "a": "x", "c": 1, "d": 1.0e3, "e": {"y": [1], "x": null}}', b'{"a": 1, "e": {"y": [2.5, null]}}'],
    [b'{"a": "", "b": [], "c": {}, "d": [{}], "e": [[1], []], "": 1}', b'{"a": 1, "b": [{"z": 1}, {"y": ""}]}'],
    [b'{"a": {"b": 1}, "c": [1], "d": 9223372036854775807}', b'{"a": [1], "c": 1, "d": 1.5}'],
    [b'{"a": 1%s, "b": -9223372036854775808, "c": [true, 1], "d": [1, "x"]}' % (b"0" * 38)],
    [b"{'a': NaN, 'b': -INF, 'c\\u0061': 'x', 'd': 1e400, 'e': -0}", b'{"z": 1, "\xc3\xa4": 1, "\xf0\x9f\x98\x80": 1}'],
    [b'{"\xef\xbf\xbd": 1, "\xf0\x9f\x98\x80": 1, "\xee\x80\x80": 1}'],
]


@pytest.mark.parametrize("sample", SAMPLES)
def test_types_are_inferred_as_by_spark(spark: SparkSession, sample: list[bytes]) -> None:
    texts = spark.sparkContext.parallelize([value.decode() for value in sample], 1)
    assert infer_fields(sample, case_sensitive=False) == spark.read.json(texts).schema


def test_an_inferred_schema_can_be_decoded(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"{'big': 123456789012345678901234567890, 'none': null, 'a': [1, 2.5]}", partition=0)
    producer.produce(topic, b'{"i": 1, "empty": {}, "b": true, "d": NaN}', partition=0)
    assert producer.flush(300) == 0
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
    inferred = infer_schema(spark, options)
    schema = StructType([StructField("offset", LongType()), StructField("value", inferred)])
    reader = spark.read.format("kafka-direct").options(**options, valueFormat="json")
    first, second = reader.schema(schema).load().orderBy("offset").collect()
    assert (first.value.big, first.value.none, first.value.a) == ("123456789012345678901234567890", None, [1.0, 2.5])
    assert (second.value.i, second.value.b) == (1, True)


def test_times_decimals_and_maps(
    spark: SparkSession, stream: Callable[..., Stream], kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    """Timestamps without an offset are in the time zone of the session."""
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    value = b'{"d":"2020-02-29","t":"2020-07-01T12:00:00","c":1.005,"x":"QUJD","m":{"a":{"n":"2020-01-01 00:00:00"}}}'
    producer.produce(topic, value, partition=0)
    assert producer.flush(300) == 0
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "valueFormat": "json",
        "valueSchema": "d date, t timestamp, c decimal(7,2), x binary, m map<string,struct<n timestamp_ntz>>",
    }
    fields = ("d", "unix_seconds(value.t)", "c", "decode(value.x, 'utf-8')", "m['a'].n")
    text = ", ".join(field if "(" in field else f"value.{field}" for field in fields)
    expected = "2020-02-29 1593619200 1.01 ABC 2020-01-01 00:00:00"
    reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        assert reader.options(**options).load().selectExpr(f"concat_ws(' ', {text})").collect() == [(expected,)]
        streamed = stream(**options)
        streamed.run(streamed.load().selectExpr(f"CAST(concat_ws(' ', {text}) AS binary) AS value"))
    assert [value for batch in streamed.batches.values() for value in batch] == [expected]


def test_malformed_records_in_a_stream(
    stream: Callable[..., Stream], make_topic: MakeTopic, kafka: EmbeddedKafka
) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (b'{"n":"one"}', b"{", b'{"n":"two"}'):
        producer.produce(topic, value, partition=0)
    assert producer.flush(300) == 0

    def query(mode: str) -> Stream:
        return stream(
            subscribe=topic, startingOffsets="earliest", valueFormat="json", valueSchema="n string", mode=mode
        )

    permissive = query("PERMISSIVE")
    permissive.run(permissive.load().selectExpr("CAST(coalesce(value.n, '-') AS binary) AS value"))
    assert [value for batch in permissive.batches.values() for value in batch] == ["-", "one", "two"]
    dropping = query("DROPMALFORMED")
    dropping.run(dropping.load().selectExpr("CAST(value.n AS binary) AS value"))
    assert [value for batch in dropping.batches.values() for value in batch] == ["one", "two"]
    failing = query("FAILFAST")
    with pytest.raises(Exception, match=rf"topic {topic}, partition 0, offset 1"):
        failing.run(failing.load().selectExpr("CAST(value.n AS binary) AS value"))


def test_any_json_is_a_variant(read: Callable[..., DataFrame]) -> None:
    schema = f"offset bigint, value variant, key struct<id variant>, _error {ERROR}"
    frame = (
        read(schema, valueFormat="json", keyFormat="json")
        .orderBy("offset")
        .selectExpr(
            "variant_get(value, '$.origin', 'string') AS origin",
            "variant_get(value, '$.legs[0].dest', 'string') AS dest",
            "CAST(key.id AS int) AS id",
            "to_json(value) AS text",
            "_error.message AS error",
        )
    )
    assert [tuple(row) for row in frame.collect()] == [
        ("JFK", "MIA", 0, '{"dep_delay":2.5,"legs":[{"dest":"MIA"},{}],"origin":"JFK","unwanted":{"a":[1]}}', None),
        ("LGA", None, 1, '{"dep_delay":null,"origin":"LGA"}', None),
        (None, None, 2, None, "the JSON is incomplete, at byte 25"),
        (None, None, 3, None, None),
        ("BOS", None, 4, '{"dep_delay":"late","origin":"BOS"}', None),
        ("SFO", None, 5, '{"dep_delay":7,"origin":"SFO"}', None),
    ]
    dropped = read("value variant", valueFormat="json", mode="DROPMALFORMED")
    assert dropped.count() == 5
    with pytest.raises(Exception, match="The value cannot be decoded as JSON: the JSON is incomplete, at byte 25"):
        read("value variant", valueFormat="json", mode="FAILFAST").collect()


def test_variants_in_a_stream(stream: Callable[..., Stream], make_topic: MakeTopic, kafka: EmbeddedKafka) -> None:
    topic = make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (b'{"n":"one"}', b"[", b'["two"]', b'"three"'):
        producer.produce(topic, value, partition=0)
    assert producer.flush(300) == 0
    query = stream(subscribe=topic, startingOffsets="earliest", valueFormat="json", valueSchema="variant")
    query.run(query.load().selectExpr("CAST(coalesce(to_json(value), '-') AS binary) AS value"))
    assert [value for batch in query.batches.values() for value in batch] == ['"three"', "-", '["two"]', '{"n":"one"}']


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (None, {"valueFormat": "json"}, "valueFormat=json needs the wanted fields"),
        ("value struct<d interval day to second>", {"valueFormat": "json"}, "field 'd' has the type duration"),
        ("value struct<d double>", {}, "set valueFormat=json"),
        (
            None,
            {"valueFormat": "json", "valueSchema": "a int>, extra int, b struct<c int"},
            "valueSchema must be DDL such as .* unexpected '>'",
        ),
    ],
)
def test_invalid_schemas_are_rejected_before_a_task_starts(
    read: Callable[..., DataFrame], schema: str | None, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(schema, **options).collect()
