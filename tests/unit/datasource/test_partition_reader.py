"""The read of an input partition in a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_kafka_direct.config.client_parser import parse_client_params
from pyspark_kafka_direct.consumer.range_request import with_client_rack
from pyspark_kafka_direct.datasource.partition_reader import KafkaPartitionReader
from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.spark.range_task import RangeTaskReader

if TYPE_CHECKING:
    import pytest

SETTINGS = parse_client_params({"bootstrap.servers": "nowhere.invalid:9092", "client.rack": "a"})
FETCH = SETTINGS.fetch


def test_the_rack_comes_from_the_environment_of_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_RACK", "b")
    assert with_client_rack(FETCH, "MY_RACK").client_rack == "b"
    assert with_client_rack(FETCH, None) is FETCH


def test_without_the_variable_the_option_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_RACK", raising=False)
    assert with_client_rack(FETCH, "MY_RACK").client_rack == "a"


def test_the_partition_that_spark_adds_to_an_empty_plan_has_no_rows() -> None:
    reader = KafkaPartitionReader(RangeTaskReader(*SETTINGS, 1.0), read_schema(kafka_schema(False)))
    assert list(reader.read(InputPartition(None))) == []
