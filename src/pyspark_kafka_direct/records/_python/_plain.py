"""The records of a format 2 batch, decompressed a piece at a time while they are read."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from pyspark_kafka_direct.records._python._bad_record import BadRecordError
from pyspark_kafka_direct.records._python._batch_format import HEADER, Codec, Header
from pyspark_kafka_direct.records._python._codecs import PIECE, decompress
from pyspark_kafka_direct.records._python._record import record_size

if TYPE_CHECKING:
    from collections.abc import Iterator


class Plain:
    """Hands out a batch's records as bytes that begin with a record: at first, and whenever one is cut off.

    Args:
        header: The batch's header.
        batch: The whole batch.
        most: The most bytes that it may decompress to, and that a record may have.
    """

    def __init__(self, header: Header, batch: bytes, most: int) -> None:
        records = batch[HEADER.size :]
        self._base_offset = header.base_offset
        self._most = most
        self._pieces: Iterator[bytes] = (
            decompress(header.codec, records, most) if header.codec != Codec.NONE else iter((records,))
        )

    def first(self) -> bytes:
        """Return the first piece."""
        return self._extended(b"", PIECE)

    def with_whole_record(self, records: bytes, at: int) -> bytes:
        """Return the bytes from ``at`` on, with more behind them: so many that the cut-off record there is whole.

        Raises:
            BadRecordError: It is too large, or its length is malformed.
        """
        records = records[at:]
        size = record_size(records, 0)
        if size is None:
            records = self._extended(records, PIECE)
            size = record_size(records, 0) or 0
        if size > len(records):
            if size > self._most and not self._has_ended():
                raise too_large(self._most)
            records = self._extended(records, size)
        return records

    def goes_on(self) -> bool:
        """Tell whether there is more. In a good batch, looking for it reaches the codec's end and its checksums."""
        piece = self._next()
        if piece:
            self._pieces = chain((piece,), self._pieces)
        return bool(piece)

    def _has_ended(self) -> bool:
        """Tell whether it was all, and good. What is wrong behind a record that is too large is not told."""
        try:
            return not self.goes_on()
        except BadRecordError:
            return False

    def _extended(self, records: bytes, wanted: int) -> bytes:
        """Return the bytes with pieces behind them, ``wanted`` bytes at least if there are so many."""
        pieces, length = [records], len(records)
        while length < wanted and (piece := self._next()):
            pieces.append(piece)
            length += len(piece)
        return b"".join(pieces)

    def _next(self) -> bytes:
        """Return the next piece that is not empty, or nothing at the end."""
        try:
            return next(filter(None, self._pieces), b"")
        except BadRecordError as error:
            error.offset = self._base_offset  # no record can be blamed
            raise


def too_large(most: int) -> BadRecordError:
    """Return the error about a record that takes more than ``most`` bytes."""
    return BadRecordError(f"a record takes more than {most} bytes", kind="large")
