"""A cluster of broker processes: format, start, wait until ready, stop and restart nodes, clean up."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker.java import find_java, run_tool
from pyspark_kafka_direct.broker.maven import kafka_jars
from pyspark_kafka_direct.broker.node_config import (
    CONTROLLER,
    PLAINTEXT,
    Listener,
    NodeConfig,
    format_properties,
    server_properties,
    write_log4j_config,
)
from pyspark_kafka_direct.broker.probe import (
    HOST,
    free_ports,
    is_free,
    probe_broker,
    reserve_port,
)
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_START_ATTEMPTS = 3
_FORMAT_TIMEOUT_S = 300.0  # only against hangs: it takes 2 s, on an overloaded machine more than a minute
_STOP_TIMEOUT_S = 60.0
_KILL_TIMEOUT_S = 10.0

_STARTED = "] Kafka Server started"  # logged by kafka.server.KafkaRaftServer when all listeners are bound

_FORMATTED = "formatted"  # a folder beside the jars: a formatted data folder of this version, without users
_IDENTITY = "meta.properties"  # the file of a data folder that contains the ids of the cluster, the node and the folder
_IDENTITY_KEYS = ("version", "cluster.id", "node.id", "directory.id")
_DATA_FOLDERS = ("log.dir", "log.dirs", "metadata.log.dir")  # the properties with the data folders

_SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The configuration of a cluster."""

    brokers: int
    version: str
    listeners: tuple[Listener, ...]
    properties: Mapping[str, str] = field(repr=False)
    scram: tuple[str, ...] = field(default=(), repr=False)  # values of StorageTool's --add-scram
    port: int | None = None  # PLAINTEXT port of node 1; node 2 has the next one, and so on
    heap: str = "512m"
    start_timeout: float = 240.0  # seconds
    verify_jars: bool = True


