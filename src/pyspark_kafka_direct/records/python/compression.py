"""Compression and decompression of record batches, with the standard library and pyarrow.

Decompression yields chunks on demand, up to a limit. It rejects a claimed size for which the input is too small.
Compression uses the framing of the Java client, which every client can read: xerial's for Snappy; for LZ4 a frame of
independent blocks of 64 KiB without checksums.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from pyspark_kafka_direct.records.python import lz4_frame
from pyspark_kafka_direct.records.python.batch_format import Codec
from pyspark_kafka_direct.records.scanned_batches import BadRecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
"""How many bytes are decompressed and read at a time.

The native decoder uses the same chunks, so both return the same rows of a damaged batch.
"""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_BEST_RATIO = 22  # a copy of 64 bytes is encoded in three
_ZSTD_NO_MEMORY = "not enough memory"  # zstd's message if malloc failed

_GZIP_WINDOW = 31  # zlib's largest, with a gzip header
_DEFAULT_GZIP_LEVEL = 6
_DEFAULT_ZSTD_LEVEL = 3

_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK = 32 << 10

_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")  # version 01, independent blocks, at most 64 KiB each; its checksum
_LZ4_BLOCK = 64 << 10
_LZ4_STORED = 1 << 31
_LZ4_END = bytes(4)


def decompress(codec: int, compressed: bytes, max_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed records in whole chunks, and the rest after the codec's checksums are verified."""
    pending, pending_bytes, total = [], 0, 0
    for part in _decompress_any(codec, compressed, max_bytes):
        total += len(part)
        part_within_limit = part[: len(part) - max(total - max_bytes, 0)]
        pending.append(part_within_limit)
        pending_bytes += len(part_within_limit)
        if pending_bytes >= CHUNK_BYTES:
            decompressed = b"".join(pending)
            chunks_end = pending_bytes - pending_bytes % CHUNK_BYTES
            yield decompressed[:chunks_end]
            pending, pending_bytes = [decompressed[chunks_end:]], pending_bytes - chunks_end
        if total > max_bytes:
            raise _too_large(max_bytes)
    yield b"".join(pending)


def compress(codec: Codec, level: int | None, uncompressed: bytes | bytearray) -> bytes | bytearray:
    """Return the compressed records of a batch; ``level`` None is the codec's default."""
    if codec == Codec.GZIP:
        deflater = zlib.compressobj(_DEFAULT_GZIP_LEVEL if level is None else level, wbits=_GZIP_WINDOW)
        return deflater.compress(uncompressed) + deflater.flush()
    if codec == Codec.SNAPPY:
        return _XERIAL_HEADER + b"".join(_compress_snappy(uncompressed))
    if codec == Codec.LZ4:
        return _LZ4_HEADER + b"".join(_compress_lz4(uncompressed)) + _LZ4_END
    if codec == Codec.ZSTD:
        return _compress_zstd(uncompressed, _DEFAULT_ZSTD_LEVEL if level is None else level)
    return uncompressed


def _decompress_any(codec: int, compressed: bytes, max_bytes: int) -> Iterator[bytes]:
    if codec == Codec.GZIP:
        return _decompress_gzip(compressed, max_bytes)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(compressed, max_bytes)
    if codec == Codec.LZ4:
        lz4_frame.check_frame(compressed)
        return _decompress_stream("lz4", compressed, max_bytes)
    if codec == Codec.ZSTD:
        return _decompress_stream("zstd", compressed, max_bytes)
    raise BadRecordError(f"the record batch is compressed with the unknown codec {codec}", kind="unsupported")


def _decompress_gzip(compressed: bytes, max_bytes: int) -> Iterator[bytes]:
    """Decompress gzip (RFC 1952), one member or several in a row."""
    total = 0
    while True:
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            try:
                part = inflater.decompress(compressed, _next_read_size(total, max_bytes))
            except zlib.error as error:
                raise _decompression_error("gzip", error) from None
            compressed = inflater.unconsumed_tail
            if not part and not compressed and not inflater.eof:
                raise _decompression_error("gzip", "the stream is truncated")
            total += len(part)
            yield part
        compressed = inflater.unused_data
        if not compressed:
            return


