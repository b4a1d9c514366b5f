"""What one task did, as numbers: one log line at the end tells whether fetching is the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_kafka_direct.records import DecodeCounts


@dataclass(slots=True)
class ReadCounts:
    """Counters of one offset range's read.

    Attributes:
        records: Records delivered.
        record_bytes: Bytes of record batches received (compressed as on the wire).
        fetches: Fetch requests answered.
        retries: Answers or connections that failed and were tried again.
        control: Control records skipped (transaction markers).
        aborted: Records of aborted transactions skipped (``read_committed`` only).
        holes: Offsets that no record batch held (compaction).
        lost: Offsets skipped because their records are gone (``failOnDataLoss=false`` only).
        wait_seconds: Time spent waiting for brokers.
        total_seconds: Time from the first request to the end.
    """

    records: int = 0
    record_bytes: int = 0
    fetches: int = 0
    retries: int = 0
    control: int = 0
    aborted: int = 0
    holes: int = 0
    lost: int = 0
    wait_seconds: float = 0.0
    total_seconds: float = 0.0

    def take(self, decoded: DecodeCounts) -> None:
        """Add what the decoder has counted; it sees lost offsets as holes, so those are told apart here."""
        self.records += decoded.records
        self.control += decoded.control
        self.aborted += decoded.aborted
        self.holes += max(0, decoded.holes - self.lost)

    def __str__(self) -> str:
        text = (
            f"{self.records} records, {self.record_bytes} bytes in {self.fetches} fetches, "
            f"{self.wait_seconds:.3f} s of {self.total_seconds:.3f} s waiting for brokers"
        )
        extras = {"retries": self.retries, "control": self.control, "aborted": self.aborted, "holes": self.holes}
        named = [f"{count} {name}" for name, count in (extras | {"lost": self.lost}).items() if count]
        return f"{text} ({', '.join(named)})" if named else text
