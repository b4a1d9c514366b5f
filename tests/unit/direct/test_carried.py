"""One direct stream and its copies: in a checkpoint, and come back from one."""

from __future__ import annotations

import pickle
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import dumps

from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies, _registry
from pyspark_kafka_direct.direct._carried import CarriedStream
from pyspark_kafka_direct.direct._carrier import Carrier, GenerationBegins, GenerationEnds
from pyspark_kafka_direct.direct._registry import stream_of
from pyspark_kafka_direct.direct._spec import StreamSpec
from pyspark_kafka_direct.direct.rates import PerPartitionConfig
from pyspark_kafka_direct.errors import OffsetPlanError, OptionError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.direct import Position

DATA = Path(__file__).with_name("data")
TIME = datetime.fromtimestamp(1700000000.0)
NO_RDD: Any = None  # is not looked at
T0 = TopicPartition("flights", 0)


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0


class Graph:
    """Stands where the stream's connection with Spark does."""

    def __init__(self) -> None:
        self.forgotten: list[list[int]] = []

    def forget_generated(self, times_ms: list[int]) -> None:
        self.forgotten.append(times_ms)


def carried(name: str) -> tuple[CarriedStream, Any]:
    strategy = ConsumerStrategies.Subscribe(["flights"], {"bootstrap.servers": "localhost:1"})
    stream = CarriedStream(name, StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0), None)
    stream._state.start(Position({T0: 0}, {}))
    graph: Any = Graph()
    stream.spark = graph
    _registry.enter(stream)
    return stream, graph


def plan(stream: CarriedStream, time_ms: int, until: int) -> None:
    begin = stream.current_offsets[T0]
    stream._state.add(time_ms, [OffsetRange("flights", 0, begin, until)], {})


def again(function: Any) -> Any:
    """As it comes back from Spark's checkpoint."""
    return pickle.loads(dumps(function))  # type: ignore[no-untyped-call]


def test_a_copy_from_a_checkpoint_does_not_take_the_place_of_the_stream_that_runs() -> None:
    stream, _ = carried("runs")
    begins = GenerationBegins(stream)
    for _ in range(2):
        copy = again(begins)
        assert copy._stream is not stream
        assert stream_of("runs") is stream
    begins(TIME, NO_RDD)
    plan(stream, 1700000000_000, 5)
    GenerationEnds("runs")(TIME, NO_RDD)
    assert stream.current_offsets == {T0: 5}
    assert copy._stream.current_offsets == {T0: 0}


def test_a_copy_takes_its_place_when_spark_generates_a_batch_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, graph = carried("stopped")
    copy = again(GenerationBegins(stream))
    monkeypatch.setattr("pyspark_kafka_direct.direct._carrier.side_after_restore", lambda stream, rdd: graph)
    copy(TIME, NO_RDD)
    assert stream_of("stopped") is copy._stream
    assert copy._stream.spark is graph


def test_a_generation_without_an_end_has_failed_when_the_next_one_begins() -> None:
    stream, graph = carried("fails")
    stream.begin_generation(1000)
    plan(stream, 1000, 5)
    stream.begin_generation(2000)
    assert graph.forgotten == [[1000]]
    assert (stream.batch(1000), stream.current_offsets) == ((), {T0: 0})
    plan(stream, 2000, 7)
    stream.end_generation()
    stream.begin_generation(3000)
    assert graph.forgotten == [[1000]], "that one had an end"


def test_a_generation_without_an_end_has_failed_when_the_checkpoint_is_written() -> None:
    """Before the rest of the graph is written: RDDs that the generation has made must not be in it."""
    stream, graph = carried("written")
    stream.begin_generation(1000)
    plan(stream, 1000, 5)
    back = again(GenerationBegins(stream))._stream
    assert graph.forgotten == [[1000]]
    assert (back.batch(1000), back.current_offsets) == ((), {T0: 0})
    assert stream.current_offsets == {T0: 0}


def test_a_generation_that_could_not_be_forgotten_is_not_taken_for_settled() -> None:
    stream, graph = carried("stuck")
    stream.begin_generation(1000)
    plan(stream, 1000, 5)

    def cannot(times_ms: list[int]) -> None:
        raise RuntimeError("no such field")

    graph.forget_generated = cannot
    for time_ms in (2000, 3000):
        with pytest.raises(RuntimeError, match="no such field"):
            stream.begin_generation(time_ms)


def test_functions_of_the_graph_hold_an_id_and_no_state() -> None:
    for function in (Carrier("id"), GenerationEnds("id")):
        assert len(dumps(function)) < 120  # type: ignore[no-untyped-call]


def test_a_checkpoint_of_the_first_form_is_refused_in_words_of_ours() -> None:
    """Written by a release whose checkpoints have no marks of generations."""
    written = (DATA / "carrier_of_version_1.pickle").read_bytes()
    with pytest.raises(OffsetPlanError, match=r"direct stream of version 1.*start with another checkpoint folder"):
        pickle.loads(written)


def test_nothing_is_opened_to_write_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _ = carried("closed")
    monkeypatch.setattr("pyspark_kafka_direct.direct._carried.connect", None)
    again(GenerationBegins(stream))


def test_a_checkpoint_is_not_read_where_threads_are_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for ever with its first batch."""
    written = dumps(carried("pinned")[0])  # type: ignore[no-untyped-call]
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(OptionError, match="PYSPARK_PIN_THREAD=true"):
        pickle.loads(written)
