"""The application as a process: starting it, killing it or parts of it, and seeing that nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from tests.soak.processes import kill, planners, task_workers, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_APP = Path(__file__).with_name("app.py")
_ORPHANS_END_WITHIN = 60.0  # seconds; they notice that the driver is gone when they next read from it


class Driver:
    """One life of the application: Python, the JVM under it, and the Python processes under that.

    Args:
        folder: The query's folder; the same for all lives.
        options: What the application is told: options of the source.
        to_the_end: Read what there is and end, instead of running until killed.
        app: The application.
        environment: More of it.
    """

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, Any],
        *,
        to_the_end: bool = False,
        app: Path = _APP,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        (folder / "tmp").mkdir(exist_ok=True)
        told = {"folder": str(folder), "options": dict(options), "to_the_end": to_the_end}
        variables = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            # A life is short: what takes long to compile is not worth it.
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={folder / 'tmp'} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            **(environment or {}),
        }
        self.orphans: list[psutil.Process] = []
        self.log = folder / "driver.log"
        self._logged_before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            # A group of its own, so that Python and the JVM die at the same moment.
            self._process = subprocess.Popen(
                [sys.executable, str(app), json.dumps(told)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The process, below which all others are."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> int:
        """Wait until it ends by itself, and return its exit code.

        Raises:
            subprocess.TimeoutExpired: It did not.
        """
        return self._process.wait(seconds)

    def kill(self) -> None:
        """``kill -9`` the driver, as one."""
        if self.alive:
            # Stopped first, so that it starts nothing while its processes are listed. PySpark's daemon has a group of
            # its own: it and the task workers outlive the driver for a moment, as they do in real life.
            os.killpg(self._process.pid, signal.SIGSTOP)
            self.orphans = psutil.Process(self._process.pid).children(recursive=True)
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def kill_task_worker(self) -> bool:
        """``kill -9`` one Python process that runs tasks; tells whether there was one."""
        return kill(task_workers(self._process.pid)[:1]) == 1

    def kill_planner(self) -> bool:
        """``kill -9`` the Python process that plans the batches; tells whether there was one."""
        return kill(planners(self._process.pid)) > 0

    def last_words(self) -> str:
        """The end of what this life printed."""
        with self.log.open("rb") as log:
            log.seek(self._logged_before)
            return log.read()[-6000:].decode(errors="replace")


def wait_for_orphans(orphans: Sequence[psutil.Process]) -> list[int]:
    """Wait until they have ended; those that would not are killed, and their ids returned."""
    left = wait_until_gone(orphans, _ORPHANS_END_WITHIN)
    kill(left)
    return [process.pid for process in left]
