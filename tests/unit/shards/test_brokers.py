"""Shards share brokers: each starts once, on request, and ends with the shards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# A broker is a process that sleeps. Each call of "make" is a shard.
PROGRAM = """
import subprocess, sys
from pathlib import Path
from tests.shards import __main__ as shards, brokers

FOLDER = Path(sys.argv[1])

class Kafka:
    def __init__(self, **arguments):
        self.version = arguments.get("version", "newest")

    def start(self):
        if self.version != "newest":
            raise OSError("no space left")
        self.process = subprocess.Popen(["sleep", "600"])
        with (FOLDER / "started").open("a") as started:
            started.write(f"{self.process.pid}\\n")
        self.log_file().write_text("the last words")
        self.pids = {1: self.process.pid}
        return self

    def listener(self, name):
        return "127.0.0.1:9092"

    def is_alive(self, node):
        return self.process.poll() is None

    def log_file(self, node=1):
        return FOLDER / "log"

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log_file().unlink()

brokers.EmbeddedKafka = Kafka
sys.exit(shards.main(str(FOLDER / "make"), sys.argv[2:], 3))
"""

SHARD = """#!{python}
import os, signal, sys, time
from pathlib import Path
from tests.shards.brokers import shared_broker

for target in sys.argv[3:]:
    with shared_broker("3.9" if target == "older" else "plain") as kafka:
        assert kafka.bootstrap_servers == kafka.listener("PLAINTEXT") == "127.0.0.1:9092"
        assert kafka.is_alive(1) and kafka.log_file().read_text() == "the last words"
        print("connected")
        if target == "stop":
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(600)
        if target in ("kill", "fail"):
            kafka.is_alive(1) and target == "kill" and os.kill(kafka._description["pid"], signal.SIGKILL)
            time.sleep(1)
            sys.exit(f"alive: {{kafka.is_alive(1)}}")
"""


def run(folder: Path, *shards: str) -> subprocess.CompletedProcess[str]:
    make = folder / "make"
    make.write_text(SHARD.format(python=sys.executable))
    make.chmod(0o755)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, *shards],
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def brokers_of(folder: Path) -> list[int]:
    """Return the process ids of the brokers that were started, of which none may run."""
    started = folder / "started"
    pids = [int(line) for line in started.read_text().splitlines()] if started.exists() else []
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    return pids


def test_shards_share_one_broker_that_ends_with_them(tmp_path: Path) -> None:
    done = run(tmp_path, "one two", "three")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("connected") == 3
    assert len(brokers_of(tmp_path)) == 1
    assert not list(tmp_path.glob("shards-*"))
    assert "CPU min   shared brokers" in done.stdout


def test_no_broker_starts_without_a_request(tmp_path: Path) -> None:
    assert run(tmp_path, "").returncode == 0
    assert brokers_of(tmp_path) == []


def test_the_log_is_kept_if_a_shard_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "fail")
    assert done.returncode == 1
    assert "alive: True" in done.stdout
    assert "has exited" not in done.stdout
    [log] = tmp_path.glob("shards-*/broker-plain.log")
    assert log.read_text() == "the last words"
    assert len(brokers_of(tmp_path)) == 1


def test_the_output_reports_a_broker_that_has_exited(tmp_path: Path) -> None:
    done = run(tmp_path, "kill")
    assert done.returncode == 1
    assert "alive: False" in done.stdout
    assert done.stdout.count("the broker 'plain' of all shards has exited") == 1
    assert "the last words" in done.stdout
    assert list(tmp_path.glob("shards-*/broker-plain.log"))


def test_a_shard_reports_a_broker_that_does_not_start(tmp_path: Path) -> None:
    done = run(tmp_path, "older")
    assert done.returncode == 1
    assert "The broker '3.9' that all shards share did not start: OSError: no space left" in done.stdout


def test_a_signal_stops_shards_and_brokers(tmp_path: Path) -> None:
    done = run(tmp_path, "stop")
    assert done.returncode == 128 + signal.SIGTERM, done.stdout + done.stderr
    assert len(brokers_of(tmp_path)) == 1
