"""examples/settings_table.py, run as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark_kafka_direct.broker import EmbeddedKafka

EXAMPLE = Path(__file__).parents[3] / "examples" / "settings_table.py"


@pytest.mark.smoke
def test_processes_share_a_table(kafka: EmbeddedKafka) -> None:
    command = [sys.executable, str(EXAMPLE), kafka.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-4000:]
    assert done.stdout.count("800 jobs, 400 with a rate of 100 and 400 with 200") == 3
    assert "All equal: yes" in done.stdout
    assert "Traceback" not in done.stderr
