"""A cluster client without connections, for tests of requests to coordinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.metadata import MetadataSnapshot, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline, Retry
    from pyspark_kafka_direct.client.metadata import TopicMetadata
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ConnectionSettings

_T = TypeVar("_T")


class FakeCluster(ClusterClient):
    """One broker without topics, whose connections a subclass makes; its clock is fake."""

    def __init__(self, settings: ConnectionSettings) -> None:
        super().__init__(settings, pool=ConnectionPool(FakeTimeSystem()))
        self._snapshot = MetadataSnapshot(nodes={1: Node(1, "b", 1)})

    def topics(
        self, names: Iterable[str], *, deadline: Deadline | None = None, retry: Retry | None = None
    ) -> dict[str, TopicMetadata]:
        return {}

    def refresh_brokers(self, *, deadline: Deadline | None = None) -> None: ...

    def confirm_missing(
        self, suspects: Mapping[TopicPartition, UUID | None], *, deadline: Deadline | None = None
    ) -> set[TopicPartition]:
        return set(suspects)

    def call_any_broker(self, call: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        return call(self.connect(self.nodes[1], deadline), deadline)

    def release(self, connection: Connection) -> None: ...
