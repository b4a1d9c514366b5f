"""Processes that end while a continuous query runs, and right after a micro-batch query."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.integration.groups import committed
from tests.integration.read_back import TopicReader
from tests.integration.stream_queries import produce
from tests.integration.waiting import wait_until
from tests.soak.processes import task_workers, wait_until_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psutil
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

APP = Path(__file__).with_name("exit_app.py")

pytestmark = pytest.mark.spark_app


@pytest.fixture
def app(
    kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, source_runner_variables: dict[str, str]
) -> Iterator[Callable[[str], App]]:
    """Starts a query in its own process, and waits until it has copied five records."""
    started: list[subprocess.Popen[str]] = []

    def start(how: str) -> App:
        source, output = make_topic(), make_topic()
        produce(kafka.bootstrap_servers, source, range(5))
        command = [sys.executable, str(APP), kafka.bootstrap_servers, source, output, str(tmp_path), how]
        with (tmp_path / "errors").open("w") as errors:
            started.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env={**os.environ, **source_runner_variables},
                )
            )
        app = App(started[-1], [], kafka.bootstrap_servers, source, output, tmp_path)
        app.wait_for_output(5)
        return app

    yield start
    for process in started:
        process.kill()
        process.communicate()  # closes the pipes, too


class App(NamedTuple):
    process: subprocess.Popen[str]
    workers: list[psutil.Process]
    servers: str
    source: str
    output: str
    folder: Path

    def wait_for_output(self, records: int) -> None:
        """Wait until the output topic has this many records."""
        with TopicReader(self.servers, self.output) as reader:
            wait_until(lambda: len(reader.read()) == records, "the output")
        workers = task_workers(self.process.pid)
        assert workers
        self.workers.extend(workers)

    def stop_session(self) -> None:
        """Stop the session under the query; the process starts the query ``second`` in another one."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.wait_for_output(10)

    def finish(self) -> tuple[int, list[str]]:
        """End the process, and return its exit code and the lines of its output."""
        output, _ = self.process.communicate("\n", timeout=900)
        return self.process.returncode, output.splitlines()

    def epochs(self, query: str) -> list[str]:
        return sorted(file.name for file in (self.folder / query / "commits").glob("[0-9]*"))

    def errors(self) -> str:
        return (self.folder / "errors").read_text()


def test_a_session_that_stops_and_a_process_that_ends_stop_their_queries(app: Callable[[str], App]) -> None:
    """The last batch of a micro-batch query is committed, although the process ends immediately after it."""
    running = app("stop-session")
    assert running.epochs("first") == ["0"], "the first epoch takes an hour"
    running.stop_session()
    assert running.epochs("second") == ["0"]
    code, output = running.finish()
    assert code == 0, running.errors()
    assert output == [
        "running",
        "ended by QueryRunError: The query ended because the SparkContext was stopped.",
        "running",
        "done",
    ]
    assert running.epochs("second") == ["0", "1"]
    assert wait_until_ended(running.workers, 30) == []
    assert "Exception ignored" not in running.errors()
    assert committed(running.servers, f"group-{running.source}", running.source) == {0: 5}


@pytest.mark.soak  # the test above ends a process without an error
def test_a_process_that_ends_with_an_error_stops_its_query(app: Callable[[str], App]) -> None:
    running = app("raise")
    code, output = running.finish()
    assert (code, output) == (3, ["running"]), running.errors()
    assert running.epochs("first") == ["0", "1"]
    assert wait_until_ended(running.workers, 30) == []
    assert "Exception ignored" not in running.errors()


def test_a_killed_process_leaves_no_task_behind(app: Callable[[str], App]) -> None:
    running = app("return")
    running.process.kill()
    assert wait_until_ended(running.workers, 30) == []
    assert running.epochs("first") == ["0"]
