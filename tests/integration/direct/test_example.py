"""examples/direct_stream.py, run as a user runs it, with fewer flights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "direct_stream.py"


@pytest.mark.spark_app
@pytest.mark.timeout(900)
def test_no_flight_is_missing_after_a_kill() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--flights", "3000"], capture_output=True, text=True, timeout=870, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-4000:]
    assert "the application is killed (kill -9)." in done.stdout
    assert "3,000 flights read of 3,000, 0 gaps: all equal" in done.stdout
    assert "same offsets: True" in done.stdout
    assert "Group delays shows the end of every partition: yes" in done.stdout
    assert "Traceback" not in done.stderr
