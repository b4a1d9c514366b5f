"""The record decoder alone at the size the goals speak of; ``bench.kernel`` has the whole table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.client_peers import Clients

_VALUE_BYTES = 100
_BATCH_BYTES = 16 << 10  # a Java producer's default
_TOTAL_BYTES = 32 << 20
_RUNS = 9


@dataclass(frozen=True, slots=True)
class Decoding:
    """Record bytes in memory to Arrow, on one core, uncompressed, CRC checked, values of 100 B, seven columns.

    Attributes:
        gigabytes_per_second: Of values, in 10^9 bytes.
    """

    records_per_second: float
    gigabytes_per_second: float


def measure(clients: Clients) -> Decoding:
    """Measure the decoder."""
    from bench import kernel

    load = kernel.make_load(_VALUE_BYTES, "none", _BATCH_BYTES, _TOTAL_BYTES)
    seconds = kernel.measure(load, kernel.SEVEN, _RUNS)
    return Decoding(load.records / seconds, load.value_bytes / seconds / 1e9)
