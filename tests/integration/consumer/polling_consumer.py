"""A ``PartitionConsumer`` for tests, with the rows that it has returned."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.integration.workbench import Workbench

POLL_TIMEOUT = 300.0  # seconds; only catches hangs


class PollingConsumer:
    """A consumer and its rows so far, by partition."""

    # ``starts`` are by partition, or by topic for its partition 0; ``fields`` are Java's settings with underscores.
    def __init__(
        self, bench: Workbench, starts: Mapping[str, int] | Mapping[TopicPartition, int], **fields: Any
    ) -> None:
        settings = bench.settings(**fields)
        self.cluster = ClusterClient(settings.connection)
        offsets = {
            TopicPartition(name, 0) if isinstance(name, str) else name: offset for name, offset in starts.items()
        }
        self.partition_consumer = PartitionConsumer(self.cluster, settings.fetch, offsets, columns=("offset", "value"))
        self.rows: dict[TopicPartition, list[tuple[int, bytes]]] = {name: [] for name in offsets}
        self.failures: list[Exception] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.partition_consumer.close()

    @property
    def offsets(self) -> list[int]:
        """Of the only partition."""
        (rows,) = self.rows.values()
        return [offset for offset, _ in rows]

    @property
    def values(self) -> list[bytes]:
        """Of the only partition."""
        (rows,) = self.rows.values()
        return [value for _, value in rows]

    @property
    def position(self) -> int:
        """Of the only partition."""
        (position,) = self.partition_consumer.positions.values()
        return position

    def poll(self, seconds: float = 0.2) -> int:
        """Polls once; returns the number of rows."""
        count = 0
        for name, rows in self.partition_consumer.poll(seconds):
            assert rows.num_rows
            columns = (rows.column("offset").to_pylist(), rows.column("value").to_pylist())
            self.rows[name] += zip(*columns, strict=True)
            count += rows.num_rows
        return count

    def until(self, condition: Callable[[], bool], description: str = "the condition") -> None:
        """Polls until a condition holds."""
        deadline = time.monotonic() + POLL_TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, (
                f"{description}: {self.partition_consumer.positions}, {self.partition_consumer.transient_errors}"
            )
            self.poll()

    def until_position(self, position: int) -> None:
        self.until(lambda: self.position >= position, f"position {position}")
        assert self.position == position

    def failure(self, error_type: type[Exception]) -> Any:
        """Polls until an error of this type, and returns it."""
        deadline = time.monotonic() + POLL_TIMEOUT
        while time.monotonic() < deadline:
            try:
                self.poll()
            except error_type as error:
                return error
        raise AssertionError(
            f"no {error_type.__name__}: {self.partition_consumer.positions}, {self.partition_consumer.transient_errors}"
        )
