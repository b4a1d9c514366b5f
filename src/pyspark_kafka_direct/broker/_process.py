"""One broker as a process: start, stop, kill, and what its log says."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker._java import find_java
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUPERVISOR = Path(__file__).with_name("_supervisor.py")


class BrokerProcess:
    """The running broker of one node; ``_supervisor`` sits between it and this process.

    Args:
        class_path: Folder with the broker's jars.
        properties: Its ``server.properties``.
        log: Gets everything it says; appended to when a node is started again.
        cluster_folder: Removed should this process die without closing the cluster.
        heap: Largest Java heap, as ``-Xmx`` has it.
        java_options: Further options of the JVM.
    """

    def __init__(
        self,
        class_path: Path,
        properties: Path,
        log: Path,
        cluster_folder: Path,
        *,
        heap: str,
        java_options: Sequence[str] = (),
    ) -> None:
        self.log = log
        java = [str(find_java()), f"-Xmx{heap}", "-Djava.awt.headless=true", *java_options, "-cp", f"{class_path}/*"]
        supervisor = [sys.executable, "-I", "-S", str(_SUPERVISOR)]
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._supervisor = subprocess.Popen(
                [*supervisor, str(cluster_folder), *java, "kafka.Kafka", str(properties)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                bufsize=0,  # nothing is left to be written when the pipe is closed after the other end is gone
                start_new_session=True,  # Ctrl-C in a terminal is for Python, which then closes the cluster
            )
        assert self._supervisor.stdout is not None
        try:
            with self._supervisor.stdout as told:
                line = told.readline()
        except BaseException:  # Ctrl-C: nobody knows of this process yet who would end it
            self._kill_group()
            raise
        if not line:
            self._reap(10)
            raise BrokerError(f"The embedded Kafka's process could not be started; see {log}")
        self.pid = int(line)

    @property
    def alive(self) -> bool:
        """Whether the broker's process still runs."""
        return self._supervisor.poll() is None

    def stop(self, deadline: float) -> None:
        """Ask the broker to shut down properly and wait until it has; kill it after ``deadline`` seconds.

        Raises:
            BrokerTimeoutError: It had to be killed.
        """
        self._tell(b"stop\n")
        try:
            self._reap(deadline)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerTimeoutError(
                f"The embedded Kafka (process {self.pid}) did not shut down within {deadline:.0f} s and was killed; "
                f"see {self.log}"
            ) from None

    def kill(self) -> None:
        """Kill the broker as ``kill -9`` does, and wait until it is gone."""
        self._tell(b"kill\n")
        try:
            self._reap(10)
        except subprocess.TimeoutExpired:  # the supervisor hangs
            self._kill_group()

    def said(self) -> str:
        """Return what the broker logged since this start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _kill_group(self) -> None:
        """Kill the supervisor and the broker."""
        os.killpg(self._supervisor.pid, signal.SIGKILL)
        self._reap(10)

    def _tell(self, command: bytes) -> None:
        assert self._supervisor.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it is gone, or it was reaped before
            self._supervisor.stdin.write(command)

    def _reap(self, deadline: float) -> None:
        self._supervisor.wait(deadline)
        if self._supervisor.stdin is not None:
            self._supervisor.stdin.close()
