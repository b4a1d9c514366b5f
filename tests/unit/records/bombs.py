"""Record batches of a few kilobytes that hold far more than they seem to, and what it takes to decode them.

As a program it decodes those in a folder, in a process of its own, which has seen no bomb's inside: ``python -m
tests.unit.records.bombs native folder 16777216 0 zstd:tiny gzip:old``, with the largest record batch and the bytes of
address space it may have beyond what it has (0: as many as it likes). For each it prints the rows, the MiB by which
the process has grown since it began, and the error.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from tests.unit.records.batches import Batch, Rec, compress, encode_record, marker, varint, xerial
from tests.unit.records.decoding import CREATORS, request, run
from tests.unit.records.legacy import message

from pyspark_kafka_direct.records import AbortedTransaction, RecordDecoder

MIB = 1 << 20
SIZE = 64 * MIB
"""What most of them decompress to."""


def bomb(name: str) -> bytes:
    """The bytes of ``codec:kind``."""
    codec, kind = name.split(":")
    if kind == "old":
        return message(0, compress(codec, message(0, b"") * (SIZE // 34)), attributes=1)
    plain, count = _PLAIN[kind]()
    packed = xerial(plain, MIB) if codec == "snappy" else compress(codec, plain)
    control = {"producer_id": 1, "attributes": 0x30} if kind == "control" else {}
    return Batch((), 0, codec, count=count, last_offset_delta=count, packed=packed, **control).encode()


def _tiny() -> tuple[bytes, int]:
    """Records of as few bytes as possible."""
    count = 1 << 17
    fields = (b"\0\0" + varint(delta) + b"\1\1\0" for delta in range(count))
    return b"".join(bytes([2 * len(record)]) + record for record in fields), count


def _pages() -> tuple[bytes, int]:
    """Records of 64 KiB."""
    count = SIZE >> 16
    return b"".join(encode_record(Rec(bytes(64 << 10)), delta) for delta in range(count)), count


def _headers() -> tuple[bytes, int]:
    """Records with 4,096 headers each, without key and value: two bytes a header."""
    count = 64
    rest = b"\1\1" + varint(4096) + b"\0\1" * 4096
    fields = (b"\0\0" + varint(delta) + rest for delta in range(count))
    return b"".join(varint(len(record)) + record for record in fields), count


def _one_of_headers() -> tuple[bytes, int]:
    """The same in a single record."""
    return _one(b"\1\1" + varint(SIZE // 2) + b"\0\1" * (SIZE // 2))


def _bad_key() -> tuple[bytes, int]:
    """A header's key that is no UTF-8: each byte becomes three."""
    return _one(b"\1\1\2" + varint(SIZE) + b"\xff" * SIZE + b"\1")


def _value() -> tuple[bytes, int]:
    return encode_record(Rec(bytes(SIZE)), 0), 1


def _endless() -> tuple[bytes, int]:
    """A record that claims 2 GiB."""
    return b"\xfe\xff\xff\xff\x0f" + bytes(SIZE), 1


def _one(fields: bytes) -> tuple[bytes, int]:
    return varint(len(fields) + 3) + bytes(3) + fields, 1


_PLAIN = {
    "tiny": _tiny,
    "pages": _pages,
    "headers": _headers,
    "one-of-headers": _one_of_headers,
    "bad-key": _bad_key,
    "value": _value,
    "control": _value,
    "endless": _endless,
}


def main() -> None:
    """Decodes bombs."""
    implementation, folder, largest, space, *names = sys.argv[1:]
    wanted = request(max_batch_bytes=int(largest))
    for codec in ("gzip", "snappy", "lz4", "zstd"):  # to have everything loaded
        good = Batch((Rec(headers=((b"k", b"v"), (b"", None))),), 0, codec).encode()
        assert run(implementation, marker(0, 1, commit=False).encode() + good, wanted).error is None
    bombs = [(name, Path(folder, name).read_bytes()) for name in names]
    before = _peak()
    if int(space):
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + int(space), now + int(space)))
    for name, data in bombs:
        rows, outcome = _decode(CREATORS[implementation](wanted), data)
        print(f"{name}|{rows}|{(_peak() - before) // MIB}|{outcome}", flush=True)


def _decode(decoder: RecordDecoder, data: bytes) -> tuple[int, str]:
    rows = 0
    try:
        decoder.feed(data, [AbortedTransaction(1, 0)])
        while (arrow := decoder.read()) is not None:
            rows += arrow.num_rows
            del arrow
    except Exception as error:  # whatever it is, it is told
        return rows, f"{type(error).__name__}: {error}"
    return rows, "fine"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
