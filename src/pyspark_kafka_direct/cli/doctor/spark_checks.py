"""Runs the checks on every executor of a Spark cluster, and compares their Python and packages with the driver's."""

from __future__ import annotations

import contextlib
import platform
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, get_args

from pyspark_kafka_direct._version import __version__
from pyspark_kafka_direct.cli.doctor.findings import Examined, Finding, Result
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark import SparkContext

    from pyspark_kafka_direct.cli.doctor.broker_check import Wanted
    from pyspark_kafka_direct.direct.location_strategies import Executor

SUBJECT: Final = "Python of the executor"
_DISTRIBUTIONS: Final = ("pyspark", "pyarrow", "cryptography")

_REGISTRATION_SECONDS: Final = 120.0  # until the first executor, or as many as the settings name, must be there
_QUIET_SECONDS: Final = 5.0  # without a further executor, if their number is not known
_TASK_SECONDS: Final = 120.0  # to start a Python worker on an executor
_MAX_JOBS: Final = 32  # at the same time
_MIN_SKEW: Final = 2.0  # seconds

_SESSION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.locality.wait": "60s",  # a task waits for its executor, and does not run on another one
    "spark.task.maxFailures": "1",
    "spark.log.level": "OFF",  # the findings contain the errors
}
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*([0-9]+)\s*,.*")

_WRONG_PYTHON: Final = re.compile(r"different version[^\n]*?(\d+\.\d+)[^\n]*?(?:driver|client)[^\n]*?(\d+\.\d+)")
_NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]+)"[^\n]*')
_MAX_ERROR_CHARS: Final = 1_000


def check_executors(
    master: str, conf: Mapping[str, str], settings: Mapping[str, str], wanted: Wanted, timeout: float
) -> list[Examined]:
    """Start a session, run the checks once on each executor, and return the findings of each.

    Raises:
        OptionError: The session cannot be started.
    """
    from pyspark_kafka_direct.spark.spark_versions import require_spark

    require_spark("--spark")
    if master.startswith("sc://"):
        raise OptionError(
            "--spark: a session of Spark Connect cannot place tasks on executors. Run this command where the server "
            "runs, with its master."
        )
    context = _start_session(master, conf)
    try:
        executors = _wait_for_executors(context, master)
        if not executors and not master.startswith("local"):
            return [Examined("executors", [_no_executor()])]
        task = {
            "settings": dict(settings),
            "wanted": tuple(wanted),
            "timeout": timeout,
            "distributions": _DISTRIBUTIONS,
        }
        return _run_tasks(context, executors, task, timeout)
    finally:
        context.stop()


def unchecked_executors() -> list[Examined]:
    """Return the finding if executors are left out, because each would repeat the failed logins of the driver."""
    text = "The login fails on the driver. Correct it first: many failed logins may lock the account."
    return [Examined("executors", [Finding("Spark", "executors", "unknown", text)])]


def _start_session(master: str, conf: Mapping[str, str]) -> SparkContext:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("kafka-direct doctor")
    for name, value in {**_SESSION, **conf}.items():
        builder = builder.config(name, value)
    try:
        context = builder.getOrCreate().sparkContext
    except Exception as error:  # of Java, or of PySpark
        raise OptionError(f"--spark {master}: Spark cannot start: {_first_line(error)}") from None
    context.setLogLevel(str(conf.get("spark.log.level", "OFF")))
    return context


def _wait_for_executors(context: SparkContext, master: str) -> list[Executor]:
    """Return the executors, once as many as expected have registered; none in local mode."""
    from pyspark_kafka_direct.direct.location_strategies import list_executors

    if master.startswith("local") and not master.startswith("local-cluster"):
        return []
    expected = _expected_executors(context, master)
    deadline = time.monotonic() + _REGISTRATION_SECONDS
    found: list[Executor] = []
    changed_at = time.monotonic()
    while time.monotonic() < deadline:
        executors = list_executors(context)
        if len(executors) != len(found):
            found, changed_at = executors, time.monotonic()
        if expected is not None and len(found) >= expected:
            break
        if expected is None and found and time.monotonic() - changed_at >= _QUIET_SECONDS:
            break
        time.sleep(0.2)
    return sorted(found, key=lambda executor: (len(executor.id), executor.id))


def _expected_executors(context: SparkContext, master: str) -> int | None:
    local_cluster = _LOCAL_CLUSTER.fullmatch(master)
    if local_cluster is not None:
        return int(local_cluster[1])
    number = context.getConf().get("spark.executor.instances", "")
    return int(number) if number and number.isdecimal() else None


