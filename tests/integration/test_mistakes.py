"""The messages of common mistakes and warnings, with and without Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.sessions import setting
from tests.mistakes import PAGE, TOPIC, Bench, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture(scope="module")
def bench(
    secured_kafka: EmbeddedKafka, make_spark: SparkSessions, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with connected(make_spark) as (plain, remote):
        yield Bench(secured_kafka, plain, remote, tmp_path_factory.mktemp("mistakes"))


def test_the_page_shows_current_messages(bench: Bench) -> None:
    """If this fails, review the changes and regenerate the page: ``python -m tests.mistakes --write``."""
    assert bench.page() == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["plain", "connect"])
def test_sparks_worker_logging_contains_warnings(bench: Bench, kind: str) -> None:
    spark = bench.sessions[kind]
    with setting(spark, "spark.sql.pyspark.worker.logging.enabled", "true"):
        options = {"kafka.bootstrap.servers": bench.kafka.bootstrap_servers, "subscribe": TOPIC, "kafka.linger.ms": "5"}
        assert spark.read.format("kafka-direct").options(**options).load().count() == 5
        logs = spark.tvf.python_worker_logs().select("level", "logger", "msg").collect()
    found = {(row.level, row.logger) for row in logs if "kafka.linger.ms" in row.msg}
    assert found == {("WARNING", "pyspark_kafka_direct.options")}
