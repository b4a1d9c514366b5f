"""What is taken from the page First query, and from what Spark prints, when it is tried (python -m tests.new_user)."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.new_user.__main__ import first_blocks, totals

PAGE = Path(__file__).parents[2] / "docs/first-query.md"

TOLD = """\
+-------+-------+------------------+
|carrier|flights|      minutes late|
+-------+-------+------------------+
|     UA|   1702|12.106051873198847|
|     B6|     33|              NULL|
+-------+-------+------------------+

>>>
+-------+-------+------------------+
|carrier|flights|      minutes late|
+-------+-------+------------------+
|     UA|   1710|12.006051873198847|
+-------+-------+------------------+
"""


def test_the_first_blocks_of_the_page() -> None:
    shell, python = first_blocks(PAGE.read_text(encoding="utf-8"))
    lines = shell.splitlines()
    assert "pip install '.[spark]'" in lines
    assert lines[-1].startswith("python -m pyspark_kafka_direct.broker")
    ast.parse(python)
    assert '.format("kafka-direct")' in python


def test_the_flights_of_each_table() -> None:
    assert totals(TOLD) == [1735, 1710]
    assert totals("+-------+\n|carrier|\n+-------+\n") == []
