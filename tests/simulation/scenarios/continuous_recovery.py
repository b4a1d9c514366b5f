"""A call of ``recover_checkpoint`` after a query has ended, such as before it resumes with another prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.errors import ProcessKilled, ViolationError
from tests.simulation.scenarios.checkpoint_store import FileSystemError, open_logs

from pyspark_kafka_direct.continuous.checkpoint_recovery import fence_and_recover
from pyspark_kafka_direct.errors import InvalidOffsetsError, KafkaDirectError, OptionError, TransactionStateError
from pyspark_kafka_direct.options.sink_options import parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.checkpoint_store import CheckpointStore


class RecoveryRun:
    """One call, in a process of its own."""

    def __init__(
        self, environment: Environment, number: int, store: CheckpointStore, options: Mapping[str, str]
    ) -> None:
        self.has_recovered = False
        self.error: Exception | None = None
        self._start: Mapping[tuple[str, int], int] = {}  # that the call has returned
        self._committed: Mapping[tuple[str, int], int] = {}  # at that time
        self._environment = environment
        self._store = store
        self._options = options
        self._process = environment.process(f"recovery-{number}")
        self._process.spawn("main", self._run)

    @property
    def is_over(self) -> bool:
        return self.has_recovered or self.error is not None or self._process.dead

    def check(self) -> None:
        """Raise an error that the history cannot cause."""
        if isinstance(self.error, InvalidOffsetsError | TransactionStateError | OptionError):
            raise ViolationError(f"a checkpoint cannot be recovered: {self.error!r}") from self.error
        if self._start != self._committed:
            raise ViolationError(f"the recovery has returned {self._start}, and committed is {self._committed}")
        if self.error is not None and not isinstance(self.error, KafkaDirectError | FileSystemError):
            raise self.error

    def _run(self) -> None:
        pool = self._environment.pool(self._process)
        try:
            with self._environment.world.operation():
                logs = open_logs(self._store, self._process)
                options = parse_sink_options({"deliveryGuarantee": "exactly-once", **self._options}, streaming=True)
                files = self._store.files_of_others(self._process.name)
                start = fence_and_recover(logs, options, logs.query_id("unused"), pool)
                if files == self._store.files_of_others(self._process.name):
                    self._start = {} if start is None else {(tp.topic, tp.partition): start[tp] for tp in start}
                    self._committed = self._store.committed_offsets()
        except ProcessKilled:
            raise
        except Exception as error:
            self.error = error
        else:
            self.has_recovered = True
        self._environment.world.trace("recovery ended", type(self.error).__name__)
