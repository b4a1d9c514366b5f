"""``kafka-direct doctor --spark``, which runs the checks on every executor of real clusters."""

from __future__ import annotations

import json
import subprocess
import venv
from typing import TYPE_CHECKING

import pytest
from tests.integration.cli.common_mistakes import common_mistakes
from tests.integration.cli.doctor import Diagnosis, diagnose
from tests.integration.cli.program import START
from tests.integration.standalone import HOSTS, PACKAGE
from tests.shards.jvm import executor_options
from tests.shards.python import path_of_workers

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka

# Spark's worker processes have PySpark with bytecode, and its JVMs archives of classes.
WITH_PACKAGE = f"spark.executorEnv.PYTHONPATH={path_of_workers(str(PACKAGE.parent))}"
SMALL = "spark.executor.memory=512m"
QUICK = f"spark.executor.extraJavaOptions={executor_options()}"


@pytest.fixture
def diagnose_executors(
    kafka: EmbeddedKafka,
    make_spark: SparkSessions,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., dict[str, Diagnosis]]:
    """Runs the command with a session in the JVM of this process; returns the findings of each host."""
    make_spark.stop()
    make_spark.start_jvm()

    def diagnose_executors(master: str, *conf: str, python: str) -> dict[str, Diagnosis]:
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        settings = [part for each in conf for part in ("--conf", each)]
        diagnosis = diagnose(capsys, "-b", kafka.bootstrap_servers, "--spark", master, *settings)
        return by_host(diagnosis.code, diagnosis.findings)

    return diagnose_executors


def by_host(code: int, findings: list[dict[str, str]]) -> dict[str, Diagnosis]:
    hosts = dict.fromkeys(finding["host"] for finding in findings)
    return {host: Diagnosis(code, [finding for finding in findings if finding["host"] == host]) for host in hosts}


@pytest.mark.spark_app
def test_every_executor_runs_the_same_checks(
    kafka: EmbeddedKafka, make_topic: MakeTopic, make_spark: SparkSessions, standalone: str
) -> None:
    """The command is another process, because its standard output must contain nothing else."""
    make_spark.stop()  # a session of another module would have all cores
    topics = [make_topic(1) for _ in range(2)]
    arguments = [part for topic in topics for part in ("--topic", topic)]
    settings = [part for each in (WITH_PACKAGE, SMALL, QUICK) for part in ("--conf", each)]
    command = [*START, "doctor", "-b", kafka.bootstrap_servers, *arguments, "--spark", standalone, *settings, "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.stdout, done.stderr)
    hosts = by_host(done.returncode, [json.loads(line) for line in done.stdout.splitlines()])
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
def test_executors_without_the_package(diagnose_executors: Callable[..., dict[str, Diagnosis]], tmp_path: Path) -> None:
    """The documentation has this as a common mistake."""
    venv.create(tmp_path / "bare")
    python = str(tmp_path / "bare" / "bin" / "python")
    hosts = diagnose_executors("local-cluster[2,1,1024]", "spark.executorEnv.PYTHONPATH=/nowhere", QUICK, python=python)
    assert [host[:10] for host in hosts] == ["driver", "executor 0", "executor 1"]
    command, documented = common_mistakes()["executors lack the package"]
    assert command.startswith("doctor --spark ")
    for name, executor in hosts.items():
        assert executor.code == 1
        if name == "driver":
            assert executor.not_ok == {}
            continue
        text = executor.texts("Python of the executor")["package"]
        assert text.startswith(f"The Python of the executor ({python}) cannot import pyspark_kafka_direct")
        assert "ship an environment with --archives" in text
        assert documented in executor.problems.replace(python, "/opt/python")
        assert executor.texts("Python of the executor")["pyarrow"].startswith("pyarrow is missing; the driver has")


@pytest.mark.spark_app
def test_executors_without_the_interpreter(diagnose_executors: Callable[..., dict[str, Diagnosis]]) -> None:
    hosts = diagnose_executors("local-cluster[1,1,1024]", WITH_PACKAGE, QUICK, python="/no/such/python")
    assert [executor.code for executor in hosts.values()] == [1, 1]
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
