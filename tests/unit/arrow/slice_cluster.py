"""A simulated cluster whose topics a test reads as slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct import read_arrow
from pyspark_kafka_direct.arrow import arrow_slice

if TYPE_CHECKING:
    import pytest

    from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice


class SliceCluster(UnitCluster):
    """Two topics: ``t`` with two partitions, ``u`` with one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **cluster: Any) -> None:
        super().__init__({"t": 2, "u": 1}, **cluster)
        monkeypatch.setattr(arrow_slice, "POOL", self.pool)

    def read(self, topics: Any = "t", **arguments: Any) -> ArrowSlice:
        broker = self.cluster.brokers[1]
        params = {"bootstrap.servers": f"{broker.host}:{broker.port}", **arguments.pop("params", {})}
        return read_arrow(topics, params, **arguments)

    def values(self, topics: Any = "t", **arguments: Any) -> list[str]:
        """Return topic, partition and offset of the records of a slice."""
        table = self.read(topics, columns=["topic", "partition", "offset"], **arguments).read_all()
        return [f"{row['topic']}-{row['partition']}@{row['offset']}" for row in table.to_pylist()]
