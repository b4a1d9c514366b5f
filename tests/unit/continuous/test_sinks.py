"""The sinks of a task: Kafka, objects with three methods, functions."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from pyspark_kafka_direct.continuous._kafka_output import longest_transaction
from pyspark_kafka_direct.continuous._kafka_sink import KafkaSink, kafka_sink
from pyspark_kafka_direct.continuous._output_rows import OutputRows
from pyspark_kafka_direct.continuous._plain_sink import batch_function, plain_sink
from pyspark_kafka_direct.continuous.sink import TaskInfo
from pyspark_kafka_direct.errors import ColumnError, OptionError
from pyspark_kafka_direct.settings.continuous import run_settings
from pyspark_kafka_direct.settings.sink import parse_sink_options
from pyspark_kafka_direct.wire.system import RealSystem

if TYPE_CHECKING:
    from pyspark_kafka_direct.writing.producer import Producer
    from pyspark_kafka_direct.writing.rows import RowWriter

TASK = TaskInfo("query", "run", 3, (), 7)
BATCH = pa.record_batch({"value": pa.array([b"x", b"y"])})


class Clock(RealSystem):
    def wall_time(self) -> float:
        return 5.0


class Counter:
    """The three methods."""

    made: TaskInfo | None = None

    def __init__(self, task: TaskInfo | None = None) -> None:
        self.made = task
        self.calls: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.calls.append(batch)

    def flush(self, epoch: int) -> None:
        self.calls.append(epoch)

    def close(self) -> None:
        self.calls.append("closed")


class CallableCounter(Counter):
    def __call__(self) -> None:
        raise AssertionError("it is a sink, not what makes one")


class TestPlainSinks:
    def test_an_object(self) -> None:
        counter = Counter()
        sink = plain_sink(counter)(TASK)
        sink.write(BATCH)
        sink.turn()
        sink.end_epoch(7, {})
        sink.close()
        assert counter.calls == [BATCH, 7, "closed"]
        assert list(sink.descriptors()) == []

    def test_an_object_that_can_be_called(self) -> None:
        plain_sink(CallableCounter())(TASK).close()

    @pytest.mark.parametrize("factory", [Counter, lambda task: Counter(task)], ids=["class", "function"])
    def test_what_makes_one_for_a_task(self, factory: Any) -> None:
        sink = plain_sink(factory)(TASK)
        assert cast("Any", sink)._sink.made is TASK

    @pytest.mark.parametrize("thing", [None, 3, [], object()], ids=["None", "number", "list", "object"])
    def test_anything_else_is_refused_at_once(self, thing: Any) -> None:
        with pytest.raises(OptionError, match=r"is no sink: it needs the methods write\(batch\), flush\(epoch\)"):
            plain_sink(thing)

    def test_what_a_factory_returns_is_looked_at(self) -> None:
        with pytest.raises(OptionError, match=r"sink factory returned a builtins.dict, which is no sink"):
            plain_sink(lambda _: {})(TASK)  # type: ignore[arg-type, return-value]

    def test_a_function_is_told_the_epoch(self) -> None:
        calls: list[Any] = []
        sink = batch_function(lambda batch, epoch: calls.append((batch, epoch)))(TASK)
        sink.write(BATCH)
        sink.end_epoch(7, {})
        sink.write(BATCH)
        sink.close()
        assert calls == [(BATCH, 7), (BATCH, 8)]

    def test_they_travel(self) -> None:
        text = "from here"
        calls: list[Any] = []
        for factory in (plain_sink(Counter()), plain_sink(lambda _: Counter(TASK) if text else None)):  # type: ignore[arg-type, return-value]
            pickle.loads(cloudpickle.dumps(factory))(TASK).write(BATCH)  # type: ignore[no-untyped-call]
        packed = cloudpickle.dumps(batch_function(lambda batch, _: calls.append(batch)))  # type: ignore[no-untyped-call]
        pickle.loads(packed)(TASK).write(BATCH)


class MadeUpProducer:
    """A producer and a writer of rows.

    Attributes:
        told: What was asked of either.
        has_waiting: Whether record batches wait.
    """

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.has_waiting = False

    def write(self, rows: pa.RecordBatch) -> None:
        self.told.append(rows.num_rows)

    def flush(self) -> None:
        self.told.append("flush")

    def work(self, seconds: float) -> None:
        assert seconds == 0
        self.told.append("work")

    def descriptors(self) -> list[int]:
        return [4, 5]

    def close(self) -> None:
        self.told.append("close")


def made_up() -> tuple[KafkaSink, MadeUpProducer]:
    producer = MadeUpProducer()
    output = OutputRows("t", stamp=False, task=TASK, system=RealSystem())
    return KafkaSink(cast("Producer", producer), cast("RowWriter", producer), output), producer


class TestKafka:
    def test_rows_are_sent_in_the_next_turn(self) -> None:
        sink, producer = made_up()
        sink.write(BATCH)
        sink.write(BATCH)
        assert producer.told == [2, 2]
        sink.turn()
        assert producer.told == [2, 2, "work", "flush", "work"]
        sink.turn()
        assert producer.told[5:] == ["work"]

    def test_rows_gather_while_brokers_are_slow(self) -> None:
        sink, producer = made_up()
        sink.write(BATCH)
        producer.has_waiting = True
        sink.turn()
        sink.write(BATCH)
        sink.turn()
        assert producer.told == [2, "work", 2, "work"]
        producer.has_waiting = False
        sink.turn()
        assert producer.told[4:] == ["work", "flush", "work"]

    def test_an_epoch_ends_when_all_is_acknowledged(self) -> None:
        sink, producer = made_up()
        sink.write(BATCH)
        producer.has_waiting = True
        sink.end_epoch(7, {})
        assert producer.told == [2, "flush", "flush"]  # of the rows, then of the producer

    def test_rows_are_stamped_with_the_epoch_that_they_belong_to(self) -> None:
        producer, stamps = MadeUpProducer(), []
        producer.write = lambda rows: stamps.append(rows.column("headers")[0][1]["value"].as_py())  # type: ignore[method-assign]
        output = OutputRows("t", stamp=True, task=TASK, system=RealSystem())
        sink = KafkaSink(cast("Producer", producer), cast("RowWriter", producer), output)
        for epoch in (7, 8):
            sink.write(BATCH)
            sink.end_epoch(epoch, {})
        assert stamps == [b"7", b"8"]

    def test_it_tells_what_it_waits_for(self) -> None:
        sink, producer = made_up()
        assert list(sink.descriptors()) == [4, 5]
        sink.close()
        assert producer.told == ["close"]

    def test_it_travels_with_no_secret_in_sight(self) -> None:
        options = {"kafka.bootstrap.servers": "b:9092", "kafka.security.protocol": "SASL_SSL", "topic": "t"}
        jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";'
        options |= {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": jaas}
        factory = kafka_sink(parse_sink_options(options, streaming=True))
        assert "hush" not in repr(factory)
        again = pickle.loads(cloudpickle.dumps(factory))  # type: ignore[no-untyped-call]
        assert again == factory
        assert "hush" not in repr(again)


def rows(output: OutputRows, batch: pa.RecordBatch) -> dict[str, Any]:
    (made,) = output.of(batch)
    return cast("dict[str, Any]", made.to_pydict())


class TestOutputRows:
    def test_each_batch_may_have_another_schema(self) -> None:
        output = OutputRows("t", stamp=False, task=TASK, system=Clock())
        for value, key in ((0, 1), (1, 0)):
            columns: dict[str, Any] = {"value": pa.array(["v"]), "key": pa.array([b"k"], pa.large_binary())}
            batch = pa.record_batch({name: columns[name] for name in sorted(columns, reverse=value < key)})
            assert rows(output, batch) == {"value": [b"v"], "key": [b"k"], "timestamp": [5000]}
        with pytest.raises(ColumnError, match="value attribute unsupported type bigint"):
            list(output.of(pa.record_batch({"value": pa.array([1])})))

    def test_no_rows(self) -> None:
        assert list(OutputRows("t", stamp=False, task=TASK, system=Clock()).of(BATCH.slice(2))) == []

    def test_a_stamp_tells_query_epoch_and_task(self) -> None:
        output = OutputRows("t", stamp=True, task=TASK, system=Clock())
        for epoch in (7, 8):
            stamp = {each["key"]: each["value"] for each in rows(output, BATCH)["headers"][1]}
            assert stamp == {
                "spark.query.id": b"query",
                "spark.batch.id": b"%d" % epoch,
                "spark.partition.id": b"3",
                "spark.attempt": b"0",
            }
            output.begin_epoch(8)

    def test_a_null_topic_is_refused_where_no_option_names_one(self) -> None:
        output = OutputRows(None, stamp=False, task=TASK, system=Clock())
        with pytest.raises(ColumnError, match="topic option required"):
            list(output.of(BATCH))


def test_a_transaction_may_have_to_wait_for_slower_tasks() -> None:
    settings = run_settings({"checkpointLocation": "/c", "epochInterval": 2, "epochTimeout": 10})
    assert longest_transaction(settings) == 22.0
