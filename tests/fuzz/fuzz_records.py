"""Feeds millions of damaged record batches to the decoder, which must only raise this package's errors.

It must return the same rows at once and row by row.

``python -m tests.fuzz.fuzz_records --minutes 10 [--seed 1]``. A finding is printed with its seed and its bytes, and
ends the run with status 1. Add such bytes to ``tests/unit/records/test_fuzz.py`` once they are understood.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import time

from tests.unit.records.decoding import run_in_steps
from tests.unit.records.mutations import ABORTED, LegacyMutator, Mutator

REPORT_SECONDS = 30.0


def main() -> int:
    """Runs until the time is over or until a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    mutators = itertools.cycle((Mutator(options.seed), LegacyMutator(options.seed)))
    end = time.monotonic() + options.minutes * 60
    reported_at = time.monotonic()
    outcome_counts: collections.Counter[str] = collections.Counter()
    while time.monotonic() < end:
        mutator = next(mutators)
        data = mutator.response()
        try:
            error = run_in_steps(data, mutator.request(), ABORTED if len(data) % 2 else ()).error
        except BaseException as raised:  # a panic of the kernel is not an Exception
            print(f"seed {options.seed}, response {outcome_counts.total()}: {raised!r}\n{data.hex()}", file=sys.stderr)
            return 1
        outcome_counts[type(error).__name__ if error else "ok"] += 1
        if time.monotonic() - reported_at > REPORT_SECONDS:
            reported_at = time.monotonic()
            print(f"{outcome_counts.total():,} responses: {dict(outcome_counts)}", flush=True)
    print(f"{outcome_counts.total():,} responses, nothing found: {dict(outcome_counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
