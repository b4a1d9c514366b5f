"""A simulated cluster whose topics a test reads as slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct import read_arrow, write_arrow
from pyspark_kafka_direct.arrow import arrow_slice, writer

if TYPE_CHECKING:
    import pytest

    from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice
    from pyspark_kafka_direct.arrow.writer import WriteResult


class SliceCluster(UnitCluster):
    """Two topics: ``t`` with two partitions, ``u`` with one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **cluster: Any) -> None:
        super().__init__({"t": 2, "u": 1}, **cluster)
        for module in (arrow_slice, writer):
            monkeypatch.setattr(module, "POOL", self.pool)

    def read(self, topics: Any = "t", **arguments: Any) -> ArrowSlice:
        return read_arrow(topics, self._params(arguments), **arguments)

    def write(self, topic: str | None, data: Any, **arguments: Any) -> WriteResult:
        return write_arrow(topic, data, self._params(arguments), **arguments)

    def _params(self, arguments: dict[str, Any]) -> dict[str, Any]:
        broker = self.cluster.brokers[1]
        return {"bootstrap.servers": f"{broker.host}:{broker.port}", **arguments.pop("params", {})}

    def values(self, topics: Any = "t", **arguments: Any) -> list[str]:
        """Return topic, partition and offset of the records of a slice."""
        table = self.read(topics, columns=["topic", "partition", "offset"], **arguments).read_all()
        return [f"{row['topic']}-{row['partition']}@{row['offset']}" for row in table.to_pylist()]
