from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from bench.partitions import Reading, render
from bench.publish import RESULTS, publish, with_versions
from bench.session import KAFKA_VERSION
from bench.summary import JVM, OURS

from pyspark_kafka_direct.broker.jar_checksums import check_version

if TYPE_CHECKING:
    from pathlib import Path


def test_the_table_has_medians_and_their_ratio() -> None:
    readings = [Reading(1000, JVM, (9.0, 60.0, 10.0)), Reading(1000, OURS, (5.0, 0.5, 2.0))]
    text = render(readings)
    assert "median of 3 runs" in text
    assert "| 1,000 | 10.00 s | 2.00 s | 5x |" in text


def test_the_page_is_what_was_found() -> None:
    found = json.loads((RESULTS / "partitions.json").read_text())
    readings = [Reading(each["partitions"], each["peer"], tuple(each["seconds"])) for each in found["readings"]]
    text = with_versions(render(readings), found)
    assert (RESULTS / "partitions.md").read_text() == f"# Few partitions and many\n\n{text}\n"


def test_what_is_published_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    versions = {"pyspark": "4.2.0", "kafka broker": "4.4.0", "python": "3.13.0"}
    found = {"machine": {"versions": versions, "commit": "abc"}}
    publish(tmp_path / "new", "log", "Loading", "| a |", found)
    text = "Spark 4.2.0, Kafka 4.4.0, Python 3.13.0, commit abc\n\n| a |\n"
    assert capsys.readouterr().out == text
    assert (tmp_path / "new" / "log.md").read_text() == f"# Loading\n\n{text}"
    assert json.loads((tmp_path / "new" / "log.json").read_text()) == found


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*.json")), ids=lambda page: page.stem)
def test_each_result_names_its_version_of_kafka(page: Path) -> None:
    version = json.loads(page.read_text())["machine"]["versions"]["kafka broker"]
    assert f", Kafka {version}, " in page.with_suffix(".md").read_text()


def test_the_jars_of_the_broker_can_be_verified() -> None:
    check_version(KAFKA_VERSION)
