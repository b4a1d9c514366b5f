"""What is taken from README, and from what Spark prints, when its first screen is tried (python -m tests.new_user)."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.new_user.__main__ import first_screen, totals

README = Path(__file__).parents[2] / "README.md"

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


def test_the_blocks_of_the_first_screen() -> None:
    shell, python = first_screen(README.read_text(encoding="utf-8"))
    lines = shell.splitlines()
    assert [line for line in lines if line.startswith("pip install")]
    assert lines[-1].startswith("python -m pyspark_kafka_direct.broker")
    ast.parse(python)
    assert '.format("kafka-direct")' in python


def test_the_flights_of_each_table() -> None:
    assert totals(TOLD) == [1735, 1710]
    assert totals("+-------+\n|carrier|\n+-------+\n") == []
