"""An exactly-once continuous query with real brokers and files, but without Spark and coordinator.

It reads nothing. The record at offset o of partition p is ``p-o``, so the output shows which records were committed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.integration.transactional_batches import committed

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointLogs
from pyspark_kafka_direct.continuous.continuous_sink import TaskInfo
from pyspark_kafka_direct.continuous.control_messages import StartTask
from pyspark_kafka_direct.continuous.kafka_writer import ExactlyOnceKafkaWriter
from pyspark_kafka_direct.continuous.sink_delivery import ExactlyOnceDelivery
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.sink_options import parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_kafka_direct.options.settings import WriteSettings


class SimulatedCrashError(BaseException):
    """The driver crashes."""


class FolderFileManager:
    """The files of a checkpoint on disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.crash_at: str | None = None  # the start of the name of a file

    def path(self, name: str) -> str:
        return str(self._root / name)

    def read(self, name: str) -> str | None:
        return (self._root / name).read_text() if (self._root / name).is_file() else None

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def list_names(self, folder: str) -> list[str]:
        return os.listdir(self._root / folder) if (self._root / folder).is_dir() else []

    def mkdirs(self, name: str) -> None:
        (self._root / name).mkdir(parents=True, exist_ok=True)

    def create(self, name: str, text: str) -> bool:
        if self.crash_at is not None and name.startswith(self.crash_at):
            raise SimulatedCrashError
        try:
            with open(self._root / name, "x") as file:
                file.write(text)
        except FileExistsError:
            return False
        return True

    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)


def options_of(servers: str, topic: str, prefix: str, **options: str) -> WriteSettings:
    defaults = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": prefix,
    }
    return parse_sink_options(defaults | options, streaming=True)


class ExactlyOnceDriver:
    """One driver of a query, whose tasks read one partition each."""

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
        self.files = FolderFileManager(root)
        self.logs = CheckpointLogs(self.files, dict, 100, SYSTEM.nonce())
        self.delivery = ExactlyOnceDelivery(sink_options, sink_options.connection, self.logs, 10.0)
        self.partitions = [TopicPartition(source, number) for number in range(tasks)]
        self.query_id = ""
        self.sinks: list[ExactlyOnceKafkaWriter] = []
        self._all_sinks: list[ExactlyOnceKafkaWriter] = []
        self.positions: dict[TopicPartition, int] = {}
        self.epoch = 0

    def start(self) -> ExactlyOnceDriver:
        """Start a run, as ``ContinuousExecution`` does."""
        self.query_id = self.logs.query_id(f"query-of-{self.files.path('')}")
        self.delivery.prepare(self.query_id, self.partitions, len(self.partitions))
        state = self.logs.state()
        recovery = self.logs.recover(self.delivery.offsets_ahead(state), 0, state)
        if recovery.start is None:
            self.logs.commit_start(dict.fromkeys(self.partitions, 0), 0)
        self.positions = dict.fromkeys(self.partitions, 0) | dict(recovery.start or {})
        self.epoch = max(1, recovery.next_epoch)
        factory = self.delivery.writer_factory
        self.sinks = []
        for number, tp in enumerate(self.partitions):
            topic_ids = {tp: topic_id} if (topic_id := self.delivery._topic_ids.get(tp.topic)) is not None else {}
            start = StartTask(self.epoch, {tp: self.positions[tp]}, {}, topic_ids, self.delivery.producers[number])
            sink = factory(TaskInfo(self.query_id, "run", number, (tp,)), start)
            assert isinstance(sink, ExactlyOnceKafkaWriter)
            self.sinks.append(sink)
        self._all_sinks += self.sinks
        return self

    def write(self, task: int, rows: int, keep: Callable[[int], bool] = lambda _: True) -> None:
        """Read and write more rows in a task."""
        tp = self.partitions[task]
        start = self.positions[tp]
        values = [b"%d-%d" % (tp.partition, offset) for offset in range(start, start + rows) if keep(offset)]
        if values:
            partitions = pa.array([tp.partition] * len(values), pa.int32())
            columns = {"value": pa.array(values, pa.binary()), "partition": partitions}
            self.sinks[task].write(pa.RecordBatch.from_pydict(columns))
        self.positions[tp] = start + rows

    def end(self, task: int) -> None:
        """End the epoch in a task."""
        tp = self.partitions[task]
        self.sinks[task].end_epoch(self.epoch, {tp: self.positions[tp]})

    def commit(self) -> None:
        """Commit the epoch to the logs."""
        self.logs.commit(self.epoch, self.positions, 0)
        self.epoch += 1

    def run_epoch(self, rows: int = 3, keep: Callable[[int], bool] = lambda _: True) -> None:
        """Run a complete epoch."""
        for task in range(len(self.partitions)):
            self.write(task, rows, keep)
        for task in range(len(self.partitions)):
            self.end(task)
        self.commit()

    def wait_for_committed_offsets(self) -> None:
        """Wait until the group has the offsets of committed transactions: brokers confirm a commit earlier."""
        self.delivery._group.committed_with_metadata(self.partitions)

    def close(self) -> None:
        """Close the writers of all runs."""
        for sink in self._all_sinks:
            sink.close()


def committed_counts(servers: str, output: str, tasks: int = 2) -> list[int]:
    """Return the number of committed rows of each partition, which must be unique and in order."""
    values = committed(servers, output, tasks)
    counts = []
    for task in range(tasks):
        task_values = [value for value in values if value.startswith(b"%d-" % task)]
        assert task_values == [b"%d-%d" % (task, number) for number in range(len(task_values))]
        counts.append(len(task_values))
    return counts
