"""The user's function and sinks of a continuous query. They are pickled, and find their history by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.simulation.scenarios.continuous_checks import is_dropped, output_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.scenarios.continuous import QueryHistory

    from pyspark_kafka_direct.continuous.continuous_sink import TaskInfo
    from pyspark_kafka_direct.offsets import TopicPartition

HISTORIES: Final[dict[str, QueryHistory]] = {}
"""The histories that run, by name."""


class UserFunction:
    """The query's function: it takes some time, may drop every third record, and names the topics of the others."""

    def __init__(self, history: str, seconds: float, *, drops_rows: bool, topics: int) -> None:
        self._history = history
        self._seconds = seconds
        self._drops_rows = drops_rows
        self._topics = topics

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        HISTORIES[self._history].sleep(self._seconds)
        values = batch["value"].to_pylist()
        if self._topics > 1:
            batch = batch.append_column("topic", pa.array([output_topic(value, self._topics) for value in values]))
        if not self._drops_rows:
            return batch
        keep = [index for index, value in enumerate(values) if not is_dropped(value)]
        return batch.take(keep) if keep else None


class RowSinkFactory:
    """Makes the user's sinks of a history."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, task: TaskInfo) -> RowSink:
        return RowSink(HISTORIES[self._name], task)


class RowSink:
    """A sink of the user: rows are durable after a flush."""

    def __init__(self, history: QueryHistory, task: TaskInfo) -> None:
        self._number = history.open_sink(task.run_id, task.partitions)
        self._history = history
        self._run = task.run_id
        self._rows: list[bytes] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch["value"].to_pylist()

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        self._history.flush(self._rows, self._run)
        self._rows = []

    def close(self) -> None:
        self._history.close_sink(self._number)


class DatabaseSinkFactory(RowSinkFactory):
    def __call__(self, task: TaskInfo) -> DatabaseSink:
        return DatabaseSink(HISTORIES[self._name], task)


class DatabaseSink(RowSink):
    """A sink of the user that stores rows and positions in one transaction."""

    def __init__(self, history: QueryHistory, task: TaskInfo) -> None:
        super().__init__(history, task)
        self._known = {tp: history.database.get(tp) for tp in task.partitions}

    def stored_positions(self) -> Mapping[TopicPartition, int]:
        return {tp: offset for tp, offset in self._known.items() if offset is not None}

    def flush(self, positions: Mapping[TopicPartition, int]) -> None:
        self._history.store(self._rows, self._run, self._known, positions)
        self._known, self._rows = dict(positions), []


class UserError(Exception):
    """The user's sink fails."""
