"""Runs that fail while they start release all resources, and wait for nothing that has not started."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.continuous.run_cluster import A0, PLAN, SETTINGS

from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.continuous import continuous_execution, query_run
from pyspark_kafka_direct.continuous.continuous_epochs import RestartBudget
from pyspark_kafka_direct.continuous.epoch_coordinator import EpochCommitter, EpochCoordinator
from pyspark_kafka_direct.continuous.query_run import QueryRun, SparkJob
from pyspark_kafka_direct.errors import (
    CheckpointFencedError,
    KafkaDirectError,
    OptionError,
    ProducerFencedError,
    QueryRunError,
    TaskStartTimeoutError,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from pyspark_kafka_direct.client.system import Condition, WakeupSignal
    from pyspark_kafka_direct.continuous.control_socket import ControlAddress


class ExhaustedSystem(RealSystem):
    """A machine without threads, and without descriptors after the listening socket unless ``descriptors``."""

    def __init__(self, *, descriptors: bool = True) -> None:
        self.listeners: list[socket.socket] = []
        self.descriptors = descriptors

    def listen(self, host: str, port: int) -> socket.socket:
        self.listeners.append(super().listen(host, port))
        return self.listeners[-1]

    def wakeup_signal(self) -> WakeupSignal:
        if not self.descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().wakeup_signal()

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        raise RuntimeError("can't start new thread")

    def wait(self, condition: Condition, seconds: float | None) -> bool:
        raise AssertionError("nothing has started")

    @property
    def closed(self) -> bool:
        return [each.fileno() for each in self.listeners] == [-1]


class Spark:
    """A session whose driver listens on this machine."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []  # job groups
        conf = {"spark.driver.host": "127.0.0.1"}
        self.sparkContext: Any = SimpleNamespace(getConf=lambda: conf, cancelJobGroup=self.cancelled.append)


def create_run(create_task_plan: Callable[[ControlAddress], Any], spark: Any, system: ExhaustedSystem) -> QueryRun:
    return QueryRun(
        spark, PLAN, SETTINGS, create_task_plan=create_task_plan, description="", on_epoch=lambda _: None, system=system
    )


def test_a_coordinator_without_a_wakeup_signal_stops_listening() -> None:
    system = ExhaustedSystem(descriptors=False)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        EpochCoordinator(PLAN, SETTINGS, lambda _: None, "127.0.0.1", system=system)
    assert system.closed


def test_a_run_without_a_task_plan_stops_listening() -> None:
    def fail(_: ControlAddress) -> Any:
        raise OptionError("no plan")

    system = ExhaustedSystem()
    with pytest.raises(OptionError, match="no plan"):
        create_run(fail, Spark(), system)
    assert system.closed


def test_a_run_does_not_wait_for_a_job_that_was_not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_run, "inheritable_thread_target", lambda _: lambda function: function)
    spark, system = Spark(), ExhaustedSystem()
    run = create_run(lambda _: None, spark, system)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run.run()
    run.close()
    assert spark.cancelled == []
    assert system.closed


def test_close_does_not_wait_for_a_commit_without_a_thread() -> None:
    committer = EpochCommitter(lambda: None, 60, ExhaustedSystem())
    with pytest.raises(RuntimeError, match="can't start new thread"):
        committer.submit(lambda: None, epoch=0)
    committer.close()


