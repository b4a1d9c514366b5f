"""Hurt continuous queries, again and again, and check every record: ``make soak-continuous ROUNDS=90``.

With ``--minutes`` one query is left alone for so long instead: it must stay live, with flat memory.
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

from tests.lanes.jvm import start_quickly
from tests.lanes.python import import_quickly
from tests.soak.continuous.plan import ROUNDS_OF_A_QUERY, plan_run
from tests.soak.continuous.run import ContinuousRun, Outcome
from tests.soak.continuous.steady import EPOCH_MS, SteadyRun
from tests.soak.sink.brokers import PROPERTIES, Brokers
from tests.soak.sink.progress import Progress

from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from tests.soak.continuous.plan import Plan
    from tests.soak.sink.plan import Delivery

_BROKERS = 3
_BOTH = "both"
_DELIVERIES: dict[str, tuple[Delivery, ...]] = {
    "at-least-once": ("at-least-once",),
    "exactly-once": ("exactly-once",),
    _BOTH: ("at-least-once", "exactly-once"),
}


def main() -> int:
    """Run all queries that are not done yet; returns 1 if one of them failed."""
    asked = _arguments()
    start_quickly()
    import_quickly()
    folder = Path(asked.folder or tempfile.mkdtemp(prefix="soak-continuous-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    right = _stay_live(asked, folder) if asked.minutes else _hurt(asked, folder)
    _say(f"{time.monotonic() - began:.0f} s")
    if right and asked.folder is None:
        shutil.rmtree(folder)
    return 0 if right else 1


def _hurt(asked: argparse.Namespace, folder: Path) -> bool:
    progress = Progress(folder / "progress.json", asked.seed, asked.delivery, Outcome)
    plans = plan_run(progress.seed, asked.rounds, _DELIVERIES[asked.delivery])
    waiting = [plan for plan in plans if progress.outcome(plan) is None]
    _say(
        f"{asked.delivery}: {asked.rounds} rounds, {len(plans)} queries, {len(plans) - len(waiting)} of them done "
        f"before; seed {progress.seed}, folder {folder}"
    )
    if waiting:
        with EmbeddedKafka(_BROKERS, reuse_running=False, properties=PROPERTIES) as kafka:
            for plan in waiting:
                outcome = _run(plan, Brokers(kafka), folder / str(plan.seed))
                if outcome is not None:
                    progress.add(plan, outcome)
    right = [(plan, outcome) for plan in plans if (outcome := progress.outcome(plan)) is not None]
    for delivery in _DELIVERIES[asked.delivery]:
        _summarize(delivery, [outcome for plan, outcome in right if plan.delivery == delivery])
    _say(f"{len(right)} of {len(plans)} queries right, seed {progress.seed}")
    return len(right) == len(plans)


def _run(plan: Plan, brokers: Brokers, folder: Path) -> Outcome | None:
    where = "executors" if plan.cluster else "no executors"
    _say(f"query {plan.seed}: {len(plan.rounds)} rounds, {plan.delivery}, epochs of {plan.epoch_ms} ms, {where}")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        outcome = ContinuousRun(plan, brokers.servers, folder, brokers, _say).run()
    except Exception:
        _say(traceback.format_exc())
        again = f"make soak-continuous DELIVERY={plan.delivery} ROUNDS={len(plan.rounds)} SEED={plan.seed}"
        _say(f"FAILED. Kept: {folder}. Again: {again}")
        return None
    shutil.rmtree(folder)
    _say(
        f"  right: {outcome.records} records in {outcome.epochs} epochs, {outcome.doubles} doubles, "
        f"{outcome.aborted} aborted"
    )
    return outcome


def _summarize(delivery: Delivery, outcomes: list[Outcome]) -> None:
    total = Outcome()
    for each in outcomes:
        total.deeds += each.deeds
        total.records += each.records
        total.epochs += each.epochs
        total.doubles += each.doubles
        total.aborted += each.aborted
        for deed, seconds in each.slowest.items():
            total.slowest[deed] = max(seconds, total.slowest.get(deed, 0.0))
    once = "each exactly once" if delivery == "exactly-once" else f"none lost, {total.doubles} doubles, all allowed"
    _say(
        f"{delivery}: {total.deeds.total()} rounds, {total.records} records in {total.epochs} epochs, {once}; "
        f"{total.aborted} records of aborted transactions hidden"
    )
    for deed, times in sorted(total.deeds.items()):
        _say(f"  {times} x {deed}, works again after {total.slowest[deed]:.1f} s at most")


def _stay_live(asked: argparse.Namespace, folder: Path) -> bool:
    right = True
    for delivery in _DELIVERIES[asked.delivery]:
        _say(f"{delivery}, epochs of {EPOCH_MS[delivery]} ms, {asked.minutes:g} minutes; folder {folder}")
        place = folder / delivery
        shutil.rmtree(place, ignore_errors=True)
        try:
            with EmbeddedKafka(reuse_running=False) as kafka:
                outcome = SteadyRun(delivery, kafka.bootstrap_servers, place, _say).run(60 * asked.minutes)
        except Exception:
            _say(traceback.format_exc())
            _say(f"FAILED. Kept: {place}")
            right = False
            continue
        _say(
            f"  right: {outcome.records} records in {outcome.epochs} epochs, each once; an epoch after "
            f"{outcome.longest:.1f} s at most"
        )
        for line in outcome.told():
            _say(f"  {line}")
    return right


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.continuous", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=30, help=f"deeds in all, {ROUNDS_OF_A_QUERY} to a query (default 30)"
    )
    parser.add_argument("--minutes", type=float, default=0, help="hurt nothing, and run for so long")
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's deeds (default: random)")
    parser.add_argument("--delivery", choices=tuple(_DELIVERIES), default=_BOTH, help="(default: both in turn)")
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
