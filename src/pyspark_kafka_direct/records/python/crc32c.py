"""CRC-32C (Castagnoli), the checksum of record batches, by google-crc32c or, without it, by a table.

The native kernel has its own, so only the Python decoder and encoder use google-crc32c, for speed.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_POLYNOMIAL: Final = 0x82F63B78  # of RFC 3720, its bits reversed

_log = logging.getLogger("pyspark_kafka_direct.records")


def crc32c(data: bytes) -> int:
    return _implementation()(data)


def crc32c_by_table(data: bytes) -> int:
    """Return the CRC-32C, slowly: a MiB takes 0.1 to 0.2 s."""
    table = _table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@functools.cache
def _implementation() -> Callable[[bytes], int]:
    try:
        import google_crc32c
    except ModuleNotFoundError:
        _log.warning(
            "Checksums of record batches are computed in Python, which takes 0.1 s for each MiB, because google-crc32c "
            "is not installed. Install it, or a build with the native kernel: "
            "pip install google-crc32c"
        )
        return crc32c_by_table
    value: Callable[[bytes], int] = google_crc32c.value
    return value


@functools.cache
def _table() -> tuple[int, ...]:
    return tuple(functools.reduce(_shift, range(8), byte) for byte in range(256))


def _shift(crc: int, _bit: int) -> int:
    return (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
