"""Broker and tool processes, replaced by harmless programs, leave no process or pipe behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import kafka_cluster
from pyspark_kafka_direct.broker.kafka_cluster import ClusterConfig, KafkaCluster
from pyspark_kafka_direct.broker.node_config import PLAINTEXT, NodeConfig
from pyspark_kafka_direct.broker.probe import HOST, free_ports

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
        self.config = ClusterConfig(1, "4.4.0", (), {})
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


def test_a_closed_cluster_releases_its_ports(cluster: EmptyCluster) -> None:
    (port,) = free_ports(1)
    cluster.nodes = (NodeConfig(1, {PLAINTEXT: port}),)
    cluster._reserve_ports()
    cluster.close()
    with socket.socket() as other:
        other.bind((HOST, port))


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
        f"mkdir {tmp_path}/broker-1; echo records > {tmp_path}/broker-1/bootstrap.checkpoint\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(kafka_cluster, "find_java", lambda: program)
    cluster = EmptyCluster(tmp_path)
    cluster.config = ClusterConfig(1, "4.4.0", (), {}, scram=("SCRAM-SHA-256=[name=alice,password=hunter2]",))
    cluster.nodes = (NodeConfig(1, {}),)
    cluster._cluster_id = "id"
    files_before = set(tmp_path.iterdir())
    cluster._format()
    assert "hunter2" not in (tmp_path / "arguments").read_text()
    expected = "--add-scram\nSCRAM-SHA-256=[name=alice,password=hunter2]\n600\n"
    assert (tmp_path / "file").read_text() == expected
    assert {path.name for path in set(tmp_path.iterdir()) - files_before} == {"arguments", "broker-1", "file"}


LAYOUTS = ["bootstrap.checkpoint", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"]  # of 4.3 and 4.4
KNOWN_IDS = ["version=1", "cluster.id=of-the-tool", "node.id=9", "directory.id=of-the-tool"]


def storage_tool(folder: Path, checkpoint: str, ids: list[str]) -> Path:
    """Return a program that formats a data folder with this file and these ids, and records that it ran."""
    program = folder / "java"
    program.write_text(
        f"#!/bin/sh\necho run >> {folder}/runs\n"
        "for last; do :; done\n"
        f'data="${{last%.properties}}"; file="$data/{checkpoint}"\n'
        'mkdir -p "$(dirname "$file")"; echo records > "$file"\n'
        f'chmod 400 "$file"; printf "%s\\n" "#$(date)" {" ".join(ids)} > "$data/meta.properties"\n'
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("checkpoint", LAYOUTS)
def test_the_tool_runs_once_for_each_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: str) -> None:
    program = storage_tool(tmp_path, checkpoint, KNOWN_IDS)
    monkeypatch.setattr(kafka_cluster, "find_java", lambda: program)

    def format_cluster(name: str, properties: dict[str, str]) -> list[str]:
        (tmp_path / name).mkdir()
        cluster = EmptyCluster(tmp_path / name)
        cluster._jars = tmp_path
        cluster.config = ClusterConfig(2, "4.4.0", (), properties)
        cluster.nodes = (NodeConfig(1, {}), NodeConfig(2, {}))
        cluster._cluster_id = name
        cluster._format()
        directory_ids = set()
        for node in (1, 2):
            assert (tmp_path / name / f"broker-{node}" / checkpoint).read_text() == "records\n"
            lines = (tmp_path / name / f"broker-{node}/meta.properties").read_text().splitlines()
            assert lines[:3] == ["version=1", f"cluster.id={name}", f"node.id={node}"]
            directory_ids.update(lines[3:])
        assert len(directory_ids) == 2
        assert "directory.id=of-the-tool" not in directory_ids
        return (tmp_path / "runs").read_text().split()

    assert format_cluster("first", {}) == ["run"]
    assert format_cluster("second", {"message.max.bytes": "1"}) == ["run"]
    assert format_cluster("third", {"unstable.feature.versions.enable": "true"}) == ["run", "run"]
    cached = tmp_path / "formatted" / checkpoint
    cached.chmod(0o600)
    cached.write_bytes(b"")  # the machine crashed
    assert format_cluster("fourth", {}) == ["run"] * 3
    assert format_cluster("fifth", {}) == ["run"] * 3


@pytest.mark.parametrize("ids", [KNOWN_IDS[:3], [*KNOWN_IDS, "region.id=x"], ["version=2", *KNOWN_IDS[1:]]])
def test_the_tool_runs_for_each_node_if_its_ids_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: list[str]
) -> None:
    program = storage_tool(tmp_path, LAYOUTS[1], ids)
    monkeypatch.setattr(kafka_cluster, "find_java", lambda: program)
    cluster = EmptyCluster(tmp_path)
    cluster.config = ClusterConfig(2, "4.5.0", (), {})
    cluster.nodes = (NodeConfig(1, {}), NodeConfig(2, {}))
    cluster._cluster_id = "id"
    cluster._format()
    assert (tmp_path / "runs").read_text().split() == ["run", "run"]
    assert not (tmp_path / "formatted").exists()
    for node in (1, 2):
        assert (tmp_path / f"broker-{node}/meta.properties").read_text().splitlines()[1:] == ids


@pytest.mark.parametrize("name", ["log.dirs", "metadata.log.dir"])
def test_the_tool_formats_the_data_folders_of_a_property(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program = tmp_path / "java"
    program.write_text(f'#!/bin/sh\nfor last; do :; done\necho "$last" >> {tmp_path}/runs\n')
    program.chmod(0o755)
    monkeypatch.setattr(kafka_cluster, "find_java", lambda: program)
    (tmp_path / "formatted").mkdir()  # the cache
    (tmp_path / "formatted/meta.properties").write_text("\n".join(KNOWN_IDS))
    cluster = EmptyCluster(tmp_path)
    cluster._jars = tmp_path
    cluster.config = ClusterConfig(2, "4.4.0", (), {name: str(tmp_path / "disk")})
    cluster.nodes = (NodeConfig(1, {}), NodeConfig(2, {}))
    cluster._cluster_id = "id"
    cluster._format()
    assert (tmp_path / "runs").read_text().split() == [f"{tmp_path}/broker-{node}.properties" for node in (1, 2)]
    assert not list(tmp_path.glob("broker-*/*"))


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
