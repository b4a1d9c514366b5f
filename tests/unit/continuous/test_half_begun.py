"""Runs that fail while they begin leave nothing open, and nobody waits for what has not begun."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.continuous.coordinators import A0, PLAN, TIMES

from pyspark_kafka_direct.continuous import _runner, _spark_job
from pyspark_kafka_direct.continuous._coordinator import Coordinator
from pyspark_kafka_direct.continuous._epoch_writer import EpochWriter
from pyspark_kafka_direct.continuous._run import Run, RunOrder
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.epochs import EpochResult
from pyspark_kafka_direct.wire.system import RealSystem

if TYPE_CHECKING:
    import socket
    import threading
    from collections.abc import Callable

    from pyspark_kafka_direct.continuous._task_channel import ControlAddress
    from pyspark_kafka_direct.wire.system import Signal


class Exhausted(RealSystem):
    """A machine that has no thread left, and maybe no descriptor.

    Attributes:
        listeners: The sockets that listen.
        descriptors: Whether there are descriptors after that.
    """

    def __init__(self, *, descriptors: bool = True) -> None:
        self.listeners: list[socket.socket] = []
        self.descriptors = descriptors

    def listen(self, host: str, port: int) -> socket.socket:
        self.listeners.append(super().listen(host, port))
        return self.listeners[-1]

    def signal(self) -> Signal:
        if not self.descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().signal()

    def start(self, run: Callable[[], None], name: str) -> None:
        raise RuntimeError("can't start new thread")

    def wait(self, condition: threading.Condition, seconds: float | None) -> bool:
        raise AssertionError("there is nothing to wait for")

    @property
    def closed(self) -> bool:
        return [each.fileno() for each in self.listeners] == [-1]


class Spark:
    """A session whose driver listens on this machine.

    Attributes:
        cancelled: The job groups that were cancelled.
    """

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        conf = {"spark.driver.host": "127.0.0.1"}
        self.sparkContext: Any = SimpleNamespace(getConf=lambda: conf, cancelJobGroup=self.cancelled.append)


def order(plan: Callable[[ControlAddress], Any]) -> RunOrder:
    return RunOrder(
        description="",
        assignment=PLAN.assignment,
        offsets=PLAN.offsets,
        epoch=0,
        shares_numbers=False,
        times=TIMES,
        port=0,
        plan=plan,
    )


def test_a_coordinator_that_gets_no_signal_listens_no_more() -> None:
    system = Exhausted(descriptors=False)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        Coordinator(PLAN, TIMES, lambda _: None, "127.0.0.1", system=system)
    assert system.closed


def test_a_run_without_a_plan_listens_no_more() -> None:
    def plan(_: ControlAddress) -> Any:
        raise OptionError("no plan")

    system = Exhausted()
    with pytest.raises(OptionError, match="no plan"):
        Run(Spark(), order(plan), lambda _: None, system)  # type: ignore[arg-type]
    assert system.closed


def test_a_job_that_has_not_begun_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spark_job, "inheritable_thread_target", lambda _: lambda function: function)
    spark, system = Spark(), Exhausted()
    run = Run(spark, order(lambda _: None), lambda _: None, system)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run.run()
    assert spark.cancelled == []
    assert system.closed


def test_an_epoch_that_nobody_writes_is_not_waited_for() -> None:
    writer = EpochWriter(lambda _: None, lambda: None, 60, Exhausted())
    with pytest.raises(RuntimeError, match="can't start new thread"):
        writer.put(EpochResult(0, {}, 0, 0, 0, last=False))
    writer.close()


class Beginning(_runner.Runner):
    """A runner that is about to begin a run on a machine without threads."""

    def __init__(self, run: Run, system: Exhausted) -> None:
        self._run_to_begin = run
        self._system = system
        self._waits_for_brokers = self._has_started = False
        self._work: Any = SimpleNamespace(reading=None)
        self._settings: Any = SimpleNamespace(discovery_interval=10)
        self._planner: Any = SimpleNamespace(latest={})
        self._state: Any = SimpleNamespace(tell=lambda *_, **__: None, running=lambda _: nullcontext())

    def _prepare(self) -> _runner._Begin:
        return _runner._Begin(((A0,),), {A0: 0}, 0)

    def _run(self, _: _runner._Begin) -> Run:
        return self._run_to_begin


def test_a_run_that_nobody_watches_listens_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_runner, "LiveView", lambda *_: None)
    system = Exhausted()
    run = Run(Spark(), order(lambda _: None), lambda _: None, system)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Beginning(run, system)._run_once()
    assert system.closed
