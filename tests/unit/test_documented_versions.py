"""docs/spark-versions.md lists the versions of Kafka and Spark that the tests run."""

from __future__ import annotations

import re
from pathlib import Path

from tests.shards.brokers import KINDS

from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark-versions.md").read_text("utf-8")


def first_column(header: str) -> list[str]:
    """Return the first column of the table whose header begins with this cell."""
    rows = PAGE.partition(f"| {header} |")[2].split("\n\n", 1)[0].splitlines()[2:]
    return [row.split("|")[1].strip() for row in rows]


def test_the_versions_of_kafka_are_those_of_the_shared_brokers() -> None:
    tested = {arguments.get("version", DEFAULT_VERSION) for arguments in KINDS.values()}
    assert first_column("Kafka") == sorted(tested, reverse=True)


def test_each_line_of_spark_is_run_by_make() -> None:
    lines = re.search(r"^SPARKS := (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert lines is not None
    documented = [".".join(version.split(".")[:2]) for version in first_column("Spark")]
    *older, newest = lines[1].split()
    assert newest == "4"
    assert documented[: len(older)] == older
    assert len(documented) == len(older) + 1
