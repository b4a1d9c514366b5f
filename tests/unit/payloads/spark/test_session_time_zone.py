"""The time zone of timestamps without an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.payloads.spark import session_time_zone
from pyspark_kafka_direct.payloads.spark.session_time_zone import host_time_zone, task_time_zone

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("/usr/share/zoneinfo/posix/Asia/Tokyo", "Asia/Tokyo"),
        ("Nowhere/City", "UTC"),
    ],
)
def test_the_time_zone_of_a_host_is_in_its_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, expected: str
) -> None:
    monkeypatch.setenv("TZ", variable)
    assert host_time_zone() == expected


@pytest.mark.parametrize(("target", "expected"), [("zoneinfo/America/New_York", "America/New_York"), ("file", "UTC")])
def test_the_time_zone_of_a_host_is_that_of_its_local_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, expected: str
) -> None:
    link = tmp_path / "localtime"
    link.symlink_to(tmp_path / target)
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(session_time_zone, "_LOCAL_TIME", link)
    assert host_time_zone() == expected


def test_outside_of_a_task_the_time_zone_is_the_default() -> None:
    assert task_time_zone("Asia/Tokyo") == "Asia/Tokyo"
