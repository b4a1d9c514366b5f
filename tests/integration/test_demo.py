"""The demo: with few flights in the session that tests share, and, in ``make soak-short``, as users run it."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from tests.shards.jvm import for_long_work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.broker import EmbeddedKafka

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
DAYS, FLIGHTS = 3, 2_699  # the first three days; the picture shows hours with 50 flights of an airport


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, with the flights of the first days only."""
    others = set(sys.modules)
    monkeypatch.syspath_prepend(str(DEMO.parent))
    module = importlib.import_module("demo")
    with module._flights._open_csv() as file:
        rows = b"".join(islice(file, 1 + FLIGHTS))
    monkeypatch.setattr(module._flights, "_open_csv", lambda: contextlib.nullcontext(io.BytesIO(rows)))
    monkeypatch.setattr(module._flights, "FLIGHTS", FLIGHTS)
    monkeypatch.setattr(module._streaming_demo, "DAYS", DAYS)
    monkeypatch.setattr(module._streaming_demo, "END", datetime(2013, 1, 1 + DAYS, 5, tzinfo=UTC))
    monkeypatch.setattr(module._streaming_demo, "STOPPED_S", 0.0)
    yield module
    for name in set(sys.modules) - others:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(DEMO.parent)):
            del sys.modules[name]


def test_few_flights(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    demo: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    monkeypatch.setattr(session, "stop", lambda: None)
    monkeypatch.setattr(demo, "start_spark", lambda: session)
    assert demo.main(tmp_path, kafka.bootstrap_servers) == 0
    check(capsys.readouterr().out, tmp_path, FLIGHTS, FLIGHTS, windows=3 * DAYS)


@pytest.mark.soak
@pytest.mark.smoke
@pytest.mark.timeout(1200)
def test_all_flights(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": for_long_work(os.environ["JAVA_TOOL_OPTIONS"])}
    command = [sys.executable, str(DEMO), str(tmp_path)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1100, check=False)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-4000:]
    assert "Traceback" not in process.stderr
    check(process.stdout, tmp_path, 336_776, 90_326, windows=300)  # a window for each of 100 days and three airports


def check(printed: str, folder: Path, flights: int, replayed: int, windows: int) -> None:
    """Check that each flight was written and read once, in the batch query and in the streaming query."""
    assert f"{flights:,} records, {flights:,} different flights, {flights:,} in the file: yes" in printed
    table = pyarrow.parquet.read_table(folder / "flights.parquet")
    assert table.num_rows == flights
    # Each offset of each partition occurs once, so the source has read exactly the records of the topic.
    positions = table.select(["partition", "offset"]).group_by(["partition", "offset"]).aggregate([])
    assert positions.num_rows == flights
    # Windows are counted by a streaming query that restarts, and written exactly once.
    assert "Restarting the query from its checkpoint." in printed
    assert f"{replayed:,} flights of {replayed:,}; 0 dropped as late: all equal" in printed
    assert f"{windows:,} windows committed to topic " in printed
    assert ", 0 duplicates." in printed
    for picture in ("delays.png", "live.png"):
        assert (folder / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
