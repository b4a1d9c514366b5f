"""A stand-in for the applications that run a continuous query: drivers, and Spark's jobs with workers.

The query, from ``start`` on, is the package's. What needs Spark is replaced: the session, the job that runs the task
function in workers, and the file system of the checkpoint.
"""

from __future__ import annotations

import atexit
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.errors import ProcessKilled
from tests.simulation.scenarios.checkpoint_store import open_logs

from pyspark_kafka_direct.continuous.continuous_task import run_task
from pyspark_kafka_direct.continuous.query_builder import ContinuousQueryBuilder
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.options.continuous_query import parse_start_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.environment import Environment
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scenarios.checkpoint_store import CheckpointStore, Offsets
    from tests.simulation.scenarios.continuous_cores import Cores
    from tests.simulation.scheduler import Task

    from pyspark_kafka_direct.continuous.continuous_task import TaskPlan
    from pyspark_kafka_direct.continuous.query import ContinuousQuery
    from pyspark_kafka_direct.continuous.query_run import TaskFunction

_CORE_RETRY_SECONDS = 0.05
_POLL_SECONDS = 5.0
_STEADY_SECONDS = 1.0
_QUERY_THREADS = tuple(
    f"pyspark-kafka-direct-{name}"
    for name in ("continuous", "partition-discovery", "job", "epoch-committer", "init-producer-id")
)


class SparkJobError(Exception):
    """A job fails."""


class JobStart(NamedTuple):
    """When a job started, whether its driver was alone then, and what that driver has at least found committed."""

    driver: int
    time: float
    committed: Offsets
    is_alone: bool


