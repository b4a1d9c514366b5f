"""One run of a continuous query: a Spark job of long-running tasks, and the coordinator of its epochs."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyspark.util import inheritable_thread_target

from pyspark_kafka_direct.client.system import wait_until
from pyspark_kafka_direct.continuous.continuous_epochs import JOB_CANCELLED
from pyspark_kafka_direct.continuous.control_socket import ControlAddress
from pyspark_kafka_direct.continuous.epoch_coordinator import EpochCoordinator
from pyspark_kafka_direct.errors import OptionError, QueryRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult
    from pyspark_kafka_direct.continuous.continuous_task import TaskPlan
    from pyspark_kafka_direct.continuous.epoch_coordinator import RunPlan
    from pyspark_kafka_direct.options.continuous_query import ContinuousSettings

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_JOB_END_SECONDS: Final = 10.0  # after the last epoch
_JOB_CANCEL_SECONDS: Final = 30.0  # Spark kills a cancelled Python worker after two seconds
_CANCEL_INTERVAL: Final = 1.0
_MAX_ERROR_CHARS: Final = 16_384

# A failed task reports its error to the driver itself, in more detail than Spark does.
_TASK_REPORT_GRACE_SECONDS: Final = 0.5


class QueryRun:
    """Listens as soon as it is created, so it must be closed. ``stop`` may be called from any thread."""

    def __init__(
        self,
        spark: SparkSession,
        plan: RunPlan,
        settings: ContinuousSettings,
        *,
        create_task_plan: Callable[[ControlAddress], TaskPlan],
        description: str,  # shown in Spark's UI
        on_epoch: Callable[[EpochResult], None],
        system: System,
    ) -> None:
        self._id = plan.run
        host, bind_address = driver_addresses(spark.sparkContext)
        try:
            self._coordinator = EpochCoordinator(plan, settings, on_epoch, bind_address, system)
        except OSError as error:
            raise OptionError(
                f"The driver cannot listen at {bind_address}, port {settings.control_port}: {error}. Check controlPort "
                "and spark.driver.bindAddress."
            ) from error
        address = ControlAddress(host, self._coordinator.port, plan.run, plan.secret)
        try:
            task_plan = create_task_plan(address)
            self._job = SparkJob(
                spark,
                group=plan.run,
                description=description,
                plan=task_plan,
                tasks=plan.tasks,
                on_failure=self._coordinator.abort,
                system=system,
            )
        except BaseException:
            self._coordinator.close()
            raise

    @property
    def started(self) -> bool:
        """Whether all tasks have connected, and the run was prepared."""
        return self._coordinator.started

    def run(self) -> EpochResult | None:
        """Run until ``stop``; return the last epoch, or ``None`` if not all tasks had started."""
        has_completed = False
        try:
            self._job.start()
            result = self._coordinator.run()
            has_completed = result is not None
            return result
        finally:
            self._coordinator.disconnect()
            has_ended = has_completed and self._job.wait(_JOB_END_SECONDS)  # after a failure, cancel at once
            if not has_ended and not self._job.cancel(_JOB_CANCEL_SECONDS):
                _log.warning("The Spark job %s did not end within %g s.", self._id, _JOB_CANCEL_SECONDS)

    def stop(self) -> None:
        """End the run with a final epoch."""
        self._coordinator.stop()

    def wait_until_tasks_end(self, is_interrupted: Callable[[], bool]) -> None:
        """Wait after ``run`` until no task can write any more."""
        self._coordinator.wait_until_tasks_end(is_interrupted)

    def close(self) -> None:
        """Release all resources."""
        self._coordinator.close()


def driver_addresses(context: SparkContext) -> tuple[str, str]:
    """Return the address at which executors reach the driver, and the address to listen at."""
    conf = context.getConf()
    host = conf.get("spark.driver.host") or "localhost"
    bind_address = conf.get("spark.driver.bindAddress") or host
    return host.strip("[]"), bind_address.strip("[]")


def new_id(system: System) -> str:
    """Return a random UUID."""
    return str(UUID(bytes=hashlib.sha256(system.nonce().encode()).digest()[:16], version=4))


class SparkJob:
    """The Spark job of one run, with its own job group and thread."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        group: str,
        description: str,
        plan: TaskPlan,
        tasks: int,
        on_failure: Callable[[QueryRunError], None],
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
        self._changed = system.condition()
        self._cancelled = False
        self._ended = False

    def start(self) -> None:
        """Submit the job. It inherits the local properties of this thread, such as the scheduler pool."""
        try:
            # Called in the job's thread, it copies the local properties that this thread has now.
            inherit_properties = inheritable_thread_target(self._spark)(lambda: None)
            self._system.start_thread(lambda: self._run(inherit_properties), f"pyspark-kafka-direct-job-{self._group}")
        except BaseException:
            self._ended = True  # the job was not submitted, so wait() must not block
            raise

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the job; return whether it has ended."""
        with self._changed:
            return wait_until(self._system, self._changed, lambda: self._ended, seconds)

    def cancel(self, seconds: float) -> bool:
        """Cancel the job, wait for its end, and return whether it has ended."""
        end = self._system.monotonic() + seconds
        self._cancelled = True
        while not self.wait(0):
            try:
                self._context.cancelJobGroup(self._group)  # repeated: the job may not have been submitted yet
            except Exception as error:
                _log.info("Cannot cancel the job group %s: %s", self._group, error)
            remaining = end - self._system.monotonic()
            if remaining <= 0:
                return False
            self.wait(min(remaining, _CANCEL_INTERVAL))
        return True

    def _run(self, inherit_properties: Callable[[], None]) -> None:
        try:
            inherit_properties()
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            task_numbers = self._context.parallelize(range(self._tasks), self._tasks)
            if not self._cancelled:
                task_numbers.mapPartitionsWithIndex(TaskFunction(self._plan)).collect()
        except BaseException as error:
            if not self._cancelled:
                failure = _job_failed_error(error)
                if failure.cause_class != JOB_CANCELLED:  # a failed task reports its error first
                    self._system.sleep(_TASK_REPORT_GRACE_SECONDS)
                self._on_failure(failure)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class TaskFunction:
    """The function that Spark pickles and runs as a task."""

    plan: TaskPlan

    def __call__(self, task: int, _: Iterable[int]) -> Iterator[int]:
        from pyspark import TaskContext

        from pyspark_kafka_direct.continuous.continuous_task import run_task

        context = TaskContext.get()
        run_task(self.plan, task, context.attemptNumber() if context is not None else 0)
        return iter(())


def _job_failed_error(error: BaseException) -> QueryRunError:
    message = _spark_error_message(error)
    failure = QueryRunError(f"The Spark job of the query failed: {message}")
    failure.__cause__ = error
    if JOB_CANCELLED in message:
        failure.cause_class = JOB_CANCELLED
    return failure


def _spark_error_message(error: Any) -> str:
    """Return the message of a Spark failure without the JVM's stack trace."""
    try:
        java_exception = getattr(error, "java_exception", None)
        message = str(error) if java_exception is None else str(java_exception.getMessage())
    except Exception:  # the JVM has exited
        message = type(error).__name__
    message = message.partition("\nDriver stacktrace:")[0]
    lines = [line for line in message.splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines)[-_MAX_ERROR_CHARS:]
