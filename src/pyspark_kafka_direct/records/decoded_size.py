"""The size of a batch of decoded keys or values.

A decoder returns the first values of a column that fit together into a limit; the caller decodes the others in another
batch. Sizes are estimated in the same way as in the native kernel, so that both end a batch at the same value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

MAX_REPLACED_BYTES: Final = ((1 << 31) - 1) // 3
"""Longer values must be UTF-8, because U+FFFD, which may replace each byte, has three. A column has at most 2 GiB."""


class DecodedSize:
    """Counts the decoded bytes of a batch."""

    def __init__(self, limit: int, row_bytes: int) -> None:
        self._limit = limit
        self._row_bytes = row_bytes  # of each row, also of null values
        self._rows = 0
        self._bytes = 0

    def begin_row(self, more: int) -> bool:
        """Begin a row with a value that may have more bytes; False if the batch ends before it. A batch has a row."""
        self._rows += 1
        return self.add(self._row_bytes + more)

    def add(self, more: int) -> bool:
        """Add what was found while the row was decoded; False if the batch ends before this row."""
        self._bytes += more
        return self._bytes <= self._limit or self._rows == 1


def width(data_type: pa.DataType) -> int:
    """Estimate the bytes of a row of a type: eight for each column, sixteen for decimals.

    A field that is null has this memory, too. The elements of lists and maps, and the bytes of strings, are not
    included.
    """
    import pyarrow as pa

    if pa.types.is_struct(data_type):
        return 8 + sum(width(field.type) for field in data_type)
    return 16 if pa.types.is_decimal(data_type) else 8


def element_width(data_type: pa.DataType) -> int:
    """Estimate the bytes of an element of a list, or of an entry of a map; 0 for other types."""
    import pyarrow as pa

    if pa.types.is_map(data_type):
        return 8 + width(data_type.key_type) + width(data_type.item_type)
    return width(data_type.value_type) if pa.types.is_list(data_type) else 0


def fits_column(value: bytes) -> bool:
    """Return whether a column of strings can have a value, in which U+FFFD may replace each byte."""
    if len(value) <= MAX_REPLACED_BYTES:
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
