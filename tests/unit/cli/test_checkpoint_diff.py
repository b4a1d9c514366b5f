"""``kafka-direct checkpoint diff`` on two checkpoints in the formats of Spark."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from tests.unit.cli.test_checkpoint_command import write

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_checkpoint_and_a_copy_from_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    write(a, 0, '{"s":{"0":2},"t":{"0":5,"1":7},"u":{"0":1}}', "5", '{"v":{"0":1,"1":1}}')
    shutil.copytree(a, b)
    assert main(["checkpoint", "diff", str(a), str(b)]) == 0
    assert "The offsets are the same." in capsys.readouterr().out
    write(b, 1, '{"s":{"0":2},"t":{"0":9,"1":6,"2":3},"u":{"0":1}}', "6", '{"v":{"0":1,"1":3}}', commit=False)
    assert main(["checkpoint", "diff", str(a), str(b), "--json"]) == 1
    output = capsys.readouterr()
    assert [tuple(json.loads(line).values()) for line in output.out.splitlines()] == [
        ("0", "t-0", 5, 9, 0, 4),
        ("0", "t-1", 7, 6, 1, 0),
        ("0", "t-2", None, 3, None, None),
        ("2", "v-1", 1, 3, 0, 2),
    ]
    assert output.err == ""
    assert main(["checkpoint", "diff", str(a), str(b)]) == 1
    assert capsys.readouterr().out.startswith("A  batch 0, committed\nB  batch 1, unfinished\n\nSOURCE  PARTITION")


def test_both_versions_of_the_log_and_other_query_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    write(a, 0, '{"t":{"0":5}}')
    write(b, 3, 'flights:{"t":{"0":5}}', version="v2")
    (b / "metadata").write_text('{"id":"other"}')
    assert main(["checkpoint", "diff", str(a), str(b), "--json"]) == 1
    output = capsys.readouterr()
    assert [json.loads(line)["source"] for line in output.out.splitlines()] == ["0", "flights"]
    assert "different query ids" in output.err
