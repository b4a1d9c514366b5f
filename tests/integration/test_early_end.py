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
@pytest.mark.parametrize("daemon", ["pyspark.daemon", "pyspark_kafka_direct.daemon"])
def test_a_query_that_ends_early_prints_no_stack_trace(
    kafka: EmbeddedKafka, make_topic: Callable[..., str], daemon: str
) -> None:
    """With more records than the buffers between worker and JVM hold, and with so few that all were written."""
    topics = [make_topic(), make_topic()]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": 1_000_000})
    for topic, records in zip(topics, (20_000, 300_000), strict=True):
        for number in range(records):
            producer.produce(topic, b"%0100d" % number)
    assert producer.flush(60) == 0

    app = [sys.executable, str(APP), daemon, kafka.bootstrap_servers, *topics]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    run = subprocess.run(app, capture_output=True, text=True, timeout=240, check=False, env=environment)

    assert run.returncode == 0, run.stderr
    printed = run.stdout.splitlines()
    is_warm = daemon == "pyspark_kafka_direct.daemon"
    assert (printed[0], printed[-1]) == (f"workers of {daemon}, PyArrow before the fork: {is_warm}", "done")
    assert "Traceback" not in run.stderr, run.stderr
