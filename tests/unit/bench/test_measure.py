from __future__ import annotations

import subprocess
import sys
import time

from bench.measure import process_cpu_seconds, sample, tree_cpu_seconds

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_a_child_that_has_ended_still_counts() -> None:
    _, cost = sample(lambda: subprocess.run([sys.executable, "-c", BURN], check=True))
    assert cost.cpu_seconds >= 0.28  # the kernel counts in hundredths
    assert cost.seconds >= 0.28


def test_a_grandchild_that_has_ended_still_counts() -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}], check=True)"
    _, cost = sample(lambda: subprocess.run([sys.executable, "-c", nested], check=True))
    assert cost.cpu_seconds >= 0.28


def test_a_child_that_runs_counts() -> None:
    before = tree_cpu_seconds()
    child = subprocess.Popen([sys.executable, "-c", BURN + "\nprint(flush=True)\ninput()"], stdin=-1, stdout=-1)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert tree_cpu_seconds() - before >= 0.28
        assert process_cpu_seconds(child.pid) >= 0.28
    finally:
        child.communicate(b"\n", timeout=300)


def test_a_sample_hands_on_the_result() -> None:
    result, cost = sample(lambda: "done")
    assert result == "done"
    assert cost.broker_cpu_seconds == 0


def test_waiting_costs_no_processor_time() -> None:
    _, cost = sample(lambda: time.sleep(0.2))
    assert cost.seconds >= 0.2
    assert cost.cpu_seconds < cost.seconds
