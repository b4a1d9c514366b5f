"""Inject faults into continuous queries, and check every record: ``make soak-continuous ROUNDS=90``.

With ``--minutes``, one query of each delivery runs for this time: without faults, when it must commit epochs all the
time, or with ``--faults``. Both check that the driver's memory stays constant.
"""

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
from tests.soak.continuous.endurance import EPOCH_MS, EnduranceRun
from tests.soak.continuous.plan import ROUNDS_OF_A_QUERY, plan_long_query, plan_run
from tests.soak.continuous.run import ContinuousSoakRun, Outcome
from tests.soak.sink.brokers import PROPERTIES, Brokers
from tests.soak.sink.progress import Progress

from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from tests.soak.continuous.plan import Delivery, Plan

_BROKERS = 3
_BOTH = "both"
_DELIVERIES: dict[str, tuple[Delivery, ...]] = {
    "at-least-once": ("at-least-once",),
    "exactly-once": ("exactly-once",),
    "database": ("database",),
    _BOTH: ("at-least-once", "exactly-once"),
}


def main() -> int:
    """Run all queries that have not passed yet; return 1 if one of them failed."""
    args = _arguments()
    start_quickly()
    import_quickly()
    folder = Path(args.folder or tempfile.mkdtemp(prefix="soak-continuous-"))
    folder.mkdir(parents=True, exist_ok=True)
    started_at = time.monotonic()
    if not args.minutes:
        passed = _inject_faults(args, folder)
    else:
        passed = _run_long_queries(args, folder) if args.faults else _run_endurance(args, folder)
    _report(f"{time.monotonic() - started_at:.0f} s")
    if passed and args.folder is None:
        shutil.rmtree(folder)
    return 0 if passed else 1


def _inject_faults(args: argparse.Namespace, folder: Path) -> bool:
    progress = Progress(folder / "progress.json", args.seed, args.delivery, Outcome)
    plans = plan_run(progress.seed, args.rounds, _DELIVERIES[args.delivery])
    remaining = [plan for plan in plans if progress.outcome(plan) is None]
    _report(
        f"{args.delivery}: {args.rounds} rounds, {len(plans)} queries, {len(plans) - len(remaining)} of them passed "
        f"before; seed {progress.seed}, folder {folder}"
    )
    if remaining:
        with EmbeddedKafka(_BROKERS, properties=PROPERTIES) as kafka:
            for plan in remaining:
                outcome = _run(plan, Brokers(kafka), folder / str(plan.seed))
                if outcome is not None:
                    progress.add(plan, outcome)
    passed = [(plan, outcome) for plan in plans if (outcome := progress.outcome(plan)) is not None]
    for delivery in _DELIVERIES[args.delivery]:
        _summarize(delivery, [outcome for plan, outcome in passed if plan.delivery == delivery])
    _report(f"{len(passed)} of {len(plans)} queries passed, seed {progress.seed}")
    return len(passed) == len(plans)


def _run(plan: Plan, brokers: Brokers, folder: Path) -> Outcome | None:
    where = "executors" if plan.cluster else "no executors"
    _report(f"query {plan.seed}: {len(plan.rounds)} rounds, {plan.delivery}, epochs of {plan.epoch_ms} ms, {where}")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run = ContinuousSoakRun(plan, brokers.servers, folder, brokers, _report)
        outcome = run.run()
    except Exception:
        _report(traceback.format_exc())
        length = f"ROUNDS={len(plan.rounds)}" if plan.seconds is None else f"MINUTES={plan.seconds / 60:g} FAULTS=1"
        command = f"make soak-continuous DELIVERY={plan.delivery} {length} SEED={plan.seed}"
        _report(f"FAILED. Files: {folder}. Repeat: {command}")
        return None
    shutil.rmtree(folder)
    _report(
        f"  passed: {outcome.records} records in {outcome.epochs} epochs, {outcome.duplicates} duplicates, "
        f"{outcome.aborted} aborted; {outcome.partitions} partitions; the last driver: {run.resources.summary()}"
    )
    return outcome


def _summarize(delivery: Delivery, outcomes: list[Outcome]) -> None:
    total = Outcome()
    for each in outcomes:
        total.faults += each.faults
        total.records += each.records
        total.epochs += each.epochs
        total.duplicates += each.duplicates
        total.aborted += each.aborted
        for fault, seconds in each.slowest.items():
            total.slowest[fault] = max(seconds, total.slowest.get(fault, 0.0))
    once = (
        f"none lost, {total.duplicates} duplicates, all allowed" if delivery == "at-least-once" else "each exactly once"
    )
    _report(
        f"{delivery}: {total.faults.total()} rounds, {total.records} records in {total.epochs} epochs, {once}; "
        f"{total.aborted} records of aborted transactions"
    )
    for fault, times in sorted(total.faults.items()):
        _report(f"  {times} x {fault}, recovered within {total.slowest[fault]:.1f} s")


def _run_long_queries(args: argparse.Namespace, folder: Path) -> bool:
    seed = args.seed
    _report(f"{args.delivery}: {args.minutes:g} minutes each; seed {seed}, folder {folder}")
    passed = True
    with EmbeddedKafka(_BROKERS, properties=PROPERTIES) as kafka:
        for delivery in _DELIVERIES[args.delivery]:
            plan = plan_long_query(seed, args.minutes, delivery)
            outcome = _run(plan, Brokers(kafka), folder / delivery)
            if outcome is None:
                passed = False
            else:
                _summarize(delivery, [outcome])
    return passed


def _run_endurance(args: argparse.Namespace, folder: Path) -> bool:
    passed = True
    for delivery in _DELIVERIES[args.delivery]:
        _report(f"{delivery}, epochs of {EPOCH_MS[delivery]} ms, {args.minutes:g} minutes; folder {folder}")
        delivery_folder = folder / delivery
        shutil.rmtree(delivery_folder, ignore_errors=True)
        try:
            with EmbeddedKafka() as kafka:
                outcome = EnduranceRun(delivery, kafka.bootstrap_servers, delivery_folder, _report).run(
                    60 * args.minutes
                )
        except Exception:
            _report(traceback.format_exc())
            _report(f"FAILED. Files: {delivery_folder}")
            passed = False
            continue
        _report(
            f"  passed: {outcome.records} records in {outcome.epochs} epochs, each once; the longest epoch took "
            f"{outcome.longest:.1f} s"
        )
        for line in outcome.summary():
            _report(f"  {line}")
    return passed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.continuous", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=30, help=f"faults, {ROUNDS_OF_A_QUERY} for each query (default 30)"
    )
    parser.add_argument("--minutes", type=float, default=0, help="one query of each delivery runs for this time")
    parser.add_argument("--faults", action="store_true", help="with --minutes: inject faults all the time")
    parser.add_argument("--seed", type=int, default=None, help="repeats the faults of a run (default: random)")
    parser.add_argument("--delivery", choices=tuple(_DELIVERIES), default=_BOTH, help="(default: the first two)")
    parser.add_argument("--folder", help="stores the progress: a second call resumes (default: a temporary folder)")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if args.seed is None:
        args.seed = random.randrange(1_000_000)
    return args


def _report(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
