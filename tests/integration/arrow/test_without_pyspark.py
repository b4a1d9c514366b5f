"""The README's example of ``read_arrow``, and ``write_arrow``, where PySpark is not installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from tests import without_spark
from tests.documentation import fenced

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

CHECKS = """
import importlib.util, sys
import pyarrow
from pyspark_kafka_direct import write_arrow

params = {"bootstrap.servers": "SERVERS"}
write_arrow("COPY", pyarrow.table({"key": [b"1", b"2"], "value": ["a", None]}), params)
with read_arrow("COPY", params, columns=["key", "value"]) as copies:
    assert copies.read_all().to_pydict() == {"key": [b"1", b"2"], "value": [b"a", None]}
typed = pyarrow.table({"value": [{"carrier": "UA", "dep_delay": 1.5}]})
write_arrow("COPY", typed, params, valueFormat="json")
with read_arrow("COPY", params, start="last 1", columns=["value"]) as copies:
    assert copies.read_all().to_pydict() == {"value": [b'{"carrier":"UA","dep_delay":1.5}']}
assert importlib.util.find_spec("pyspark") is None
print("without", *{"pyspark", "py4j"} & set(sys.modules))
"""


def test_the_example_of_the_readme_runs_without_pyspark(
    kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, copy = make_topic(2), make_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, json.dumps({"carrier": "UA", "dep_delay": number}), partition=number % 2)
    assert producer.flush(600) == 0
    without_spark.link_requirements(tmp_path, "polars", "duckdb", "pandas")
    (example,) = [block.text for block in fenced("README.md") if "read_arrow" in block.text]
    program = example + CHECKS
    for name, other in (("localhost:9092", "SERVERS"), ('"flights"', f'"{topic}"'), ("COPY", copy)):
        assert name in program
        program = program.replace(name, other)
    output = without_spark.run(tmp_path, program.replace("SERVERS", kafka.bootstrap_servers))
    assert "10" in output
    assert output.splitlines()[-1] == "without"
