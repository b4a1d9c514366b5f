"""Kill a query that writes, again and again, and check every record it wrote: ``make soak-sink ROUNDS=90``."""

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

from tests.lanes.jvm import start_quickly
from tests.lanes.python import import_quickly
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
    """Run all queries that are not done yet; returns 1 if one of them failed."""
    asked = _arguments()
    start_quickly()
    import_quickly()
    folder = Path(asked.folder or tempfile.mkdtemp(prefix="soak-sink-"))
    folder.mkdir(parents=True, exist_ok=True)
    progress = Progress(folder / _PROGRESS, asked.seed, asked.delivery, Outcome)
    plans = plan_run(progress.seed, asked.rounds, asked.delivery)
    waiting = [plan for plan in plans if progress.outcome(plan) is None]
    _say(
        f"{asked.delivery}: {asked.rounds} rounds, {len(plans)} queries, {len(plans) - len(waiting)} of them done "
        f"before; seed {progress.seed}, folder {folder}"
    )
    began = time.monotonic()
    if waiting:
        with EmbeddedKafka(_BROKERS, reuse_running=False, properties=PROPERTIES) as kafka:
            for plan in waiting:
                outcome = _run(plan, Brokers(kafka), folder / str(plan.seed))
                if outcome is not None:
                    progress.add(plan, outcome)
    right = [outcome for plan in plans if (outcome := progress.outcome(plan)) is not None]
    _summarize(right, len(plans), asked.delivery, progress.seed)
    _say(f"{time.monotonic() - began:.0f} s")
    if len(right) < len(plans):
        return 1
    if asked.folder is None:
        shutil.rmtree(folder)
    return 0


def _run(plan: Plan, brokers: Brokers, folder: Path) -> Outcome | None:
    order = "any order" if plan.shuffled else "in order"
    staging = f", staging in {plan.staging}" if plan.delivery == "exactly-once" else ""
    _say(f"query {plan.seed}: {len(plan.rounds)} rounds, {plan.codec}, {order}{staging}")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        outcome = SinkRun(plan, brokers.servers, folder, brokers, _say).run()
    except Exception:
        _say(traceback.format_exc())
        again = f"make soak-sink DELIVERY={plan.delivery} ROUNDS={len(plan.rounds)} SEED={plan.seed}"
        _say(f"FAILED. Kept: {folder}. Again: {again}")
        return None
    shutil.rmtree(folder)
    _say(
        f"  right: {outcome.records} records in {outcome.batches} batches, {outcome.doubles} doubles, "
        f"{outcome.aborted} aborted"
    )
    return outcome


def _summarize(right: list[Outcome], queries: int, delivery: str, seed: int) -> None:
    total = Outcome()
    for each in right:
        total.deeds += each.deeds
        total.drivers += each.drivers
        total.fenced += each.fenced
        total.records += each.records
        total.batches += each.batches
        total.doubles += each.doubles
        total.aborted += each.aborted
    for deed, times in sorted(total.deeds.items()):
        _say(f"  {times} x {deed}")
    once = "each exactly once" if delivery == "exactly-once" else f"none lost, {total.doubles} doubles"
    _say(
        f"{len(right)} of {queries} queries right, {delivery}, seed {seed}: {total.deeds.total()} rounds, "
        f"{total.drivers} drivers killed, {total.fenced} fenced, {total.records} records in {total.batches} batches, "
        f"{once}; {total.aborted} records of aborted transactions hidden"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.sink", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=30, help=f"deeds in all, {ROUNDS_OF_A_QUERY} to a query (default 30)"
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's deeds (default: random)")
    parser.add_argument("--delivery", choices=("at-least-once", "exactly-once"), default="exactly-once")
    parser.add_argument("--folder", help="keeps what is done: a second call with it goes on (default: a temporary one)")
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if asked.seed is None:
        asked.seed = random.randrange(1_000_000)
    return asked


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
