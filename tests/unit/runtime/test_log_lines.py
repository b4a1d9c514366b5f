"""What a Python process of Spark's writes of what is logged in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

SAY = """
import logging, sys
{before}
from pyspark_kafka_direct.structured.source import KafkaDirectSource
source = KafkaDirectSource({{}})
KafkaDirectSource({{}})  # Spark makes several in a process
log = logging.getLogger("pyspark_kafka_direct.reading")
log.info("flights-0 [0, 5): 5 records")
log.warning("a warning of %s", "flights-0")
{after}
"""
LINE = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d "


def said(level: str | None = None, before: str = "", after: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_KAFKA_DIRECT_LOG_LEVEL"}
    if level is not None:
        environment["PYSPARK_KAFKA_DIRECT_LOG_LEVEL"] = level
    code = SAY.format(before=before, after=after)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert not run.stdout
    return run.stderr


def test_a_warning_has_its_time_level_and_logger() -> None:
    assert re.fullmatch(LINE + "WARNING pyspark_kafka_direct.reading: a warning of flights-0\n", said())


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_the_line_of_each_task_is_there_when_it_is_asked_for(level: str) -> None:
    first, second = said(level).splitlines()
    assert re.fullmatch(LINE + r"INFO pyspark_kafka_direct.reading: flights-0 \[0, 5\): 5 records", first)
    assert "WARNING" in second


def test_a_higher_level_is_silent() -> None:
    assert said("ERROR") == ""


def test_a_level_that_there_is_not_is_refused() -> None:
    assert "OptionError: PYSPARK_KAFKA_DIRECT_LOG_LEVEL must be" in said("LOUD")


def test_who_configures_logging_has_it_as_configured() -> None:
    configured = 'logging.basicConfig(format="mine %(message)s")'
    assert said(before=configured) == "mine a warning of flights-0\n"
    assert said(after=configured + '\nlog.warning("more")').endswith(" a warning of flights-0\nmine more\n")


def test_a_handler_of_our_loggers_is_a_configuration_too() -> None:
    configured = "import logging\nlogging.getLogger('pyspark_kafka_direct').addHandler(logging.StreamHandler())"
    assert said(before=configured) == "a warning of flights-0\n"


@pytest.mark.parametrize(
    "gone",
    ["sys.stderr.close()", "sys.stderr = None", "import os; r, w = os.pipe(); os.close(r); os.dup2(w, 2)"],
    ids=["closed", "none", "broken"],
)
def test_a_line_that_cannot_be_written_fails_nothing(gone: str) -> None:
    """It is written within tasks and planners, and may be about something else that they survive."""
    code = SAY.format(before="", after=f"{gone}\nlog.warning('more')\n__import__('os')._exit(7)")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert run.returncode == 7


def test_sparks_own_logging_of_workers_has_each_line_once() -> None:
    """It takes over standard error, too, where what is written becomes an error of the logger ``stderr``."""
    spark = (
        "import os, io\n"
        "os.environ['PYSPARK_SPARK_SESSION_UUID'] = 'x'\n"
        "from pyspark.logger.worker_io import capture_outputs\n"
        "sys.stdout = lines = io.StringIO()\n"
        "capture = capture_outputs(); capture.__enter__()"
    )
    last = "capture.__exit__(None, None, None)\nsys.stderr.write(lines.getvalue())"
    found = [line for line in said(before=spark, after=last).splitlines() if "a warning of" in line]
    assert len(found) == 1
    assert '"level": "WARNING", "logger": "pyspark_kafka_direct.reading"' in found[0]
