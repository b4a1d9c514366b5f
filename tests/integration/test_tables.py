"""Tables of Spark's catalog, whose options Spark does not pass to a Python data source, and what works instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

LOST = r"OptionError: kafka\.bootstrap\.servers is missing.*No option has arrived.*WITH \(.*CREATE TEMPORARY VIEW"
VALUE = "cast('x' AS BINARY)"


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    return make_topic()


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    yield "kafka_table"
    spark.sql("DROP TABLE IF EXISTS kafka_table")


@pytest.fixture
def options(kafka: EmbeddedKafka, topic: str) -> Callable[[str, str], str]:
    """The function that returns the options of a statement, with a separator and the option for a topic."""
    servers = kafka.bootstrap_servers
    return lambda separator, select: f"(`kafka.bootstrap.servers`{separator}'{servers}', {select}{separator}'{topic}')"


def test_the_options_of_a_table_are_lost(spark: SparkSession, table: str, options: Any) -> None:
    spark.sql(f"CREATE TABLE {table} (value BINARY) USING `kafka-direct` OPTIONS {options(' ', 'subscribe')}")
    for run in (
        lambda: spark.sql(f"SELECT * FROM {table}").collect(),
        lambda: spark.table(table).count(),
        lambda: spark.sql(f"INSERT INTO {table} VALUES ({VALUE})"),
    ):
        with pytest.raises(Exception, match=LOST):
            run()


def test_a_table_with_the_rows_of_a_query_is_not_written(spark: SparkSession, table: str, options: Any) -> None:
    create = f"CREATE TABLE {table} USING `kafka-direct` OPTIONS {options(' ', 'topic')}"
    with pytest.raises(Exception, match=LOST):
        spark.sql(f"{create} AS SELECT {VALUE} AS value")


def test_options_of_a_statement(spark: SparkSession, table: str, options: Any) -> None:
    spark.sql(f"CREATE TABLE {table} (value BINARY) USING `kafka-direct`")
    read = f"SELECT * FROM {table} WITH {options(' = ', 'subscribe')}"
    before = spark.sql(read).count()
    spark.sql(f"INSERT INTO {table} WITH {options(' = ', 'topic')} VALUES ({VALUE})")
    assert spark.sql(read).count() == before + 1


def test_a_temporary_view(spark: SparkSession, options: Any, kafka: EmbeddedKafka, topic: str) -> None:
    given = options(" ", "subscribe")[:-1] + f", topic '{topic}')"
    create = f"CREATE OR REPLACE TEMPORARY VIEW kafka_view USING `kafka-direct` OPTIONS {given}"
    spark.sql(create)
    before = spark.table("kafka_view").count()
    spark.sql(f"INSERT INTO kafka_view (value) VALUES ({VALUE})")
    spark.sql(create)
    assert spark.table("kafka_view").count() == before + 1


def test_a_read_without_options(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=LOST):
        spark.read.format("kafka-direct").load("/a/path")
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers is missing or empty; set it to") as caught:
        spark.read.format("kafka-direct").option("subscribe", "t").load()
    assert "No option has arrived" not in str(caught.value)
