"""Hurt writers, tables and brokers of a shared log, and compare all tables: ``make soak-log MINUTES=10``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.lanes.jvm import start_quickly
from tests.soak.log.plan import plan
from tests.soak.log.run import PROPERTIES, LogRun, Outcome
from tests.soak.sink.brokers import PROPERTIES as OF_THREE
from tests.soak.sink.brokers import Brokers

from pyspark_kafka_direct.broker import EmbeddedKafka

_BROKERS = 3


def main() -> int:
    """Run; returns 1 if it failed."""
    asked = _arguments()
    start_quickly()
    folder = Path(tempfile.mkdtemp(prefix="soak-log-"))
    _say(f"{asked.writers} writers, {asked.tables} tables, {asked.minutes} minutes, seed {asked.seed}, folder {folder}")
    began = time.monotonic()
    try:
        with EmbeddedKafka(_BROKERS, reuse_running=False, properties=OF_THREE | PROPERTIES) as kafka:
            steps = plan(asked.seed, asked.writers, asked.tables)
            run = LogRun(steps, Brokers(kafka), folder, _say, writers=asked.writers, tables=asked.tables)
            outcome = run.run(60 * asked.minutes)
    except Exception:
        _say(traceback.format_exc())
        _say(f"FAILED. Kept: {folder}. Again: make soak-log MINUTES={asked.minutes} SEED={asked.seed}")
        return 1
    _summarize(outcome)
    _say(f"right, seed {asked.seed}; {time.monotonic() - began:.0f} s")
    shutil.rmtree(folder)
    return 0


def _summarize(outcome: Outcome) -> None:
    for deed, times in sorted(outcome.deeds.items()):
        _say(f"  {times} x {deed}")
    _say(
        f"  {outcome.checks} times read to the end and never early, {outcome.slowest:.1f} s at most; "
        f"{outcome.restarts} tables made anew"
    )
    _say(
        f"  all tables equal, {outcome.keys} keys; {outcome.offsets} offsets, of which compaction has left "
        f"{outcome.left} records"
    )
    for samples, (first, last) in zip(outcome.memory, outcome.files, strict=True):
        fifth = max(1, len(samples) // 5)
        parts = " ".join(str(max(samples[at : at + fifth]) >> 20) for at in range(0, 5 * fifth, fifth) if samples[at:])
        _say(f"  a process of tables: {parts} MiB by fifths of the time; open files {first}, in the end {last}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.log", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for how long (default 10)")
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's deeds (default: random)")
    parser.add_argument("--writers", type=int, default=10)
    parser.add_argument("--tables", type=int, default=10)
    asked = parser.parse_args()
    if asked.seed is None:
        asked.seed = random.randrange(1_000_000)
    return asked


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