class KafkaCluster:
    """A running cluster in ``folder``; if it cannot be started, the logs stay there."""

    def __init__(self, config: ClusterConfig, folder: Path, progress: Callable[[str], None] | None = None) -> None:
        self.config = config
        self.folder = folder
        self._jars = kafka_jars(config.version, progress, verify=config.verify_jars)[0].parent
        self._java_options = write_log4j_config(folder, config.version)
        self._running: dict[int, BrokerProcess] = {}
        self._reservations = contextlib.ExitStack()  # of the ports, because a broker may be down for a while
        # Each attempt to start has new ports and a new cluster id.
        self.nodes: tuple[NodeConfig, ...] = ()
        self._cluster_id = ""
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                self._start_all()
                return
            except BaseException as error:
                self._kill_all()
                self._reservations.close()
                may_retry = isinstance(error, _PortInUseError) and attempt < _START_ATTEMPTS
                if not may_retry:
                    self._remove_data()  # the logs stay
                    raise

    def address(self, listener: str) -> str:
        """Return the bootstrap addresses of a listener, ``host:port,...``."""
        return ",".join(f"{HOST}:{node.ports[listener]}" for node in self.nodes)

    def log(self, node: int) -> Path:
        """Return the path of a node's log."""
        return self.folder / f"broker-{node}.log"

    def is_alive(self, node: int) -> bool:
        """Return whether the node's process is running."""
        return node in self._running and self._running[node].is_alive

    def pids(self) -> dict[int, int]:
        """Return the process id of each running node."""
        return {node: process.pid for node, process in self._running.items() if process.is_alive}

    def start(self, node: int) -> None:
        """Restart a stopped or killed node with its ports and data; wait until it is ready."""
        if not self.is_alive(node):
            self._launch(node)
        self._await_ready({node, *self.pids()}, time.monotonic() + self.config.start_timeout)

    def stop(self, node: int) -> None:
        """Shut a node down cleanly."""
        if self.is_alive(node):
            self._running[node].stop(_STOP_TIMEOUT_S)

    def kill(self, node: int) -> None:
        """Kill a node as ``kill -9`` does."""
        if self.is_alive(node):
            self._running[node].kill()

    def close(self) -> None:
        """Kill all nodes, because a clean shutdown would only protect their data, and remove the folder."""
        self._kill_all()
        self._reservations.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_all(self) -> None:
        deadline = time.monotonic() + self.config.start_timeout
        self.nodes = self._allocate_ports()
        self._reserve_ports()
        self._cluster_id = _new_id()
        self._remove_data()
        for node in self.nodes:
            data = str(self._data_folder(node.id))
            properties = server_properties(node, self.nodes, self.config.listeners, data, extra=self.config.properties)
            file = self._properties_file(node.id)
            file.touch(mode=0o600)  # the file contains passwords
            file.write_text(format_properties(properties))
        self._format()
        for node in self.nodes:
            self._launch(node.id)
        self._await_ready({node.id for node in self.nodes}, deadline)

    def _allocate_ports(self) -> tuple[NodeConfig, ...]:
        """Choose a free port for each listener; with a configured port, brokers use consecutive PLAINTEXT ports."""
        names = [CONTROLLER, *(listener.name for listener in self.config.listeners)]
        ports = iter(free_ports(self.config.brokers * len(names)))
        nodes = [
            NodeConfig(node_id, {name: next(ports) for name in names}) for node_id in range(1, self.config.brokers + 1)
        ]
        if self.config.port is not None:
            for index, node in enumerate(nodes):
                port = self.config.port + index
                if not is_free(port):
                    raise BrokerError(
                        f"Port {port} is in use, perhaps by another Kafka. Stop that process, or choose another "
                        "port: with --port on the command line, or with EmbeddedKafka(port=...), where None means any "
                        "free port"
                    )
                nodes[index] = NodeConfig(node.id, {**node.ports, PLAINTEXT: port})
        return tuple(nodes)

    def _reserve_ports(self) -> None:
        for port in (port for node in self.nodes for port in node.ports.values()):
            try:
                reservation = reserve_port(port)
            except OSError as error:
                raise _PortInUseError(f"Port {port} is in use since a moment ago: {error}. Try again") from error
            if reservation is not None:
                self._reservations.enter_context(reservation)

    def _format(self) -> None:
        """Format the data folders with ``StorageTool``, which takes a second to start, or copy one that it wrote."""
        if any(name in self.config.properties for name in _DATA_FOLDERS):
            # The user has set several or other folders; the tool knows which files each one needs.
            for node in self.nodes:
                self._run_storage_tool(node.id)
            return
        cache = self._jars / _FORMATTED if self._can_share_formatted_folder() else None
        formatted = None if cache is None else FormattedFolder.read(cache)
        first, *others = self.nodes
        if formatted is None:
            self._run_storage_tool(first.id)
            formatted = FormattedFolder.read(self._data_folder(first.id))
            if formatted is None:  # an unknown layout, which cannot be copied
                for node in others:
                    self._run_storage_tool(node.id)
                return
            if cache is not None:
                formatted.save(cache)
        for node in self.nodes:
            formatted.copy(self._data_folder(node.id), self._cluster_id, node.id)

    def _can_share_formatted_folder(self) -> bool:
        """Return whether clusters can share a formatted folder: it has no users, and the usual feature levels."""
        return not self.config.scram and not any(
            name.startswith(("unstable.", "inter.broker.protocol")) for name in self.config.properties
        )

    def _run_storage_tool(self, node: int) -> None:
        """Format the data folders of a node."""
        tool = [str(find_java()), "-Xmx128m", *self._java_options, "-cp", f"{self._jars}/*", "kafka.tools.StorageTool"]
        # The tool reads arguments from a file, one a line: any user of this machine can see a process's arguments.
        scram = self.folder / "scram.arguments"
        scram.touch(mode=0o600)
        scram.write_text("".join(f"--add-scram\n{user}\n" for user in self.config.scram), encoding="utf-8")
        properties_file = str(self._properties_file(node))
        command = [*tool, "format", "--cluster-id", self._cluster_id, f"@{scram}", "--config", properties_file]
        try:
            code, output = run_tool(command, _FORMAT_TIMEOUT_S)
        finally:
            scram.unlink()
        if code != 0:
            raise BrokerError(f"Kafka's StorageTool could not format the data folder: {_error_lines(output)}")

    def _launch(self, node: int) -> None:
        previous = self._running.pop(node, None)
        if previous is not None:
            previous.kill()  # it has exited, but unless it was stopped, the pipe to its supervisor is still open
        self._running[node] = BrokerProcess(
            self._jars,
            self._properties_file(node),
            self.log(node),
            self.folder,
            heap=self.config.heap,
            java_options=self._java_options,
        )

    def _await_ready(self, node_ids: set[int], deadline: float) -> None:
        """Wait until each of these nodes listens on all its ports and responds with metadata of all of these nodes."""
        ports = {node.id: node.ports[PLAINTEXT] for node in self.nodes}
        pending = set(node_ids)
        while pending:
            for node in sorted(pending):
                if not self._running[node].is_alive:
                    raise self._start_error(node)
                try:
                    metadata = probe_broker(ports[node], timeout=5)
                except OSError:
                    continue  # it does not listen yet
                # If the cluster id differs, another cluster uses the port, and this broker is about to exit.
                if metadata.cluster_id != self._cluster_id or not metadata.node_ids >= node_ids:
                    continue
                # It binds its listeners one after the other: it may respond and then exit because a port is in use.
                if _STARTED in self._running[node].log_since_start():
                    pending.discard(node)
            if pending and time.monotonic() > deadline:
                raise BrokerTimeoutError(
                    f"The embedded Kafka was not ready within {self.config.start_timeout:.0f} s (waiting for node "
                    f"{', '.join(map(str, sorted(pending)))}); see {self.log(min(pending))}"
                )
            if pending:
                time.sleep(0.05)

    def _start_error(self, node: int) -> BrokerError:
        log = self._running[node].log_since_start()
        error_class = _PortInUseError if "Address already in use" in log else BrokerError
        return error_class(
            f"The embedded Kafka (node {node}) exited while starting: {_error_lines(log)}\nSee {self.log(node)}"
        )

    def _kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
        self._running.clear()

    def _remove_data(self) -> None:
        for node in self.nodes:
            shutil.rmtree(self._data_folder(node.id), ignore_errors=True)

    def _data_folder(self, node: int) -> Path:
        return self.folder / f"broker-{node}"

    def _properties_file(self, node: int) -> Path:
        return self.folder / f"broker-{node}.properties"


