"""An epoch coordinator in a thread, and connections to it, for tests."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import SYSTEM, RealSystem
from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport
from pyspark_kafka_direct.continuous.control_messages import EpochRequest, decode_message
from pyspark_kafka_direct.continuous.control_socket import ControlAddress, TaskChannel
from pyspark_kafka_direct.continuous.epoch_coordinator import EpochCoordinator, RunPlan, RunStart
from pyspark_kafka_direct.errors import QueryRunError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.continuous_query import parse_start_options
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult
    from pyspark_kafka_direct.options.continuous_query import ContinuousSettings

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
START = RunStart(((A0, B0), (A1,)), {A0: 5, A1: 6, B0: 7}, 3)
PLAN = RunPlan("run-1", Secret("hush"), 2, lambda _: START)
SETTINGS = parse_start_options(
    {"checkpointLocation": "memory:/", "epochInterval": 0.02, "taskStartTimeout": 120, "epochTimeout": 120}
)
LONG_EPOCHS = replace(SETTINGS, epoch_interval=600)


def deadline_in(seconds: float = 120) -> Deadline:
    return Deadline.after(seconds, system=SYSTEM)


class AdvancingSystem(RealSystem):
    """The real system, but the clock can be advanced and frozen, and send buffers are small."""

    def __init__(self) -> None:
        self.advanced_by = 0.0
        self.frozen_at: float | None = None
        self.polls = 0
        self.ignores_timeouts = False
        self.stall = 0.0  # seconds to suspend the process after data has arrived, before it is handled

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        self.polls += 1
        ready = super().wait_ready(to_read, to_write, 600 if self.ignores_timeouts else seconds)
        if ready and self.stall:
            self.advanced_by, self.stall = self.advanced_by + self.stall, 0.0
            return set()
        return ready

    def monotonic(self) -> float:
        return (time.monotonic() if self.frozen_at is None else self.frozen_at) + self.advanced_by

    def listen(self, host: str, port: int) -> socket.socket:
        listener = super().listen(host, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # accepted connections inherit it
        return listener


class CoordinatorThread:
    """With long epochs, the clock stands still: only ``advance`` lets a limit expire, not a wait of the test."""

    def __init__(
        self,
        plan: RunPlan = PLAN,
        settings: ContinuousSettings = SETTINGS,
        on_epoch: Callable[[EpochResult], None] | None = None,
    ) -> None:
        self.epochs: list[EpochResult] = []  # passed to the committer
        self.error: BaseException | None = None
        self.result: EpochResult | None = None
        self.waits_for_tasks = False  # as a query does before it restarts
        self._on_epoch = on_epoch
        self._channels: list[TaskChannel] = []
        self._clock = AdvancingSystem()
        if settings.epoch_interval == LONG_EPOCHS.epoch_interval:
            self.freeze()
        self.coordinator = EpochCoordinator(plan, settings, self._commit, "127.0.0.1", system=self._clock)
        self.address = ControlAddress("127.0.0.1", self.coordinator.port, plan.run, plan.secret)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def connect(self, task: int, attempt: int = 0, *, is_ready: bool = True, **changes: Any) -> TaskChannel:
        self._channels.append(TaskChannel.connect(replace(self.address, **changes), task, attempt, deadline_in()))
        if is_ready:
            self._channels[-1].report_ready()
        return self._channels[-1]

    def start_tasks(self) -> list[TaskChannel]:
        channels = [self.connect(task) for task in range(2)]
        for channel in channels:
            channel.wait_for_start()
        return channels

    def stall(self, seconds: float) -> None:
        self._clock.stall = seconds

    def freeze(self) -> None:
        self._clock.frozen_at = time.monotonic()

    def ignore_timeouts(self) -> None:
        """Let each later wait for sockets end by an event only."""
        self._clock.ignores_timeouts = True

    def unfreeze(self) -> None:
        self._clock.frozen_at = None

    def keeps_polling(self) -> bool:
        """Return whether the driver still waits for tasks after it has handled what arrived before."""
        polls, deadline = self._clock.polls, time.monotonic() + 120
        while self._thread.is_alive() and self._clock.polls < polls + 2:
            assert time.monotonic() < deadline, "the driver does not poll"
            self.coordinator._signal.set()
            time.sleep(0.001)
        return self._thread.is_alive()

    def advance(self, seconds: float) -> None:
        self._clock.advanced_by += seconds
        self.coordinator._signal.set()

    @property
    def polls(self) -> int:
        """How often the driver has waited for its sockets."""
        return self._clock.polls

    def polls_within(self, seconds: float) -> int:
        """Return how often the driver waits for its sockets meanwhile."""
        polls = self._clock.polls
        time.sleep(seconds)
        return self._clock.polls - polls

    def wait(self) -> CoordinatorThread:
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self

    def failure(self) -> QueryRunError:
        assert isinstance(self.wait().error, QueryRunError), self.error
        return self.error  # type: ignore[return-value]

    def close_coordinator(self) -> None:
        self.waits_for_tasks = False
        self.coordinator.abort(RuntimeError("the test is over"))
        self.wait()

    def close(self) -> None:
        self.close_coordinator()
        for channel in self._channels:
            channel.close()

    def _commit(self, result: EpochResult) -> None:
        self.epochs.append(result)
        if self._on_epoch is not None:
            self._on_epoch(result)

    def _run(self) -> None:
        try:
            self.result = self.coordinator.run()
        except BaseException as error:
            self.error = error
        finally:
            self.coordinator.wait_until_tasks_end(lambda: not self.waits_for_tasks)
            self.coordinator.close()


def next_epoch_request(channel: TaskChannel) -> EpochRequest:
    deadline = time.monotonic() + 120
    while not (requests := channel.receive()):  # may have arrived with an earlier message
        assert time.monotonic() < deadline, "no epoch request"
        SYSTEM.wait_ready([channel.fileno()], [], 120)
    (request,) = requests
    return request


def report(channel: TaskChannel, epoch: int, offsets: dict[TopicPartition, int]) -> None:
    channel.report(EpochReport(epoch, offsets, len(offsets), 100, 0.25, 10 * len(offsets)), deadline_in())


def raw_connection(driver: CoordinatorThread, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection((driver.address.host, driver.address.port), 120, (host, 0))


def read_message(sock: socket.socket) -> Any:
    with sock.makefile("rb") as file:
        return decode_message(file.readline())
