"""``valueFormat=protobuf`` in ``KafkaRDD.arrow``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.integration.workbench import Workbench

SCHEMA = 'syntax = "proto3"; message First { bool b = 1; } message N { int32 n = 1; string s = 2; }'


def test_protobuf_in_an_rdd(spark: SparkSession, bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [b"\x08\x05\x12\x01a", b"\x08", b"\x08\x06"])
    params = {"bootstrap.servers": bench.bootstrap_servers}
    rdd = KafkaUtils.createRDD(spark.sparkContext, params, [OffsetRange(topic, 0, 0, 3)])
    batches = rdd.arrow(
        ["value", "_error"], valueFormat="protobuf", valueSchema=SCHEMA, valueMessage="N", mode="PERMISSIVE"
    ).collect()
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [{"n": 5, "s": "a"}, {"n": None, "s": None}, {"n": 6, "s": None}]
    assert [row["_error"] and row["_error"]["message"] for row in rows] == [
        None,
        "the message is incomplete, at byte 0",
        None,
    ]
