"""Kill a query that writes to Kafka repeatedly, and check every record: ``make soak-sink ROUNDS=90``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from tests.shards.jvm import start_quickly
from tests.shards.python import import_quickly
from tests.soak.sink.brokers import PROPERTIES, Brokers
from tests.soak.sink.plan import ROUNDS_OF_A_QUERY, plan_run
from tests.soak.sink.progress import Progress
from tests.soak.sink.run import Outcome, SinkRun

from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from tests.soak.sink.plan import Plan

_BROKERS = 3
_PROGRESS = "progress.json"


def main() -> int:
    """Run all queries that have not passed yet; return 1 if one of them failed."""
    args = _arguments()
    start_quickly()
    import_quickly()
    folder = Path(args.folder or tempfile.mkdtemp(prefix="soak-sink-"))
    folder.mkdir(parents=True, exist_ok=True)
    progress = Progress(folder / _PROGRESS, args.seed, args.delivery, Outcome)
    plans = plan_run(progress.seed, args.rounds, args.delivery, only_drivers=args.kills)
    remaining = [plan for plan in plans if progress.outcome(plan) is None]
    _report(
        f"{args.delivery}: {args.rounds} rounds, {len(plans)} queries, {len(plans) - len(remaining)} of them passed "
        f"before; seed {progress.seed}, folder {folder}"
    )
    started_at = time.monotonic()
    if remaining:
        cluster = EmbeddedKafka() if args.kills else EmbeddedKafka(_BROKERS, properties=PROPERTIES)
        with cluster as kafka:
            for plan in remaining:
                outcome = _run(plan, kafka, folder / str(plan.seed), kills=args.kills)
                if outcome is not None:
                    progress.add(plan, outcome)
    passed = [outcome for plan in plans if (outcome := progress.outcome(plan)) is not None]
    _summarize(passed, len(plans), args.delivery, progress.seed)
    _report(f"{time.monotonic() - started_at:.0f} s")
    if len(passed) < len(plans):
        return 1
    if args.folder is None:
        shutil.rmtree(folder)
    return 0


def _run(plan: Plan, kafka: EmbeddedKafka, folder: Path, *, kills: bool) -> Outcome | None:
    order = "any order" if plan.shuffled else "in order"
    staging = f", staging in {plan.staging}" if plan.delivery == "exactly-once" else ""
    _report(f"query {plan.seed}: {len(plan.rounds)} rounds, {plan.codec}, {order}{staging}")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        brokers = None if kills else Brokers(kafka)
        outcome = SinkRun(plan, kafka.bootstrap_servers, folder, brokers, _report).run()
    except Exception:
        _report(traceback.format_exc())
        target = "soak-kills" if kills else f"soak-sink DELIVERY={plan.delivery}"
        command = f"make {target} ROUNDS={len(plan.rounds)} SEED={plan.seed}"
        _report(f"FAILED. Files: {folder}. Repeat: {command}")
        return None
    shutil.rmtree(folder)
    _report(
        f"  passed: {outcome.records} records in {outcome.batches} batches, {outcome.duplicates} duplicates, "
        f"{outcome.aborted} aborted"
    )
    return outcome


def _summarize(passed: list[Outcome], queries: int, delivery: str, seed: int) -> None:
    total = Outcome()
    for each in passed:
        total.faults += each.faults
        total.drivers += each.drivers
        total.fenced += each.fenced
        total.records += each.records
        total.batches += each.batches
        total.duplicates += each.duplicates
        total.aborted += each.aborted
    for fault, times in sorted(total.faults.items()):
        _report(f"  {times} x {fault}")
    once = "each exactly once" if delivery == "exactly-once" else f"none lost, {total.duplicates} duplicates"
    _report(
        f"{len(passed)} of {queries} queries passed, {delivery}, seed {seed}: {total.faults.total()} rounds, "
        f"{total.drivers} drivers killed, {total.fenced} fenced, {total.records} records in {total.batches} batches, "
        f"{once}; {total.aborted} records of aborted transactions"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.sink", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=30, help=f"faults, {ROUNDS_OF_A_QUERY} for each query (default 30)"
    )
    parser.add_argument("--kills", action="store_true", help="only kill drivers, of exactly-once queries")
    parser.add_argument("--seed", type=int, default=None, help="repeats the faults of a run (default: random)")
    parser.add_argument("--delivery", choices=("at-least-once", "exactly-once"), default="exactly-once")
    parser.add_argument("--folder", help="stores the progress: a second call resumes (default: a temporary folder)")
    args = parser.parse_args()
    if args.kills and args.delivery != "exactly-once":
        parser.error("--kills is for exactly-once")
    if args.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if args.seed is None:
        args.seed = random.randrange(1_000_000)
    return args


def _report(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
