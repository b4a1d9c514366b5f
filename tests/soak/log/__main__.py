"""Inject faults into writers, tables and brokers of a shared log, and compare all tables: ``make soak-log``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.shards.jvm import start_quickly
from tests.soak.log.plan import plan
from tests.soak.log.run import PROPERTIES, LogRun, Outcome
from tests.soak.sink.brokers import PROPERTIES as CLUSTER_PROPERTIES
from tests.soak.sink.brokers import Brokers

from pyspark_kafka_direct.broker import EmbeddedKafka

_BROKERS = 3


def main() -> int:
    """Run; return 1 if it failed."""
    args = _arguments()
    start_quickly()
    folder = Path(tempfile.mkdtemp(prefix="soak-log-"))
    _report(f"{args.writers} writers, {args.tables} tables, {args.minutes} minutes, seed {args.seed}, folder {folder}")
    started_at = time.monotonic()
    try:
        with EmbeddedKafka(_BROKERS, properties=CLUSTER_PROPERTIES | PROPERTIES) as kafka:
            steps = plan(args.seed, args.writers, args.tables)
            run = LogRun(steps, Brokers(kafka), folder, _report, writers=args.writers, tables=args.tables)
            outcome = run.run(60 * args.minutes)
    except Exception:
        _report(traceback.format_exc())
        _report(f"FAILED. Files: {folder}. Repeat: make soak-log MINUTES={args.minutes} SEED={args.seed}")
        return 1
    _summarize(outcome)
    _report(f"passed, seed {args.seed}; {time.monotonic() - started_at:.0f} s")
    shutil.rmtree(folder)
    return 0


def _summarize(outcome: Outcome) -> None:
    for fault, times in sorted(outcome.faults.items()):
        _report(f"  {times} x {fault}")
    _report(
        f"  {outcome.checks} times read to the end without missing records, {outcome.slowest:.1f} s at most; "
        f"{outcome.restarts} tables restarted"
    )
    _report(
        f"  all tables equal, {outcome.keys} keys; {outcome.offsets} offsets, of which compaction has "
        f"retained {outcome.retained} records"
    )
    for samples, (first, last) in zip(outcome.memory, outcome.files, strict=True):
        fifth = max(1, len(samples) // 5)
        parts = " ".join(
            str(max(samples[start : start + fifth]) >> 20) for start in range(0, 5 * fifth, fifth) if samples[start:]
        )
        _report(f"  a table process: {parts} MiB by fifths of the time; open files {first}, at the end {last}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.log", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="duration (default 10)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the faults of a run (default: random)")
    parser.add_argument("--writers", type=int, default=10)
    parser.add_argument("--tables", type=int, default=10)
    args = parser.parse_args()
    if args.seed is None:
        args.seed = random.randrange(1_000_000)
    return args


def _report(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
