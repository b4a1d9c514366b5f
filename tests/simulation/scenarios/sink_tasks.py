"""The tasks of a stand-in for Spark that writes with the exactly-once sink: their attempts, rows and staged files."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from tests.simulation.record_attributes import attributes_of

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.payloads.write_rows import HEADERS
from pyspark_kafka_direct.producer.staged_frames import StagedFile, StagedInline, decode_frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scenarios.sink_stand_in import SinkDriver
    from tests.simulation.scenarios.sink_writes import SinkWrite

    from pyspark_kafka_direct.datasource.write_task import StagedCommitMessage, StagingWriteTask

_TASK_ATTEMPTS: Final = 4  # spark.task.maxFailures


class SinkRow(NamedTuple):
    value: bytes
    partition: TopicPartition


class TaskSet:
    """The attempts of one task; the first that succeeds counts."""

    def __init__(
        self, driver: SinkDriver, write: SinkWrite, index: int, rows: Sequence[SinkRow], task: StagingWriteTask
    ) -> None:
        self._driver = driver
        self._write = write
        self._index = index
        self._rows = rows
        self._task = task
        self._attempts = 0
        self._running = 0
        self._last_error: KafkaDirectError | None = None
        self._result: Future[StagedCommitMessage] = Future()

    def start_attempt(self) -> None:
        attempt = self._attempts
        self._attempts += 1
        self._running += 1
        executor = self._driver.query.executor((self._index + attempt) % 2)
        self._driver.query.attempt_count += 1
        numbers = b"%d" % self._index, b"%d" % attempt
        self._driver.query.attempts.update((row.value, *numbers) for row in self._rows)
        name = f"task {self._write.batch}.{self._index}.{attempt}"
        executor.spawn(name, partial(self._run_attempt, executor, attempt))

    def result(self, process: SimulatedProcess) -> StagedCommitMessage:
        process.wait_for_future(self._result, None)
        return self._result.result(0)

    def _run_attempt(self, executor: SimulatedProcess, attempt: int) -> None:
        driver = self._driver
        context = self._write.context(
            driver.run_id, partition=self._index, attempt=attempt, has_checkpoint=self._task.has_checkpoint
        )
        try:
            with driver.query.environment.world.operation():
                message = self._task.write(
                    self._arrow_batches(executor), context, driver.query.environment.pool(executor)
                )
            if not self._result.done():
                self._result.set_result(message)
        except KafkaDirectError as error:
            self._last_error = error
        finally:  # also if the executor dies
            self._running -= 1
            self._attempt_ended()

    def _arrow_batches(self, executor: SimulatedProcess) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Spark does, which may take a while for each batch of rows."""
        parameters = self._driver.query.parameters
        size = parameters.get("arrow_rows", 10_000)
        for first in range(0, max(1, len(self._rows)), size):
            if first:
                executor.sleep(parameters["row_seconds"])
            yield _arrow_rows(self._rows[first : first + size])

    def _attempt_ended(self) -> None:
        if self._result.done() or self._running or self._driver.process.dead:
            return
        if self._attempts < _TASK_ATTEMPTS:
            self._driver.query.environment.world.after(0.1, self.start_attempt)
        else:
            error = self._last_error or KafkaDirectError("all executors of a task were lost")
            self._result.set_exception(error)


def staged_sizes(messages: Sequence[StagedCommitMessage]) -> Counter[TopicPartition]:
    """Return the bytes of the record batches of each partition that messages or their files have."""
    sizes: Counter[TopicPartition] = Counter()
    for message in messages:
        staged = message.staged
        data = staged.data if isinstance(staged, StagedInline) else Path(staged.path).read_bytes()
        for topic, batch in decode_frames([data], staged.size, "a test"):
            sizes[TopicPartition(topic, batch.partition)] += len(batch.data)
    return sizes


def damage_file(messages: Sequence[StagedCommitMessage], draw: int) -> None:
    """Delete, shorten or change a file of staged rows."""
    path = next(Path(each.staged.path) for each in messages if isinstance(each.staged, StagedFile))
    data = bytearray(path.read_bytes())
    if draw % 3 == 0:
        path.unlink()
    elif draw % 3 == 1:
        path.write_bytes(data[:-1])
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def _arrow_rows(rows: Sequence[SinkRow]) -> pa.RecordBatch:
    attributes = [attributes_of(row.value) for row in rows]
    headers = [[{"key": key.decode(), "value": value} for key, value in each.headers] or None for each in attributes]
    columns = {
        "value": pa.array([row.value for row in rows], pa.binary()),
        "partition": pa.array([row.partition.partition for row in rows], pa.int32()),
        "key": pa.array([each.key for each in attributes], pa.binary()),
        "headers": pa.array(headers, HEADERS),
        "timestamp": pa.array([1000 * each.timestamp for each in attributes], pa.timestamp("us")),
        "topic": pa.array([row.partition.topic for row in rows], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)
