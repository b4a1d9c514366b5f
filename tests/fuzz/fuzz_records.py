"""Feeds millions of damaged record batches to both decoders, which must agree and only raise this package's errors.

``python -m tests.fuzz.fuzz_records --minutes 10 [--seed 1]``. A finding is printed with its seed and its bytes, and
ends the run with status 1. Add such bytes to ``tests/unit/records/test_fuzz.py`` once they are understood.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import time

from tests.unit.records.decoding import CREATORS, disagreement, outcomes_of
from tests.unit.records.mutations import ABORTED, LegacyMutator, Mutator

REPORT_SECONDS = 30.0


def main() -> int:
    """Runs until the time is over or until a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"decoders {', '.join(CREATORS)}; seed {options.seed}", flush=True)
    mutators = itertools.cycle((Mutator(options.seed), LegacyMutator(options.seed)))
    end = time.monotonic() + options.minutes * 60
    reported_at = time.monotonic()
    outcome_counts: collections.Counter[str] = collections.Counter()
    while time.monotonic() < end:
        mutator = next(mutators)
        data = mutator.response()
        finding: object = None
        try:
            outcomes = outcomes_of(data, mutator.request(), ABORTED if len(data) % 2 else ())
            difference = disagreement(outcomes)
            finding = outcomes if difference == "decoder" else None
        except BaseException as raised:  # a panic of the native decoder is not an Exception
            finding = raised
        if finding is not None:
            print(f"seed {options.seed}, response {outcome_counts.total()}: {finding!r}\n{data.hex()}", file=sys.stderr)
            return 1
        error = next(iter(outcomes.values())).error
        outcome_counts["codecs differ" if difference else type(error).__name__ if error else "ok"] += 1
        if time.monotonic() - reported_at > REPORT_SECONDS:
            reported_at = time.monotonic()
            print(f"{outcome_counts.total():,} responses: {dict(outcome_counts)}", flush=True)
    print(f"{outcome_counts.total():,} responses, nothing found: {dict(outcome_counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
