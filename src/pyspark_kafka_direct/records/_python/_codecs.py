"""The ways the records of a batch can be compressed, through the standard library and pyarrow.

Output comes in pieces, as it is asked for, and is bounded; a size that compressed bytes claim is only believed where
that many bytes of input can hold it.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from pyspark_kafka_direct.records._python import _lz4_frame
from pyspark_kafka_direct.records._python._bad_record import BadRecordError
from pyspark_kafka_direct.records._python._batch_format import Codec

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 1 << 20
"""How many bytes are decompressed at a time, and read before the next ones are looked at.

The native decoder does so too, and both hand out the same rows of a batch that turns out to be damaged.
"""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_SNAPPY_BEST_RATIO = 22  # a copy of 64 bytes takes three
_NO_MEMORY = "not enough memory"  # how zstd tells that malloc failed


def decompress(codec: int, packed: bytes, most: int) -> Iterator[bytes]:
    """Yield what the records of a batch decompress to, ``most`` bytes in all: whole pieces, and then the rest.

    The rest comes when all behind it is checked, checksums for instance.

    ``codec`` is the number in the batch's attributes, and not ``Codec.NONE``.

    Raises:
        BadRecordError: The bytes are malformed, decompress to too much, or the codec is unknown.
    """
    waiting, length, total = [], 0, 0
    for part in _parts(codec, packed, most):
        total += len(part)
        fitting = part[: len(part) - max(total - most, 0)]
        waiting.append(fitting)
        length += len(fitting)
        if length >= PIECE:
            plain = b"".join(waiting)
            whole = length - length % PIECE
            yield plain[:whole]
            waiting, length = [plain[whole:]], length - whole
        if total > most:
            raise _too_large(most)
    yield b"".join(waiting)


def _parts(codec: int, packed: bytes, most: int) -> Iterator[bytes]:
    if codec == Codec.GZIP:
        return _gzip(packed, most)
    if codec == Codec.SNAPPY:
        return _snappy(packed, most)
    if codec == Codec.LZ4:
        _lz4_frame.check(packed)
        return _stream("lz4", packed, most)
    if codec == Codec.ZSTD:
        return _stream("zstd", packed, most)
    raise BadRecordError(f"the record batch is compressed with the unknown codec {codec}", kind="unsupported")


def _gzip(packed: bytes, most: int) -> Iterator[bytes]:
    """Decompress gzip (RFC 1952), one member or several in a row."""
    total = 0
    while True:
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            try:
                part = inflater.decompress(packed, _step(total, most))
            except zlib.error as error:
                raise _broken("gzip", error) from None
            packed = inflater.unconsumed_tail
            if not part and not packed and not inflater.eof:
                raise _broken("gzip", "the stream is cut off")
            total += len(part)
            yield part
        packed = inflater.unused_data
        if not packed:
            return


def _snappy(packed: bytes, most: int) -> Iterator[bytes]:
    """Decompress a raw Snappy block, or xerial's framing around several (what the Java client writes).

    The framing, big-endian: magic, version int32, compatible version int32, then blocks of length int32 and raw block.
    """
    if not packed.startswith(_XERIAL_MAGIC):
        yield _snappy_block(packed, most)
        return
    if len(packed) < _XERIAL_HEADER:
        raise _broken("snappy", "the framing is cut off")
    at = _XERIAL_HEADER
    while at < len(packed):
        length = int.from_bytes(packed[at : at + 4], "big", signed=True)
        end = at + 4 + length
        if length < 0 or end > len(packed) or at + 4 > len(packed):
            raise _broken("snappy", "a block's length does not fit the framing")
        block = _snappy_block(packed[at + 4 : end], most)
        most -= len(block)
        yield block
        at = end


def _snappy_block(packed: bytes, most: int) -> bytes:
    import pyarrow as pa

    claimed = 0
    for index, byte in enumerate(packed[:5]):
        claimed |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise _broken("snappy", "the block's length is malformed")
    if claimed > len(packed) * _SNAPPY_BEST_RATIO:
        raise _broken("snappy", f"{len(packed)} bytes cannot hold the {claimed} they claim")
    if claimed > most:
        raise _too_large(most)
    try:
        plain: bytes = pa.decompress(packed, claimed, "snappy", asbytes=True)
    except (OSError, ValueError) as error:
        raise _broken("snappy", error) from None
    return plain


def _stream(codec: str, packed: bytes, most: int) -> Iterator[bytes]:
    """Decompress what pyarrow can stream."""
    import pyarrow as pa

    if not packed:
        raise _broken(codec, "the frame is cut off")
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), codec) as stream:
            # Its read() never frees what it has made room for when it fails: a MiB for each frame that is cut off.
            total = 0
            while (part := stream.read_buffer(_step(total, most))).size:
                total += part.size
                yield part.to_pybytes()
    except OSError as error:
        if _NO_MEMORY in str(error):
            raise MemoryError from None
        raise _broken(codec, error) from None


def _step(total: int, most: int) -> int:
    """Return how many bytes to decompress next: to the end of a piece, or to the first byte that is one too many.

    What a codec makes before it fails is lost, so a step must not begin before a piece's end and go beyond it.
    """
    return min(PIECE - total % PIECE, most - total + 1)


def _broken(codec: str, what: object) -> BadRecordError:
    return BadRecordError(f"the records cannot be decompressed ({codec}): {what}")


def _too_large(most: int) -> BadRecordError:
    return BadRecordError(f"the records decompress to more than {most} bytes", kind="large")
