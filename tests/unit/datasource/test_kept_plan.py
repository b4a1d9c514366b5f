"""The warning of tasks of a second action with one plan, which Spark keeps."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import InputPartition

from pyspark_kafka_direct.datasource.partition_reader import KafkaPartitionReader
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider

if TYPE_CHECKING:
    from collections.abc import Iterable

EXECUTION = "spark.sql.execution.id"
ROOT = "spark.sql.execution.root.id"
LOGGER = "pyspark_kafka_direct.datasource"


class FakeContext:
    """The context of a task of an execution; those of Spark are created by its JVM."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


def load(**options: str) -> KafkaPartitionReader:
    """Return what the tasks of one ``load()`` have in common, as Spark sends it to an executor."""
    selection = {} if {"offsetRanges", "assign", "subscribePattern"} & options.keys() else {"subscribe": "a,b"}
    source = KafkaSourceProvider({"kafka.bootstrap.servers": "nowhere.invalid:9092", **selection, **options})
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    assert isinstance(reader, KafkaPartitionReader)
    return reader


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Warnings:
    return Warnings(caplog, monkeypatch)


class Warnings:
    """Runs tasks in this process, and returns what they log."""

    def __init__(self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self._caplog = caplog
        self._monkeypatch = monkeypatch

    def of_tasks(self, reader: KafkaPartitionReader, executions: Iterable[dict[str, str] | None]) -> list[str]:
        """Run a task for each execution, with the partition that Spark adds to an empty plan."""
        self._caplog.clear()
        for properties in executions:
            context = None if properties is None else FakeContext(properties)
            self._monkeypatch.setattr("pyspark.TaskContext.get", lambda context=context: context)
            assert list(reader.read(InputPartition(None))) == []
        return [record.getMessage() for record in self._caplog.records if record.name == LOGGER]


def execution(number: int, root: int | None = None) -> dict[str, str]:
    return {EXECUTION: str(number)} | ({} if root is None else {ROOT: str(root)})


def test_a_second_execution_is_logged_once(warnings: Warnings) -> None:
    reader = load()
    assert warnings.of_tasks(reader, [execution(7), execution(7)]) == []
    (warning,) = warnings.of_tasks(reader, [execution(8), execution(8), execution(7), execution(9), execution(8)])
    assert "this action reads a, b up to the offsets that were planned for an earlier action" in warning
    assert "call load() again" in warning
    assert "CREATE OR REPLACE TEMPORARY VIEW" in warning


def test_nested_executions_of_one_action_are_one(warnings: Warnings) -> None:
    """A command that writes is an execution, and the query in it is another one."""
    reader = load()
    assert warnings.of_tasks(reader, [execution(3, root=3), execution(4, root=3)]) == []
    assert len(warnings.of_tasks(reader, [execution(5, root=5)])) == 1


def test_tasks_without_an_execution_are_not_counted(warnings: Warnings) -> None:
    """Actions on ``df.rdd`` have none, and all of them have the offsets of that RDD."""
    reader = load()
    assert warnings.of_tasks(reader, [{}, {}, execution(1), {}, None]) == []


def test_each_load_has_another_plan(warnings: Warnings) -> None:
    first, second = load(), load()
    assert warnings.of_tasks(first, [execution(1)]) == []
    assert warnings.of_tasks(second, [execution(2)]) == []
    assert len(warnings.of_tasks(first, [execution(2)])) == 1


def test_copies_of_a_reader_in_several_tasks_are_one_plan(warnings: Warnings) -> None:
    reader = load()
    copies = [pickle.loads(pickle.dumps(reader)) for _ in range(2)]
    assert warnings.of_tasks(copies[0], [execution(1)]) == []
    assert len(warnings.of_tasks(copies[1], [execution(2)])) == 1


@pytest.mark.parametrize(
    ("options", "is_fixed"),
    [
        ({"endingOffsets": "latest"}, False),
        ({"endingOffsets": '{"a":"latest"}'}, False),
        ({"endingOffsets": '{"a":{"0":5,"1":-1}}'}, False),
        ({"endingTimestamp": "5"}, False),  # if there is no such record, it is the latest offset
        ({"endingOffsets": '{"a":{"0":5,"1":6}}'}, True),
        ({"offsetRanges": '[{"topic":"a","partition":0,"fromOffset":5,"untilOffset":9}]'}, True),
    ],
)
def test_fixed_ends_are_the_same_in_each_plan(warnings: Warnings, options: dict[str, str], is_fixed: bool) -> None:
    assert len(warnings.of_tasks(load(**options), [execution(1), execution(2)])) == (0 if is_fixed else 1)


@pytest.mark.parametrize(
    ("options", "what"),
    [({"assign": '{"a":[0,1]}'}, "reads a up to"), ({"subscribePattern": "^fl.*"}, r"reads ^fl.* up to")],
)
def test_the_warning_names_what_is_read(warnings: Warnings, options: dict[str, str], what: str) -> None:
    (warning,) = warnings.of_tasks(load(**options), [execution(1), execution(2)])
    assert what in warning


def test_a_micro_batch_has_no_kept_plan() -> None:
    """Spark plans each micro-batch, and a function of ``foreachBatch`` may read it several times."""
    source = KafkaSourceProvider({"kafka.bootstrap.servers": "nowhere.invalid:9092", "subscribe": "a"})
    assert pickle.loads(pickle.dumps(source.streamReader(source.schema()))).kept_plan is None
