"""After a change of the format name from ``kafka`` to ``kafka-direct``, rows are written to the same places.

Compares with the JVM connector, and with it Kafka's Java client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.read_back import consume, values
from tests.integration.stream_queries import DEADLINE, produce
from tests.integration.test_stream_migration import DIRECT, JVM

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

FORMATS = (JVM, DIRECT)


def write(frame: DataFrame, form: str, kafka: EmbeddedKafka, topic: str) -> None:
    writer = frame.write.format(form).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer.option("topic", topic).mode("append").save()


def placed(kafka: EmbeddedKafka, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.partition, each.key, each.value) for each in consume(kafka.bootstrap_servers, topic)]


def test_rows_are_partitioned_as_by_the_java_client(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    """Keys of all lengths, strings and bytes; some rows name their partition."""
    topics = {form: make_topic(7) for form in FORMATS}
    keys = "case when id % 3 = 0 then encode(repeat(cast(id as string), cast(id % 9 as int)), 'utf-8') "
    keys += "when id % 3 = 1 then unhex(sha2(cast(id as string), 256)) else encode(concat('klíč ', id), 'utf-8') end"
    partition = "case when id % 10 = 0 then cast(id % 7 as int) end"
    frame = session.range(0, 2000, 1, 1).selectExpr(
        f"{keys} as key", "cast(id as string) as value", f"{partition} as partition"
    )
    for form, topic in topics.items():
        write(frame, form, kafka, topic)
    jvm, direct = (placed(kafka, topics[form]) for form in FORMATS)
    assert direct == jvm
    assert len(jvm) == 2000
    assert {partition for partition, _, _ in jvm} == set(range(7))


def test_columns_have_the_same_meaning(session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topics = {form: make_topic() for form in FORMATS}
    frame = session.range(0, 50, 1, 1).selectExpr(
        "if(id % 5 = 0, null, cast(id as string)) as value",
        "if(id % 7 = 0, null, concat('k', id)) as key",
        "if(id % 4 = 0, null, array(struct('h' as key, cast('x' as binary) as value), "
        "struct('n' as key, cast(null as binary) as value))) as headers",
        "id as offset",
    )
    for form, topic in topics.items():
        write(frame, form, kafka, topic)
    jvm, direct = (consume(kafka.bootstrap_servers, topics[form]) for form in FORMATS)
    assert [each._replace(timestamp=0) for each in direct] == [each._replace(timestamp=0) for each in jvm]
    assert len(jvm) == 50


@pytest.mark.parametrize("formats", [[JVM, DIRECT, JVM], [DIRECT, JVM, DIRECT]])
def test_a_query_continues_with_the_other_sink(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, formats: list[str]
) -> None:
    source, topic = make_topic(), make_topic()
    for turn, form in enumerate(formats):
        produce(kafka.bootstrap_servers, source, range(10 * turn, 10 * turn + 10))
        reader = session.readStream.format(DIRECT).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        stream = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
        writer = stream.select("value").writeStream.format(form).option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE)
        assert values(kafka.bootstrap_servers, topic) == sorted(str(number) for number in range(10 * turn + 10))
