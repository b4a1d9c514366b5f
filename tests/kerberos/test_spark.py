"""Spark, a log and Arrow read and write with Kerberos; only alice may."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.kerberos.clients import HANG, client_params, with_keytab

import pyspark_kafka_direct
from pyspark_kafka_direct.errors import AuthorizationError
from pyspark_kafka_direct.log import KafkaBasedLog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.kerberos.kdc import Kdc

    from pyspark_kafka_direct.broker import EmbeddedKafka

LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    """A topic that alice may read and write."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        NewTopic,
        ResourcePatternType,
        ResourceType,
    )

    name = f"kerberos-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    acl = AclBinding(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    for created in admin.create_acls([acl]).values():
        created.result(HANG)
    for created in admin.create_topics([NewTopic(name, 2)], operation_timeout=HANG).values():
        created.result(HANG)
    return name


def spark_options(kafka: EmbeddedKafka, keytab: Path, listener: str, principal: str = "alice") -> dict[str, Any]:
    params = client_params(kafka, with_keytab(principal, keytab), listener)
    return {f"kafka.{name}": value for name, value in params.items()}


@pytest.mark.parametrize("listener", LISTENERS)
def test_spark_writes_and_reads(
    spark: SparkSession, kafka: EmbeddedKafka, alice: Path, topic: str, listener: str, tmp_path: Path
) -> None:
    options = spark_options(kafka, alice, listener)
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    rows.write.format("kafka-direct").options(**options, topic=topic).mode("append").save()
    reader = spark.read.format("kafka-direct").options(**options, subscribe=topic).load()
    expected = sorted(str(number) for number in range(100))
    assert sorted(row.value for row in reader.selectExpr("cast(value as string)").collect()) == expected
    stream = spark.readStream.format("kafka-direct").options(**options, subscribe=topic, startingOffsets="earliest")
    query = (
        stream.load()
        .selectExpr("cast(value as string)")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination(int(HANG))
    assert query.exception() is None
    assert sorted(row.value for row in spark.read.parquet(str(tmp_path / "rows")).collect()) == expected


def test_the_acls_of_the_principal_apply(spark: SparkSession, kafka: EmbeddedKafka, kdc: Kdc, topic: str) -> None:
    options = spark_options(kafka, kdc.add("stranger"), "SASL_SSL", "stranger")
    with pytest.raises(Exception, match=AuthorizationError.__name__):
        spark.read.format("kafka-direct").options(**options, subscribe=topic).load().collect()


def test_a_log(kafka: EmbeddedKafka, alice: Path, topic: str) -> None:
    received: list[bytes | None] = []
    params = client_params(kafka, with_keytab("alice", alice), "SASL_SSL")
    with KafkaBasedLog(topic, params, on_record=lambda record: received.append(record.value)) as log:
        log.send_with_receipt(b"key", b"value").result(HANG)
        log.read_to_end().result(HANG)
    assert received == [b"value"]


def test_arrow_without_spark(kafka: EmbeddedKafka, alice: Path, topic: str) -> None:
    import pyarrow as pa

    params = client_params(kafka, with_keytab("alice", alice))
    pyspark_kafka_direct.write_arrow(topic, pa.table({"value": [b"a", b"b"]}), params)
    with pyspark_kafka_direct.read_arrow(topic, params) as records:
        assert sorted(records.to_reader().read_all()["value"].to_pylist()) == [b"a", b"b"]
