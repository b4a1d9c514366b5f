"""Decompression bombs: record batches of a few kilobytes that decompress to many MiB.

``python -m tests.unit.records.decompression_bombs folder 16777216 0 zstd:tiny gzip:old`` decodes those in a
folder in a separate process, with the maximum batch size and the additional address space in bytes (0: unlimited). For
each bomb it prints the rows, the growth of the process in MiB, and the outcome.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from tests.unit.records.batches import Batch, Rec, compress, encode_record, marker, varint, xerial
from tests.unit.records.decoding import request, run
from tests.unit.records.legacy_messages import message
from tests.unit.records.peak_memory import peak_memory

from pyspark_kafka_direct.records import AbortedTransaction, RecordDecoder

MIB = 1 << 20
SIZE = 32 * MIB
"""The decompressed size of most of them."""


def bomb(name: str) -> bytes:
    """The bytes of ``codec:kind``."""
    codec, kind = name.split(":")
    if kind == "old":
        return message(0, compress(codec, message(0, b"") * (SIZE // 34)), attributes=1)
    uncompressed, count = _UNCOMPRESSED[kind]()
    compressed = xerial(uncompressed, MIB) if codec == "snappy" else compress(codec, uncompressed)
    control = {"producer_id": 1, "attributes": 0x30} if kind == "control" else {}
    return Batch((), 0, codec, count=count, last_offset_delta=count, compressed=compressed, **control).encode()


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
    """A header key of invalid UTF-8: each byte becomes three."""
    return _one(b"\1\1\2" + varint(SIZE) + b"\xff" * SIZE + b"\1")


def _value() -> tuple[bytes, int]:
    return encode_record(Rec(bytes(SIZE)), 0), 1


def _endless() -> tuple[bytes, int]:
    """A record that claims 2 GiB."""
    return b"\xfe\xff\xff\xff\x0f" + bytes(SIZE), 1


def _one(fields: bytes) -> tuple[bytes, int]:
    return varint(len(fields) + 3) + bytes(3) + fields, 1


_UNCOMPRESSED = {
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
    folder, max_batch_bytes, address_space, *names = sys.argv[1:]
    wanted = request(max_batch_bytes=int(max_batch_bytes))
    for codec in ("gzip", "snappy", "lz4", "zstd"):  # to load everything
        good = Batch((Rec(headers=((b"k", b"v"), (b"", None))),), 0, codec).encode()
        assert run(marker(0, 1, commit=False).encode() + good, wanted).error is None
    bombs = [(name, Path(folder, name).read_bytes()) for name in names]
    initial_peak = peak_memory()
    if int(address_space):
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + int(address_space), now + int(address_space)))
    for name, data in bombs:
        rows, outcome = _decode(RecordDecoder(**wanted), data)
        print(f"{name}|{rows}|{(peak_memory() - initial_peak) // MIB}|{outcome}", flush=True)


def _decode(decoder: RecordDecoder, data: bytes) -> tuple[int, str]:
    rows = 0
    try:
        decoder.feed(data, [AbortedTransaction(1, 0)])
        while (arrow := decoder.read()) is not None:
            rows += arrow.num_rows
            del arrow
    except Exception as error:  # printed as the outcome
        return rows, f"{type(error).__name__}: {error}"
    return rows, "ok"


if __name__ == "__main__":
    main()
