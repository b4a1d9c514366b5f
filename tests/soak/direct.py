"""Kill applications of direct streams again and again, and check every record: ``make soak-direct ROUNDS=30``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.soak.direct_run import DirectPlan, DirectRun, Offsets, Outcome

from pyspark_kafka_direct.broker import EmbeddedKafka

ROUNDS_OF_A_RUN = 10
_OFFSETS: tuple[Offsets, ...] = ("checkpoint", "database")


def plan_runs(seed: int, rounds: int, failing: float) -> list[DirectPlan]:
    """Divide the kills over applications, whose seeds follow one another."""
    plans: list[DirectPlan] = []
    while rounds > 0:
        kills = min(rounds, ROUNDS_OF_A_RUN)
        plans.append(plan_one(seed + len(plans), kills, failing))
        rounds -= kills
    return plans


def plan_one(seed: int, kills: int, failing: float) -> DirectPlan:
    """Draw what else happens to one application."""
    draw = random.Random(seed)
    offsets = _OFFSETS[seed % len(_OFFSETS)]
    grows, deletes = draw.randrange(kills), draw.randrange(kills)
    return DirectPlan(seed, offsets, kills, failing, grows=grows, deletes=deletes if offsets == "database" else None)


def main() -> int:
    """Run all; returns 1 if one of them was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.direct", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=30, help=f"kills of the driver, {ROUNDS_OF_A_RUN} to an application (default 30)"
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's kills (default: random)")
    parser.add_argument("--failing", type=float, default=0.1, help="part of the generations that fails (default 0.1)")
    asked = parser.parse_args()
    seed = random.randrange(1_000_000) if asked.seed is None else asked.seed
    folder, began = Path(tempfile.mkdtemp(prefix="soak-direct-")), time.monotonic()
    plans, total, failed = plan_runs(seed, asked.rounds, asked.failing), Outcome(), 0
    _say(f"{asked.rounds} kills, {len(plans)} applications, seed {seed}")
    with EmbeddedKafka(reuse_running=False) as kafka:
        for plan in plans:
            _say(f"application {plan.seed}, offsets in the {plan.offsets}")
            try:
                total.add(DirectRun(plan, kafka.bootstrap_servers, folder / str(plan.seed), _say).run())
            except Exception:
                failed += 1
                again = f"make soak-direct ROUNDS={plan.kills} SEED={plan.seed}"
                _say(f"{traceback.format_exc()}\nFAILED. Kept: {folder / str(plan.seed)}. Again: {again}")
    _say(
        f"{len(plans) - failed} of {len(plans)} applications right, seed {seed}: {total.records} records, each exactly "
        f"once; {total.kills.total()} kills {dict(total.kills)}, {total.generations} generations that failed, topics "
        f"{dict(total.changes)}; {time.monotonic() - began:.0f} s"
    )
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
