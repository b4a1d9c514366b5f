"""Backpressure in the planning process: it loads measurements, or fails if there is no listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark import SparkFiles

from pyspark_kafka_direct.datasource.stream_listener_files import backpressure_limit
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import BackpressureOptions, PIDGains
from pyspark_kafka_direct.planning.backpressure import BatchMeasurement, measurement_file_name
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME, find_shared_folder

if TYPE_CHECKING:
    from pathlib import Path

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def spark_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    return tmp_path


def test_backpressure_without_a_listener_is_an_error(spark_files: Path) -> None:
    with pytest.raises(
        OptionError, match=r"call pyspark_kafka_direct\.enable\(spark\) before the query starts"
    ) as caught:
        backpressure_limit(BackpressureOptions(PIDGains()), print)
    assert "Over Spark Connect there is no backpressure" in str(caught.value)
    assert "set maxOffsetsPerTrigger" in str(caught.value)


def test_the_shared_folder_is_found_from_a_session_folder(tmp_path: Path) -> None:
    assert find_shared_folder(tmp_path) is None
    (tmp_path / SHARED_FOLDER_NAME).mkdir()
    (tmp_path / "default").mkdir()
    assert find_shared_folder(tmp_path) == find_shared_folder(tmp_path / "default") == tmp_path / SHARED_FOLDER_NAME


def test_the_limit_follows_measurements(spark_files: Path) -> None:
    (spark_files / SHARED_FOLDER_NAME).mkdir()
    limit = backpressure_limit(BackpressureOptions(PIDGains(), 3000.0), print)
    sizes = []
    for number in range(5):
        sizes.append(limit.max_offsets({PARTITION: number}))
        measurement = BatchMeasurement(1000.0 * (number + 1), 3000, 1500, 0, 2000)
        (spark_files / SHARED_FOLDER_NAME / measurement_file_name({PARTITION: number + 1})).write_text(
            measurement.to_json()
        )
    # The first measured batch sets the interval, the second the rate of 2000 per second.
    assert sizes == [3000, 6000, 4000, 4000, 4000]


def test_an_invalid_file_is_logged_and_the_rate_stays(spark_files: Path) -> None:
    (spark_files / SHARED_FOLDER_NAME).mkdir()
    warnings: list[str] = []
    limit = backpressure_limit(BackpressureOptions(PIDGains(), 500.0), warnings.append)
    (spark_files / SHARED_FOLDER_NAME / measurement_file_name({PARTITION: 5})).write_text("{")
    assert limit.max_offsets({PARTITION: 5}) == 500
    assert len(warnings) == 1
    assert "cannot read a measurement" in warnings[0]
