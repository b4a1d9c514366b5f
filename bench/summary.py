"""Runs of one peer on one case, as the few numbers that are reported."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Sample

JVM = "jvm"
OURS = "kafka-direct"
CONFLUENT = "confluent-kafka"
KAFKA_PYTHON = "kafka-python"
KAFKARROW = "kafkarrow"
READ_ARROW = "kafka-direct, read_arrow"
EXACTLY_ONCE = "kafka-direct, exactly-once"
WARM = "kafka-direct, warm daemon"
PEERS = (JVM, OURS, CONFLUENT, KAFKA_PYTHON)
PEER_LABELS = {
    JVM: "Spark, JVM kafka source",
    OURS: "Spark, kafka-direct",
    WARM: "Spark, kafka-direct, warm daemon",
    CONFLUENT: "confluent-kafka to Arrow, no Spark",
    KAFKA_PYTHON: "kafka-python to Arrow, no Spark",
}
WRITER_LABELS = {
    JVM: "Spark, JVM kafka sink",
    OURS: "Spark, kafka-direct, at-least-once",
    EXACTLY_ONCE: "Spark, kafka-direct, exactly-once",
    CONFLUENT: "Spark, confluent-kafka in foreachPartition",
}


@dataclass(frozen=True, slots=True)
class Series:
    """All measured runs of one peer on one case (a topic and a sink).

    Attributes:
        records: Read in each run.
        value_bytes: Length of every value, so that ``records * value_bytes`` uncompressed bytes were delivered.
        samples: In the order they were taken; the warm-up run is not among them.
    """

    topic: str
    sink: str
    peer: str
    records: int
    value_bytes: int
    codec: str
    samples: tuple[Sample, ...]

    @property
    def seconds(self) -> float:
        """Median time of a run."""
        return median(sample.seconds for sample in self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """Fastest and slowest run, in seconds."""
        return min(sample.seconds for sample in self.samples), max(sample.seconds for sample in self.samples)

    @property
    def records_per_second(self) -> float:
        """Of the median run."""
        return self.records / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """Uncompressed values, in 10^6 bytes, of the median run."""
        return self.records * self.value_bytes / self.seconds / 1e6

    @property
    def core_us_per_record(self) -> float:
        """Microseconds of processor time per record, the broker's not counted (median)."""
        return median(sample.cpu_seconds for sample in self.samples) / self.records * 1e6

    @property
    def broker_core_us_per_record(self) -> float:
        """Microseconds of the broker's processor time per record (median)."""
        return median(sample.broker_cpu_seconds for sample in self.samples) / self.records * 1e6


@dataclass(frozen=True, slots=True)
class Ratio:
    """One series against another.

    Attributes:
        speed: Records per second, ours over theirs: above 1 is faster.
        cpu: Processor time per record, ours over theirs: below 1 is cheaper.
    """

    speed: float
    cpu: float


def ratio(series: Series, base: Series) -> Ratio:
    """Compare the medians of two series, whose numbers of records may differ."""
    return Ratio(
        speed=series.records_per_second / base.records_per_second,
        cpu=series.core_us_per_record / base.core_us_per_record,
    )


def find(everything: Sequence[Series], topic: str, sink: str, peer: str) -> Series | None:
    """Return the series of that peer on that case, if it was run."""
    for series in everything:
        if (series.topic, series.sink, series.peer) == (topic, sink, peer):
            return series
    return None
