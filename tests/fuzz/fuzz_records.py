"""Feeds millions of damaged record batches to both decoders; they must agree, and raise nothing but our errors.

``python -m tests.fuzz.fuzz_records --minutes 10 [--seed 1]``. A finding is printed with its seed and its bytes, and
ends the run with status 1; put such bytes into ``tests/unit/records/test_fuzz.py`` when they are understood.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time

from tests.unit.records.decoding import CREATORS, disagreement, outcomes_of, request
from tests.unit.records.mutations import ABORTED, Mutator

SAY_EVERY = 30.0


def main() -> int:
    """Runs until the time is over or something is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"decoders {', '.join(CREATORS)}; seed {options.seed}", flush=True)
    mutator = Mutator(options.seed)
    end = time.monotonic() + options.minutes * 60
    said = time.monotonic()
    verdicts: collections.Counter[str] = collections.Counter()
    while time.monotonic() < end:
        data = mutator.response()
        finding: object = None
        try:
            outcomes = outcomes_of(data, request(), ABORTED if len(data) % 2 else ())
            differing = disagreement(outcomes)
            finding = outcomes if differing == "decoder" else None
        except BaseException as raised:  # a panic of the native decoder is no Exception
            finding = raised
        if finding is not None:
            print(f"seed {options.seed}, response {verdicts.total()}: {finding!r}\n{data.hex()}", file=sys.stderr)
            return 1
        error = next(iter(outcomes.values())).error
        verdicts["codecs differ" if differing else type(error).__name__ if error else "fine"] += 1
        if time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            print(f"{verdicts.total():,} responses: {dict(verdicts)}", flush=True)
    print(f"{verdicts.total():,} responses, nothing found: {dict(verdicts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
