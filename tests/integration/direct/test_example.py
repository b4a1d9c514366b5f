"""examples/direct_stream.py, run with fewer flights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "direct_stream.py"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_no_flight_is_missing_after_a_kill() -> None:
    process = subprocess.run(
        [sys.executable, str(EXAMPLE), "--flights", "3000"], capture_output=True, text=True, timeout=870, check=False
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-4000:]
    assert "the application is killed (kill -9)." in process.stdout
    assert "3,000 flights read of 3,000, 0 gaps: all equal" in process.stdout
    assert "same offsets: True" in process.stdout
    assert "Group delays has committed the end of every partition: yes" in process.stdout
    assert "Traceback" not in process.stderr
