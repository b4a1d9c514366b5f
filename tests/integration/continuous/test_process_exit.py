"""Processes that end while a continuous query runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
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
def app(kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Iterator[Callable[[str], App]]:
    """Starts a query that copies five records in its own process, and waits for them."""
    started: list[subprocess.Popen[str]] = []

    def start(how: str) -> App:
        source, output = make_topic(), make_topic()
        produce(kafka.bootstrap_servers, source, range(5))
        command = [sys.executable, str(APP), kafka.bootstrap_servers, source, output, str(tmp_path / "checkpoint"), how]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        with (tmp_path / "errors").open("w") as errors:
            started.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
                )
            )
        with TopicReader(kafka.bootstrap_servers, output) as reader:
            wait_until(lambda: len(reader.read()) == 5, "the output", 120)
        workers = task_workers(started[-1].pid)
        assert workers
        return App(started[-1], workers, tmp_path)

    yield start
    for process in started:
        process.kill()
        process.communicate()  # closes the pipes, too


class App(NamedTuple):
    process: subprocess.Popen[str]
    workers: list[psutil.Process]
    folder: Path

    def finish(self) -> tuple[int, str]:
        """End the process, and return its exit code and output."""
        output, _ = self.process.communicate("\n", timeout=120)
        return self.process.returncode, output

    def epochs(self) -> list[str]:
        return sorted(file.name for file in (self.folder / "checkpoint" / "commits").glob("[0-9]*"))


@pytest.mark.parametrize("how", ["return", pytest.param("raise", marks=pytest.mark.soak)])
def test_a_process_that_ends_stops_its_query(app: Callable[[str], App], how: str) -> None:
    running = app(how)
    assert running.epochs() == ["0"], "the first epoch takes an hour"
    code, output = running.finish()
    assert code == (3 if how == "raise" else 0), (running.folder / "errors").read_text()
    assert output.splitlines() == (["running"] if how == "raise" else ["running", "done"])
    assert running.epochs() == ["0", "1"]
    assert wait_until_ended(running.workers, 30) == []
    assert "Exception ignored" not in (running.folder / "errors").read_text()


def test_a_killed_process_leaves_no_task_behind(app: Callable[[str], App]) -> None:
    running = app("return")
    running.process.kill()
    assert wait_until_ended(running.workers, 30) == []
    assert running.epochs() == ["0"]


def test_a_session_that_is_stopped_before_its_query(app: Callable[[str], App]) -> None:
    running = app("stop-session")
    code, output = running.finish()
    assert code == 0, (running.folder / "errors").read_text()
    assert output.splitlines()[1:] == [
        "ended by QueryRunError: The query ended because the SparkContext was stopped.",
        "done",
    ]
    assert wait_until_ended(running.workers, 30) == []
