"""The table of a time zone's offsets against ``zoneinfo``, on each day of many years."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from pyspark_kafka_direct.payloads.json.utc_offsets import utc_offsets

DAY = 86_400


@pytest.mark.parametrize(
    "name",
    [
        "Africa/Casablanca",  # has another offset for a month, some years for a part of it only
        "Africa/Cairo",  # had summer time twice in some years
        "Antarctica/Troll",
        "Australia/Lord_Howe",
        "Europe/Berlin",
    ],
)
def test_the_table_has_the_offset_of_each_day(name: str) -> None:
    zone, table = ZoneInfo(name), utc_offsets(name)
    starts = [start for start, _ in table]
    first = int(datetime(1970, 1, 1, tzinfo=UTC).timestamp())
    for second in range(first, first + 120 * 365 * DAY, DAY):
        offset = datetime.fromtimestamp(second, zone).utcoffset()
        assert offset is not None
        assert table[bisect_right(starts, second) - 1][1] == offset.total_seconds(), datetime.fromtimestamp(second, UTC)
