"""Records of words, and compressed frames that claim a much larger size than theirs."""

from __future__ import annotations

import random
import struct

from tests.unit.records.batches import Rec
from tests.unit.records.lz4_frames import fix_header_checksum

# Frames of a few bytes that claim 2 GiB of content, or a window of 128 MiB.
CLAIMS = {
    "lz4": fix_header_checksum(b"\x04\x22\x4d\x18\x68\x70" + struct.pack("<Q", 2 << 30) + b"\0" + bytes(4)),
    "zstd": b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2 << 30) + b"\x01\0\0",
    "zstd window": b"\x28\xb5\x2f\xfd\x00\x88" + b"\x08\0\0a",
    "snappy": b"\xff\xff\xff\xff\x07\0a",
}


def texts(count: int, size: int = 100) -> tuple[Rec, ...]:
    randomness = random.Random(count)
    words = ("lorem", "ipsum", "dolor", "sit", "amet", "consectetur")
    return tuple(Rec(" ".join(randomness.choices(words, k=size // 6)).encode(), b"k%d" % n) for n in range(count))