class FormattedFolder:
    """A data folder as ``StorageTool`` formatted it. Its files differ between versions of Kafka, so all are copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def read(cls, folder: Path) -> FormattedFolder | None:
        """Return a formatted folder; ``None`` if it is missing, damaged, or has more ids than those of version 1."""
        try:
            lines = (folder / _IDENTITY).read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        properties = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        is_known = sorted(properties) == sorted(_IDENTITY_KEYS) and properties["version"] == "1"
        # After a crash of the machine, files of the cache may be empty.
        is_complete = all(path.is_dir() or path.stat().st_size for path in folder.rglob("*"))
        return cls(folder) if is_known and is_complete else None

    def copy(self, target: Path, cluster_id: str, node: int) -> None:
        """Write the folder of another node, with new ids."""
        if target != self._folder:  # the tool has formatted the folder of the first node in place
            shutil.copytree(self._folder, target)
        values = dict(zip(_IDENTITY_KEYS, ("1", cluster_id, str(node), _new_id()), strict=True))
        (target / _IDENTITY).write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")

    def save(self, cache: Path) -> None:
        """Copy the folder into the cache."""
        temporary = cache.with_name(f"{cache.name}.{os.getpid()}.{_new_id()}")
        with contextlib.suppress(OSError):  # such as a cache that another user owns
            shutil.copytree(self._folder, temporary)
            shutil.rmtree(cache, ignore_errors=True)  # a damaged one
            temporary.rename(cache)
        shutil.rmtree(temporary, ignore_errors=True)


class BrokerProcess:
    """The broker process of one node. This process starts ``supervisor.py``, which starts the broker."""

    def __init__(
        self,
        jars_folder: Path,
        properties: Path,
        log: Path,  # appended to
        cluster_folder: Path,  # removed if this process exits without closing the cluster
        *,
        heap: str,
        java_options: Sequence[str] = (),
    ) -> None:
        self.log = log
        java = [str(find_java()), f"-Xmx{heap}", "-Djava.awt.headless=true", *java_options, "-cp", f"{jars_folder}/*"]
        supervisor = [sys.executable, "-I", "-S", str(_SUPERVISOR)]
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._supervisor = subprocess.Popen(
                [*supervisor, str(cluster_folder), *java, "kafka.Kafka", str(properties)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                bufsize=0,  # no buffered data remains if the other end closes the pipe
                start_new_session=True,  # Ctrl-C in a terminal interrupts Python, which then closes the cluster
            )
        assert self._supervisor.stdout is not None
        try:
            with self._supervisor.stdout as pid_pipe:
                line = pid_pipe.readline()
        except BaseException:  # Ctrl-C: no caller has this object yet, so no caller can kill the process
            self._kill_group()
            raise
        if not line:  # the supervisor has exited before it could start the broker
            self._reap(_KILL_TIMEOUT_S)
            raise BrokerError(f"The embedded Kafka's process could not be started; see {log}")
        self.pid = int(line)

    @property
    def is_alive(self) -> bool:
        """Whether the broker's process is running."""
        return self._supervisor.poll() is None

    def stop(self, timeout: float) -> None:
        """Shut the broker down cleanly; kill it after ``timeout`` seconds."""
        self._send_command(b"stop\n")
        try:
            self._reap(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerTimeoutError(
                f"The embedded Kafka (process {self.pid}) did not shut down within {timeout:.0f} s and was killed; "
                f"see {self.log}"
            ) from None

    def kill(self) -> None:
        """Kill the broker as ``kill -9`` does, and wait until it has exited."""
        self._send_command(b"kill\n")
        try:
            self._reap(_KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # the supervisor hangs
            self._kill_group()

    def log_since_start(self) -> str:
        """Return what the broker logged since this start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _kill_group(self) -> None:
        """Kill the supervisor and the broker."""
        os.killpg(self._supervisor.pid, signal.SIGKILL)
        self._reap(_KILL_TIMEOUT_S)

    def _send_command(self, command: bytes) -> None:
        assert self._supervisor.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # the supervisor has exited, or its pipe is closed
            self._supervisor.stdin.write(command)

    def _reap(self, timeout: float) -> None:
        """Wait until the supervisor has exited, and close the pipe to it."""
        self._supervisor.wait(timeout)
        if self._supervisor.stdin is not None:
            self._supervisor.stdin.close()


class _PortInUseError(BrokerError):
    """Another program bound a port after it was chosen and before the broker started."""


def _new_id() -> str:
    """Return a random id in Kafka's format: 16 bytes in 22 characters."""
    while True:
        random_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not random_id.startswith("-"):  # StorageTool would parse it as an option
            return random_id


def _error_lines(output: str) -> str:
    """Return the lines of a log that explain a failure."""
    lines = [line for line in output.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    words = ("ERROR", "FATAL", "Exception", "Error")
    errors = [line for line in lines if " INFO " not in line and any(word in line for word in words)]
    return "\n  ".join((errors or lines)[-5:])[:2000]
