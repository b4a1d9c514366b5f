"""Feeds damaged JSON to the decoders, which must decode each value of a batch as they decode the value alone.

``python -m tests.fuzz.fuzz_json --minutes 10 [--seed 1]``. A finding is printed with its seed and its values, and ends
the run with status 1. Add such values to ``tests/integration/from_json_cases.py`` once they are understood.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.golden.plain_values import plain
from tests.unit.payloads import test_decoded_size as sizes
from tests.unit.payloads import test_json_decoders as structs
from tests.unit.payloads import test_json_types as types

from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.decoded_values import DecodedValues

REPORT_SECONDS = 30.0
KEYS = (
    *structs.FIELDS.names,
    *types.FIELDS.names,
    "unwanted",
    "a key of more than sixteen bytes",
    "é",
    "x",
    "t",
    "\\u0069",
)
SCALARS = (
    *("null", "true", "false", "tru", "0", "-0", "1", "-128", "255", "256", "32768", "2147483648", "12345678", "01"),
    *("9223372036854775807", "9223372036854775808", "123456789012345678901234567890", "1.", ".5", "+1", "-", "0.1"),
    *("-0.0", "1.50", "1e3", "1E-7", "1e400", "1e39", "16777217.0", "9007199254740993", "7.0385307e-26", "NaN"),
    *(
        '"2026-01-31"',
        '"2026-01-31T12:30:15.5+01:30"',
        '"2026-03-29 02:30:00"',
        '"-141428"',
        '"1,000.5e2"',
        '"QUJD QQ=="',
    ),
    *("Infinity", "-INF", "INF", '"NaN"', "'-Infinity'", '"1"', '""', "'q'", "'a\"b\\''", '"\\ud83d\\ude00"'),
    *(
        '"\\ud83d"',
        '"\\x"',
        '"\\u12"',
        '"\\u00e9\\n\\/"',
        '"é中"',
        '"0123456789abcdef"',
        '"\t"',
        '"' + "long " * 20 + '"',
    ),
)
DAMAGES = (b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"0", b"\x00", b"\xff", b"\xe2\x82")


class Values:
    """Random values, of which several in a row have the same keys, as those of a topic have."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def batch(self) -> list[bytes | None]:
        shapes = [self._object(0).encode() for _ in range(self._random.randint(1, 3))]
        return [self._value(self._random.choice(shapes)) for _ in range(self._random.randint(1, 12))]

    def _value(self, shape: bytes) -> bytes | None:
        match self._random.randrange(10):
            case 0:
                return None
            case 1 | 2 | 3:
                return shape
            case 4 | 5:
                return self._object(0).encode()
        value = bytearray(shape)
        for _ in range(self._random.randint(1, 3)):
            at = self._random.randint(0, len(value))
            match self._random.randrange(3):
                case 0:
                    del value[at:]
                case 1:
                    value[at:at] = self._random.choice(DAMAGES)
                case 2:
                    del value[at : at + 1]
        return bytes(value)

    def _object(self, depth: int) -> str:
        space = self._random.choice(["", "", " ", "\n\t"])
        keys = self._random.choices(KEYS, k=self._random.randint(0, 8))  # some of them twice
        fields = [f'"{key}":{space}{self._any(depth + 1)}' for key in keys]
        return "{" + f",{space}".join(fields) + "}"

    def _any(self, depth: int) -> str:
        match self._random.randrange(8) if depth < 5 else 7:
            case 0 | 1:
                return self._object(depth)
            case 2:
                return "[" + ",".join(self._any(depth + 1) for _ in range(self._random.randint(0, 3))) + "]"
        return self._random.choice(SCALARS)


def rows(decoded: DecodedValues) -> list[tuple[object, object]]:
    """Return each value, with the position and reason if it is malformed."""
    return list(zip(plain(decoded.values), structs.errors(decoded), strict=True))


def main() -> int:
    """Runs until the time is over or until a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    decoders = [
        JsonDecoder(structs.FIELDS, "corrupt"),
        JsonDecoder(types.FIELDS, "", "Europe/Berlin"),
        JsonDecoder(None),
        JsonDecoder(sizes.FIELDS, "_bad"),
    ]
    print(f"seed {options.seed}", flush=True)
    values = Values(options.seed)
    end = time.monotonic() + options.minutes * 60
    reported_at = time.monotonic()
    batches = malformed = 0
    while time.monotonic() < end:
        decoder = decoders[batches % len(decoders)]
        batch = values.batch()
        array = pa.array(batch, pa.binary())
        try:
            found = rows(decoder.decode(array))
            expected = [row for at in range(len(batch)) for row in rows(decoder.decode(array.slice(at, 1)))]
        except BaseException as raised:  # a panic of the kernel is not an Exception
            found, expected = [(repr(raised), None)], []
        if found != expected:
            print(f"seed {options.seed}, batch {batches}: {found!r}, not {expected!r}\n{batch!r}", file=sys.stderr)
            return 1
        batches += 1
        malformed += any(error for _, error in found)
        if time.monotonic() - reported_at > REPORT_SECONDS:
            reported_at = time.monotonic()
            print(f"{batches:,} batches, {malformed:,} with malformed values", flush=True)
    print(f"{batches:,} batches, {malformed:,} with malformed values, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
