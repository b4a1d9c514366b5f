"""Log lines of Python processes that Spark starts."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.spark.worker_lifecycle import begin_process, configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import logging, sys
{before}
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
source = KafkaSourceProvider({{}})
KafkaSourceProvider({{}})  # Spark creates several in a process
log = logging.getLogger("pyspark_kafka_direct.consumer")
log.info("flights-0 [0, 5): 5 records")
log.warning("a warning of %s", "flights-0")
{after}
"""
LINE = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d "


def log_output(level: str | None = None, before: str = "", after: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_KAFKA_DIRECT_LOG_LEVEL"}
    if level is not None:
        environment["PYSPARK_KAFKA_DIRECT_LOG_LEVEL"] = level
    code = PROGRAM.format(before=before, after=after)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert not run.stdout
    return run.stderr


@contextmanager
def no_logging_configuration() -> Iterator[logging.Logger]:
    """Return the logger of the package as in a process that does not configure ``logging``."""
    package, root = logging.getLogger("pyspark_kafka_direct"), logging.getLogger()
    with pytest.MonkeyPatch.context() as patch:
        for logger in (root, package):
            patch.setattr(logger, "handlers", [])
        patch.delenv("PYSPARK_KAFKA_DIRECT_LOG_LEVEL", raising=False)
        level = package.level
        yield package
    package.setLevel(level)


def test_a_line_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("pyspark_kafka_direct.consumer")
    line = LINE + "WARNING pyspark_kafka_direct.consumer: a warning of flights-0\n"
    with no_logging_configuration() as package:
        other = logging.NullHandler()
        package.addHandler(other)
        for _ in range(3):
            configure_logging()
        package.removeHandler(other)
        log.warning("a warning of %s", "flights-0")
        assert re.fullmatch(line, capsys.readouterr().err)
        package.addHandler(other)
        log.warning("another")
        assert capsys.readouterr().err == ""


def test_a_level_is_set_when_a_process_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("pyspark_kafka_direct.consumer")
    with no_logging_configuration():
        monkeypatch.setenv("PYSPARK_KAFKA_DIRECT_LOG_LEVEL", "ERROR")
        begin_process()
        log.warning("hidden")
        log.error("shown")
    assert re.fullmatch(LINE + "ERROR pyspark_kafka_direct.consumer: shown\n", capsys.readouterr().err)


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file")])
def test_a_stream_that_fails_does_not_fail_the_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    with no_logging_configuration() as package:
        configure_logging()
        for stream in (Broken(), None):
            with monkeypatch.context() as broken:
                broken.setattr("sys.stderr", stream)
                package.warning("lost")
    assert capsys.readouterr().err == ""


def test_a_warning_has_time_level_and_logger() -> None:
    assert re.fullmatch(LINE + "WARNING pyspark_kafka_direct.consumer: a warning of flights-0\n", log_output())


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_lower_levels_are_logged_if_configured(level: str) -> None:
    first, second = log_output(level).splitlines()
    assert re.fullmatch(LINE + r"INFO pyspark_kafka_direct.consumer: flights-0 \[0, 5\): 5 records", first)
    assert "WARNING" in second


def test_a_higher_level_hides_warnings() -> None:
    assert log_output("ERROR") == ""


def test_an_unknown_level_is_rejected() -> None:
    assert "OptionError: PYSPARK_KAFKA_DIRECT_LOG_LEVEL must be" in log_output("LOUD")


def test_a_logging_configuration_of_the_application_is_used() -> None:
    configured = 'logging.basicConfig(format="mine %(message)s")'
    assert log_output(before=configured) == "mine a warning of flights-0\n"
    assert log_output(after=configured + '\nlog.warning("more")').endswith(" a warning of flights-0\nmine more\n")


def test_a_handler_of_the_package_logger_counts_as_configuration() -> None:
    configured = "import logging\nlogging.getLogger('pyspark_kafka_direct').addHandler(logging.StreamHandler())"
    assert log_output(before=configured) == "a warning of flights-0\n"


@pytest.mark.parametrize(
    "break_stream",
    ["sys.stderr.close()", "sys.stderr = None", "import os; r, w = os.pipe(); os.close(r); os.dup2(w, 2)"],
    ids=["closed", "none", "broken"],
)
def test_a_line_that_cannot_be_written_is_dropped(break_stream: str) -> None:
    """Tasks and planners must not fail because of a log line."""
    code = PROGRAM.format(before="", after=f"{break_stream}\nlog.warning('more')\n__import__('os')._exit(7)")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert run.returncode == 7


def test_sparks_worker_logging_has_each_line_once() -> None:
    """It also captures standard error, where each line becomes an error of the logger ``stderr``."""
    spark = (
        "import os, io\n"
        "os.environ['PYSPARK_SPARK_SESSION_UUID'] = 'x'\n"
        "from pyspark.logger.worker_io import capture_outputs\n"
        "sys.stdout = lines = io.StringIO()\n"
        "capture = capture_outputs(); capture.__enter__()"
    )
    last = "capture.__exit__(None, None, None)\nsys.stderr.write(lines.getvalue())"
    lines = [line for line in log_output(before=spark, after=last).splitlines() if "a warning of" in line]
    assert len(lines) == 1
    assert '"level": "WARNING", "logger": "pyspark_kafka_direct.consumer"' in lines[0]
