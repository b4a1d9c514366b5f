"""A continuous query that delivers exactly once, driven by hand: real brokers and files; no Spark, no coordinator.

It reads nothing. The record at offset o of partition p is ``p-o``, so the output tells what was published how often.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.integration.deliveries import committed

from pyspark_kafka_direct.continuous._logs import Logs
from pyspark_kafka_direct.continuous._transactional_sink import TransactionalSink
from pyspark_kafka_direct.continuous._transactions import TransactionalDelivery
from pyspark_kafka_direct.continuous.sink import TaskInfo
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.sink import parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_kafka_direct.settings.sink import SinkOptions


class DiedError(Exception):
    """The driver has died."""


class Folder:
    """The files of a checkpoint, on the disk.

    Attributes:
        dies_at: Beginning of the name of a file that the driver does not live to write.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.dies_at: str | None = None

    def place(self, name: str) -> str:
        return str(self._root / name)

    def text(self, name: str) -> str | None:
        return (self._root / name).read_text() if (self._root / name).is_file() else None

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def names(self, folder: str) -> list[str]:
        return os.listdir(self._root / folder) if (self._root / folder).is_dir() else []

    def make_folder(self, name: str) -> None:
        (self._root / name).mkdir(parents=True, exist_ok=True)

    def create(self, name: str, text: str) -> bool:
        if self.dies_at is not None and name.startswith(self.dies_at):
            raise DiedError
        try:
            with open(self._root / name, "x") as file:
                file.write(text)
        except FileExistsError:
            return False
        return True

    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)


def options_of(servers: str, topic: str, prefix: str, **more: str) -> SinkOptions:
    given = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "delivery": "exactly-once",
        "transactionalIdPrefix": prefix,
    }
    return parse_sink_options(given | more, streaming=True)


class Driver:
    """One driver of a query, whose tasks read one partition each.

    Args:
        servers: The brokers.
        root: The checkpoint.
        source: The topic that is read.
        output: The topic that is written to.
        tasks: How many partitions and tasks.
        prefix: The ``transactionalIdPrefix``; by default made of the topic's name.
        more: Options of the sink.
    """

    def __init__(
        self,
        servers: str,
        root: Path,
        source: str,
        output: str,
        *,
        tasks: int = 2,
        prefix: str | None = None,
        options: dict[str, str] | None = None,
    ) -> None:
        sink_options = options_of(servers, output, prefix or f"p-{output}", **(options or {}))
        self.files = Folder(root)
        self.logs = Logs(self.files, dict, 100)
        self.delivery = TransactionalDelivery(sink_options, sink_options.connection, self.files, 10.0)
        self.partitions = [TopicPartition(source, number) for number in range(tasks)]
        self.query_id = ""
        self.sinks: list[TransactionalSink] = []
        self._made: list[TransactionalSink] = []
        self.positions: dict[TopicPartition, int] = {}
        self.epoch = 0

    def start(self) -> Driver:
        """Start a run, as the runner does."""
        self.query_id = self.logs.query_id(f"query-of-{self.files.place('')}")
        self.delivery.prepare(self.query_id, self.partitions, len(self.partitions))
        state = self.logs.state()
        settlement = self.logs.settle(self.delivery.reached(state), 0, state)
        if settlement.begin is None:
            self.logs.start(dict.fromkeys(self.partitions, 0), 0)
        self.positions = dict.fromkeys(self.partitions, 0) | dict(settlement.begin or {})
        self.epoch = max(1, settlement.next_epoch)
        factory = self.delivery.sink()
        self.sinks = []
        for number, tp in enumerate(self.partitions):
            sink = factory(TaskInfo(self.query_id, "run", number, (tp,), self.epoch))
            assert isinstance(sink, TransactionalSink)
            self.sinks.append(sink)
        self._made += self.sinks
        return self

    def write(self, task: int, rows: int, keep: Callable[[int], bool] = lambda _: True) -> None:
        """Let a task read and write so many rows more."""
        tp = self.partitions[task]
        begin = self.positions[tp]
        values = [b"%d-%d" % (tp.partition, offset) for offset in range(begin, begin + rows) if keep(offset)]
        if values:
            partitions = pa.array([tp.partition] * len(values), pa.int32())
            columns = {"value": pa.array(values, pa.binary()), "partition": partitions}
            self.sinks[task].write(pa.RecordBatch.from_pydict(columns))
        self.positions[tp] = begin + rows

    def end(self, task: int) -> None:
        """Let a task end the epoch."""
        tp = self.partitions[task]
        self.sinks[task].end_epoch(self.epoch, {tp: self.positions[tp]})

    def commit(self) -> None:
        """Write the logs, after all tasks have reported."""
        self.logs.commit(self.epoch, self.positions, 0)
        self.epoch += 1

    def run_epoch(self, rows: int = 3, keep: Callable[[int], bool] = lambda _: True) -> None:
        """One whole epoch."""
        for task in range(len(self.partitions)):
            self.write(task, rows, keep)
        for task in range(len(self.partitions)):
            self.end(task)
        self.commit()

    def close(self) -> None:
        """Let the tasks of all runs end."""
        for sink in self._made:
            sink.close()


def published(servers: str, output: str, tasks: int = 2) -> list[int]:
    """How many rows of each partition were published; all once, and in order."""
    values = committed(servers, output, tasks)
    counts = []
    for task in range(tasks):
        mine = [value for value in values if value.startswith(b"%d-" % task)]
        assert mine == [b"%d-%d" % (task, number) for number in range(len(mine))]
        counts.append(len(mine))
    return counts
