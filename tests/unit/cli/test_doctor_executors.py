"""What ``kafka-direct doctor`` says of an executor with another Python or package, and of tasks that do not end."""

from __future__ import annotations

import platform
import sys
import threading
from concurrent.futures import Future
from importlib.metadata import version
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyspark_kafka_direct._version import __version__
from pyspark_kafka_direct.cli.doctor import spark_checks
from pyspark_kafka_direct.cli.doctor.broker_check import Wanted
from pyspark_kafka_direct.cli.doctor.executor_probe import probe
from pyspark_kafka_direct.direct.location_strategies import Executor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import SparkContext

    from pyspark_kafka_direct.cli.doctor.findings import Finding

MAJOR, MINOR, PATCH = platform.python_version_tuple()


def report(**changes: Any) -> dict[str, Any]:
    """Return the report of an executor like the driver."""
    versions = {name: version(name) for name in spark_checks._DISTRIBUTIONS}
    python = {"python": platform.python_version(), "executable": "/usr/bin/python3"}
    return {"time": 1.0, **python, "versions": versions, "package": __version__, "findings": [], **changes}


def findings(of_executor: dict[str, Any]) -> dict[str, Finding]:
    future: Future[Any] = Future()
    future.set_result((of_executor, 1.0, 1.0))
    return {each.check: each for each in spark_checks._findings(future)}


@pytest.mark.parametrize(
    ("python", "result"),
    [
        (f"{MAJOR}.{MINOR}.{PATCH}", "ok"),
        (f"{MAJOR}.{MINOR}.99", "ok"),
        (f"{MAJOR}.{int(MINOR) + 1}.{PATCH}", "problem"),
        (f"{MAJOR}.{MINOR}0.{PATCH}", "problem"),
        (f"2.{MINOR}.{PATCH}", "problem"),
    ],
)
def test_the_minor_versions_of_python_are_compared(python: str, result: str) -> None:
    found = findings(report(python=python))["interpreter"]
    assert (found.result, f"Python {python}" in found.text) == (result, True)


@pytest.mark.parametrize("ours", [None, "1.0", "2.0"])
@pytest.mark.parametrize("theirs", [None, "1.0"])
def test_packages_that_one_side_lacks(monkeypatch: pytest.MonkeyPatch, ours: str | None, theirs: str | None) -> None:
    monkeypatch.setattr(spark_checks, "_own_version", lambda _: ours)
    versions = {**dict.fromkeys(spark_checks._DISTRIBUTIONS, ours), "pyarrow": theirs}
    found = findings(report(versions=versions))
    assert [name for name, each in found.items() if each.result != "ok"] == (["pyarrow"] if ours != theirs else [])
    if ours != theirs:
        missing, other = f"pyarrow is missing; the driver has {ours}.", f"pyarrow {theirs}, but the driver has"
        assert found["pyarrow"].text.startswith(missing if theirs is None else other)


@pytest.mark.parametrize(("package", "result"), [(__version__, "ok"), ("0.0.1", "problem")])
def test_the_version_of_this_package(package: str, result: str) -> None:
    assert findings(report(package=package))["pyspark-kafka-direct"].result == result


@pytest.mark.parametrize("module", [None, ModuleType("checks")], ids=["missing", "older"])
def test_an_executor_that_cannot_import_the_checks(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    monkeypatch.setitem(sys.modules, "pyspark_kafka_direct.cli.doctor.checks", module)
    task = {"distributions": spark_checks._DISTRIBUTIONS, "settings": {}, "wanted": ((), (), False), "timeout": 1}
    found = findings(next(probe([task])))["package"]
    assert (found.result, f"has pyspark-kafka-direct {__version__}, but cannot run it (" in found.text) == (
        "problem",
        True,
    )


def test_tasks_that_do_not_end_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    has_ended, cancelled = threading.Event(), []

    def wait(futures: Sequence[Future[Any]], timeout: float) -> tuple[set[Any], set[Any]]:
        """Let the time pass in which only the second task has not ended."""
        done, unfinished = {futures[0], futures[2]}, {futures[1]}
        assert [each.exception(300) for each in done] == [None, None]
        return done, unfinished

    def run_task(_: object, location: str, __: object) -> tuple[dict[str, Any], float, float]:
        if location == "executor_h_1":
            has_ended.wait(300)
        return report(), 1.0, 1.0

    monkeypatch.setattr(spark_checks, "_run_task", run_task)
    monkeypatch.setattr(spark_checks, "wait", wait)
    context = cast("SparkContext", SimpleNamespace(cancelAllJobs=lambda: cancelled.append(True)))
    executors = [Executor("h", str(number)) for number in range(3)]
    examined = spark_checks._run_tasks(context, executors, {}, 5.0)
    has_ended.set()
    assert cancelled == [True]
    assert [next(each.check for each in found) for _, found in examined] == ["interpreter", "task", "interpreter"]
    assert "has not finished" in examined[1].findings[0].text


@pytest.mark.parametrize("fails", [False, True])
def test_the_session_is_stopped(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    stops: list[bool] = []
    context = SimpleNamespace(stop=lambda: stops.append(True))

    def wait_for_executors(*_: object) -> list[Executor]:
        if fails:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(spark_checks, "_start_session", lambda *_: context)
    monkeypatch.setattr(spark_checks, "_wait_for_executors", wait_for_executors)
    if fails:
        with pytest.raises(KeyboardInterrupt):
            spark_checks.check_executors("spark://m", {}, {}, Wanted(), 1.0)
    else:
        (found,) = spark_checks.check_executors("spark://m", {}, {}, Wanted(), 1.0)
        assert (found.host, found.findings[0].result) == ("executors", "problem")
    assert stops == [True]
