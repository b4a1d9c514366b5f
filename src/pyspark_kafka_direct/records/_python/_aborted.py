"""Which batches of a fetch response belong to aborted transactions (KIP-98).

With ``read_committed`` the broker lists, per response, the aborted transactions that overlap it: the producer and the
first offset of each. From that offset on, the producer's transactional batches are dropped, up to the ABORT control
record that ends the transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.records._protocol import AbortedTransaction


class AbortedTransactions:
    """Follows the aborted transactions through the batches of one response."""

    def __init__(self, listed: Iterable[AbortedTransaction] = ()) -> None:
        self._coming = sorted(((first, producer) for producer, first in listed), reverse=True)
        self._open: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._coming or self._open)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._open

    def advance_to(self, last_offset: int) -> None:
        """Open the transactions that begin at ``last_offset`` (of the next batch) or before."""
        while self._coming and self._coming[-1][0] <= last_offset:
            self._open.add(self._coming.pop()[1])

    def end(self, producer_id: int) -> None:
        """Close the transaction of a producer whose ABORT control record was met."""
        self._open.discard(producer_id)
