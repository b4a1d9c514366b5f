"""Jobs that are killed and resume in another directory: no record is lost, and none is processed after it was saved.

Also offset stores whose run is killed at each step of a save or of an open.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.log.store_helpers import new_name, records, store_of
from tests.integration.stream_queries import produce

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

APP = Path(__file__).with_name("store_app.py")
STEPS = Path(__file__).with_name("store_steps.py")
DEADLINE = 600  # seconds


@dataclass
class Job:
    """The program under test, and its output."""

    kind: str
    servers: str
    topic: str
    folder: Path
    store: str = field(default_factory=new_name)
    process: subprocess.Popen[bytes] | None = None

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def start(self, directory: str) -> None:
        working_directory = self.folder / directory
        working_directory.mkdir(parents=True)
        self.results.mkdir(exist_ok=True)
        args = (self.kind, self.servers, self.topic, self.store, str(working_directory), str(self.results))
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(APP), *args],
                stdout=output, stderr=output, cwd=working_directory, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)  # its JVM and its workers as well
        self.process.wait(600)

    def stop(self) -> None:
        assert self.process is not None
        (self.results / "stop").touch()
        assert self.process.wait(DEADLINE) == 0, self.output()

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.1)

    def written(self) -> list[int]:
        """Return all numbers in the sink."""
        return sorted(int(file.read_text() or -1) for file in self.results.glob("*-*"))

    def log(self, directory: str) -> list[int]:
        """Return the numbers that the job wrote from a directory, with repetitions."""
        lines = [line.split() for line in (self.results / "log").read_text().splitlines()]
        return sorted(int(line[1]) for line in lines if line[0] == directory)

    def saved(self) -> int:
        """Return the sum of the stored offsets without fencing the job."""
        offsets = {}
        for key, value in records(self.servers, self.store):
            if len(key) == 3:
                offsets[tuple(key)] = value["offset"]
        return sum(offsets.values())

    def output(self) -> str:
        return (self.folder / "output").read_text()[-6000:]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["structured", "direct"])
def test_a_killed_job_resumes_in_another_directory(
    kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, kind: str
) -> None:
    job = Job(kind, kafka.bootstrap_servers, make_topic(2), tmp_path)
    try:
        produce(job.servers, job.topic, range(20))
        job.start("one")
        job.wait(lambda: job.written() == list(range(20)))
        job.wait(lambda: job.saved() == 20)
        (job.results / "hold").touch()
        produce(job.servers, job.topic, range(20, 40))
        job.wait(lambda: job.written() == list(range(40)))
        job.kill()  # the results are written, their offsets are not
        assert job.saved() == 20
        shutil.rmtree(tmp_path / "one")
        produce(job.servers, job.topic, range(40, 50))
        (job.results / "hold").unlink()
        job.start("two")
        job.wait(lambda: job.written() == list(range(50)))
        job.stop()
    finally:
        if job.process is not None and job.process.poll() is None:
            job.kill()
    assert job.log("one") == list(range(40))
    assert job.log("two") == list(range(20, 50))  # saved records were not processed again
    assert job.saved() == 50


STORE_STEPS = ["init", "read", "send", "flush", "before-commit", "after-commit"]


@pytest.mark.parametrize("step", STORE_STEPS)
@pytest.mark.parametrize("operation", ["open", "save"])
def test_a_killed_run_keeps_saved_offsets(kafka: EmbeddedKafka, operation: str, step: str) -> None:
    """``kill -9`` at the step; the next run starts without a delay."""
    servers, topic = kafka.bootstrap_servers, new_name()
    partition = TopicPartition("t", 0)
    with store_of(servers, topic) as store:
        store.save({partition: 1})
    run = subprocess.run(
        [sys.executable, str(STEPS), servers, topic, operation, step],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    not_reached = operation == "save" and step in ("init", "read")  # a save does neither
    assert run.returncode == (0 if not_reached else -signal.SIGKILL), run.stderr
    started = time.monotonic()
    with store_of(servers, topic) as store:
        assert store.load() == {partition: 2 if not_reached or (operation, step) == ("save", "after-commit") else 1}
        store.save({partition: 3})
    assert time.monotonic() - started < 120  # less than transaction_timeout_ms
    with store_of(servers, topic) as store:
        assert store.load() == {partition: 3}
