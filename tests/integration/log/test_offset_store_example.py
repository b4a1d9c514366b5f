"""examples/offset_store.py, run as a user runs it, with fewer flights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "offset_store.py"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_no_flight_is_lost_or_duplicated() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--flights", "3000"], capture_output=True, text=True, timeout=870, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-4000:]
    assert "are stored: the query is killed (kill -9), and its checkpoint is lost." in done.stdout
    assert "3,000 flights stored of 3,000: all equal" in done.stdout
    assert "Traceback" not in done.stderr
