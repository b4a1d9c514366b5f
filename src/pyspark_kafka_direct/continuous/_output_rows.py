"""What a query's function returns, as rows that ``writing`` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.runtime.write_rows import pieces, rows_to_write, stamp_of
from pyspark_kafka_direct.runtime.write_schema import arrow_write_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.continuous.sink import TaskInfo
    from pyspark_kafka_direct.runtime.write_schema import WriteSchema
    from pyspark_kafka_direct.wire.system import System


class OutputRows:
    """Finds the columns to write, by the rules of the sink, and makes rows of them.

    Args:
        topic: The topic of all rows; ``None``: a column names it.
        stamp: Whether records get headers that tell who wrote them.
        task: Who writes.
        system: Whose clock rows without a timestamp get.
    """

    def __init__(self, topic: str | None, *, stamp: bool, task: TaskInfo, system: System) -> None:
        self._topic = topic
        self._system = system
        self._task = task
        self._stamps = stamp
        self._stamp: dict[str, bytes] | None = None
        self._schema: pa.Schema | None = None
        self._columns: WriteSchema | None = None
        self.begin_epoch(task.epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Write the number of another epoch into headers."""
        if self._stamps:
            self._stamp = stamp_of(self._task.query_id, epoch, self._task.task, attempt=0)

    def of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows to write, in pieces of some MiB.

        Args:
            batch: What the function has returned. Each may have another schema.

        Raises:
            ColumnError: A column is missing, is there twice, or has the wrong type.
        """
        schema = batch.schema
        if self._columns is None or not schema.equals(self._schema):
            self._columns, self._schema = arrow_write_schema(schema, self._topic), schema
        now_ms = int(self._system.wall_time() * 1000)
        for piece in pieces(batch):
            yield rows_to_write(piece, self._columns, now_ms, self._stamp)
