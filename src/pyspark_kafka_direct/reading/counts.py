"""What one task did, as numbers: one log line at the end tells whether fetching is the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass, field
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
        throttled: Fetch requests answered with nothing, because a quota of the cluster was used up.
        control: Control records skipped (transaction markers).
        aborted: Records of aborted transactions skipped (``read_committed`` only).
        holes: Offsets that no record batch held (compaction).
        unproven: Those of the holes that no later batch proves: the leader sent nothing, for long.
        lost: Offsets skipped because their records are gone, or whose records were replaced after they were read
            (``failOnDataLoss=false`` only).
        wait_seconds: Time spent waiting for brokers.
        total_seconds: Time from the first request to the end.
        brokers: ``host:port`` of the brokers that answered, in the order of their first answer.
    """

    records: int = 0
    record_bytes: int = 0
    fetches: int = 0
    retries: int = 0
    throttled: int = 0
    control: int = 0
    aborted: int = 0
    holes: int = 0
    unproven: int = 0
    lost: int = 0
    wait_seconds: float = 0.0
    total_seconds: float = 0.0
    brokers: list[str] = field(default_factory=list)

    def fetched(self, broker: str | None, size: int) -> None:
        """Count one answer with ``size`` bytes of records."""
        self.fetches += 1
        self.record_bytes += size
        if broker is not None and broker not in self.brokers:
            self.brokers.append(broker)

    def take(self, decoded: DecodeCounts) -> None:
        """Add what a decoder has counted, once it is done with."""
        self.records += decoded.records
        self.control += decoded.control
        self.aborted += decoded.aborted
        self.holes += decoded.holes

    def __str__(self) -> str:
        text = (
            f"{self.records} records, {self.record_bytes} bytes in {self.fetches} fetches from "
            f"{', '.join(self.brokers) or 'no broker'}, "
            f"{self.wait_seconds:.3f} s of {self.total_seconds:.3f} s waiting for brokers"
        )
        extras = {
            "retries": self.retries,
            "throttled": self.throttled,
            "control": self.control,
            "aborted": self.aborted,
            "holes": self.holes,
            "of them unproven": self.unproven,
            "lost": self.lost,
        }
        named = [f"{count} {name}" for name, count in extras.items() if count]
        return f"{text} ({', '.join(named)})" if named else text
