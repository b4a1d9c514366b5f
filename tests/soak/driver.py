"""The application under test as a process: starts it, and kills it or parts of it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from tests.soak.processes import kill, planners, task_workers, wait_until_ended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_APP = Path(__file__).with_name("stream_app.py")
_ORPHAN_TIMEOUT = 60.0  # seconds; workers notice the end of the driver when they next read from it


class Driver:
    """One run of an application: Python, its JVM, and the JVM's Python processes."""

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, Any],
        *,
        to_the_end: bool = False,  # end after all available records
        app: Path = _APP,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        (folder / "tmp").mkdir(exist_ok=True)
        arguments = {"folder": str(folder), "options": dict(options), "to_the_end": to_the_end}
        variables = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            # Optimizing compilation does not pay off in a short run.
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={folder / 'tmp'} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYSPARK_SUBMIT_ARGS": shlex.join([*_spark_options(folder / "tmp"), "pyspark-shell"]),
            **(environment or {}),
        }
        self.orphans: list[psutil.Process] = []
        self.log = folder / "driver.log"
        self._logged_before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            # Its own process group, so that Python and the JVM are killed at the same time.
            self._process = subprocess.Popen(
                [sys.executable, str(app), json.dumps(arguments)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> int:
        """Wait until it ends by itself, and return its exit code."""
        return self._process.wait(seconds)

    def kill(self) -> None:
        """``kill -9`` Python and the JVM at once."""
        if self.alive:
            # Stop it first, so that it starts no process while they are listed. PySpark's daemon has its own group, so
            # it and the workers outlive the driver for a moment, as in production.
            os.killpg(self._process.pid, signal.SIGSTOP)
            self.orphans = psutil.Process(self._process.pid).children(recursive=True)
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def kill_task_worker(self) -> bool:
        """``kill -9`` one Python worker; return whether there was one."""
        return kill(task_workers(self._process.pid)[:1]) == 1

    def kill_planner(self) -> bool:
        """``kill -9`` the Python process that plans batches; return whether there was one."""
        return kill(planners(self._process.pid)) > 0

    def log_tail(self) -> str:
        """Return the end of the output of this run."""
        with self.log.open("rb") as log:
            log.seek(self._logged_before)
            return log.read()[-6000:].decode(errors="replace")


def wait_for_orphans(orphans: Sequence[psutil.Process]) -> list[int]:
    """Wait until the processes have ended; kill the remaining ones and return their ids."""
    left = wait_until_ended(orphans, _ORPHAN_TIMEOUT)
    kill(left)
    return [process.pid for process in left]


def _spark_options(folder: Path) -> list[str]:
    """Return the options of ``spark-submit`` for a local driver without a UI, which writes to the folder."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