def _run_tasks(
    context: SparkContext, executors: Sequence[Executor], task: dict[str, Any], timeout: float
) -> list[Examined]:
    """Run one job for each executor, so that each failure belongs to one."""
    names = [f"executor {each.id} on {each.host}" for each in executors] or ["executor in the driver"]
    locations: list[str | None] = [*(each.location for each in executors)] or [None]
    pool = ThreadPoolExecutor(min(len(names), _MAX_JOBS))
    futures = [pool.submit(_run_task, context, location, task) for location in locations]
    rounds = -(-len(names) // _MAX_JOBS)
    _, unfinished = wait(futures, timeout=rounds * (timeout + _TASK_SECONDS))
    if unfinished:
        with contextlib.suppress(Exception):
            context.cancelAllJobs()
    pool.shutdown(wait=False, cancel_futures=True)
    return [Examined(name, list(_findings(future))) for name, future in zip(names, futures, strict=True)]


def _run_task(context: SparkContext, location: str | None, task: dict[str, Any]) -> tuple[dict[str, Any], float, float]:
    """Return the report of an executor, and the driver's time before and after its task."""
    from pyspark import cloudpickle

    from pyspark_kafka_direct.cli.doctor import executor_probe
    from pyspark_kafka_direct.direct.location_strategies import create_task_rdd

    cloudpickle.register_pickle_by_value(executor_probe)  # type: ignore[no-untyped-call]
    before = time.time()
    (report,) = create_task_rdd(context, [task], [location]).mapPartitions(executor_probe.probe).collect()
    return report, before, time.time()


def _findings(future: Future[tuple[dict[str, Any], float, float]]) -> Iterator[Finding]:
    if not future.done() or future.cancelled():
        text = (
            f"The task has not finished {_TASK_SECONDS:g} s after --timeout. Check that the executor is alive, and the "
            "log of the executor."
        )
        yield Finding(SUBJECT, "task", "problem", text)
        return
    error = future.exception()
    if error is not None:
        yield _failed_task(error)
        return
    report, before, after = future.result()
    yield from _compare(report)
    yield _clock(report["time"], before, after)
    for subject, check, result, text in report.get("findings", ()):
        # Another version of the package may have other results.
        yield Finding(subject, check, result if result in get_args(Result) else "problem", text)


def _compare(report: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare the Python and the packages of an executor with the driver's."""
    ours, theirs = platform.python_version(), report["python"]
    if ours.split(".")[:2] == theirs.split(".")[:2]:
        yield Finding(SUBJECT, "interpreter", "ok", f"Python {theirs}, {report['executable']}")
    else:
        text = (
            f"Python {theirs} ({report['executable']}), but the driver has {ours}. Set PYSPARK_PYTHON to the same "
            "minor version on all hosts."
        )
        yield Finding(SUBJECT, "interpreter", "problem", text)
    if "import_error" in report:
        yield _missing_package(report)
    else:
        yield _compare_version("pyspark-kafka-direct", __version__, report["package"], "problem")
    for name in _DISTRIBUTIONS:
        yield _compare_version(name, _own_version(name), report["versions"][name], "warning")


def _missing_package(report: Mapping[str, Any]) -> Finding:
    python = report["executable"]
    if report["package"] is not None:
        text = (
            f"The Python of the executor ({python}) has pyspark-kafka-direct {report['package']}, but cannot run it "
            f"({report['import_error']}). Install the driver's version, {__version__}, with its dependencies."
        )
    else:
        text = (
            f"The Python of the executor ({python}) cannot import pyspark_kafka_direct ({report['import_error']}). "
            "Install the package there, ship an environment with --archives, or set PYSPARK_PYTHON to a Python that "
            "has it. See docs/deployment.md."
        )
    return Finding(SUBJECT, "package", "problem", text)


def _compare_version(name: str, ours: str | None, theirs: str | None, otherwise: Result) -> Finding:
    if theirs is None and ours is not None:
        return Finding(SUBJECT, name, otherwise, f"{name} is missing; the driver has {ours}. Install it there.")
    if ours == theirs:
        return Finding(SUBJECT, name, "ok", f"{name} {theirs}")
    text = f"{name} {theirs}, but the driver has {ours or 'none'}. Install the same version on all hosts."
    return Finding(SUBJECT, name, otherwise, text)


def _own_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _clock(of_executor: float, before: float, after: float) -> Finding:
    """Compare the clock of an executor with the driver's: its task ran between two times of the driver."""
    ahead, behind = of_executor - after, before - of_executor
    skew = max(ahead, behind)
    if skew < _MIN_SKEW:
        return Finding(SUBJECT, "clock", "ok", f"within {after - before:.1f} s of the driver's")
    direction = "ahead of" if ahead > behind else "behind"
    text = f"The clock is at least {skew:.1f} s {direction} the driver's: synchronize the clocks (NTP)."
    return Finding(SUBJECT, "clock", "warning", text)


def _no_executor() -> Finding:
    text = (
        f"No executor has registered within {_REGISTRATION_SECONDS:g} s. Check the master's page: whether the cluster "
        "has free cores and memory, and whether executors can connect to the driver (spark.driver.host)."
    )
    return Finding("Spark", "executors", "problem", text)


def _failed_task(error: BaseException) -> Finding:
    text = str(error)
    missing_python = _NO_PYTHON.search(text)
    if missing_python is not None:
        problem = (
            f"The executor cannot start {missing_python[1]!r}. Install this Python there, or set PYSPARK_PYTHON to one "
            "that the executor has."
        )
        return Finding(SUBJECT, "interpreter", "problem", problem)
    wrong_python = _WRONG_PYTHON.search(text)
    if wrong_python is not None:
        problem = (
            f"The executor has Python {wrong_python[1]}, but the driver {wrong_python[2]}. Set PYSPARK_PYTHON to the "
            "same minor version on all hosts."
        )
        return Finding(SUBJECT, "interpreter", "problem", problem)
    problem = f"The task failed: {_first_line(error)} Check the log of the executor."
    return Finding(SUBJECT, "task", "problem", problem)


def _first_line(error: BaseException) -> str:
    """Return the line of an error of Spark that says most: of the cause in Python, or else the first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)]
    return ([*causes, *lines, type(error).__name__][0])[:_MAX_ERROR_CHARS]