def _decompress_snappy(compressed: bytes, max_bytes: int) -> Iterator[bytes]:
    """Decompress a raw Snappy block, or xerial's framing around several (written by the Java client).

    The framing, big-endian: magic, version int32, compatible version int32; then blocks, each an int32 length and that
    many bytes of raw Snappy.
    """
    if not compressed.startswith(_XERIAL_MAGIC):
        yield _decompress_snappy_block(compressed, max_bytes)
        return
    if len(compressed) < len(_XERIAL_HEADER):
        raise _decompression_error("snappy", "the framing is truncated")
    position = len(_XERIAL_HEADER)
    while position < len(compressed):
        length = int.from_bytes(compressed[position : position + 4], "big", signed=True)
        end = position + 4 + length
        if length < 0 or end > len(compressed) or position + 4 > len(compressed):
            raise _decompression_error("snappy", "a block's length does not fit the framing")
        block = _decompress_snappy_block(compressed[position + 4 : end], max_bytes)
        max_bytes -= len(block)
        yield block
        position = end


def _decompress_snappy_block(compressed: bytes, max_bytes: int) -> bytes:
    import pyarrow as pa

    claimed = 0
    for index, byte in enumerate(compressed[:5]):
        claimed |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise _decompression_error("snappy", "the block's length is malformed")
    if claimed > len(compressed) * _SNAPPY_BEST_RATIO:
        raise _decompression_error("snappy", f"{len(compressed)} bytes cannot hold the {claimed} they claim")
    if claimed > max_bytes:
        raise _too_large(max_bytes)
    try:
        uncompressed: bytes = pa.decompress(compressed, claimed, "snappy", asbytes=True)
    except (OSError, ValueError) as error:
        raise _decompression_error("snappy", error) from None
    return uncompressed


def _decompress_stream(codec: str, compressed: bytes, max_bytes: int) -> Iterator[bytes]:
    """Decompress a codec that pyarrow can stream."""
    import pyarrow as pa

    if not compressed:
        raise _decompression_error(codec, "the frame is truncated")
    try:
        with pa.CompressedInputStream(pa.BufferReader(compressed), codec) as stream:
            # read_buffer(), because read() leaks its buffer if it fails: a MiB for each truncated frame.
            total = 0
            while (part := stream.read_buffer(_next_read_size(total, max_bytes))).size:
                total += part.size
                yield part.to_pybytes()
    except OSError as error:
        if _ZSTD_NO_MEMORY in str(error):
            raise MemoryError from None
        raise _decompression_error(codec, error) from None


def _next_read_size(total: int, max_bytes: int) -> int:
    """Return how many bytes to decompress next: to the end of a chunk, or to the first excess byte.

    If a codec fails, the output of that read is lost. So each read ends at the end of a chunk at the latest.
    """
    return min(CHUNK_BYTES - total % CHUNK_BYTES, max_bytes - total + 1)


def _decompression_error(codec: str, reason: object) -> BadRecordError:
    return BadRecordError(f"the records cannot be decompressed ({codec}): {reason}")


def _too_large(max_bytes: int) -> BadRecordError:
    return BadRecordError(f"the records decompress to more than {max_bytes} bytes", kind="large")


def _compress_snappy(uncompressed: bytes | bytearray) -> Iterator[bytes]:
    for block in _blocks(uncompressed, _SNAPPY_BLOCK):
        compressed = _compress_block("snappy", block)
        yield struct.pack(">i", len(compressed)) + compressed


def _compress_lz4(uncompressed: bytes | bytearray) -> Iterator[bytes]:
    for block in _blocks(uncompressed, _LZ4_BLOCK):
        compressed = _compress_block("lz4_raw", block)
        if len(compressed) < len(block):
            yield struct.pack("<I", len(compressed)) + compressed
        else:
            yield struct.pack("<I", len(block) | _LZ4_STORED) + bytes(block)


def _blocks(uncompressed: bytes | bytearray, size: int) -> Iterator[memoryview]:
    view = memoryview(uncompressed)
    return (view[start : start + size] for start in range(0, len(view), size))


def _compress_block(codec: str, uncompressed: memoryview) -> bytes:
    import pyarrow as pa

    compressed: bytes = pa.compress(uncompressed, codec, asbytes=True)
    return compressed


def _compress_zstd(uncompressed: bytes | bytearray, level: int) -> bytes:
    import pyarrow as pa

    compressed: bytes = pa.Codec("zstd", compression_level=level).compress(uncompressed, asbytes=True)
    return compressed
