"""Kill a streaming query again and again, and check every record: ``make soak ROUNDS=30``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.soak.plan import ROUNDS_OF_A_QUERY, Plan, plan_run
from tests.soak.query import Outcome, SoakQuery

from pyspark_kafka_direct.broker import EmbeddedKafka

_BROKER = 1


def main() -> int:
    """Run all queries; returns 1 if one of them failed."""
    asked = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    plans = plan_run(asked.seed, asked.rounds)
    _say(f"{asked.rounds} kills, {len(plans)} queries, seed {asked.seed}")
    total, failed, began = Outcome(), 0, time.monotonic()
    with EmbeddedKafka(reuse_running=False) as kafka:
        for plan in plans:
            outcome = _run(plan, kafka, folder / str(plan.seed))
            if outcome is None:
                failed += 1
                continue
            total.kills += outcome.kills
            total.extras += outcome.extras
            total.changes += outcome.changes
            total.records += outcome.records
            total.batches += outcome.batches
    _say(
        f"{len(plans) - failed} of {len(plans)} queries right, seed {asked.seed}: {total.records} records in "
        f"{total.batches} batches, each exactly once; {total.kills.total()} kills of the driver {dict(total.kills)}, "
        f"others {dict(total.extras)}, topics {dict(total.changes)}; {time.monotonic() - began:.0f} s"
    )
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


def _run(plan: Plan, kafka: EmbeddedKafka, folder: Path) -> Outcome | None:
    def restart_broker() -> None:
        kafka.kill_broker(_BROKER)
        kafka.start_broker(_BROKER)

    _say(f"query {plan.seed}, from {plan.start}")
    try:
        outcome = SoakQuery(plan, kafka.bootstrap_servers, folder, restart_broker, _say).run()
    except Exception:
        _say(traceback.format_exc())
        _say(f"FAILED. Kept: {folder}. Again: make soak ROUNDS={len(plan.rounds)} SEED={plan.seed}")
        return None
    shutil.rmtree(folder)
    _say(f"  right: {outcome.records} records in {outcome.batches} batches, each exactly once")
    return outcome


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=30, help=f"kills of the driver, {ROUNDS_OF_A_QUERY} to a query (default 30)"
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's kills (default: random)")
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
