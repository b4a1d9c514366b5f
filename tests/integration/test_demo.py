"""The demo, run as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from tests.lanes.jvm import for_long_work

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.spark_app
@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_the_demo_writes_and_reads_every_flight_once_at_rest_and_live(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": for_long_work(os.environ["JAVA_TOOL_OPTIONS"])}
    command = [sys.executable, str(DEMO), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=570, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "336,776 records, 336,776 different flights, 336,776 in the file: yes" in done.stdout
    assert "Traceback" not in done.stderr
    flights = pyarrow.parquet.read_table(tmp_path / "flights.parquet")
    assert flights.num_rows == 336_776
    # Each offset of each partition once: what the source read is what the topic holds.
    places = flights.select(["partition", "offset"]).group_by(["partition", "offset"]).aggregate([])
    assert places.num_rows == 336_776
    # 100 days of three airports, counted live, over a stop, and written exactly once.
    assert "It goes on from its checkpoint." in done.stdout
    assert "90,326 flights of 90,326; 0 dropped as late: all equal" in done.stdout
    assert "300 windows in topic flights-windows for who reads what is committed, 0 of them twice." in done.stdout
    for picture in ("delays.png", "live.png"):
        assert (tmp_path / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
