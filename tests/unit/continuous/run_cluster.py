"""Epoch coordinators in simulated driver processes, and connections to them, for tests."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import Address
from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport
from pyspark_kafka_direct.continuous.control_messages import EpochRequest, decode_message
from pyspark_kafka_direct.continuous.control_socket import ControlAddress, ControlSocket, TaskChannel
from pyspark_kafka_direct.continuous.epoch_coordinator import EpochCoordinator, RunPlan, RunStart
from pyspark_kafka_direct.errors import QueryRunError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.continuous_query import parse_start_options
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.process import SimulatedProcess

    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult
    from pyspark_kafka_direct.options.continuous_query import ContinuousSettings

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
START = RunStart(((A0, B0), (A1,)), {A0: 5, A1: 6, B0: 7}, 3)
PLAN = RunPlan("run-1", Secret("hush"), 2, lambda _: START)
SETTINGS = parse_start_options(
    {"checkpointLocation": "memory:/", "epochInterval": 0.02, "taskStartTimeout": 120, "epochTimeout": 120}
)
LONG_EPOCHS = replace(SETTINGS, epoch_interval=600)
_LONGEST = 3_600.0  # seconds that a test waits


class RunCluster(UnitCluster):
    """Coordinators, each in a driver process; the test itself is a process with tasks."""

    def __init__(self) -> None:
        super().__init__({})
        self._drivers: list[CoordinatorRun] = []

    def __exit__(self, error: object, *more: object) -> None:
        if error is None:
            for driver in self._drivers:
                driver.close()
        super().__exit__(error, *more)

    def driver(
        self,
        plan: RunPlan = PLAN,
        settings: ContinuousSettings = SETTINGS,
        on_epoch: Callable[[EpochResult], None] | None = None,
    ) -> CoordinatorRun:
        """Start a run."""
        self._drivers.append(CoordinatorRun(self, plan, settings, on_epoch))
        return self._drivers[-1]

    def deadline(self, seconds: float = 120) -> Deadline:
        return Deadline.after(seconds, system=self.process)

    def other_process(self, address: str) -> SimulatedProcess:
        """Return a process on another host."""
        process = self.environment.process("other")
        process.address = address
        return process

    def next_epoch_request(self, channel: TaskChannel) -> EpochRequest:
        until = self.now + _LONGEST
        while not (requests := channel.receive()):  # may have arrived with an earlier message
            assert self.now < until, "no epoch request"
            self.process.wait_ready([channel.fileno()], [], _LONGEST)
        (request,) = requests
        return request

    def report(self, channel: TaskChannel, epoch: int, offsets: dict[TopicPartition, int]) -> None:
        channel.report(EpochReport(epoch, offsets, len(offsets), 100, 0.25, 10 * len(offsets)), self.deadline())


@pytest.fixture
def cluster() -> Iterator[RunCluster]:
    with RunCluster() as cluster:
        yield cluster


class Gate:
    """A call of a driver that hangs until the test opens it."""

    def __init__(self, cluster: RunCluster) -> None:
        self._world = cluster.world
        self.is_open = False
        self.was_reached = False
        self.was_passed = False

    def __call__(self, _: object = None) -> None:
        self.was_reached = True
        while not self.is_open:
            self._world.current.process.sleep(0.01)
        self.was_passed = True


class CoordinatorRun:
    """One run in a driver process."""

    def __init__(
        self,
        cluster: RunCluster,
        plan: RunPlan,
        settings: ContinuousSettings,
        on_epoch: Callable[[EpochResult], None] | None,
    ) -> None:
        self.cluster = cluster
        self.epochs: list[EpochResult] = []  # passed to the committer
        self.error: Exception | None = None
        self.result: EpochResult | None = None
        self.waits_for_tasks = False  # as a query does before it restarts
        self.process = cluster.environment.process(f"driver-{len(cluster.world.processes)}")  # which has its own nonces
        self._on_epoch = on_epoch
        self._channels: list[TaskChannel] = []
        self.coordinator = EpochCoordinator(plan, settings, self._commit, self.process.name, system=self.process)
        self.address = ControlAddress(self.process.name, self.coordinator.port, plan.run, plan.secret)
        self._task = self.process.spawn("run", self._run)

    def connect(self, task: int, attempt: int = 0, *, is_ready: bool = True, **changes: Any) -> TaskChannel:
        address = replace(self.address, **changes)
        self._channels.append(TaskChannel.connect(address, task, attempt, self.cluster.deadline()))
        if is_ready:
            self._channels[-1].report_ready()
        return self._channels[-1]

    def connect_from(self, process: SimulatedProcess) -> Any:
        """Return a socket of a process that is connected to the control port."""
        address = (self.address.host, self.address.port)
        target = Address(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, address)
        return process.connect_tcp(target, 120, 0, 0)

    def start_tasks(self) -> list[TaskChannel]:
        channels = [self.connect(task) for task in range(2)]
        for channel in channels:
            channel.wait_for_start()
        return channels

    @property
    def is_running(self) -> bool:
        """Whether the run has not ended, after everything that was sent has arrived."""
        self.cluster.sleep(0.1)
        return not self._task.greenlet.dead

    def wait(self) -> CoordinatorRun:
        until = self.cluster.now + _LONGEST
        while self.is_running:
            assert self.cluster.now < until, "the run does not end"
        return self

    def failure(self) -> QueryRunError:
        assert isinstance(self.wait().error, QueryRunError), self.error
        return self.error  # type: ignore[return-value]

    def close(self) -> None:
        self.waits_for_tasks = False
        self.coordinator.abort(RuntimeError("the test is over"))
        self.wait()
        for channel in self._channels:
            channel.close()

    def _commit(self, result: EpochResult) -> None:
        self.epochs.append(result)
        if self._on_epoch is not None:
            self._on_epoch(result)

    def _run(self) -> None:
        try:
            self.result = self.coordinator.run()
        except Exception as error:
            self.error = error
        finally:
            self.coordinator.wait_until_tasks_end(lambda: not self.waits_for_tasks)
            self.coordinator.close()


class Stranger:
    """A connection to the control port, without the methods of a task."""

    def __init__(self, driver: CoordinatorRun, process: SimulatedProcess | None = None) -> None:
        self._process = process or driver.cluster.process
        self._lines = ControlSocket(driver.connect_from(self._process))
        self._received: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()

    def send(self, data: bytes) -> None:
        self._lines.send(data)

    def end(self) -> None:
        """Send nothing any more."""
        self._lines.end()

    def read(self) -> Any:
        """Wait for a message; return ``None`` if the driver has closed the connection."""
        while not self._received and not self._lines.closed_by_peer:
            self._process.wait_ready([self._lines.fileno()], [], _LONGEST)
            self._received += self._lines.receive()
        return decode_message(self._received.pop(0)) if self._received else None

    @property
    def is_open(self) -> bool:
        """Whether the driver has not closed the connection."""
        for _ in range(2):  # what was sent before the end, and the end
            self._received += self._lines.receive()
        return not self._lines.closed_by_peer


class Peer:
    """A process that listens where a driver is expected, and sends these messages to each connection."""

    def __init__(self, cluster: RunCluster, responses: list[Any]) -> None:
        self._cluster = cluster
        self._responses = responses
        self._process = cluster.environment.process("driver")
        self._listener = self._process.listen("driver", 0)
        self.accepted = 0
        self._process.spawn("serve", self._serve)

    def connect(self, seconds: float) -> TaskChannel:
        address = ControlAddress("driver", self._listener.getsockname()[1], "run-1", PLAN.secret)
        deadline = Deadline.after(seconds, "taskStartTimeout", system=self._cluster.process)
        try:
            return TaskChannel.connect(address, 0, 0, deadline)
        finally:
            self._process.kill()

    def _serve(self) -> None:
        while True:
            self._process.wait_ready([self._listener.fileno()], [], 1e6)
            peer, handshake = ControlSocket(self._listener.accept()[0]), b""
            self.accepted += 1
            for response in self._responses:
                if response is None:
                    peer.close()
                    break
                peer.send(response(handshake and decode_message(handshake)) if callable(response) else response)
                while not (lines := peer.receive()) and not peer.closed_by_peer:
                    self._process.wait_ready([peer.fileno()], [], 1e6)
                handshake = lines[0] if lines else b""