class ContinuousDriver:
    """A driver process with the query, from its start to its end, and its workers."""

    def __init__(
        self,
        environment: Environment,
        number: int,
        store: CheckpointStore,
        parameters: Mapping[str, Any],
        define: Callable[[ContinuousQueryBuilder], ContinuousQueryBuilder],
        on_job: Callable[[str, JobStart], None],
        cores: Cores,
    ) -> None:
        self.number = number
        self.cores = cores
        self.job_count = 0
        self.environment = environment
        self.process = environment.process(f"driver-{number}")
        self.parameters = parameters
        self.started_at = environment.world.now
        self.fails_on_loss = True  # failOnDataLoss
        self.is_alone = True  # no other driver has run at the same time
        self.ended = False  # the application has ended in order, or with an error
        self.error: Exception | None = None
        self.stop_requested = False
        self.stop_seconds: float | None = None  # how long a stop took
        self.is_processing = False  # whether a call of processAllAvailable has not returned
        self.query: ContinuousQuery | None = None
        self._store = store
        self._define = define
        self._on_job = on_job
        self._workers: list[SimulatedProcess] = []
        self._busy: list[SimulatedProcess] = []
        self._worker_count = 0
        self._jobs: dict[int, str] = {}  # groups, by thread
        self._cancelled: set[str] = set()
        self._cancelled_by_user: set[str] = set()
        self._job_started_at = 0.0
        self._waiting: dict[str, Task] = {}  # for a job, by group
        self._rng = environment.world.rng(f"spark {number}")

    @property
    def is_over(self) -> bool:
        return self.ended or self.process.dead

    @property
    def is_running(self) -> bool:
        return not self.is_over and self.query is not None

    @property
    def is_steady(self) -> bool:
        """Whether its tasks have run for a while."""
        if self.query is None or not self.is_running or not self.query.status["isTriggerActive"]:
            return False
        return self.environment.world.now > max(self._job_started_at, self.process.paused_until) + _STEADY_SECONDS

    def start(self) -> None:
        self.process.spawn("main", self._run)

    def stop(self) -> None:
        """The user stops the query."""
        if self.is_running:
            self.stop_requested = True
            self.process.spawn("stop", self._stop)

    def process_all(self, on_return: Callable[[], None]) -> None:
        """Call ``processAllAvailable`` in another thread; ``on_return`` is called if the query has not failed."""

        def run() -> None:
            assert self.query is not None
            try:
                self.query.processAllAvailable()
            except KafkaDirectError:
                return
            finally:
                self.is_processing = False
            if self.is_running and self.query.isActive:
                on_return()

        self.is_processing = True
        self.process.spawn("process all", run)

    def end(self) -> None:
        """End the driver, and its workers."""
        self.process.kill()
        for each in self._workers:
            each.kill()

    @property
    def query_status(self) -> str:
        """The message of the query's status."""
        return "" if self.query is None else str(self.query.status["message"])

    def leftovers(self) -> list[str]:
        """Return the threads and sockets that the query has not ended or closed in the driver."""
        process = self.process
        threads = [
            each.name
            for each in self.environment.world.tasks
            if each.process is process and not each.greenlet.dead and each.name.startswith(_QUERY_THREADS)
        ]
        return threads + self.environment.network.peers.open_sockets(process)

    def workers(self) -> list[SimulatedProcess]:
        return [each for each in self._workers if not each.dead]

    def _run(self) -> None:
        settings = parse_start_options(self.parameters["start"])
        pool = self.environment.pool(self.process)
        try:
            with self.environment.world.operation():
                builder = self._define(ContinuousQueryBuilder(_session(self)))
                self.query = builder._start_with(settings, lambda: open_logs(self._store, self.process), pool)
                atexit.unregister(self.query._at_exit)  # a process that is killed does not
                self.query.awaitTermination()
        except ProcessKilled:
            raise
        except Exception as error:
            self.error = error
        self.ended = True
        self.environment.world.trace("driver ended", self.number, type(self.error).__name__)

    def _stop(self) -> None:
        began = self.environment.world.now
        assert self.query is not None
        try:
            self.query.stop()
        except Exception as error:
            self.error = error
        self.stop_seconds = self.environment.world.now - began

    # Spark.

    def set_job_group(self, group: str, *_: object, **__: object) -> None:
        self._jobs[self.process.thread_id()] = group

    def cancel_job_group(self, group: str) -> None:
        self._cancelled.add(group)
        self.wake_job(group)

    def cancel_by_user(self) -> None:
        """A user cancels the running jobs in Spark's UI."""
        self._cancelled_by_user.update(self._waiting)
        for group in tuple(self._waiting):
            self.wake_job(group)

    def wake_job(self, group: str) -> None:
        """Wake the thread that waits for a job, unless the job has ended."""
        if group in self._waiting:
            self.environment.world.wake(self._waiting[group])

    def run_job(self, function: TaskFunction, tasks: int) -> None:
        """Run a task for each number; raise if one of them fails, or the job is cancelled."""
        world = self.environment.world
        group = self._jobs[self.process.thread_id()]
        job = JobStart(self.number, world.now, self._store.committed_offsets(), self.is_alone)
        self._on_job(function.plan.address.run, job)
        self._waiting[group] = world.current
        self._job_started_at = world.now
        self.job_count += 1
        attempts = [_Attempt(self, group, function.plan, task, 0) for task in range(tasks)]
        failed: BaseException | None = None
        try:
            while any(not each.ended for each in attempts):
                if group in self._cancelled_by_user:
                    raise SparkJobError(f"[SPARK_JOB_CANCELLED] The job of the group {group} was cancelled")
                if group in self._cancelled:
                    raise SparkJobError(f"Job group {group} was cancelled")
                lost = [each for each in attempts if each.is_lost]
                if lost:
                    failed = lost[0].error
                    if lost[0].number + 1 >= self.parameters["task_attempts"]:
                        raise SparkJobError(f"Task {lost[0].task} failed: {failed!r}")
                    again = _Attempt(self, group, lost[0].plan, lost[0].task, lost[0].number + 1)
                    attempts[attempts.index(lost[0])] = again
                    continue
                world.block("a job", _POLL_SECONDS)
        finally:
            del self._waiting[group]
            if not self.process.dead:
                for each in attempts:
                    each.abandon(self.parameters["kill_seconds"])

    def acquire_worker(self) -> SimulatedProcess:
        """Return an idle worker, or a new one."""
        idle = [each for each in self._workers if not each.dead and each not in self._busy]
        if not idle:
            self._worker_count += 1
            idle = [self.environment.process(f"worker-{self.number}-{self._worker_count}")]
            self._workers += idle
        self._busy.append(idle[0])
        return idle[0]

    def release_worker(self, worker: SimulatedProcess) -> None:
        if worker in self._busy:
            self._busy.remove(worker)

    def start_delay(self) -> float:
        delay: float = self.parameters["task_delay"]
        return delay * (0.5 + self._rng.random())


