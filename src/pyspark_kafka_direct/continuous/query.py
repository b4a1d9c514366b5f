"""The handle of a running continuous query."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from pyspark_kafka_direct.errors import QueryRunError
from pyspark_kafka_direct.spark.stack_traces import without_stack_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.continuous.continuous_execution import ContinuousExecution
    from pyspark_kafka_direct.continuous.query_state import QueryState
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition

_active: WeakSet[ContinuousQuery] = WeakSet()
_EXIT_STOP_SECONDS: Final = 5.0


def active() -> tuple[ContinuousQuery, ...]:
    """Return the continuous queries of this process that are running.

    Returns:
        The queries, by name or id.
    """
    return tuple(sorted(_active, key=lambda query: (query.name or "", query.id)))


class ContinuousQuery:
    """A running query, with the members of ``pyspark.sql.streaming.StreamingQuery``. Thread-safe.

    ``ContinuousQueryBuilder.start`` returns it. The query runs in its own daemon thread. At interpreter exit, the
    query is stopped, which takes at most five seconds.
    """

    def __init__(
        self,
        state: QueryState,
        execution: ContinuousExecution,
        end_offsets: Callable[[], Mapping[TopicPartition, int]],
        stop_timeout: float,  # seconds
        system: System,
    ) -> None:
        self._state = state
        self._end_offsets = end_offsets
        self._stop_timeout = stop_timeout
        atexit.register(self._at_exit)
        _active.add(self)
        name = f"pyspark-kafka-direct-continuous-{state.query_info.name or state.query_info.id}"
        try:
            system.start_thread(lambda: self._run(execution), name)
        except BaseException:
            self._unregister()
            raise

    @property
    def id(self) -> str:
        """The query's id, which is stored in its checkpoint."""
        return self._state.query_info.id

    @property
    def runId(self) -> str:  # noqa: N802 (Spark's names, also below)
        """The id of this start of the query."""
        return self._state.query_info.run_id

    @property
    def name(self) -> str | None:
        """The query's name, or ``None``."""
        return self._state.query_info.name

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query is running."""
        return not self._state.ended

    @property
    def status(self) -> dict[str, Any]:
        """The current status: ``message``, ``isDataAvailable`` and ``isTriggerActive``."""
        return dict(self._state.status)

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        """The progress report of the last epoch, or ``None``. Epochs without new offsets have no report."""
        recent_progress = self._state.recent_progress
        return recent_progress[-1] if recent_progress else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """The latest progress reports, as many as ``spark.sql.streaming.numRecentProgressUpdates``."""
        return self._state.recent_progress

    def exception(self) -> KafkaDirectError | None:
        """Return the error that ended the query, or ``None`` if it is running or was stopped."""
        return self._state.error

    @without_stack_trace
    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query has ended.

        Args:
            timeout: The maximum time to wait, in seconds.

        Returns:
            True if the query ended within the timeout, else False; ``None`` if there is no timeout.

        Raises:
            KafkaDirectError: The query failed.
        """
        ended = self._state.wait(lambda: self._state.ended, timeout)
        if ended and self._state.error is not None:
            raise self._state.error
        return None if timeout is None else ended

    @without_stack_trace
    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until all records that exist now are read, and their output is written and committed.

        Raises:
            KafkaDirectError: The query fails before that, or the brokers cannot be reached.
        """
        end_offsets = self._end_offsets()

        def has_caught_up() -> bool:
            offsets = self._state.offsets
            return self._state.ended or all(offsets.get(tp, -1) >= end for tp, end in end_offsets.items())

        self._state.wait(has_caught_up, None)
        if self._state.error is not None:
            raise self._state.error

    def stop(self) -> None:
        """Stop reading, let the sinks flush, commit, and return when the query has ended.

        Raises:
            QueryRunError: The query has not ended within the stop timeout.
        """
        self._state.stop()
        if not self._state.wait(lambda: self._state.ended, self._stop_timeout):
            raise QueryRunError(f"The query did not end within {self._stop_timeout:g} s after it was stopped.")

    def _run(self, execution: ContinuousExecution) -> None:
        try:
            execution.run()
        finally:
            self._unregister()

    def _unregister(self) -> None:
        atexit.unregister(self._at_exit)
        _active.discard(self)

    def _at_exit(self) -> None:
        self._state.stop()
        self._state.wait(lambda: self._state.ended, _EXIT_STOP_SECONDS)
