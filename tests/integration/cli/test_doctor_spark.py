"""``kafka-direct doctor --spark``, which runs the checks on every executor of real clusters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from typing import TYPE_CHECKING

import pytest
from tests.integration.cli.doctor import Diagnosis
from tests.integration.cli.program import START
from tests.integration.standalone import HOSTS, PACKAGE, standalone_cluster

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

WITH_PACKAGE = f"spark.executorEnv.PYTHONPATH={PACKAGE.parent}"
SMALL = "spark.executor.memory=512m"


def diagnose_executors(
    servers: str, master: str, *arguments: str, conf: tuple[str, ...], python: str = sys.executable
) -> tuple[int, dict[str, Diagnosis]]:
    """Run the command; return the exit code, and the findings of each host."""
    settings = [part for each in conf for part in ("--conf", each)]
    command = [*START, "doctor", "-b", servers, *arguments, "--spark", master, *settings]
    done = subprocess.run(
        [*command, "--json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYSPARK_PYTHON": python},
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr
    hosts = dict.fromkeys(row["host"] for row in rows)
    return done.returncode, {
        host: Diagnosis(done.returncode, [row for row in rows if row["host"] == host]) for host in hosts
    }


@pytest.mark.spark_app
def test_every_executor_runs_the_same_checks(kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> None:
    topics = [make_topic(1) for _ in range(2)]
    arguments = [part for topic in topics for part in ("--topic", topic)]
    with standalone_cluster(tmp_path) as master:
        code, hosts = diagnose_executors(kafka.bootstrap_servers, master, *arguments, conf=(WITH_PACKAGE, SMALL))
    assert code == 0
    driver, *executors = hosts.values()
    assert {host.partition(" on ")[2] for host in hosts} == {"", *HOSTS}
    checked = {(finding["subject"], finding["check"]) for finding in driver.findings}
    for executor in executors:
        assert executor.not_ok == {}
        own = executor.texts("Python of the executor")
        assert own.keys() == {"interpreter", "pyspark-kafka-direct", "pyspark", "pyarrow", "cryptography", "clock"}
        others = {(row["subject"], row["check"]) for row in executor.findings}
        assert others - {("Python of the executor", check) for check in own} == checked


@pytest.mark.spark_app
def test_executors_without_the_package(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare")
    python = str(tmp_path / "bare" / "bin" / "python")
    master, conf = "local-cluster[2,1,1024]", ("spark.executorEnv.PYTHONPATH=/nowhere",)
    code, hosts = diagnose_executors(kafka.bootstrap_servers, master, conf=conf, python=python)
    assert code == 1
    assert [host[:10] for host in hosts] == ["driver", "executor 0", "executor 1"]
    for name, executor in hosts.items():
        if name == "driver":
            assert executor.not_ok == {}
            continue
        text = executor.texts("Python of the executor")["package"]
        assert text.startswith(f"The Python of the executor ({python}) cannot import pyspark_kafka_direct")
        assert "ship an environment with --archives" in text
        assert executor.texts("Python of the executor")["pyarrow"].startswith("pyarrow is missing; the driver has")


@pytest.mark.spark_app
def test_executors_without_the_interpreter(kafka: EmbeddedKafka) -> None:
    code, hosts = diagnose_executors(
        kafka.bootstrap_servers, "local-cluster[1,1,1024]", conf=(WITH_PACKAGE,), python="/no/such/python"
    )
    assert code == 1
    assert "cannot start '/no/such/python'" in [*hosts.values()][1].problems


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--spark", "sc://localhost"), "a session of Spark Connect cannot place tasks on executors"),
        (("--conf", "spark.a=b"), "--conf needs --spark MASTER"),
        (("--spark", "local", "--conf", "a=b"), "--conf needs spark.NAME=VALUE, got 'a'"),
        (("--spark", "local", "--conf", "spark.a"), "--conf needs spark.NAME=VALUE, got 'spark.a'"),
    ],
)
def test_wrong_arguments(
    kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert main(["doctor", "-b", kafka.bootstrap_servers, *arguments]) == 2
    assert message in capsys.readouterr().err
