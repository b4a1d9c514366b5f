"""Tails that tests poll, with what they have handed out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.reading.tail import Tail
from pyspark_kafka_direct.wire.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.integration.workbench import Workbench

PATIENCE = 120.0  # seconds; only catches hangs


class Taker:
    """A tail and its rows so far, by partition.

    Args:
        bench: The cluster.
        starts: Where to begin, by topic for its partition 0, or by partition.
        fields: Settings under Java's names, with underscores for dots.
    """

    def __init__(
        self, bench: Workbench, starts: Mapping[str, int] | Mapping[TopicPartition, int], **fields: Any
    ) -> None:
        settings = bench.settings(**fields)
        self.cluster = Cluster(settings.connection)
        places = {TopicPartition(name, 0) if isinstance(name, str) else name: at for name, at in starts.items()}
        self.tail = Tail(self.cluster, settings.fetch, places, columns=("offset", "value"))
        self.rows: dict[TopicPartition, list[tuple[int, bytes]]] = {name: [] for name in places}
        self.failures: list[Exception] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tail.close()

    @property
    def offsets(self) -> list[int]:
        """Those of the only partition."""
        (rows,) = self.rows.values()
        return [offset for offset, _ in rows]

    @property
    def values(self) -> list[bytes]:
        """Those of the only partition."""
        (rows,) = self.rows.values()
        return [value for _, value in rows]

    @property
    def position(self) -> int:
        """That of the only partition."""
        (position,) = self.tail.positions.values()
        return position

    def poll(self, seconds: float = 0.2) -> int:
        """Polls once; returns how many rows came."""
        count = 0
        for name, rows in self.tail.poll(seconds):
            assert rows.num_rows
            columns = (rows.column("offset").to_pylist(), rows.column("value").to_pylist())
            self.rows[name] += zip(*columns, strict=True)
            count += rows.num_rows
        return count

    def until(self, so: Callable[[], bool], what: str = "it") -> None:
        """Polls until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not so():
            assert time.monotonic() < deadline, f"{what}: {self.tail.positions}, {self.tail.trouble}"
            self.poll()

    def until_position(self, position: int) -> None:
        self.until(lambda: self.position >= position, f"position {position}")
        assert self.position == position

    def failure(self, kind: type[Exception]) -> Any:
        """Polls until an error of this kind, and returns it."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                self.poll()
            except kind as error:
                return error
        raise AssertionError(f"no {kind.__name__}: {self.tail.positions}, {self.tail.trouble}")
