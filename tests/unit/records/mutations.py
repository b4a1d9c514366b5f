"""Randomly damaged record batches."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import replace
from typing import Any

from tests.unit.records.batches import (
    CODECS,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    Rec,
    compress,
    crc,
    encode_record,
    marker,
    xerial,
)
from tests.unit.records.decoding import FAR, request
from tests.unit.records.legacy_messages import message, wrapper

from pyspark_kafka_direct.records import AbortedTransaction

ABORTED = (AbortedTransaction(1, 0), AbortedTransaction(2, 30))
HEADER = 61
EDGE_BYTES = (0, 1, 2, 0x3F, 0x40, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
EDGE_NUMBERS = (-(1 << 31), -2, -1, 0, 1, 2, 7, 13, 14, 48, 49, 50, 255, 1 << 16, (1 << 31) - 1)
"""Numbers near limits."""

# Offset and struct format of the integers in the header of a batch, and of a message.
BATCH_FIELDS = (
    (0, ">q"),
    (8, ">i"),
    (12, ">i"),
    (21, ">h"),
    (23, ">i"),
    (27, ">q"),
    (35, ">q"),
    (43, ">q"),
    (57, ">i"),
)
MESSAGE_FIELDS = ((0, ">q"), (8, ">i"), (16, ">b"), (17, ">b"), (18, ">q"), (18, ">i"), (22, ">i"), (26, ">i"))


def corpus() -> list[bytes]:
    """Small undamaged batches of every kind."""
    plain = (Rec(b"value", b"key", 3), Rec(None, None), Rec(b"", b"", -200))
    rich = (
        Rec(b"v" * 70, b"k", 1 << 20, ((b"name", b"content"), (b"", None))),
        Rec(bytes(range(130)), None, -(1 << 40), ((b"\xff", b""),)),
        Rec(b"last", delta=9),
    )
    text = tuple(Rec(b'{"flight": %d, "carrier": "UA", "origin": "EWR"}' % n, b"UA") for n in range(12))
    batches = [Batch(records, 20, codec) for records in (plain, rich, text) for codec in CODECS]
    batches += [
        Batch(plain, 20, attributes=LOG_APPEND_TIME, leader_epoch=-1),
        Batch(plain, 20, attributes=TRANSACTIONAL, producer_id=1),
        Batch(plain, 20, "zstd", attributes=TRANSACTIONAL, producer_id=9),
        Batch((), 20, last_offset_delta=5),
        marker(20, 1, commit=False),
        marker(20, 2, commit=True),
    ]
    xerials = [replace(Batch(records, 20, "snappy"), compressed=xerial(body(records), 64)) for records in (rich, text)]
    return [batch.encode() for batch in (*batches, *xerials)]


def body(records: tuple[Rec, ...]) -> bytes:
    return b"".join(
        encode_record(record, index if record.delta is None else record.delta) for index, record in enumerate(records)
    )


def bodies() -> list[tuple[bytes, int]]:
    """Uncompressed records with their count, to be changed before they are compressed."""
    good = [batch for batch in corpus() if batch[22] & 0x07 == 0]
    return [(batch[HEADER:], struct.unpack_from(">i", batch, 57)[0]) for batch in good]


def legacy_corpus() -> list[bytes]:
    """Undamaged messages of formats 0 and 1."""
    return [
        *(message(22, b"value", b"key", magic=magic) for magic in (0, 1)),
        message(22, None, None, attributes=LOG_APPEND_TIME),
        *(
            wrapper(24, b"".join(inner), codec, magic=inner[0][16], attributes=attributes)
            for inner in message_sets()
            for codec in ("gzip", "snappy", "lz4")
            for attributes in (0, LOG_APPEND_TIME)
        ),
        message(24, xerial(b"".join(message_sets()[0]), 64), attributes=2),
    ]


def message_sets() -> list[list[bytes]]:
    """What wrappers with the offset 24 contain."""
    return [
        [message(0, b"v" * 70, b"k"), message(1, None), message(4, b"", b"", timestamp=-1)],
        [message(offset, b"value %d" % offset, magic=0) for offset in (20, 21, 24)],
        [message(offset, b'{"flight": %d, "origin": "EWR"}' % offset, b"UA") for offset in range(5)],
    ]


class Mutator:
    """Creates fetch responses of a few batches, mostly with a damaged one."""

    _header_bytes = HEADER
    _fields: tuple[tuple[int, str], ...] = BATCH_FIELDS
    _last_field_end = HEADER

    def __init__(self, seed: int) -> None:
        self._random, self._random_requests = random.Random(seed), random.Random(seed)
        self._corpus = corpus()
        self._bodies = bodies()

    def response(self) -> bytes:
        """The record bytes of a response."""
        rng = self._random
        batch = self._damaged_inside() if rng.random() < 0.25 else self._damaged(rng.choice(self._corpus))
        before = Batch((Rec(b"before"),) * 2, 10).encode() if rng.random() < 0.5 else b""
        after = Batch((Rec(b"after"),) * 2, 40).encode() if rng.random() < 0.5 else b""
        return before + batch + after

    def request(self) -> dict[str, Any]:
        """A range, mostly with all records, and limits of an Arrow batch."""
        rng = self._random_requests
        return request(
            rng.choice((0, 0, 0, 11, 21, 23)),
            rng.choice((FAR, FAR, 23, 24, 41)),
            check_crcs=rng.random() < 0.8,
            max_rows=rng.choice((1, 2, 65536)),
            max_bytes=rng.choice((1, 100, 1 << 20)),
            max_batch_bytes=rng.choice((60, 300, 1 << 30, 1 << 30)),
            count_only=rng.random() < 0.1,
        )

    def _damaged(self, good: bytes) -> bytes:
        """A batch with random changes, mostly with correct length and CRC."""
        rng = self._random
        data, header = bytearray(good), self._header_bytes
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if len(data) > header and rng.random() < 0.7:
                data[header:] = self._changed(bytes(data[header:]))
            elif rng.random() < 0.5:
                data = bytearray(self._changed(bytes(data)))
            elif len(data) >= self._last_field_end:
                at, form = rng.choice(self._fields)
                number = rng.choice(EDGE_NUMBERS)
                bits = 8 * struct.calcsize(form)
                number = number << (bits - 32) if bits == 64 and rng.random() < 0.3 else number
                struct.pack_into(form, data, at, (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1))
        return self._fix_length_and_crc(data)

    def _damaged_inside(self) -> bytes:
        """A batch whose records were changed before they were compressed."""
        rng = self._random
        plain, count = rng.choice(self._bodies)
        codec = rng.choice(tuple(CODECS))
        changed = self._changed(plain)
        compressed = xerial(changed, 50) if codec == "snappy" and rng.random() < 0.5 else compress(codec, changed)
        return Batch((), 20, codec, count=count, last_offset_delta=12, compressed=compressed).encode()

    def _changed(self, data: bytes) -> bytes:
        rng = self._random
        if not data:
            return bytes([rng.choice(EDGE_BYTES)])
        at = rng.randrange(len(data))
        end = min(at + rng.choice((1, 1, 2, 4, 8, 30)), len(data))
        match rng.randrange(7):
            case 0:
                return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case 1:
                return data[:at] + bytes([rng.choice(EDGE_BYTES)]) + data[at + 1 :]
            case 2:
                return data[:at] + rng.randbytes(end - at) + data[end:]
            case 3:
                return data[:at] + data[end:]
            case 4:
                return data[:at] + rng.randbytes(end - at) + data[at:]
            case 5:
                other = rng.randrange(len(data))
                return data[:at] + data[other : other + end - at] + data[at:]
            case _:
                return data[:at]

    def _fix_length_and_crc(self, data: bytearray) -> bytes:
        rng = self._random
        if len(data) >= HEADER:
            if rng.random() < 0.85:
                struct.pack_into(">i", data, 8, len(data) - 12)
            if rng.random() < 0.95:
                struct.pack_into(">I", data, 17, crc(bytes(data[21:])))
        return bytes(data)


class LegacyMutator(Mutator):
    """Does the same with messages of formats 0 and 1."""

    _header_bytes = 18
    _fields = MESSAGE_FIELDS
    _last_field_end = 30

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._corpus = legacy_corpus()
        self._message_sets = message_sets()

    def response(self) -> bytes:
        rng = self._random
        before = message(12, b"before", magic=rng.randrange(2)) if rng.random() < 0.5 else b""
        after = message(50, b"after", magic=rng.randrange(2)) if rng.random() < 0.5 else b""
        return before + super().response() + after

    def _damaged_inside(self) -> bytes:
        """A wrapper whose messages were changed before they were compressed."""
        rng = self._random
        inner = list(rng.choice(self._message_sets))
        magic = inner[0][16]
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(inner))
            inner[at] = self._damaged(inner[at]) if rng.random() < 0.8 else self._changed(inner[at])
        if rng.random() < 0.2:
            rng.shuffle(inner)
        attributes = rng.choice((0, 0, LOG_APPEND_TIME))
        return wrapper(24, b"".join(inner), rng.choice(("gzip", "snappy", "lz4")), magic=magic, attributes=attributes)

    def _fix_length_and_crc(self, data: bytearray) -> bytes:
        rng = self._random
        if len(data) >= self._header_bytes:
            if rng.random() < 0.85:
                struct.pack_into(">i", data, 8, len(data) - 12)
            if rng.random() < 0.95:
                struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
        return bytes(data)
