"""A cluster of broker processes: format, start, wait until it serves, stop and restart nodes, tidy up."""

from __future__ import annotations

import shutil
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker._jars import kafka_jars
from pyspark_kafka_direct.broker._java import find_java
from pyspark_kafka_direct.broker._logging import write_logging
from pyspark_kafka_direct.broker._probe import HOST, free_ports, is_free, look
from pyspark_kafka_direct.broker._process import BrokerProcess
from pyspark_kafka_direct.broker._properties import CONTROLLER, PLAINTEXT, Listener, Node, server_properties, to_text
from pyspark_kafka_direct.broker._tools import run_together
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_START_ATTEMPTS = 3
_FORMAT_DEADLINE = 60.0
_STOP_DEADLINE = 60.0


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What a cluster is to be like."""

    brokers: int
    version: str
    listeners: tuple[Listener, ...]
    properties: Mapping[str, str] = field(repr=False)
    scram: tuple[str, ...] = field(default=(), repr=False)  # as StorageTool's --add-scram takes them
    port: int | None = None  # PLAINTEXT port of node 1; node 2 has the next one, and so on
    heap: str = "512m"
    start_timeout: float = 240.0  # seconds


class Cluster:
    """A running cluster in ``folder``.

    Raises:
        BrokerError: A node could not be started; its log is kept and named.
        BrokerTimeoutError: The cluster did not serve within ``plan.start_timeout``.
    """

    def __init__(self, plan: ClusterPlan, folder: Path, progress: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.folder = folder
        self._jars = kafka_jars(plan.version, progress)[0].parent
        self._java_options = write_logging(folder, plan.version)
        self._running: dict[int, BrokerProcess] = {}
        self.nodes: tuple[Node, ...] = ()
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                self._start_all()
                return
            except BaseException as error:
                self._kill_all()
                if not isinstance(error, _PortTakenError) or attempt == _START_ATTEMPTS:
                    self._remove_data()  # the logs stay
                    raise

    def address(self, listener: str) -> str:
        """Return the bootstrap addresses of a listener, ``host:port,...``."""
        return ",".join(f"{HOST}:{node.ports[listener]}" for node in self.nodes)

    def log(self, node: int) -> Path:
        """Return where a node writes its log."""
        return self.folder / f"broker-{node}.log"

    def alive(self, node: int) -> bool:
        """Tell whether the node's process runs."""
        return node in self._running and self._running[node].alive

    def pids(self) -> dict[int, int]:
        """Return the process id of each running node."""
        return {node: process.pid for node, process in self._running.items() if process.alive}

    def start(self, node: int) -> None:
        """Start a node that was stopped or killed, with the ports and the data it had; wait until it serves."""
        if not self.alive(node):
            self._launch(node)
        self._await({node, *self.pids()}, time.monotonic() + self.plan.start_timeout)

    def stop(self, node: int) -> None:
        """Shut a node down properly."""
        if self.alive(node):
            self._running[node].stop(_STOP_DEADLINE)

    def kill(self, node: int) -> None:
        """Kill a node as ``kill -9`` does."""
        if self.alive(node):
            self._running[node].kill()

    def close(self) -> None:
        """Kill what runs (its data is of no further use) and remove the folder."""
        self._kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_all(self) -> None:
        deadline = time.monotonic() + self.plan.start_timeout
        self.nodes = self._lay_out()
        self._cluster_id = _new_cluster_id()
        self._remove_data()
        for node in self.nodes:
            extra = self.plan.properties
            properties = server_properties(node, self.nodes, self.plan.listeners, str(self._data(node.id)), extra)
            self._properties(node.id).touch(mode=0o600)  # it holds passwords
            self._properties(node.id).write_text(to_text(properties))
        self._format()
        for node in self.nodes:
            self._launch(node.id)
        self._await({node.id for node in self.nodes}, deadline)

    def _lay_out(self) -> tuple[Node, ...]:
        """Choose the ports."""
        names = [CONTROLLER, *(listener.name for listener in self.plan.listeners)]
        free = iter(free_ports(self.plan.brokers * len(names)))
        nodes = [Node(number, {name: next(free) for name in names}) for number in range(1, self.plan.brokers + 1)]
        if self.plan.port is not None:
            for index, node in enumerate(nodes):
                wanted = self.plan.port + index
                if not is_free(wanted):
                    raise BrokerError(
                        f"Port {wanted} is taken, perhaps by another Kafka. Stop that one, or choose another port: "
                        "--port on the command line, port=None (any that is free) or a number for an EmbeddedKafka"
                    )
                nodes[index] = Node(node.id, {**node.ports, PLAINTEXT: wanted})
        return tuple(nodes)

    def _format(self) -> None:
        """Prepare the data folder of every node, at the same time: each takes a second."""
        tool = [str(find_java()), "-Xmx128m", *self._java_options, "-cp", f"{self._jars}/*", "kafka.tools.StorageTool"]
        tool += ["format", "--cluster-id", self._cluster_id]
        tool += [word for user in self.plan.scram for word in ("--add-scram", user)]
        commands = [[*tool, "--config", str(self._properties(node.id))] for node in self.nodes]
        for node, (code, said) in zip(self.nodes, run_together(commands, _FORMAT_DEADLINE), strict=True):
            if code != 0:
                raise BrokerError(f"Kafka's StorageTool could not format node {node.id}: {_telling(said)}")

    def _launch(self, node: int) -> None:
        before = self._running.pop(node, None)
        if before is not None:
            before.kill()  # it has ended; if it did so by itself, there is still a pipe to it
        self._running[node] = BrokerProcess(
            self._jars,
            self._properties(node),
            self.log(node),
            self.folder,
            heap=self.plan.heap,
            java_options=self._java_options,
        )

    def _await(self, wanted: set[int], deadline: float) -> None:
        """Wait until each of the wanted nodes answers and knows them all."""
        ports = {node.id: node.ports[PLAINTEXT] for node in self.nodes}
        missing = set(wanted)
        while missing:
            for node in sorted(missing):
                if not self._running[node].alive:
                    raise self._failure(node)
                try:
                    sighting = look(ports[node], timeout=5)
                except OSError:
                    continue
                # Another cluster's id: our broker has just lost its port to that one, and is about to find out.
                if sighting.cluster_id == self._cluster_id and sighting.node_ids >= wanted:
                    missing.discard(node)
            if missing and time.monotonic() > deadline:
                raise BrokerTimeoutError(
                    f"The embedded Kafka did not serve within {self.plan.start_timeout:.0f} s (waiting for node "
                    f"{', '.join(map(str, sorted(missing)))}); see {self.log(min(missing))}"
                )
            if missing:
                time.sleep(0.05)

    def _failure(self, node: int) -> BrokerError:
        said = self._running[node].said()
        kind = _PortTakenError if "Address already in use" in said else BrokerError
        return kind(f"The embedded Kafka (node {node}) ended while starting: {_telling(said)}\nSee {self.log(node)}")

    def _kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
        self._running.clear()

    def _remove_data(self) -> None:
        for node in self.nodes:
            shutil.rmtree(self._data(node.id), ignore_errors=True)

    def _data(self, node: int) -> Path:
        return self.folder / f"broker-{node}"

    def _properties(self, node: int) -> Path:
        return self.folder / f"broker-{node}.properties"


class _PortTakenError(BrokerError):
    """Somebody else took a port between our look and the broker's start."""


def _new_cluster_id() -> str:
    """Make an id as Kafka writes it: 16 bytes in 22 characters."""
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # StorageTool would take it for an option
            return text


def _telling(said: str) -> str:
    """Pick the lines of a log that say what went wrong."""
    lines = [line for line in said.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    errors = [line for line in lines if any(word in line for word in ("ERROR", "FATAL", "Exception", "Error"))]
    return "\n  ".join((errors or lines)[-5:])[:2000]
