"""Broker and tool processes, replaced by harmless programs, leave no process or pipe behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import java, kafka_cluster
from pyspark_kafka_direct.broker.java import run_concurrently
from pyspark_kafka_direct.broker.kafka_cluster import ClusterConfig, KafkaCluster
from pyspark_kafka_direct.broker.node_config import NodeConfig
from pyspark_kafka_direct.errors import ExternalToolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.broker.kafka_cluster import BrokerProcess


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Java by a program that only sleeps."""
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    program.chmod(0o755)
    monkeypatch.setattr(kafka_cluster, "find_java", lambda: program)


class EmptyCluster(KafkaCluster):
    """A cluster without brokers."""

    def __init__(self, folder: Path) -> None:
        self.config = ClusterConfig(1, "4.3.0", (), {})
        self.folder = self._jars = folder
        self._java_options: Any = ()
        self._running: dict[int, BrokerProcess] = {}
        self._reservations = contextlib.ExitStack()


@pytest.fixture
def cluster(fake_java: None, tmp_path: Path) -> Iterator[EmptyCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = EmptyCluster(folder)
    yield cluster
    cluster.close()


def has_exited(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_restart_closes_the_pipe_of_a_dead_broker(cluster: EmptyCluster) -> None:
    cluster._launch(1)
    first = cluster._running[1]
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: not first.is_alive, "the end of the broker")
    cluster._launch(1)
    assert cluster.is_alive(1)
    assert first._supervisor.stdin is not None
    assert first._supervisor.stdin.closed


def test_passwords_are_in_a_private_file_and_not_in_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "java"
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" > {tmp_path}/arguments\n'
        f'for each; do case $each in @*) cat "${{each#@}}"; stat -c %a "${{each#@}}";; esac; done > {tmp_path}/file\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(kafka_cluster, "find_java", lambda: program)
    cluster = EmptyCluster(tmp_path)
    cluster.config = ClusterConfig(1, "4.3.0", (), {}, scram=("SCRAM-SHA-256=[name=alice,password=hunter2]",))
    cluster.nodes = (NodeConfig(1, {}),)
    cluster._cluster_id = "id"
    files_before = set(tmp_path.iterdir())
    cluster._format()
    assert "hunter2" not in (tmp_path / "arguments").read_text()
    expected = "--add-scram\nSCRAM-SHA-256=[name=alice,password=hunter2]\n600\n"
    assert (tmp_path / "file").read_text() == expected
    assert {path.name for path in set(tmp_path.iterdir()) - files_before} == {"arguments", "file"}


def test_an_interrupted_start_leaves_no_process(cluster: EmptyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    pipes: list[Any] = []
    brokers: list[int] = []

    class Interrupted:
        """The pipe with the broker's process id; Ctrl-C is pressed during the read."""

        def __enter__(self) -> Interrupted:
            return self

        def __exit__(self, *_: object) -> None:
            pipes[0].close()

        def readline(self) -> bytes:
            brokers.append(int(pipes[0].readline()))
            raise KeyboardInterrupt

    def start(*args: Any, **options: Any) -> Any:
        process = popen(*args, **options)
        started.append(process)
        pipes.append(process.stdout)
        process.stdout = Interrupted()
        return process

    popen: Any = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        cluster._launch(1)
    (supervisor,) = started
    assert supervisor.returncode is not None
    assert supervisor.stdin is not None
    assert supervisor.stdin.closed
    wait_until(lambda: has_exited(brokers[0]), "the end of the broker")


def test_a_timeout_of_one_tool_closes_the_pipes_of_finished_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []

    def start(command: Any) -> subprocess.Popen[str]:
        started.append(plain_start(command))
        if len(started) == 2:
            started[1].wait(60)
        return started[-1]

    plain_start = java._start_process
    monkeypatch.setattr(java, "_start_process", start)
    with pytest.raises(ExternalToolError, match="took longer than 0"):
        run_concurrently([["sleep", "100"], ["true"]], 0)
    assert [each.returncode for each in started] == [-signal.SIGKILL, 0]
    assert [each.stdout is not None and each.stdout.closed for each in started] == [True, True]
