"""Fake clusters for producers that send in a thread."""

from __future__ import annotations

import select
import threading
from typing import TYPE_CHECKING, Any

from tests.unit.producer.fake_cluster import FakeCluster, FakeConnection, FakeResponse, SimulatedSystem

from pyspark_kafka_direct.client.system import RealSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.metadata import Node
    from pyspark_kafka_direct.client.system import Condition

TIMEOUT = 20.0


class SignalledSystem(SimulatedSystem):
    """Simulated time, in which a thread with nothing else to wait for waits for its signal."""

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        connections = [each for each in descriptors if each in self.connections]
        signals = [each for each in descriptors if each not in self.connections]
        nothing_due = seconds > 50 and not connections
        if not signals or not select.select(signals, [], [], 0.2 if nothing_due else 0)[0]:
            super().wait_readable(connections, 0.0 if nothing_due else seconds)

    def wait(self, condition: Condition, seconds: float | None) -> bool:
        return condition.wait(0.01)


class WatchedSystem(SignalledSystem):
    """Sets ``nothing_due`` whenever a thread waits for its signal only."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing_due = threading.Event()

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        if seconds > 50:
            self.nothing_due.set()
        super().wait_readable(descriptors, seconds)


def fake_cluster(script: Callable[[int], FakeResponse] = lambda _: FakeResponse(), **more: Any) -> FakeCluster:
    cluster = FakeCluster(script, **more)
    cluster.system = SignalledSystem()
    cluster.pool.system = cluster.system
    return cluster


class BlockedCluster(FakeCluster):
    """Brokers whose connections block until ``proceed`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.pool.system = RealSystem()
        self.connecting, self.proceed = threading.Event(), threading.Event()

    def connect(self, node: Node, deadline: Deadline) -> FakeConnection:
        self.connecting.set()
        assert self.proceed.wait(TIMEOUT)
        return _Answering(self, node.id)


class _Answering(FakeConnection):
    """Responds at once, in real time."""

    def has_response(self) -> bool:
        return bool(self._responses)

    def fileno(self) -> int:
        raise AssertionError("it never waits")
