"""Kill the queries of docs/lakehouse.md repeatedly, and check both tables: ``make soak-lakehouse FORMAT=delta``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.lakehouse.run import LakehouseRun, fits, plan_kills

from pyspark_kafka_direct.broker import EmbeddedKafka


def main() -> int:
    """Run the queries; return 1 if a table is wrong."""
    args = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="soak-lakehouse-"))
    started_at = time.monotonic()
    _report(f"{args.format}: {args.rounds} kills, seed {args.seed}, folder {folder}")
    with EmbeddedKafka() as kafka:
        kills = plan_kills(args.seed, args.rounds)
        outcome = LakehouseRun(args.format, kills, kafka.bootstrap_servers, folder / "query", _report).run()
    _report(
        f"{args.format}, seed {args.seed}: {outcome.records} records in {outcome.batches} batches, each once; "
        f"{outcome.keys} keys, each with its newest value; kills {dict(outcome.kills)}; "
        f"{time.monotonic() - started_at:.0f} s"
    )
    shutil.rmtree(folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.lakehouse", description=__doc__)
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta", help="the table format")
    parser.add_argument("--rounds", type=int, default=12, help="kills of the driver (default 12)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the kills of a run (default: random)")
    args = parser.parse_args()
    if not fits(args.format):
        parser.error(f"docs/lakehouse.md names no jar of {args.format} for this version of PySpark")
    if args.seed is None:
        args.seed = random.randrange(1_000_000)
    return args


def _report(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
