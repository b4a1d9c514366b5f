"""The sinks of a task: Kafka, custom sinks and functions."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.continuous.continuous_sink import TaskInfo, custom_writer_factory, function_writer_factory
from pyspark_kafka_direct.continuous.control_messages import StartTask
from pyspark_kafka_direct.continuous.kafka_writer import (
    ExactlyOnceKafkaWriter,
    KafkaWriter,
    KafkaWriterFactory,
    OutputConverter,
)
from pyspark_kafka_direct.continuous.sink_delivery import max_transaction_seconds
from pyspark_kafka_direct.errors import ColumnError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.continuous_query import parse_start_options
from pyspark_kafka_direct.options.sink_options import parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.client.consumer_group import CommittedOffset
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer
    from pyspark_kafka_direct.producer.row_writer import RowWriter

TASK = TaskInfo("query", "run", 3, ())
PARTITION = TopicPartition("t", 0)
STARTED = StartTask(7, {})
BATCH = pa.record_batch({"value": pa.array([b"x", b"y"])})


class Clock(RealSystem):
    def wall_time(self) -> float:
        return 5.0


class Counter:
    """A custom sink."""

    task: TaskInfo | None = None

    def __init__(self, task: TaskInfo | None = None) -> None:
        self.task = task
        self.calls: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.calls.append(batch)

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        self.calls.append(positions)

    def close(self) -> None:
        self.calls.append("closed")


class CallableCounter(Counter):
    def __call__(self) -> None:
        raise AssertionError("it is a sink, not a sink factory")


class TestCustomSinks:
    def test_an_object(self) -> None:
        counter = Counter()
        sink = custom_writer_factory(counter)(TASK, STARTED)
        sink.write(BATCH)
        sink.run_once()
        sink.end_epoch(7, {PARTITION: 5})
        sink.close()
        assert counter.calls == [BATCH, {PARTITION: 5}, "closed"]
        assert list(sink.descriptors()) == []
        assert sink.stored_positions() == {}

    def test_an_object_that_stores_positions(self) -> None:
        class Table(Counter):
            def stored_positions(self) -> Mapping[TopicPartition, int]:
                return {PARTITION: 3}

        assert custom_writer_factory(Table())(TASK, STARTED).stored_positions() == {PARTITION: 3}

    def test_an_object_that_can_be_called(self) -> None:
        custom_writer_factory(CallableCounter())(TASK, STARTED).close()

    @pytest.mark.parametrize("factory", [Counter, lambda task: Counter(task)], ids=["class", "function"])
    def test_a_factory(self, factory: Any) -> None:
        sink = custom_writer_factory(factory)(TASK, STARTED)
        assert cast("Any", sink)._sink.task is TASK

    @pytest.mark.parametrize("value", [None, 3, [], object()], ids=["None", "number", "list", "object"])
    def test_other_values_are_rejected(self, value: Any) -> None:
        with pytest.raises(OptionError, match=r"is not a sink: it needs the methods write\(batch\), flush\("):
            custom_writer_factory(value)

    def test_the_result_of_a_factory_is_checked(self) -> None:
        with pytest.raises(OptionError, match=r"sink factory returned a builtins.dict, which is not a sink"):
            custom_writer_factory(lambda _: {})(TASK, STARTED)  # type: ignore[arg-type, return-value]

    def test_a_function(self) -> None:
        calls: list[Any] = []
        sink = function_writer_factory(calls.append)(TASK, STARTED)
        sink.write(BATCH)
        sink.end_epoch(7, {})
        sink.write(BATCH)
        sink.close()
        assert calls == [BATCH, BATCH]

    def test_factories_are_picklable(self) -> None:
        local_variable = "pickled"
        calls: list[Any] = []
        for factory in (
            custom_writer_factory(Counter()),
            custom_writer_factory(lambda _: Counter(TASK) if local_variable else None),  # type: ignore[arg-type, return-value]
        ):
            pickle.loads(cloudpickle.dumps(factory))(TASK, STARTED).write(BATCH)  # type: ignore[no-untyped-call]
        packed = cloudpickle.dumps(function_writer_factory(lambda batch: calls.append(batch)))  # type: ignore[no-untyped-call]
        pickle.loads(packed)(TASK, STARTED).write(BATCH)


class FakeProducer:
    """Records the calls of a producer and a row writer."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.has_queued_batches = False

    def write(self, rows: pa.RecordBatch) -> None:
        self.calls.append(rows.num_rows)

    def flush(self) -> None:
        self.calls.append("flush")

    def poll(self, seconds: float) -> None:
        assert seconds == 0
        self.calls.append("poll")

    def descriptors(self) -> list[int]:
        return [4, 5]

    def close(self) -> None:
        self.calls.append("close")


def fake_writer() -> tuple[KafkaWriter, FakeProducer]:
    producer = FakeProducer()
    output = OutputConverter("t", stamps_rows=False, task=TASK, epoch=7, system=RealSystem())
    return KafkaWriter(cast("BatchProducer", producer), cast("RowWriter", producer), output), producer


