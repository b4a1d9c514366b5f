"""The pipeline of docs/structured-streaming.md, run by spark-pipelines."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.documentation import fenced, indented
from tests.integration.read_back import consume

from pyspark_kafka_direct.cli.sample_flights import TopicWriter

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

PAGE = "docs/structured-streaming.md"


@pytest.mark.soak
@pytest.mark.timeout(900)  # each run starts three JVMs
def test_each_run_of_the_pipeline_on_the_page_reads_and_writes_new_records_once(
    kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    servers, flights, alerts = kafka.bootstrap_servers, make_topic(2, prefix="flights"), make_topic(prefix="alerts")
    blocks = {block.language: block.text for block in fenced(PAGE)}
    storage = (tmp_path / "storage").as_uri()
    (tmp_path / "spark-pipeline.yml").write_text(blocks["yaml"].replace("file:///tmp/flights-pipeline", storage))
    (tmp_path / "transformations").mkdir()
    definitions = blocks["python fragment"].replace("localhost:9092", servers)
    definitions = definitions.replace('subscribe="flights"', f'subscribe="{flights}"').replace(
        '"topic": "alerts"', f'"topic": "{alerts}"'
    )
    definitions = definitions.replace('"late-flights"', f'"{alerts}"')
    (tmp_path / "transformations" / "flights.py").write_text(definitions)

    with TopicWriter(servers, flights) as writer:
        writer.write(["UA", "DL"], ['{"carrier": "UA", "dep_delay": 90}', '{"carrier": "DL", "dep_delay": 2}'], [1, 2])
        for run in range(2):
            run_pipeline(tmp_path)
            assert late_carriers(servers, alerts) == sorted(["UA"] + ["AA"] * run)
            writer.write(["AA"], ['{"carrier": "AA", "dep_delay": 61}'], [3 + run])


def run_pipeline(folder: Path) -> None:
    (line,) = (line for block in indented(PAGE) for line in block.text.splitlines() if " run " in line)
    command = shlex.split(line)
    command[0] = str(Path(sys.executable).with_name(command[0]))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment, cwd=folder)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def late_carriers(servers: str, topic: str) -> list[str]:
    """Return the carriers in a topic."""
    return sorted(json.loads(each.value or b"")["carrier"] for each in consume(servers, topic, "read_committed"))
