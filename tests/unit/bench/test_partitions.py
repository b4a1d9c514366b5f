from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench.partitions import Reading, render
from bench.publish import RESULTS, publish
from bench.summary import JVM, OURS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_table_has_medians_and_their_ratio() -> None:
    readings = [Reading(1000, JVM, (9.0, 60.0, 10.0)), Reading(1000, OURS, (5.0, 0.5, 2.0))]
    text = render(readings)
    assert "median of 3 runs" in text
    assert "| 1,000 | 10.00 s | 2.00 s | 5x |" in text


def test_the_page_is_what_was_found() -> None:
    found = json.loads((RESULTS / "partitions.json").read_text())["readings"]
    text = render([Reading(each["partitions"], each["peer"], tuple(each["seconds"])) for each in found])
    assert (RESULTS / "partitions.md").read_text() == f"# Few partitions and many\n\n{text}\n"


def test_what_is_published_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path / "new", "log", "Loading", "| a |", {"machine": {"cores": 2}})
    assert capsys.readouterr().out == "| a |\n"
    assert (tmp_path / "new" / "log.md").read_text() == "# Loading\n\n| a |\n"
    assert json.loads((tmp_path / "new" / "log.json").read_text()) == {"machine": {"cores": 2}}
