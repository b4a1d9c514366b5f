"""Brokers and Java's tools as processes, with harmless programs in their place: nothing of them stays open."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import _process, _tools
from pyspark_kafka_direct.broker._cluster import Cluster, ClusterPlan
from pyspark_kafka_direct.broker._tools import run_together
from pyspark_kafka_direct.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.broker._process import BrokerProcess


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a program that does nothing be Java."""
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    program.chmod(0o755)
    monkeypatch.setattr(_process, "find_java", lambda: program)


class Bare(Cluster):
    """A cluster that has no broker yet."""

    def __init__(self, folder: Path) -> None:
        self.plan = ClusterPlan(1, "4.3.0", (), {})
        self.folder = self._jars = folder
        self._java_options: Any = ()
        self._running: dict[int, BrokerProcess] = {}


@pytest.fixture
def cluster(java: None, tmp_path: Path) -> Iterator[Bare]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Bare(folder)
    yield cluster
    cluster.close()


def is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_broker_that_died_leaves_no_pipe_to_its_successor(cluster: Bare) -> None:
    cluster._launch(1)
    first = cluster._running[1]
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: not first.alive, "the end of the broker")
    cluster._launch(1)
    assert cluster.alive(1)
    assert first._supervisor.stdin is not None
    assert first._supervisor.stdin.closed


def test_a_start_that_is_interrupted_leaves_no_process(cluster: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    pipes: list[Any] = []
    brokers: list[int] = []

    class Interrupted:
        """Where the process id of the broker is read from, when Ctrl-C comes."""

        def __enter__(self) -> Interrupted:
            return self

        def __exit__(self, *_: object) -> None:
            pipes[0].close()

        def readline(self) -> bytes:
            brokers.append(int(pipes[0].readline()))
            raise KeyboardInterrupt

    def start(*args: Any, **more: Any) -> Any:
        made = popen(*args, **more)
        started.append(made)
        pipes.append(made.stdout)
        made.stdout = Interrupted()
        return made

    popen: Any = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        cluster._launch(1)
    (supervisor,) = started
    assert supervisor.returncode is not None
    assert supervisor.stdin is not None
    assert supervisor.stdin.closed
    wait_until(lambda: is_gone(brokers[0]), "the end of the broker")


def test_tools_that_are_done_leave_no_pipe_where_another_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []

    def start(command: Any) -> subprocess.Popen[str]:
        started.append(plain_start(command))
        if len(started) == 2:
            started[1].wait(20)
        return started[-1]

    plain_start = _tools._start
    monkeypatch.setattr(_tools, "_start", start)
    with pytest.raises(ToolError, match="took longer than 0"):
        run_together([["sleep", "100"], ["true"]], 0)
    assert [each.returncode for each in started] == [-signal.SIGKILL, 0]
    assert [each.stdout is not None and each.stdout.closed for each in started] == [True, True]
