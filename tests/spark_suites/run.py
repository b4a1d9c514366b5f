"""Run one of Spark's suites with one source, in a JVM of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.shards import source_runners
from tests.shards.durations import ROOT
from tests.shards.python import path_of_workers
from tests.spark_suites.jars import HERE, PYSPARK, Prepared
from tests.spark_suites.recording import Recorded, read_recording
from tests.spark_suites.suites import PACKAGE, Source

from pyspark_kafka_direct.spark.spark_versions import spark_features

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

TIMEOUT_S = 3600.0
WORKER_DAEMON = "tests.shards.worker_daemon"


def run(prepared: Prepared, suite: str, source: Source, tests: Sequence[str] = ()) -> dict[str, Recorded]:
    """Run the given tests of a suite, or all of them, and return their results by name."""
    work = prepared.folder / "work" / source
    (work / "tmp").mkdir(parents=True, exist_ok=True)
    log = log_of(prepared, suite, source)
    recording = log.with_suffix(".jsonl")
    for old in (log, recording, log.with_suffix(".spark.log")):
        old.unlink(missing_ok=True)
    command = [
        "java",
        f"@{HERE / 'java.opts'}",
        f"-Dspark.test.home={work}",
        f"-Djava.io.tmpdir={work / 'tmp'}",
        f"-Dlog4j.configurationFile=file:{HERE / 'log4j2.properties'}",
        f"-Dsuites.log={log.with_suffix('.spark.log')}",
        f"-Dsuites.recording={recording}",
        f"-Dspark.python.daemon.module={WORKER_DAEMON}",
        *("-cp", prepared.class_path(ours=source != "jvm")),
        "org.scalatest.tools.Runner",
        *("-R", str(prepared.tests), "-s", f"{PACKAGE}.{suite}", "-oDFW", "-C", "sparksuites.Recorder"),
        *(argument for test in tests for argument in ("-t", test)),
    ]
    with log.open("w") as output, _warm_processes(source) as warm:
        subprocess.run(
            command,
            cwd=work,
            env=_environment(source, warm),
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    if not recording.exists():
        raise RuntimeError(f"No test of {suite} ran. See {log}.")
    return read_recording(recording)


def log_of(prepared: Prepared, suite: str, source: Source) -> Path:
    """Return the path of ScalaTest's output; Spark's log and the recording are beside it."""
    logs = prepared.folder / "logs"
    logs.mkdir(exist_ok=True)
    return logs / f"{source}-{suite}.log"


def _environment(source: Source, warm: Mapping[str, str]) -> dict[str, str]:
    own = {
        "SPARK_HOME": str(PYSPARK),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_TESTING": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if source != "jvm":
        own["PYTHONPATH"] = path_of_workers(os.pathsep.join(map(str, [HERE / "python", ROOT, ROOT / "src"])))
    return {**os.environ, **own, **warm}


@contextmanager
def _warm_processes(source: Source) -> Iterator[Mapping[str, str]]:
    """Start the server that forks Python processes of the driver, which halves their time. It needs Spark 4.2."""
    if source == "jvm" or not (source_runners.supported() and spark_features().has_read_limits):
        yield {}
        return
    server = source_runners.SourceRunners()
    try:
        yield server.environment
    finally:
        server.stop()
