"""Kill applications of direct streams repeatedly, and check every record: ``make soak-direct ROUNDS=30``."""

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
    """Divide the kills over applications with consecutive seeds."""
    plans: list[DirectPlan] = []
    while rounds > 0:
        kills = min(rounds, ROUNDS_OF_A_RUN)
        plans.append(plan_one(seed + len(plans), kills, failing))
        rounds -= kills
    return plans


def plan_one(seed: int, kills: int, failing: float) -> DirectPlan:
    draw = random.Random(seed)
    offsets = _OFFSETS[seed % len(_OFFSETS)]
    grows, deletes = draw.randrange(kills), draw.randrange(kills)
    return DirectPlan(seed, offsets, kills, failing, grows=grows, deletes=deletes if offsets == "database" else None)


def main() -> int:
    """Run all applications; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.direct", description=__doc__)
    parser.add_argument(
        "--rounds",
        type=int,
        default=30,
        help=f"kills of the driver, {ROUNDS_OF_A_RUN} for each application (default 30)",
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats the kills of a run (default: random)")
    parser.add_argument("--failing", type=float, default=0.1, help="fraction of failed generations (default 0.1)")
    args = parser.parse_args()
    seed = random.randrange(1_000_000) if args.seed is None else args.seed
    folder, started_at = Path(tempfile.mkdtemp(prefix="soak-direct-")), time.monotonic()
    plans, total, failed = plan_runs(seed, args.rounds, args.failing), Outcome(), 0
    _report(f"{args.rounds} kills, {len(plans)} applications, seed {seed}")
    with EmbeddedKafka() as kafka:
        for plan in plans:
            _report(f"application {plan.seed}, offsets in the {plan.offsets}")
            try:
                total.add(DirectRun(plan, kafka.bootstrap_servers, folder / str(plan.seed), _report).run())
            except Exception:
                failed += 1
                command = f"make soak-direct ROUNDS={plan.kills} SEED={plan.seed}"
                _report(f"{traceback.format_exc()}\nFAILED. Files: {folder / str(plan.seed)}. Repeat: {command}")
    _report(
        f"{len(plans) - failed} of {len(plans)} applications passed, seed {seed}: {total.records} records, each "
        f"exactly once; {total.kills.total()} kills {dict(total.kills)}, {total.generations} failed generations, "
        f"topics {dict(total.changes)}; {time.monotonic() - started_at:.0f} s"
    )
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


def _report(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