class _Attempt:
    """An attempt of a task."""

    def __init__(self, driver: ContinuousDriver, group: str, plan: TaskPlan, task: int, number: int) -> None:
        self.plan = plan
        self.task = task
        self.number = number
        self.ended = False
        self.error: BaseException | None = None
        self._driver = driver
        self._group = group
        self._worker: SimulatedProcess | None = None
        self._abandoned = False
        driver.environment.world.after(driver.start_delay(), self._start)

    @property
    def is_lost(self) -> bool:
        return self.error is not None or (self._worker is not None and self._worker.dead and not self.ended)

    @property
    def is_running(self) -> bool:
        return self._worker is not None and not (self._worker.dead or self.ended or self.error is not None)

    def abandon(self, seconds: float) -> None:
        """Kill the worker some seconds later, unless the task has ended."""
        self._abandoned = True
        if self._worker is not None and not self._worker.dead:
            self._driver.environment.world.after(seconds, self._kill)

    def _kill(self) -> None:
        # If the task has failed, its worker may run another one by now.
        if not self.ended and self.error is None and self._worker is not None:
            self._worker.kill()

    def _start(self) -> None:
        if self._abandoned or self._driver.process.dead:
            return
        if not self._driver.cores.acquire(self):
            self._driver.environment.world.after(_CORE_RETRY_SECONDS, self._start)
            return
        self._worker = self._driver.acquire_worker()
        self._worker.spawn(f"task {self.task}", self._run)

    def _run(self) -> None:
        worker, environment = self._worker, self._driver.environment
        assert worker is not None
        try:
            run_task(self.plan, self.task, self.number, environment.pool(worker))
            self.ended = True
        except ProcessKilled:
            raise
        except Exception as error:
            self.error = error
            environment.world.trace("task failed", worker.name, self.task, type(error).__name__)
        finally:
            self._driver.release_worker(worker)
            if not self._driver.process.dead:
                self._driver.wake_job(self._group)


class _Job:
    """An RDD of task numbers."""

    def __init__(self, driver: ContinuousDriver, tasks: int) -> None:
        self._driver = driver
        self._tasks = tasks
        self._function: Any = None

    def mapPartitionsWithIndex(self, function: TaskFunction) -> _Job:
        self._function = function
        return self

    def collect(self) -> list[int]:
        self._driver.run_job(self._function, self._tasks)
        return []


class _Session:
    """What the package uses of a SparkSession."""

    def __init__(self, context: Any) -> None:
        self.sparkContext = context
        self.conf: dict[str, str] = {}

    def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return the function: ``inheritable_thread_target`` returns its argument if there is no JVM."""
        return function


def _session(driver: ContinuousDriver) -> Any:
    conf = {"spark.driver.host": driver.process.name}
    if driver.cores.total is not None:
        conf["spark.cores.max"] = str(driver.cores.total)
    context = SimpleNamespace(
        _jvm=None,
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False)),
        master="spark://master:7077",
        getConf=lambda: conf,
        setJobGroup=driver.set_job_group,
        cancelJobGroup=driver.cancel_job_group,
        parallelize=lambda _, tasks: _Job(driver, tasks),
    )
    return _Session(context)
