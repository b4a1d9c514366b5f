"""``show`` and ``limit`` leave no stack trace on the console."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.broker import EmbeddedKafka

APP = Path(__file__).with_name("early_end_app.py")


@pytest.mark.spark_app
def test_a_query_that_ends_early_prints_no_stack_trace(
    kafka: EmbeddedKafka, make_topic: Callable[..., str], source_runner_variables: dict[str, str]
) -> None:
    """With more records than the buffers between worker and JVM hold, and with so few that all were written."""
    topics = [make_topic(), make_topic()]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for topic, size in zip(topics, (100, 1500), strict=True):
        for number in range(20_000):
            producer.produce(topic, b"%0*d" % (size, number))
    assert producer.flush(300) == 0

    app = [sys.executable, str(APP), kafka.bootstrap_servers, *topics]
    run = subprocess.run(
        app, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, **source_runner_variables}
    )

    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "done"
    for daemon, is_warm in (("pyspark.daemon", False), ("pyspark_kafka_direct.daemon", True)):
        assert f"workers of {daemon}, PyArrow before the fork: {is_warm}\n" in run.stdout
    assert "Traceback" not in run.stderr, run.stderr
