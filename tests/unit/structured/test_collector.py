from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

DAEMON = """
    import gc, sys
    from importlib.machinery import ModuleSpec

    sys.modules["__main__"].__spec__ = ModuleSpec({name!r}, None)
    from pyspark_kafka_direct.structured._collector import spare_the_collector

    counts = []
    for _ in range(4):
        spare_the_collector()
        counts.append(gc.get_freeze_count())
        garbage = []
        garbage.append(garbage)
    print(*counts)
"""


def frozen_at_the_start_of_four_tasks(main: str) -> list[int]:
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DAEMON.format(name=main))], check=True, capture_output=True, text=True
    )
    return [int(count) for count in ran.stdout.split()]


def test_what_is_there_is_frozen_at_the_second_task_of_a_worker_and_not_again() -> None:
    first, second, third, fourth = frozen_at_the_start_of_four_tasks("pyspark.daemon")
    assert first == 0
    assert second > 1000
    assert second >= third >= fourth > 1000, "later objects are the collector's"


def test_other_processes_keep_their_collector() -> None:
    assert frozen_at_the_start_of_four_tasks("somebody.else") == [0, 0, 0, 0]
    assert gc.get_freeze_count() == 0
