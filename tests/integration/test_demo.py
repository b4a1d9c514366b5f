"""The demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from tests.shards.jvm import for_long_work

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.spark_app
@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_the_demo_writes_and_reads_every_flight_once_in_batch_and_streaming(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": for_long_work(os.environ["JAVA_TOOL_OPTIONS"])}
    command = [sys.executable, str(DEMO), str(tmp_path)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=570, check=False)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-4000:]
    assert "336,776 records, 336,776 different flights, 336,776 in the file: yes" in process.stdout
    assert "Traceback" not in process.stderr
    flights = pyarrow.parquet.read_table(tmp_path / "flights.parquet")
    assert flights.num_rows == 336_776
    # Each offset of each partition occurs once, so the source has read exactly the records of the topic.
    positions = flights.select(["partition", "offset"]).group_by(["partition", "offset"]).aggregate([])
    assert positions.num_rows == 336_776
    # 100 days of three airports, counted by a streaming query that restarts, and written exactly once.
    assert "Restarting the query from its checkpoint." in process.stdout
    assert "90,326 flights of 90,326; 0 dropped as late: all equal" in process.stdout
    assert "300 windows committed to topic flights-windows, 0 duplicates." in process.stdout
    for picture in ("delays.png", "live.png"):
        assert (tmp_path / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
