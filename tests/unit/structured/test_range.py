"""What a task does with its piece of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_kafka_direct.reading.request import with_rack
from pyspark_kafka_direct.runtime.range_task import Reading
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.structured._range import TaskReader
from pyspark_kafka_direct.structured._schema import full_schema, read_schema

if TYPE_CHECKING:
    import pytest

SETTINGS = connection_settings({"bootstrap.servers": "nowhere.invalid:9092", "client.rack": "a"})
FETCH = SETTINGS.fetch


def test_the_rack_comes_from_the_executors_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_RACK", "b")
    assert with_rack(FETCH, "MY_RACK").client_rack == "b"
    assert with_rack(FETCH, None) is FETCH


def test_without_that_variable_the_option_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_RACK", raising=False)
    assert with_rack(FETCH, "MY_RACK").client_rack == "a"


def test_the_partition_that_spark_makes_up_for_an_empty_plan_holds_nothing() -> None:
    reader = TaskReader(Reading(*SETTINGS, 1.0), read_schema(full_schema(False)))
    assert list(reader.read(InputPartition(None))) == []
