"""A continuous query that was started."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import RunFailedError
from pyspark_kafka_direct.runtime.plain_errors import plain_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.continuous._query_state import QueryState
    from pyspark_kafka_direct.continuous._runner import Runner
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.system import System

THREAD: Final = "pyspark-kafka-direct-continuous-"
"""What the name of a query's thread begins with; the query's own name follows."""

_SECONDS_AT_EXIT: Final = 5.0


class ContinuousQuery:
    """A running query, with what ``pyspark.sql.streaming.StreamingQuery`` has. For several threads.

    Made by ``start`` of the builder. It runs in a thread of its own, which does not keep the process alive: at the
    interpreter's end the query is stopped, for five seconds at most.
    """

    def __init__(
        self,
        state: QueryState,
        runner: Runner,
        ends: Callable[[], Mapping[TopicPartition, int]],
        stop_seconds: float,
        system: System,
    ) -> None:
        self._state = state
        self._ends = ends
        self._stop_seconds = stop_seconds
        atexit.register(self._at_exit)
        name = THREAD + (state.about.name or state.about.id)
        try:
            system.start(lambda: self._lead(runner), name)
        except BaseException:
            atexit.unregister(self._at_exit)
            raise

    @property
    def id(self) -> str:
        """The query's id, the same for as long as its checkpoint lives."""
        return self._state.about.id

    @property
    def runId(self) -> str:  # noqa: N802 (Spark's names, so below)
        """The id of this start of the query."""
        return self._state.about.run_id

    @property
    def name(self) -> str | None:
        """The query's name, if it has one."""
        return self._state.about.name

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query has not ended."""
        return not self._state.ended

    @property
    def status(self) -> dict[str, Any]:
        """What the query does now: ``message``, ``isDataAvailable``, ``isTriggerActive``."""
        return dict(self._state.status)

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        """What the last epoch has brought; ``None`` before the first one. Epochs that moved no offset do not count."""
        recent = self._state.recent
        return recent[-1] if recent else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """What the last epochs have brought, as many as ``spark.sql.streaming.numRecentProgressUpdates``."""
        return self._state.recent

    def exception(self) -> KafkaDirectError | None:
        """Return why the query has ended; ``None`` while it runs, and after ``stop``."""
        return self._state.error

    @plain_errors
    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query has ended.

        Args:
            timeout: How long at most, in seconds.

        Returns:
            With a timeout, whether it has ended.

        Raises:
            KafkaDirectError: It has ended by an error.
        """
        ended = self._state.wait(lambda: self._state.ended, timeout)
        if ended and self._state.error is not None:
            raise self._state.error
        return None if timeout is None else ended

    @plain_errors
    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until all records that are there now were read, and their output is out and committed.

        Raises:
            KafkaDirectError: The query ends before that by an error, or the cluster can't be asked.
        """
        ends = self._ends()

        def done() -> bool:
            offsets = self._state.offsets
            return self._state.ended or all(offsets.get(tp, -1) >= end for tp, end in ends.items())

        self._state.wait(done, None)
        if self._state.error is not None:
            raise self._state.error

    def stop(self) -> None:
        """End the query: read no more, let the sinks flush, commit, and return when that is done.

        Raises:
            RunFailedError: It has not ended in time, although its job was cancelled.
        """
        self._state.stop()
        if not self._state.wait(lambda: self._state.ended, self._stop_seconds):
            raise RunFailedError(f"The query has not ended within {self._stop_seconds:g} s after it was stopped.")

    def _lead(self, runner: Runner) -> None:
        try:
            runner.lead()
        finally:
            atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        self._state.stop()
        self._state.wait(lambda: self._state.ended, _SECONDS_AT_EXIT)
