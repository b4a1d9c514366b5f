"""Garbage collections in Python workers."""

from __future__ import annotations

import gc
import subprocess
import sys

from pyspark_kafka_direct.spark.worker_lifecycle import freeze_gc

# A daemon is recognized by the name of the main module.
IN_WORKER = """
import gc, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
from pyspark_kafka_direct.spark.worker_lifecycle import freeze_gc
freeze_gc()
frozen = gc.get_freeze_count()
class Loop: pass
gc.disable()
for _ in range(1000):
    loop = Loop()
    loop.reference = loop
del loop
print(frozen > 1000, gc.collect() >= 1000)
freeze_gc()
print(gc.get_freeze_count() <= frozen)
"""


def test_other_processes_are_not_changed() -> None:
    before = gc.get_freeze_count()
    freeze_gc()
    assert gc.get_freeze_count() == before


def test_a_worker_freezes_its_imports_once_and_collects_later_garbage() -> None:
    run = subprocess.run([sys.executable, "-c", IN_WORKER], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True"] * 3
