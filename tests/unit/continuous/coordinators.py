"""A coordinator in a thread, and the tasks that it talks to, for its tests."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.continuous._control import Mark, Report, from_line
from pyspark_kafka_direct.continuous._coordinator import Coordinator, RunPlan, RunTimes
from pyspark_kafka_direct.continuous._task_channel import ControlAddress, TaskChannel
from pyspark_kafka_direct.errors import RunFailedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.system import SYSTEM, RealSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_kafka_direct.planning.epochs import EpochResult

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PLAN = RunPlan("run-1", Secret("hush"), ((A0, B0), (A1,)), {A0: 5, A1: 6, B0: 7}, 3)
TIMES = RunTimes(interval=0.02, start=20, report=20, hello=20)
LONG = replace(TIMES, interval=600)


def soon(seconds: float = 20) -> Deadline:
    return Deadline.after(seconds, system=SYSTEM)


class Clock(RealSystem):
    """The machine, but its clock can be put forward, and little can be sent at once.

    Attributes:
        ahead: How far.
        nap: How long the process sleeps as soon as something has come that it did not look at yet.
    """

    def __init__(self) -> None:
        self.ahead = 0.0
        self.nap = 0.0

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        ready = super().wait_ready(to_read, to_write, seconds)
        if ready and self.nap:
            self.ahead, self.nap = self.ahead + self.nap, 0.0
            return set()
        return ready

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def listen(self, host: str, port: int) -> socket.socket:
        listener = super().listen(host, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # those who are accepted have it too
        return listener


class Driver:
    """A coordinator in a thread.

    Attributes:
        epochs: What it has handed over.
        error: What ended it.
        result: What its run returned.
    """

    def __init__(
        self, plan: RunPlan = PLAN, times: RunTimes = TIMES, on_epoch: Callable[[EpochResult], None] | None = None
    ) -> None:
        self.epochs: list[EpochResult] = []
        self.error: BaseException | None = None
        self.result: EpochResult | None = None
        self._on_epoch = on_epoch
        self._channels: list[TaskChannel] = []
        self._clock = Clock()
        self.coordinator = Coordinator(plan, times, self._take, "127.0.0.1", system=self._clock)
        self.address = ControlAddress("127.0.0.1", self.coordinator.port, plan.run, plan.secret)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def connect(self, task: int, attempt: int = 0, **changes: Any) -> TaskChannel:
        self._channels.append(TaskChannel.connect(replace(self.address, **changes), task, attempt, soon()))
        return self._channels[-1]

    def start_tasks(self) -> list[TaskChannel]:
        channels = [self.connect(task) for task in range(2)]
        for channel in channels:
            channel.wait_for_start(soon())
        return channels

    def nap(self, seconds: float) -> None:
        self._clock.nap = seconds

    def put_forward(self, seconds: float) -> None:
        self._clock.ahead += seconds
        self.coordinator._signal.give()

    def wait(self) -> Driver:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self

    def failure(self) -> RunFailedError:
        assert isinstance(self.wait().error, RunFailedError), self.error
        return self.error  # type: ignore[return-value]

    def close_coordinator(self) -> None:
        self.coordinator.abort(RuntimeError("the test is over"))
        self.wait()

    def close(self) -> None:
        self.close_coordinator()
        for channel in self._channels:
            channel.close()

    def _take(self, result: EpochResult) -> None:
        self.epochs.append(result)
        if self._on_epoch is not None:
            self._on_epoch(result)

    def _run(self) -> None:
        try:
            self.result = self.coordinator.run()
        except BaseException as error:
            self.error = error


def next_mark(channel: TaskChannel) -> Mark:
    while not (marks := channel.receive()):  # it may have come together with what came before
        SYSTEM.wait_ready([channel.fileno()], [], 20)
    (mark,) = marks
    return mark


def report(channel: TaskChannel, epoch: int, offsets: dict[TopicPartition, int]) -> None:
    channel.report(Report(epoch, offsets, len(offsets), 100, 0.25, 10 * len(offsets)), soon())


def raw(driver: Driver) -> socket.socket:
    return socket.create_connection((driver.address.host, driver.address.port), 20)


def line_of(sock: socket.socket) -> Any:
    with sock.makefile("rb") as file:
        return from_line(file.readline())
