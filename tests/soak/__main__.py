"""Kill a streaming query repeatedly, and check every record: ``make soak ROUNDS=30``."""

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
from tests.soak.stream_run import Outcome, SoakQuery

from pyspark_kafka_direct.broker import EmbeddedKafka

_BROKER = 1


def main() -> int:
    """Run all queries; return 1 if one of them failed."""
    args = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    plans = plan_run(args.seed, args.rounds)
    _report(f"{args.rounds} kills, {len(plans)} queries, seed {args.seed}")
    total, failed, started_at = Outcome(), 0, time.monotonic()
    with EmbeddedKafka() as kafka:
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
    _report(
        f"{len(plans) - failed} of {len(plans)} queries passed, seed {args.seed}: {total.records} records in "
        f"{total.batches} batches, each exactly once; {total.kills.total()} kills of the driver {dict(total.kills)}, "
        f"other kills {dict(total.extras)}, topics {dict(total.changes)}; {time.monotonic() - started_at:.0f} s"
    )
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


def _run(plan: Plan, kafka: EmbeddedKafka, folder: Path) -> Outcome | None:
    def restart_broker() -> None:
        kafka.kill_broker(_BROKER)
        kafka.start_broker(_BROKER)

    _report(f"query {plan.seed}, from {plan.start}")
    try:
        outcome = SoakQuery(plan, kafka.bootstrap_servers, folder, restart_broker, _report).run()
    except Exception:
        _report(traceback.format_exc())
        _report(f"FAILED. Files: {folder}. Repeat: make soak ROUNDS={len(plan.rounds)} SEED={plan.seed}")
        return None
    shutil.rmtree(folder)
    _report(f"  passed: {outcome.records} records in {outcome.batches} batches, each exactly once")
    return outcome


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=30, help=f"kills of the driver, {ROUNDS_OF_A_QUERY} for each query (default 30)"
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats the kills of a run (default: random)")
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
