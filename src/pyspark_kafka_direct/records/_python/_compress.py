"""The ways to compress the records of a batch, through the standard library and pyarrow: what ``_codecs`` undoes.

Framing is that of the Java client, so that every client reads it: xerial's around Snappy (the layout is in
``_codecs``); for LZ4 a frame of independent blocks of 64 KiB without checksums (the layout is in ``_lz4_frame``).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from pyspark_kafka_direct.records._python._batch_format import Codec

if TYPE_CHECKING:
    from collections.abc import Iterator

_GZIP_WINDOW = 31  # zlib's largest, with a gzip header
_DEFAULT_GZIP_LEVEL = 6
_DEFAULT_ZSTD_LEVEL = 3

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK = 32 << 10

_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")  # version 01, independent blocks, at most 64 KiB each; its checksum
_LZ4_BLOCK = 64 << 10
_LZ4_STORED = 1 << 31
_LZ4_END = bytes(4)


def compress(codec: Codec, level: int | None, plain: bytes | bytearray) -> bytes | bytearray:
    """Return the records of a batch as the codec writes them; ``level`` None is the codec's default."""
    if codec == Codec.GZIP:
        deflater = zlib.compressobj(_DEFAULT_GZIP_LEVEL if level is None else level, wbits=_GZIP_WINDOW)
        return deflater.compress(plain) + deflater.flush()
    if codec == Codec.SNAPPY:
        return _XERIAL_HEADER + b"".join(_snappy_blocks(plain))
    if codec == Codec.LZ4:
        return _LZ4_HEADER + b"".join(_lz4_blocks(plain)) + _LZ4_END
    if codec == Codec.ZSTD:
        return _zstd(plain, _DEFAULT_ZSTD_LEVEL if level is None else level)
    return plain


def _snappy_blocks(plain: bytes | bytearray) -> Iterator[bytes]:
    for block in _blocks(plain, _SNAPPY_BLOCK):
        packed = _pyarrow("snappy", block)
        yield struct.pack(">i", len(packed)) + packed


def _lz4_blocks(plain: bytes | bytearray) -> Iterator[bytes]:
    for block in _blocks(plain, _LZ4_BLOCK):
        packed = _pyarrow("lz4_raw", block)
        if len(packed) < len(block):
            yield struct.pack("<I", len(packed)) + packed
        else:
            yield struct.pack("<I", len(block) | _LZ4_STORED) + bytes(block)


def _blocks(plain: bytes | bytearray, size: int) -> Iterator[memoryview]:
    view = memoryview(plain)
    return (view[start : start + size] for start in range(0, len(view), size))


def _pyarrow(codec: str, plain: memoryview) -> bytes:
    import pyarrow as pa

    packed: bytes = pa.compress(plain, codec, asbytes=True)
    return packed


def _zstd(plain: bytes | bytearray, level: int) -> bytes:
    import pyarrow as pa

    packed: bytes = pa.Codec("zstd", compression_level=level).compress(plain, asbytes=True)
    return packed
