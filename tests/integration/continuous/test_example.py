"""examples/continuous_flights.py with fewer flights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "continuous_flights.py"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_every_late_flight_has_an_alert() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--flights", "3000", "--rate", "1000"],
        capture_output=True, text=True, timeout=570, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-4000:]
    assert "188 flights were late, 188 alerts arrived: all equal" in done.stdout
    assert "From departure to alert, 188 flights: half within" in done.stdout
    assert "Traceback" not in done.stderr
