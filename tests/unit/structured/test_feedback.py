"""Backpressure where the planner runs: it finds the measurements, or refuses to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark import SparkFiles

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.backpressure import Gains
from pyspark_kafka_direct.planning.feedback import Backpressure, Measurement, file_name
from pyspark_kafka_direct.runtime.shared_folder import FOLDER, find_folder
from pyspark_kafka_direct.structured._feedback import measured_limit

if TYPE_CHECKING:
    from pathlib import Path

A = TopicPartition("t", 0)


@pytest.fixture
def planning_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    return tmp_path


def test_refused_without_a_listener(planning_in: Path) -> None:
    with pytest.raises(
        OptionError, match=r"call pyspark_kafka_direct\.enable\(spark\) before the query starts"
    ) as caught:
        measured_limit(Backpressure(Gains()), print)
    assert "Over Spark Connect there is no backpressure" in str(caught.value)
    assert "set maxOffsetsPerTrigger" in str(caught.value)


def test_also_found_from_the_files_of_one_session(tmp_path: Path) -> None:
    assert find_folder(tmp_path) is None
    (tmp_path / FOLDER).mkdir()
    (tmp_path / "default").mkdir()
    assert find_folder(tmp_path) == find_folder(tmp_path / "default") == tmp_path / FOLDER


def test_follows_the_files(planning_in: Path) -> None:
    (planning_in / FOLDER).mkdir()
    limit = measured_limit(Backpressure(Gains(), 3000.0), print)
    sizes = []
    for number in range(5):
        sizes.append(limit.most({A: number}))
        measured = Measurement(1000.0 * (number + 1), 3000, 1500, 0, 2000)
        (planning_in / FOLDER / file_name({A: number + 1})).write_text(measured.to_text())
    # The first measured batch tells the interval, the second the rate of 2000 per second.
    assert sizes == [3000, 6000, 4000, 4000, 4000]


def test_a_broken_file_is_told_and_the_rate_stays(planning_in: Path) -> None:
    (planning_in / FOLDER).mkdir()
    warnings: list[str] = []
    limit = measured_limit(Backpressure(Gains(), 500.0), warnings.append)
    (planning_in / FOLDER / file_name({A: 5})).write_text("{")
    assert limit.most({A: 5}) == 500
    assert len(warnings) == 1
    assert "can't be read" in warnings[0]
