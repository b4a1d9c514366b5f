"""Batches, streams, foreachBatch, writing and lag over Spark Connect, in one application."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.read_back import values
from tests.integration.stream_queries import produce

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

pytestmark = pytest.mark.spark_app

RECORDS = [str(number) for number in range(10)]


@pytest.fixture(scope="module")
def topics(kafka: EmbeddedKafka, make_topic: MakeTopic) -> tuple[str, str]:
    """A topic with five records in each of two partitions, and an empty topic."""
    topic = make_topic(2, prefix="connect")
    produce(kafka.bootstrap_servers, topic, RECORDS)
    return topic, make_topic(prefix="connected")


@pytest.fixture(scope="module")
def results(
    kafka: EmbeddedKafka,
    topics: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    source_runner_variables: dict[str, str],
) -> dict[str, Any]:
    """The results of the application."""
    folder = tmp_path_factory.mktemp("connect")
    app = Path(__file__).with_name("connect_app.py")
    command = [sys.executable, str(app), kafka.bootstrap_servers, *topics, str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, cwd=folder, env={**os.environ, **source_runner_variables}
    )
    assert done.returncode == 0, done.stderr[-5000:]
    loaded: dict[str, Any] = json.loads((folder / "results.json").read_text("utf-8"))
    assert loaded["session"].startswith("pyspark.sql.connect.")
    return loaded


def test_a_batch(results: dict[str, Any]) -> None:
    assert results["batch"] == RECORDS
    assert results["filtered"] == 5


def test_writing(kafka: EmbeddedKafka, topics: tuple[str, str], results: dict[str, Any]) -> None:
    assert values(kafka.bootstrap_servers, topics[1]) == RECORDS


def test_an_unknown_option_is_an_error(results: dict[str, Any]) -> None:
    assert "did you mean 'startingOffsets'?" in results["error"]


def test_a_stream(results: dict[str, Any]) -> None:
    assert results["stream"] == RECORDS


def test_lag(topics: tuple[str, str], results: dict[str, Any]) -> None:
    assert results["lag"] == [[topics[0], 0, 5, 0], [topics[0], 1, 5, 0]]


def test_foreach_batch(results: dict[str, Any]) -> None:
    assert [len(batch) for batch in results["each"]] == [4, 4, 2]
    assert sorted(text for batch in results["each"] for text in batch) == RECORDS
