"""The offset range that a task reads, and the counters of that read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import PartitionLeader
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.planning.loss_errors import DataLossCause
    from pyspark_kafka_direct.records import DecodeCounts


@dataclass(frozen=True, slots=True)
class RangeTask:
    """The offset range of one task; it is sent to the executor, so it contains no secrets."""

    offsets: OffsetRange
    topic_id: UUID | None = None  # at planning; another one means that the topic was recreated
    leader: PartitionLeader | None = None  # at planning; saves the task a metadata request
    # Whether the user requested the earliest offset: records that expire before the first read are then no loss.
    from_earliest: bool = False


@dataclass(slots=True)
class ReadCounts:
    """Counters of one offset range's read; the task logs them when it ends."""

    records: int = 0
    record_bytes: int = 0  # of the received record batches, as compressed
    fetches: int = 0
    retries: int = 0
    throttled: int = 0  # empty fetch responses because of a quota
    control: int = 0  # transaction markers
    aborted: int = 0  # records of aborted transactions (``read_committed`` only)
    gaps: int = 0  # offsets without a record (compaction)
    unproven_gaps: int = 0  # part of ``gaps``, not confirmed by a later batch: the leader returned no data for long
    lost: int = 0  # skipped offsets, and records replaced after they were read (``failOnDataLoss=false`` only)
    skipped: dict[DataLossCause, int] = field(default_factory=dict)  # offsets that were never read, by cause
    wait_seconds: float = 0.0  # for brokers
    total_seconds: float = 0.0
    brokers: list[str] = field(default_factory=list)  # ``host:port``, in the order of their first response

    def add_fetch(self, broker: str | None, size: int) -> None:
        self.fetches += 1
        self.record_bytes += size
        if broker is not None and broker not in self.brokers:
            self.brokers.append(broker)

    def add_skipped(self, cause: DataLossCause, offsets: int) -> None:
        """Count a loss that is skipped for good; ``offsets`` is 0 if they were read before."""
        self.skipped[cause] = self.skipped.get(cause, 0) + offsets

    def add_decoded(self, decoded: DecodeCounts) -> None:
        self.records += decoded.records
        self.control += decoded.control
        self.aborted += decoded.aborted
        self.gaps += decoded.gaps

    def __str__(self) -> str:
        summary = (
            f"{self.records} records, {self.record_bytes} bytes in {self.fetches} fetches from "
            f"{', '.join(self.brokers) or 'no broker'}, "
            f"{self.wait_seconds:.3f} s of {self.total_seconds:.3f} s waiting for brokers"
        )
        extras = {
            "retries": self.retries,
            "throttled": self.throttled,
            "control": self.control,
            "aborted": self.aborted,
            "offset gaps": self.gaps,
            "of them unproven": self.unproven_gaps,
            "lost": self.lost,
        }
        nonzero = [f"{count} {name}" for name, count in extras.items() if count]
        return f"{summary} ({', '.join(nonzero)})" if nonzero else summary
