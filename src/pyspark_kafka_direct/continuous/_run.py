"""One run of a continuous query: a Spark job of long-running tasks, and the coordinator that leads them."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pyspark_kafka_direct.continuous._coordinator import Coordinator, RunPlan
from pyspark_kafka_direct.continuous._spark_job import SparkJob
from pyspark_kafka_direct.continuous._task_channel import ControlAddress
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous._coordinator import RunTimes
    from pyspark_kafka_direct.continuous._seams import TaskPlan
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.epochs import Assignment, EpochResult
    from pyspark_kafka_direct.wire.system import System

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_SECONDS_TO_END: Final = 10.0  # after the last mark, when nothing is left to do
_SECONDS_TO_CANCEL: Final = 30.0  # Spark kills a Python worker that does not end after two


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """What a run is to do.

    Attributes:
        description: What Spark's UI shows.
        assignment: Who reads what.
        offsets: The first offset to read of every partition.
        epoch: The number of the first epoch.
        shares_numbers: Whether epochs may share a number (``RunPlan``).
        times: How long everything may take.
        port: The port to listen at; 0 for any that is free.
        plan: Returns what the tasks have in common, by where the driver is.
    """

    description: str
    assignment: Assignment
    offsets: Mapping[TopicPartition, int]
    epoch: int
    shares_numbers: bool
    times: RunTimes
    port: int
    plan: Callable[[ControlAddress], TaskPlan]


class Run:
    """A run. It listens as soon as it is made: close it. ``stop`` may be called from any thread.

    Args:
        spark: Where the job runs.
        order: What to do.
        on_epoch: Is told each whole epoch, in the thread of ``run``, and writes it down.
        system: The world outside.

    Raises:
        OptionError: The driver cannot listen at its address or port.
    """

    def __init__(
        self, spark: SparkSession, order: RunOrder, on_epoch: Callable[[EpochResult], None], system: System
    ) -> None:
        self.id = fresh_id(system)
        secret = Secret(system.nonce())
        host, bind = driver_addresses(spark.sparkContext)
        plan = RunPlan(self.id, secret, order.assignment, order.offsets, order.epoch, order.shares_numbers)
        try:
            self._coordinator = Coordinator(plan, order.times, on_epoch, bind, order.port, system)
        except OSError as error:
            raise OptionError(
                f"The driver cannot listen at {bind}, port {order.port}: {error}. See controlPort and "
                "spark.driver.bindAddress."
            ) from error
        address = ControlAddress(host, self._coordinator.port, self.id, secret)
        try:
            self._job = SparkJob(
                spark,
                self.id,
                order.description,
                order.plan(address),
                len(order.assignment),
                self._coordinator.abort,
                system,
            )
        except BaseException:
            self._coordinator.close()
            raise

    @property
    def started(self) -> bool:
        """Whether all tasks have said hello."""
        return self._coordinator.started

    def run(self) -> EpochResult | None:
        """Run until ``stop``; return the last epoch, ``None`` where not all tasks had started.

        When it returns or raises, the job has ended, or was given all the time to.

        Raises:
            RunFailedError: A task or the job failed.
            BaseException: What ``on_epoch`` raised.
        """
        clean = False
        try:
            self._job.start()
            result = self._coordinator.run()
            clean = result is not None
            return result
        finally:
            self._coordinator.close()
            if not (clean and self._job.wait(_SECONDS_TO_END)) and not self._job.cancel(_SECONDS_TO_CANCEL):
                _log.warning("The Spark job %s has not ended within %g s.", self.id, _SECONDS_TO_CANCEL)

    def stop(self) -> None:
        """End the run by a last mark."""
        self._coordinator.stop()

    def close(self) -> None:
        """Listen no more, where ``run`` was not called; that does so itself."""
        self._coordinator.close()


def driver_addresses(context: SparkContext) -> tuple[str, str]:
    """Return where executors reach the driver, and where it listens."""
    conf = context.getConf()
    host = conf.get("spark.driver.host") or "localhost"
    bind = conf.get("spark.driver.bindAddress") or host
    return host.strip("[]"), bind.strip("[]")


def fresh_id(system: System) -> str:
    """Return an id that no other run or query has, in the form of a UUID."""
    return str(UUID(bytes=hashlib.sha256(system.nonce().encode()).digest()[:16], version=4))
