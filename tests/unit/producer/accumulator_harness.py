"""An accumulator on a simulated cluster, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.accumulator import DeliveryReport, PendingRecord, RecordAccumulator
from pyspark_kafka_direct.records import RecordDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.producer.producer_cluster import ProducerCluster


class AccumulatorHarness:
    """An accumulator, and the outcome of each record."""

    def __init__(self, cluster: ProducerCluster, *, linger: float = 0.0, **settings: Any) -> None:
        self.cluster = cluster
        self.outcomes: dict[bytes, tuple[int, int] | KafkaDirectError | MemoryError] = {}
        self.aborted: set[bytes] = set()
        self.accumulator = RecordAccumulator(
            cluster.client(), ProducerSettings(**settings), self._on_delivery, self._claim, linger
        )
        cluster.at_end(self.accumulator.close)

    def append(self, *values: bytes, flush_now: bool = False, poll: bool = True, **more: Any) -> None:
        """Append records, and wait until there is something to do."""
        records = [self.record(value, **more) for value in values]
        self.accumulator.append(records, flush_now=flush_now)
        if poll:
            self.accumulator.poll([])

    def send(self, *values: bytes, **more: Any) -> None:
        """Append records, and send what may be sent, without waiting."""
        self.append(*values, poll=False, **more)
        signal = self.cluster.process.wakeup_signal()
        signal.set()
        self.accumulator.poll([signal.fileno()])
        signal.close()

    def record(
        self, value: bytes, key: bytes | None = b"k", topic: str = "t", size: int = 100, **more: Any
    ) -> PendingRecord:
        created_at = more.get("created_at", self.cluster.now)
        index = more.get("partition")
        return PendingRecord(
            topic,
            key,
            value,
            headers=more.get("headers", ()),
            partition=index,
            timestamp=1_000,
            created_at=created_at,
            size_bound=size,
        )

    def poll_until(self, *values: bytes) -> None:
        for _ in range(1_000):
            if all(value in self.outcomes for value in values):
                return
            self.accumulator.poll([])
        raise AssertionError(self.outcomes)

    def error(self, value: bytes) -> KafkaDirectError:
        error = self.outcomes[value]
        assert isinstance(error, KafkaDirectError)
        return error

    def sent(self) -> list[dict[int, list[bytes]]]:
        """The values of each request, by partition."""
        return [{number: _values(data) for number, data in each.batches.items()} for each in self.cluster.produced]

    def _on_delivery(self, report: DeliveryReport) -> None:
        for index, record in enumerate(report.records):
            value = record.value or b""
            assert value not in self.outcomes
            if report.error is None:
                assert record.partition is not None
                self.outcomes[value] = (record.partition, report.base_offset + index)
            else:
                assert isinstance(report.error, KafkaDirectError | MemoryError)
                self.outcomes[value] = report.error

    def _claim(self, records: Sequence[PendingRecord]) -> list[PendingRecord]:
        return [each for each in records if each.value not in self.aborted]


def rows_of(data: bytes) -> Any:
    decoder = RecordDecoder(
        topic="t", partition=0, from_offset=0, until_offset=99_999, columns=("key", "value", "headers", "timestamp")
    )
    decoder.feed(memoryview(data))
    return decoder.read()


def _values(data: bytes) -> list[bytes]:
    return list(rows_of(data).column("value").to_pylist())


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]