class JobSystem(RealSystem):
    """A machine that runs a thread at once, and does not pause."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        run()

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


class JavaError(Exception):
    """An error of the JVM, as py4j has it."""

    def __init__(self, get_message: Callable[[], str]) -> None:
        super().__init__("An error occurred while calling o1.collect")
        self.java_exception = SimpleNamespace(getMessage=get_message)


def fail_job(monkeypatch: pytest.MonkeyPatch, error: Exception) -> tuple[QueryRunError, list[float]]:
    """Return the reported failure of a job, and the pauses before the report."""

    def parallelize(*_: object) -> Any:
        raise error

    monkeypatch.setattr(query_run, "inheritable_thread_target", lambda _: lambda function: function)
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(setJobGroup=lambda *_, **__: None, parallelize=parallelize)
    )
    plan: Any = None
    failures: list[QueryRunError] = []
    system = JobSystem()
    job = SparkJob(spark, group="", description="", plan=plan, tasks=1, on_failure=failures.append, system=system)
    job.start()
    assert job.wait(0)
    (failure,) = failures
    assert failure.__cause__ is error
    return failure, system.pauses


def test_the_error_of_a_job_has_the_end_of_a_long_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    stack_trace = '  File "app.py", line 7, in parse\n' * 1000
    java = "\n\tat org.apache.spark.Task.run(Task.scala:141)"
    message = f"Job aborted.\n{stack_trace}ValueError: a bad row{java}\n\nDriver stacktrace:{java}"
    failure, pauses = fail_job(monkeypatch, JavaError(lambda: message))
    assert str(failure).startswith("The Spark job of the query failed: ")
    assert str(failure).rstrip().endswith("in parse\nValueError: a bad row")
    assert 16_000 < len(str(failure)) < 17_000
    assert len(pauses) == 1, "a failed task reports its error first"


def test_the_error_of_a_job_without_a_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise ConnectionRefusedError

    for error, message in ((JavaError(fail), "JavaError"), (ValueError("no task"), "no task")):
        failure, _ = fail_job(monkeypatch, error)
        assert str(failure) == f"The Spark job of the query failed: {message}"


def test_the_error_of_a_cancelled_job_has_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    failure, pauses = fail_job(monkeypatch, JavaError(lambda: "[SPARK_JOB_CANCELLED] Job 3 cancelled"))
    assert failure.cause_class == "SPARK_JOB_CANCELLED"
    assert pauses == [], "no task reports an error"


class StartingExecution(continuous_execution.ContinuousExecution):
    """An execution that starts a run on a machine without threads."""

    def __init__(self, run: QueryRun) -> None:
        self._run_to_start = run
        self._any_run_started = False
        self._starting_status = "Starting tasks"
        self._state: Any = SimpleNamespace(
            set_status=lambda *_, **__: None, calling_on_stop=lambda _: nullcontext(), stopping=False
        )

    def _create_run(self, _: int) -> QueryRun:
        return self._run_to_start


def test_a_run_that_cannot_start_stops_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_run, "inheritable_thread_target", lambda _: lambda function: function)
    system = ExhaustedSystem()
    run = create_run(lambda _: None, Spark(), system)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        StartingExecution(run)._run_tasks(2)
    assert system.closed


def running_execution(max_restarts: int, check_newest: Callable[[], None]) -> Any:
    """An execution whose run has failed."""
    execution: Any = object.__new__(continuous_execution.ContinuousExecution)
    execution._any_run_started, execution._epoch_being_committed = True, None
    execution._context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False)))
    execution._restart_budget = RestartBudget(max_restarts, 600)
    execution._system = RealSystem()
    execution._state = SimpleNamespace(stopping=False, set_status=lambda *_, **__: None, wait_for_stop=lambda _: None)
    execution._logs = SimpleNamespace(fencing_log=SimpleNamespace(check_newest=check_newest))
    return execution


def fenced_task() -> QueryRunError:
    failure = QueryRunError("Task 0 failed with ProducerFencedError: another producer")
    failure.cause_class = "ProducerFencedError"
    return failure


def test_a_query_that_fences_its_own_tasks_restarts() -> None:
    """A delayed InitProducerId of an earlier run fenced the tasks, and the query ended for good."""
    execution, failure = running_execution(1, lambda: None), fenced_task()
    execution._handle_failure(failure)
    with pytest.raises(QueryRunError):
        execution._handle_failure(failure)  # another application uses the transactional ids


@pytest.mark.parametrize("failure", [fenced_task(), ProducerFencedError("another producer")], ids=["task", "driver"])
def test_a_query_that_another_driver_fences_says_so(failure: KafkaDirectError) -> None:
    """Without restarts, it ended with the error of the producer."""

    def check_newest() -> None:
        raise CheckpointFencedError("process 7 on host b has taken control of the query")

    with pytest.raises(CheckpointFencedError, match="has taken control of the query") as raised:
        running_execution(0, check_newest)._handle_failure(failure)
    assert raised.value.__cause__ is failure


def test_a_fenced_query_restarts_if_the_checkpoint_cannot_be_read() -> None:
    def check_newest() -> None:
        raise OSError("the file system does not respond")

    running_execution(1, check_newest)._handle_failure(fenced_task())


@pytest.mark.parametrize("has_run", [False, True])
def test_cores_that_others_take_during_a_restart_do_not_end_the_query(has_run: bool) -> None:
    statuses: list[str] = []
    execution: Any = object.__new__(continuous_execution.ContinuousExecution)
    execution._any_run_started, execution._epoch_being_committed = has_run, None
    execution._context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False)))
    execution._restart_budget = RestartBudget(0, 600)
    execution._system = RealSystem()
    execution._state = SimpleNamespace(
        stopping=False,
        set_status=lambda message, **_: statuses.append(message),
        wait_for_stop=lambda _: None,
    )
    failure = TaskStartTimeoutError("1 of 1 tasks did not start")
    if has_run:
        for _ in range(5):
            execution._handle_failure(failure)
        assert execution._starting_status == statuses[0]
        assert statuses == ["Waiting for cores: 1 of 1 tasks did not start"] * 5
    else:
        with pytest.raises(TaskStartTimeoutError):
            execution._handle_failure(failure)


def test_a_driver_that_sees_no_partitions_fences_no_other_one() -> None:
    """Without permission to read the topics, a second driver ended the healthy one and then waited for partitions."""
    calls: list[str] = []
    execution: Any = object.__new__(continuous_execution.ContinuousExecution)
    execution._any_run_started, execution._is_waiting_for_brokers = False, False
    execution._offset_reader = SimpleNamespace(assigned=lambda strict: SimpleNamespace(partitions=()))
    execution._task_count = lambda partitions: partitions
    execution._logs = SimpleNamespace(
        state=lambda: SimpleNamespace(committed=7), offset_entry=lambda epoch: SimpleNamespace(offsets={A0: epoch})
    )
    execution._definition = SimpleNamespace(
        delivery=SimpleNamespace(
            check=lambda _: calls.append("check"), prepare=lambda *_: calls.append("fence the other driver")
        )
    )
    execution._planner = SimpleNamespace(resume_offsets=lambda offsets: calls.append(f"report losses of {offsets}"))
    execution._settings = SETTINGS
    execution._state = SimpleNamespace(
        query_info=SimpleNamespace(id="q"),
        set_status=lambda message, **_: calls.append(message),
        wait_for_stop=lambda _: None,
    )
    execution._run_once()
    losses = f"report losses of { ({A0: 7}) }"
    assert calls == ["Initializing the run", "check", losses, "Waiting for topic-partitions"]
