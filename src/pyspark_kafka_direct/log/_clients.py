"""What a log talks to the cluster with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_direct.wire.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.writing.outbox import Outbox


class Reader(Protocol):
    """Reads partitions on past their ends; ``reading.tail.Tail`` does."""

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to read of each partition."""

    @property
    def trouble(self) -> Mapping[TopicPartition, KafkaDirectError]:
        """What is wrong at the moment, by partition."""

    def poll(self, seconds: float, wake: Collection[int] = ()) -> Sequence[tuple[TopicPartition, pa.RecordBatch]]:
        """Wait for records, or for a descriptor to be readable."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from another offset."""

    def close(self) -> None:
        """Stop reading."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What a log talks to the cluster with.

    Attributes:
        cluster: The cluster.
        fetch: How to fetch.
        max_batch_bytes: Most bytes that a record batch may decompress to.
        produce: How to write, if an outbox is to be made; ``None`` if not.
        outbox: The outbox that is there already, if any.
    """

    cluster: Cluster
    fetch: FetchSettings
    max_batch_bytes: int = 1 << 30
    produce: ProduceSettings | None = None
    outbox: Outbox | None = None

    @classmethod
    def of(cls, params: Mapping[str, object], *, read_only: bool) -> Clients:
        """Return the clients that parameters describe.

        Raises:
            OptionError: A parameter cannot be used.
        """
        from pyspark_kafka_direct.settings.log import parse_log_params, warn_once

        settings = parse_log_params(params)
        for warning in settings.warnings:
            warn_once(warning)
        return cls(
            Cluster(settings.connection),
            settings.fetch,
            settings.max_record_batch_bytes,
            None if read_only else settings.produce,
        )

    def open_outbox(self) -> Outbox | None:
        """Return what sends; ``None`` if nothing will be sent."""
        from pyspark_kafka_direct.writing.outbox import Outbox

        return self.outbox if self.produce is None else Outbox(self.cluster, self.produce)

    def open_reader(self, starts: Mapping[TopicPartition, int], columns: Sequence[str]) -> Reader:
        """Return what reads partitions on from offsets."""
        from pyspark_kafka_direct.reading.tail import Tail

        return Tail(self.cluster, self.fetch, starts, columns=columns, max_batch_bytes=self.max_batch_bytes)
