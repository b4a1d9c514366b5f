"""The documented recipe for dead letters, and what it counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from tests.integration.read_back import consume
from tests.integration.waiting import wait_until

from pyspark_kafka_direct import enable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

_PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def test_the_recipe_counts_a_malformed_record_once(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, good, dead = (make_topic(1) for _ in range(3))
    (recipe,) = re.findall(r"```python\n([^`]*def write\(batch, batch_id\)[^`]*)```", _PAGE.read_text("utf-8"))
    names = {
        '"localhost:9092"': repr(kafka.bootstrap_servers),
        '"flights"': repr(source),
        '"delays"': repr(good),  # the topic and the transactionalIdPrefix
        '"dead-letters"': repr(dead),
        '"delays.checkpoint"': repr(str(tmp_path / "checkpoint")),
        ".start()": ".trigger(availableNow=True).start()",
    }
    for documented, used in names.items():
        assert documented in recipe
        recipe = recipe.replace(documented, used)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (b'{"origin": "JFK"}', b"{", b'{"origin": "LHR"}', b"no JSON", b"["):
        producer.produce(source, value)
    assert producer.flush(300) == 0
    monitor = enable(spark)
    namespace: dict[str, Any] = {"spark": spark}
    exec(recipe, namespace)
    assert namespace["query"].awaitTermination(600)
    assert len(consume(kafka.bootstrap_servers, good)) == 2
    assert len(consume(kafka.bootstrap_servers, dead)) == 3

    def counts() -> list[int]:
        return [total.records for total in monitor.malformed_records if total.topic == source]

    wait_until(lambda: bool(counts()), "the report of the task, for which the query hardly waits")
    assert counts() == [3]
