"""A standalone Spark cluster: a master, and a worker with one core on each of two hosts."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.waiting import wait_until

import pyspark_kafka_direct

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pyspark_kafka_direct.__file__).parent
HOSTS = ("127.0.0.1", "127.0.0.2")  # distinct addresses of this machine, by which Spark identifies workers
SMALL_EXECUTORS = {"spark.executor.memory": "512m"}
SHARED_SESSION = {
    **SMALL_EXECUTORS,
    "spark.cores.max": "2",  # limits the tasks of continuous queries
    "spark.executorEnv.PYTHONPATH": str(PACKAGE.parent),
    "spark.executor.heartbeatInterval": "2s",
    "spark.locality.wait": "60s",  # so long that no task runs elsewhere because its executor is busy
}


@contextlib.contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Start a master and its workers, and yield the URL of the master.

    The folder contains logs, and the work directory ``work-<host>`` of each worker.
    """
    port, web_port = _free_port(), _free_port()
    with contextlib.ExitStack() as stack:
        url = f"spark://127.0.0.1:{port}"
        _start(stack, folder, "Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
        for host in HOSTS:
            resources = ("--cores", "1", "--memory", "1g")
            locations = ("--webui-port", "0", "--work-dir", str(folder / f"work-{host}"))
            _start(stack, folder, "Worker", url, "--host", host, *resources, *locations)
        log = folder / "Master.log"
        wait_until(lambda: log.read_text().count("Registering worker") == len(HOSTS), "the workers")
        yield url


def _start(stack: contextlib.ExitStack, folder: Path, role: str, *arguments: str) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    log = folder / (f"{role}.log" if role == "Master" else f"{role}-{arguments[2]}.log")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHON"))}
    environment["SPARK_HOME"] = str(home)
    environment["SPARK_LOCAL_IP"] = arguments[arguments.index("--host") + 1]
    process = subprocess.Popen(
        [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}", *arguments],
        env=environment,
        stdout=stack.enter_context(log.open("wb")),
        stderr=subprocess.STDOUT,
    )
    stack.callback(process.wait, 600)
    stack.callback(process.terminate)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
