"""The Spark job of a run: long-running tasks, in a job group and a thread of their own."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from pyspark.util import inheritable_thread_target

from pyspark_kafka_direct.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous._seams import TaskPlan
    from pyspark_kafka_direct.wire.system import System

_log = logging.getLogger("pyspark_kafka_direct.continuous")

# A task that fails tells the driver so by itself, and more of it than Spark does.
_SECONDS_FOR_THE_TASK: Final = 0.5
_CANCEL_AGAIN: Final = 1.0
_MOST_TEXT: Final = 16_384


class SparkJob:
    """Runs the tasks of one run.

    Args:
        spark: Where.
        group: The job group; unlike any other.
        description: What Spark's UI shows.
        plan: What all tasks have in common.
        tasks: How many there are.
        on_failure: Is told why the job has failed, in the job's thread.
        system: Has the threads.
    """

    def __init__(
        self,
        spark: SparkSession,
        group: str,
        description: str,
        plan: TaskPlan,
        tasks: int,
        on_failure: Callable[[RunFailedError], None],
        system: System,
    ) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._group = group
        self._description = description
        self._plan = plan
        self._tasks = tasks
        self._on_failure = on_failure
        self._system = system
        self._changed = threading.Condition()
        self._cancelled = False
        self._ended = False

    def start(self) -> None:
        """Submit the job. It inherits the local properties of this thread, such as the scheduler's pool."""
        try:
            inherit = inheritable_thread_target(self._spark)(lambda: None)
            self._system.start(lambda: self._run(inherit), f"pyspark-kafka-direct-job-{self._group}")
        except BaseException:
            self._ended = True  # it never began, so nobody is to wait for its end
            raise

    def wait(self, seconds: float) -> bool:
        """Wait so long for the job's end; return whether it has ended."""
        until = self._system.monotonic() + seconds
        with self._changed:
            while not self._ended and (left := until - self._system.monotonic()) > 0:
                self._system.wait(self._changed, left)
            return self._ended

    def cancel(self, seconds: float) -> bool:
        """Cancel the job, and wait so long for its end; return whether it has ended."""
        until = self._system.monotonic() + seconds
        self._cancelled = True
        while not self.wait(0):
            try:
                self._context.cancelJobGroup(self._group)  # more than once: it may not have been there yet
            except Exception as error:
                _log.info("the job group %s cannot be cancelled: %s", self._group, error)
            left = until - self._system.monotonic()
            if left <= 0:
                return False
            self.wait(min(left, _CANCEL_AGAIN))
        return True

    def _run(self, inherit: Callable[[], None]) -> None:
        try:
            inherit()
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            numbers = self._context.parallelize(range(self._tasks), self._tasks)
            if not self._cancelled:
                numbers.mapPartitionsWithIndex(_work(self._plan)).collect()
        except BaseException as error:
            if not self._cancelled:
                failure = _failed(error)
                self._system.sleep(_SECONDS_FOR_THE_TASK)
                self._on_failure(failure)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()


def _work(plan: TaskPlan) -> Callable[[int, Iterable[int]], Iterator[int]]:
    """Return what Spark runs as a task; it travels to the executors with the plan."""

    def work(task: int, _: Iterable[int]) -> Iterator[int]:
        from pyspark import TaskContext

        from pyspark_kafka_direct.continuous._task import run_task

        context = TaskContext.get()
        run_task(plan, task, context.attemptNumber() if context is not None else 0)
        return iter(())

    return work


def _failed(error: BaseException) -> RunFailedError:
    failure = RunFailedError(f"The Spark job of the query has failed: {_text_of(error)}")
    failure.__cause__ = error
    return failure


def _text_of(error: Any) -> str:
    """Return what Spark says of a failure, without the stack of the JVM."""
    try:
        java = getattr(error, "java_exception", None)
        text = str(error) if java is None else str(java.getMessage())
    except Exception:  # the JVM is gone
        text = type(error).__name__
    text = text.partition("\nDriver stacktrace:")[0]
    lines = [line for line in text.splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines)[-_MOST_TEXT:]
