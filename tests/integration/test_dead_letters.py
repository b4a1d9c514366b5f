"""``dead_letters``: malformed records with their original bytes, and in one transaction with the other rows."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry
from pyspark.errors import PySparkException
from pyspark.sql.functions import lit
from tests.integration.read_back import Consumed, consume
from tests.integration.waiting import wait_until
from tests.soak.driver import Driver, wait_for_orphans
from tests.soak.processes import kill
from tests.soak.results import last_batch
from tests.soak.sink.breakpoints import Breakpoint

from pyspark_kafka_direct import OptionError, dead_letters, enable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic
    from tests.fake_registry import FakeRegistry

    from pyspark_kafka_direct.broker import EmbeddedKafka

APP = Path(__file__).with_name("dead_letters_app.py")
DEADLINE = 600  # seconds for a driver to start, on a busy machine
FIELDS = "n int, _corrupt_record binary"
COLUMNS: dict[str, str | None] = {
    "key": "binary",
    "value": f"struct<{FIELDS}>",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key string, value binary>>",
}
NOT_UTF8 = b'{"n": \xff\xfe\x00'
CLASS = b"pyspark_kafka_direct.errors.MalformedPayloadError"
# Key, value, headers and timestamp.
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]] = [
    (b"good", b'{"n": 1}', [("trace", b"0")], 1_700_000_000_000),
    (b"\xffkey", NOT_UTF8, [("trace", b"\xff"), ("trace", b"2"), ("empty", None)], 1_700_000_000_001),
    (None, b'{"n": "three"}', [], 1_700_000_000_002),
    (b"tombstone", None, [], 1_700_000_000_003),
    (b"blank", b" ", [], 1_700_000_000_004),
]


def produce(servers: str, topic: str, records: list[Any]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for key, value, headers, timestamp in records:
        producer.produce(topic, value, key, partition=0, headers=headers, timestamp=timestamp)
    assert producer.flush(300) == 0


@pytest.fixture
def read(spark: SparkSession, kafka: EmbeddedKafka) -> Callable[..., DataFrame]:
    def read(topic: str, schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        reader = reader.options(subscribe=topic, includeHeaders="true", **options)
        return reader.schema(schema).load() if schema else reader.load()

    return read


@pytest.fixture
def write(kafka: EmbeddedKafka, make_topic: MakeTopic) -> Callable[..., list[Consumed]]:
    """Write the dead letters of a frame to a new topic, and return its records."""

    def write(frame: DataFrame, **arguments: Any) -> list[Consumed]:
        topic = make_topic(1)
        writer = dead_letters(frame, topic=topic, **arguments).coalesce(1).write.format("kafka-direct").mode("append")
        writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).save()
        return consume(kafka.bootstrap_servers, topic)

    return write


@pytest.mark.smoke
def test_dead_letters_have_the_original_bytes(
    read: Any, write: Any, kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    produce(kafka.bootstrap_servers, topic, RECORDS)
    frame = read(topic, valueFormat="json", valueSchema=FIELDS)
    values = [row.value for row in frame.orderBy("offset").collect()]
    assert [value and value["_corrupt_record"] for value in values] == [None, NOT_UTF8, b'{"n": "three"}', None, None]

    originals = [(*RECORDS[number][:2], RECORDS[number][3]) for number in (1, 2)]
    names = {
        "connect": ("__connect.errors.exception.class.name", "__connect.errors.exception.message"),
        "streams": ("__streams.errors.exception", "__streams.errors.message"),
    }
    for headers, (class_name, message) in names.items():
        written = write(frame, headers=headers)
        assert [(each.key, each.value, each.timestamp) for each in written] == originals
        assert written[0].headers[:3] == RECORDS[1][2], "the original headers are the first ones"
        for offset, each in zip((1, 2), written, strict=True):
            added = dict(each.headers[3:] if offset == 1 else each.headers)
            stage = {"__connect.errors.stage": b"VALUE_CONVERTER"} if headers == "connect" else {}
            assert added == {
                f"__{headers}.errors.topic": topic.encode(),
                f"__{headers}.errors.partition": b"0",
                f"__{headers}.errors.offset": b"%d" % offset,
                class_name: CLASS,
                message: b"The value cannot be decoded.",
                **stage,
            }
    assert [each.headers for each in write(frame, headers="none")] == [RECORDS[1][2], []]


def test_both_the_key_and_the_value_of_a_malformed_record_are_kept(
    read: Any, write: Any, kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    pairs = [
        (b"{", None),
        (b'{"id": 1}', b"["),
        (b"", b" "),
        (b"[", b"  "),
        (b'{"id":"x"}', b'{"n": 5 }'),
        (None, b"["),
    ]
    produce(kafka.bootstrap_servers, topic, [(key, value, [], 1) for key, value in pairs])
    schema = f"Key struct<_raw binary, id int>, Value struct<{FIELDS.replace('_corrupt_record', '_raw')}>"
    others = ", ".join(f"{name} {COLUMNS[name]}" for name in ("topic", "partition", "offset", "timestamp", "headers"))
    options = {"keyFormat": "json", "valueFormat": "json", "columnNameOfCorruptRecord": "_raw"}
    frame = read(topic, f"{schema}, {others}", **options)
    rows = frame.orderBy("offset").collect()
    assert [(row.Key, row.Value) for row in rows[2:3]] == [(None, None)], "a blank value is null"
    assert (rows[4].Key.id, rows[4].Value.n) == (None, 5)
    assert rows[3].Value.asDict() == {"n": None, "_raw": b"  "}
    raw = {"corrupt_record": "_raw"}
    written = write(frame, **raw)
    assert [(each.key, each.value) for each in written] == [pairs[number] for number in (0, 1, 3, 4, 5)]
    (message,) = {dict(each.headers)["__connect.errors.exception.message"] for each in written}
    assert message == b"The key or the value cannot be decoded."

    error = "_error struct<side string, stage string, class string, message string, schema_id int>"
    errors = [dict(each.headers) for each in write(read(topic, f"{schema}, {others}, {error}", **options), **raw)]
    assert [(each["__connect.errors.stage"], each["__connect.errors.exception.message"]) for each in errors] == [
        (b"KEY_CONVERTER", b"The key cannot be decoded: the JSON is incomplete, at byte 1."),
        (b"VALUE_CONVERTER", b"The value cannot be decoded: the value is not a JSON object, at byte 0."),
        (b"KEY_CONVERTER", b"The key cannot be decoded: the value is not a JSON object, at byte 0."),
        (
            b"KEY_CONVERTER",
            b"The key cannot be decoded: the value does not have the type of its column, at byte 6.",
        ),
        (b"VALUE_CONVERTER", b"The value cannot be decoded: the value is not a JSON object, at byte 0."),
    ]


@pytest.mark.parametrize(
    ("payload_format", "schema", "one"),
    [
        ("avro", '{"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}', b"\2"),
        ("protobuf", 'syntax = "proto3"; message N { int32 n = 1; }', b"\0\x08\1"),
    ],
)
def test_dead_letters_of_values_with_schema_ids(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    registry: FakeRegistry,
    tmp_path: Path,
    payload_format: str,
    schema: str,
    one: bytes,
) -> None:
    """In batches and streams: bare values, incomplete ones, and those with an unknown id."""
    topic, batch_letters, stream_letters, copies = (make_topic(1) for _ in range(4))
    for subject in (topic, copies):
        registry.add(f"{subject}-value", schema, schemaType=payload_format.upper())
    good, bad = b"\0\0\0\0\1" + one, [b"bare", b"\0\0\0\0\1" + one[:-1], b"\0\0\0\0\x4d" + one]
    produce(kafka.bootstrap_servers, topic, [(b"k", value, [("trace", b"1")], 1) for value in (*bad, good)])
    servers, access = {"kafka.bootstrap.servers": kafka.bootstrap_servers}, {"schema.registry.url": registry.url}
    error = "_error struct<side string, stage string, class string, message string, schema_id int>"
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    options = {**servers, **access, "subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    options |= {"valueFormat": payload_format, "mode": "PERMISSIVE"}

    def write(frame: DataFrame, letters: str) -> None:
        writer = dead_letters(frame, topic=letters).coalesce(1).write.format("kafka-direct").options(**servers)
        writer.mode("append").save()
        copied = frame.where("_error IS NULL").selectExpr("struct(value.n) AS value", "headers")
        writer = copied.write.format("kafka-direct").options(**servers, **access, topic=copies)
        writer.options(valueFormat=payload_format).mode("append").save()

    write(spark.read.format("kafka-direct").options(**options).schema(f"{columns}, {error}").load(), batch_letters)
    stream = spark.readStream.format("kafka-direct").options(**options).schema(f"{columns}, {error}").load()
    started = stream.writeStream.foreachBatch(lambda batch, _: write(batch, stream_letters))
    query = started.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE)
    for letters in (batch_letters, stream_letters):
        written = consume(kafka.bootstrap_servers, letters)
        assert [(each.key, each.value, each.headers[0]) for each in written] == [
            (b"k", value, ("trace", b"1")) for value in bad
        ]
        reasons = [dict(each.headers)["__connect.errors.exception.message"] or b"" for each in written]
        assert b"magic byte of a schema id" in reasons[0]
        assert b"Schema id 77" in reasons[2]
    assert [(each.value, each.headers) for each in consume(kafka.bootstrap_servers, copies)] == [
        (good, [("trace", b"1")])
    ] * 2


def test_a_stream_survives_a_new_schema_that_it_cannot_use(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, registry: FakeRegistry, tmp_path: Path
) -> None:
    """Two topics get records of it in the middle; the dead letters and the metrics say that it is the schema."""

    def schema(*names: str) -> str:
        fields = [{"name": name, "type": "int"} for name in names]
        return json.dumps({"type": "record", "name": "N", "fields": fields})

    def framed(schema_id: int, datum: bytes) -> bytes:
        return b"\0" + schema_id.to_bytes(4, "big") + datum

    first, second, letters = (make_topic(1) for _ in range(3))
    old = registry.add(f"{first}-value", schema("n", "m"))
    monitor = enable(spark)
    prometheus = CollectorRegistry()
    monitor.register_metrics(prometheus)
    error = "_error struct<side string, stage string, class string, message string, schema_id int>"
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    columns = columns.replace(FIELDS, "n int, m int, _corrupt_record binary")
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    options = {**servers, "subscribe": f"{first},{second}", "startingOffsets": "earliest", "includeHeaders": "true"}
    options |= {"valueFormat": "avro", "valueSubject": f"{first}-value", "schema.registry.url": registry.url}
    good: list[tuple[str, int]] = []

    def write(batch: DataFrame, _: int) -> None:
        batch.persist()
        dead_letters(batch, topic=letters).write.format("kafka-direct").options(**servers).mode("append").save()
        good.extend((row.topic, row.value.n) for row in batch.where("_error IS NULL").collect())
        batch.unpersist()

    reader = spark.readStream.format("kafka-direct").options(**options, mode="PERMISSIVE")
    started = reader.schema(f"{columns}, {error}").load().writeStream.foreachBatch(write)
    query = started.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        one: tuple[Any, ...] = (b"k", framed(old, b"\2\4"), [], 1)
        produce(kafka.bootstrap_servers, first, [one])
        produce(kafka.bootstrap_servers, second, [one])
        wait_until(lambda: sorted(good) == sorted([(first, 1), (second, 1)]), "the records of the old schema", DEADLINE)
        new = registry.add(f"{first}-value", schema("n"))
        bad = [framed(new, b"\4"), framed(new, b"\6"), framed(77, b"")]
        produce(kafka.bootstrap_servers, first, [one, *((b"k", value, [], 1) for value in bad), one])
        produce(kafka.bootstrap_servers, second, [(b"k", bad[0], [], 1), (b"k", b"bare", [], 1)])
        wait_until(lambda: good.count((first, 1)) == 3, "the records behind those of the new schema", DEADLINE)

        def count(metric: str, topic: str) -> float | None:
            labels = {"topic": topic, "partition": "0", "mode": "PERMISSIVE"}
            return prometheus.get_sample_value(f"kafka_direct_{metric}_records_total", labels)

        wait_until(lambda: count("malformed", second) == 1 and count("schema_error", first) == 3, "counts", DEADLINE)
        assert (count("malformed", first), count("schema_error", second)) == (0, 1)
        wait_until(lambda: len(consume(kafka.bootstrap_servers, letters)) == 5, "the dead letters", DEADLINE)
    finally:
        query.stop()
    assert query.exception() is None
    seen: dict[str, list[Any]] = {first: [], second: []}
    for each in consume(kafka.bootstrap_servers, letters):
        headers = {name.removeprefix("__connect.errors."): (text or b"").decode() for name, text in each.headers}
        seen[headers["topic"]].append((each.value, headers))
    assert [value for value, _ in seen[first]] == bad
    assert [value for value, _ in seen[second]] == [bad[0], b"bare"]
    module = "pyspark_kafka_direct.errors."
    for value, headers in (*seen[first], *seen[second]):
        is_bare = value == b"bare"
        name = "MalformedPayloadError" if is_bare else "PayloadSchemaError"
        assert headers["exception.class.name"] == module + name
        assert headers["stage"] == "VALUE_CONVERTER"
        if value.startswith(framed(new, b"")):
            message = headers["exception.message"]
            assert f"Schema id {new} does not fit the schema of the query (version 1 of {first}-value, " in message
            assert "field m is missing and has no default" in message
    assert "Schema id 77 has to be in the registry" in seen[first][2][1]["exception.message"]


@pytest.mark.parametrize(
    ("changed", "arguments", "message"),
    [
        ({"headers": None}, {}, "no column headers, .* set includeHeaders"),
        ({"offset": None, "topic": None}, {}, "no column topic, offset, "),
        ({}, {"headers": "flink"}, "headers is one of connect, streams, none, not 'flink'"),
        ({"value": "struct<n: int>"}, {}, r"value is struct<n:int>.* add the field '_corrupt_record binary' to value"),
        ({"value": "struct<_corrupt_record: string>"}, {}, "which does not have the original bytes"),
        ({"key": "struct<n: int>"}, {}, "add the field '_corrupt_record binary' to keySchema"),
        ({}, {"corrupt_record": "_raw"}, "add the field '_raw binary'"),
        ({"value": "string"}, {}, "neither key nor value is a struct"),
        ({"value": "variant"}, {}, "value is variant, .* read a struct with .* or read value as binary"),
    ],
)
def test_a_frame_without_what_a_dead_letter_needs_is_rejected(
    spark: SparkSession, changed: dict[str, str | None], arguments: dict[str, Any], message: str
) -> None:
    types = COLUMNS | changed
    frame = spark.createDataFrame([], ", ".join(f"{name} {kind}" for name, kind in types.items() if kind))
    with pytest.raises(OptionError, match=message):
        dead_letters(frame, topic="dead", **arguments)


@pytest.mark.parametrize(("schema", "kind"), [("string", "string"), ("bytes", "binary")])
def test_a_key_that_is_decoded_from_avro_does_not_have_the_original_bytes(
    spark: SparkSession, schema: str, kind: str
) -> None:
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "includeHeaders": "true"}
    options |= {"keyFormat": "avro", "keySchema": json.dumps(schema), "valueFormat": "json", "valueSchema": FIELDS}
    frame = spark.read.format("kafka-direct").options(**options, mode="PERMISSIVE").load()
    with pytest.raises(OptionError, match=rf"the column key is {kind}, .* read key as binary, and decode it"):
        dead_letters(frame, topic="dead")


def test_a_malformed_key_without_its_bytes_is_an_error(spark: SparkSession) -> None:
    columns = COLUMNS | {"key": "string", "_error": "struct<side: string, message: string>"}
    row = (None, (None, b"{}"), "t", 0, 0, None, None, ("key", "the datum is incomplete"))
    frame = spark.createDataFrame([row], ", ".join(f"{name} {kind}" for name, kind in columns.items()))
    with pytest.raises(PySparkException, match="the key is decoded, so its original bytes are lost; read key as bin"):
        dead_letters(frame, topic="dead").collect()


@pytest.mark.parametrize("spell", [str.lower, str.title])
@pytest.mark.parametrize("headers", ["connect", "none"])
def test_a_malformed_dead_letter_is_not_written_to_its_own_topic(
    spark: SparkSession, headers: Any, spell: Callable[[str], str]
) -> None:
    schema = ", ".join(f"{spell(name)} {kind}" for name, kind in COLUMNS.items())
    rows = [(None, (None, bytearray(b"{")), topic, 0, 0, None, None) for topic in ("flights", "dead")]
    frame = spark.createDataFrame(rows, schema)
    with pytest.raises(Exception, match="from the topic dead, which is also the topic of dead letters"):
        dead_letters(frame, topic="dead", headers=headers).collect()
    valid = frame.where("topic = 'flights'").unionByName(frame.withColumn("value", lit(None).cast(f"struct<{FIELDS}>")))
    assert [row.topic for row in dead_letters(valid, topic="dead", headers=headers).collect()] == ["dead"]


def test_a_record_without_a_timestamp_is_written(spark: SparkSession, write: Any) -> None:
    schema = ", ".join(f"{name} {COLUMNS[name]}" for name in ("key", "value", "headers"))
    rows = [(None, (None, bytearray(b"{")), None)]
    frame = spark.createDataFrame(rows, schema).withColumn("timestamp", lit(-1).cast("double").cast("timestamp"))
    (written,) = write(frame, headers="none")
    assert (written.key, written.value, written.headers) == (None, b"{", [])


@pytest.mark.spark_app
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("step", [pytest.param("before EndTxn", marks=pytest.mark.soak), "after EndTxn"])
def test_good_rows_and_dead_letters_are_written_once_if_the_driver_is_killed(
    kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, step: str, source_runner_variables: dict[str, str]
) -> None:
    source, good, dead = make_topic(1), make_topic(2), make_topic(2)
    servers, numbers = kafka.bootstrap_servers, range(20)
    values = [b"{\xff%d" % n if n % 3 == 0 else b'{"n": %d}' % n for n in numbers]
    produce(servers, source, [(b"%d" % n, value, [], 1) for n, value in enumerate(values)])
    bootstrap = {"kafka.bootstrap.servers": servers}
    options: dict[str, Any] = {
        "source": {
            **bootstrap,
            "subscribe": source,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "valueFormat": "json",
            "valueSchema": FIELDS,
            "maxOffsetsPerTrigger": "10",
        },
        "sink": {
            **bootstrap,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": f"dead-letters-{uuid.uuid4().hex[:8]}",
            "sinkStateTopic": f"sink-state-{uuid.uuid4().hex[:8]}",
        },
        "good": good,
        "dead": dead,
    }
    point = Breakpoint(tmp_path / "breakpoint")
    point.arm("before EndTxn")
    driver = Driver(tmp_path, options, app=APP, environment=point.environment)
    try:
        _wait_until_held(point, driver)
        assert [consume(servers, topic, "read_committed") for topic in (good, dead)] == [[], []]
        if step != "before EndTxn":
            point.resume_until(step)
            _wait_until_held(point, driver)
        driver.kill()
        assert point.held is not None
        kill([psutil.Process(point.held)] if psutil.pid_exists(point.held) else [])
    finally:
        driver.kill()
    assert wait_for_orphans(driver.orphans) == []
    assert last_batch(tmp_path, "commits") == -1, "the driver died before Spark's commit"

    driver = Driver(tmp_path, options, to_the_end=True, app=APP, environment=source_runner_variables)
    try:
        assert driver.wait(DEADLINE) == 0, driver.log_tail()
    finally:
        driver.kill()
    committed = {topic: consume(servers, topic, "read_committed") for topic in (good, dead)}
    assert sorted(json.loads(each.value or b"")["n"] for each in committed[good]) == [n for n in numbers if n % 3]
    letters = sorted(committed[dead], key=lambda each: int(each.key or b""))
    assert [(each.key, each.value) for each in letters] == [(b"%d" % n, values[n]) for n in numbers if n % 3 == 0]
    assert [json.loads(dict(each.headers)["__connect.errors.offset"] or b"") for each in letters] == [*range(0, 20, 3)]


def _wait_until_held(point: Breakpoint, driver: Driver) -> None:
    until = time.monotonic() + DEADLINE
    while point.held is None:
        assert driver.alive, driver.log_tail()
        assert time.monotonic() < until, driver.log_tail()
        time.sleep(0.05)
