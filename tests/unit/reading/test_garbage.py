"""What a worker's garbage collections walk through."""

from __future__ import annotations

import gc
import subprocess
import sys

from pyspark_kafka_direct.runtime._garbage import spare_collections

# The daemon is told by the name of the module that was run.
IN_WORKER = """
import gc, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
from pyspark_kafka_direct.runtime._garbage import spare_collections
spare_collections()
frozen = gc.get_freeze_count()
class Loop: pass
gc.disable()
for _ in range(1000):
    loop = Loop()
    loop.itself = loop
del loop
print(frozen > 1000, gc.collect() >= 1000)
spare_collections()
print(gc.get_freeze_count() <= frozen)
"""


def test_elsewhere_nothing_is_frozen() -> None:
    before = gc.get_freeze_count()
    spare_collections()
    assert gc.get_freeze_count() == before


def test_a_worker_freezes_what_it_has_imported_once_and_collects_what_comes_later() -> None:
    run = subprocess.run([sys.executable, "-c", IN_WORKER], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True"] * 3
