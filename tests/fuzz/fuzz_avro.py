"""Feeds damaged Avro to the decoder, which must decode each datum of a batch as it decodes the datum alone.

``python -m tests.fuzz.fuzz_avro --minutes 10 [--seed 1]``. A finding is printed with its seed, schemas and datums, and
ends the run with status 1. Add such datums to ``tests/integration/from_avro_cases.py`` once they are understood.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.integration.from_avro_cases import DIFFERENCES, EVOLUTIONS, TYPES
from tests.unit.payloads.avro_data import decode, malformed

REPORT_SECONDS = 30.0
CASES = [
    case
    for cases in (TYPES, EVOLUTIONS, DIFFERENCES)
    for case in cases.values()
    # Python's dates end in the year 9999.
    if not isinstance(case.writer, list) and not any(name in str(case) for name in ("timestamp", "date"))
]
DAMAGES = (
    b"\0",
    b"\1",
    b"\2",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 9 + b"\1",
    b"\x01\x80\x08",
)


def damaged(source: random.Random, datum: bytes) -> bytes:
    """Return a datum with one to three changes."""
    changed = bytearray(datum)
    for _ in range(source.randint(1, 3)):
        at = source.randint(0, len(changed))
        match source.randrange(4):
            case 0:
                del changed[at:]
            case 1:
                changed[at:at] = source.choice(DAMAGES)
            case 2:
                changed[at : at + 1] = bytes([source.randrange(256)])
            case 3:
                del changed[at : at + 1]
    return bytes(changed)


def main() -> int:
    """Runs until the time is over or until a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    source = random.Random(options.seed)
    end = time.monotonic() + options.minutes * 60
    reported_at = time.monotonic()
    batches = rows = errors = 0
    while time.monotonic() < end:
        case = source.choice(CASES)
        datums = [
            datum if datum is None or source.random() < 0.3 else damaged(source, datum)
            for datum in source.choices(case.datums, k=source.randint(1, 12))
        ]
        try:
            decoded = decode(case.writer, datums, case.reader)
            alone = [decode(case.writer, [datum], case.reader) for datum in datums]
            assert [repr(each) for each in decoded.values] == [repr(each.values[0]) for each in alone]
            assert malformed(decoded) == [malformed(each)[0] for each in alone]
        except BaseException as raised:  # a panic of the kernel is not an Exception
            print(f"seed {options.seed}, batch {batches}: {raised!r}\n{case!r}\n{datums!r}", file=sys.stderr)
            return 1
        batches += 1
        rows += len(datums)
        errors += sum(error is not None for error in malformed(decoded))
        if time.monotonic() - reported_at > REPORT_SECONDS:
            reported_at = time.monotonic()
            print(f"{batches:,} batches, {rows:,} datums, {errors:,} malformed", flush=True)
    print(f"{batches:,} batches, {rows:,} datums, {errors:,} malformed, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