class TestKafka:
    def test_rows_are_sent_by_run_once(self) -> None:
        sink, producer = fake_writer()
        sink.write(BATCH)
        sink.write(BATCH)
        assert producer.calls == [2, 2]
        sink.run_once()
        assert producer.calls == [2, 2, "poll", "flush", "poll"]
        sink.run_once()
        assert producer.calls[5:] == ["poll"]

    def test_rows_gather_while_brokers_are_slow(self) -> None:
        sink, producer = fake_writer()
        sink.write(BATCH)
        producer.has_queued_batches = True
        sink.run_once()
        sink.write(BATCH)
        sink.run_once()
        assert producer.calls == [2, "poll", 2, "poll"]
        producer.has_queued_batches = False
        sink.run_once()
        assert producer.calls[4:] == ["poll", "flush", "poll"]

    def test_an_epoch_ends_when_all_is_acknowledged(self) -> None:
        sink, producer = fake_writer()
        sink.write(BATCH)
        producer.has_queued_batches = True
        sink.end_epoch(7, {})
        assert producer.calls == [2, "flush", "flush"]  # the rows, then the producer

    def test_rows_are_stamped_with_the_epoch_that_they_belong_to(self) -> None:
        producer, stamps = FakeProducer(), []
        producer.write = lambda rows: stamps.append(rows.column("headers")[0][1]["value"].as_py())  # type: ignore[method-assign]
        output = OutputConverter("t", stamps_rows=True, task=TASK, epoch=7, system=RealSystem())
        sink = KafkaWriter(cast("BatchProducer", producer), cast("RowWriter", producer), output)
        for epoch in (7, 8):
            sink.write(BATCH)
            sink.end_epoch(epoch, {})
        assert stamps == [b"7", b"8"]

    def test_descriptors_of_the_producer(self) -> None:
        sink, producer = fake_writer()
        assert list(sink.descriptors()) == [4, 5]
        sink.close()
        assert producer.calls == ["close"]

    def test_a_pickled_factory_hides_secrets(self) -> None:
        options = {"kafka.bootstrap.servers": "b:9092", "kafka.security.protocol": "SASL_SSL", "topic": "t"}
        jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";'
        options |= {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": jaas}
        factory = KafkaWriterFactory.of(parse_sink_options(options, streaming=True))
        assert "hush" not in repr(factory)
        again = pickle.loads(cloudpickle.dumps(factory))  # type: ignore[no-untyped-call]
        assert again == factory
        assert "hush" not in repr(again)


class FakeTransactions(FakeProducer):
    """Records the offsets of each transaction."""

    in_transaction = False

    def send_offsets_to_transaction(self, _: Any, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.calls.append({tp.partition: committed.offset for tp, committed in offsets.items()})

    def commit(self) -> None: ...

    def flush(self) -> None: ...


def test_offsets_of_idle_partitions_are_committed_once_a_day() -> None:
    """Brokers delete offsets that were not committed for a week."""
    system, producer = FakeTimeSystem(), FakeTransactions()
    cluster: Any = SimpleNamespace(pool=SimpleNamespace(system=system))
    output = OutputConverter("t", stamps_rows=False, task=TASK, epoch=7, system=system)
    fake: Any = producer
    sink = ExactlyOnceKafkaWriter(fake, fake, rows=fake, output=output, cluster=cluster, query_id="query", topic_ids={})
    idle = TopicPartition("t", 1)
    for day in range(3):
        sink.end_epoch(7, {PARTITION: 2 * day, idle: 6})
        sink.end_epoch(8, {PARTITION: 2 * day + 1, idle: 6})
        sink.end_epoch(9, {PARTITION: 2 * day + 1, idle: 6})
        assert producer.calls == [{0: 2 * day, 1: 6}, {0: 2 * day + 1}]
        producer.calls.clear()
        system.now += 24 * 3600


def rows(output: OutputConverter, batch: pa.RecordBatch) -> dict[str, Any]:
    (converted,) = output.convert(batch)
    return cast("dict[str, Any]", converted.to_pydict())


class TestOutputConverter:
    def test_each_batch_may_have_another_schema(self) -> None:
        output = OutputConverter("t", stamps_rows=False, task=TASK, epoch=7, system=Clock())
        for value, key in ((0, 1), (1, 0)):
            columns: dict[str, Any] = {"value": pa.array(["v"]), "key": pa.array([b"k"], pa.large_binary())}
            batch = pa.record_batch({name: columns[name] for name in sorted(columns, reverse=value < key)})
            assert rows(output, batch) == {"value": [b"v"], "key": [b"k"], "timestamp": [5000]}
        with pytest.raises(ColumnError, match="value attribute unsupported type bigint"):
            list(output.convert(pa.record_batch({"value": pa.array([1])})))

    def test_no_rows(self) -> None:
        assert (
            list(OutputConverter("t", stamps_rows=False, task=TASK, epoch=7, system=Clock()).convert(BATCH.slice(2)))
            == []
        )

    def test_a_stamp_has_query_epoch_and_task(self) -> None:
        output = OutputConverter("t", stamps_rows=True, task=TASK, epoch=7, system=Clock())
        for epoch in (7, 8):
            stamp = {each["key"]: each["value"] for each in rows(output, BATCH)["headers"][1]}
            assert stamp == {
                "spark.query.id": b"query",
                "spark.batch.id": b"%d" % epoch,
                "spark.partition.id": b"3",
                "spark.attempt": b"0",
            }
            output.begin_epoch(8)

    def test_a_null_topic_is_rejected_without_the_topic_option(self) -> None:
        output = OutputConverter(None, stamps_rows=False, task=TASK, epoch=7, system=Clock())
        with pytest.raises(ColumnError, match="topic option required"):
            list(output.convert(BATCH))


def test_the_maximum_transaction_time_includes_slower_tasks() -> None:
    settings = parse_start_options({"checkpointLocation": "/c", "epochInterval": 2, "epochTimeout": 10})
    assert max_transaction_seconds(settings) == 22.0
