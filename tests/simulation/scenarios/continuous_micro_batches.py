"""A micro-batch query that resumes from the checkpoint of a continuous query, and leaves it to the next one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, LongType, StructField, StructType
from tests.simulation.errors import ProcessKilled
from tests.simulation.scenarios.micro_batch_options import parse_options
from tests.simulation.scenarios.spark_stand_in import Checkpoint, LoggedEnd, MicroBatchExecution, Trigger

from pyspark_kafka_direct.datasource.read_schema import read_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.checkpoint_store import CheckpointStore

_SCHEMA = read_schema(StructType([StructField("offset", LongType()), StructField("value", BinaryType())]))
_COMMIT = 'v1\n{"nextBatchWatermarkMs":5000}'
_TRIGGERS = 3
_INTERVAL = 0.1


class SharedCheckpoint(Checkpoint):
    """The checkpoint of the continuous query, as the stand-in for Spark's micro-batches uses it."""

    def __init__(self, store: CheckpointStore, process: str) -> None:
        super().__init__()
        self._store = store
        self._process = process
        epochs = store.epochs("offsets")
        texts = {epoch: store.files[f"offsets/{epoch}"].split("\n")[2] for epoch in epochs}
        # Epochs that were purged are not used.
        self.offsets = [LoggedEnd(texts.get(epoch, ""), 0.0, -1, 0.0) for epoch in range(epochs[-1] + 1)]
        self.__dict__["committed"] = (store.committed() or 0) + 1

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "committed" and "_store" in self.__dict__:
            self._store.create(f"commits/{value - 1}", _COMMIT, self._process)
        super().__setattr__(name, value)

    def write_end(self, batch: int, text: str, time: float, run: int, asked_at: float) -> None:
        super().write_end(batch, text, time, run, asked_at)
        settings, watermark = self._store.last_metadata()
        metadata = f'{{"batchWatermarkMs":{watermark},"batchTimestampMs":1,"conf":{settings}}}'
        self._store.create(f"offsets/{batch}", f"v1\n{metadata}\n{text}", self._process)


class MicroBatchRun:
    """One run; at a drawn step its driver dies."""

    def __init__(
        self,
        environment: Environment,
        number: int,
        store: CheckpointStore,
        options: Mapping[str, str],
        crash: str | None,
    ) -> None:
        self._checkpoint = SharedCheckpoint(store, f"micro-batches-{number}")
        self._crash = crash
        self.execution = MicroBatchExecution(
            environment,
            number,
            self._checkpoint,
            parse_options(options, environment.plan.parameters["brokers"]),
            options,
            _SCHEMA,
            Trigger("processing time", _INTERVAL, _TRIGGERS),
            legacy=False,
            reach=partial(_crash_at, crash),
        )
        self.execution.driver.spawn("main", self._run)
        self.is_over = False

    def _run(self) -> None:
        try:
            self.execution.run()
        finally:
            self.is_over = True

    def values(self) -> dict[int, list[bytes]]:
        """Return the values in the sink, which has each batch once."""
        return {
            batch: [value for task in read.reads for _, value in task.rows if value is not None]
            for batch, read in self._checkpoint.sink.items()
        }


def _crash_at(step: str | None, execution: MicroBatchExecution, reached: str) -> None:
    if reached == step:
        execution.driver.kill()
        raise ProcessKilled
