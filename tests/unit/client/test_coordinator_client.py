"""Coordinator lookup, requests and retries, against fake brokers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.fake_coordinators import FakeCluster
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.client.coordinator_client import (
    CoordinatorClient,
    CoordinatorType,
    RetriableCoordinatorError,
    raise_for_error_code,
)
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.metadata import MetadataSnapshot
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    KafkaDirectError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ConnectionSettings
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Retry
    from pyspark_kafka_direct.client.metadata import Node, TopicMetadata
    from pyspark_kafka_direct.protocol.messages import ApiMessageType

_T = TypeVar("_T")

A = TopicPartition("t", 0)


class CoordinatorsCluster(FakeCluster):
    """Each coordinator lookup finds the next broker."""

    def __init__(self, *, reached: bool = True, topic_is_missing: bool = False) -> None:
        super().__init__(
            ConnectionSettings((("b", 1),), request_timeout_ms=10_000, retry_backoff_ms=1, retry_backoff_max_ms=2)
        )
        if not reached:
            self._snapshot = MetadataSnapshot()
        self.topic_is_missing = topic_is_missing
        self.lookups: list[Mapping[str, Any]] = []
        self.codes: list[int] = []
        self.connected: list[str] = []
        self.timeouts: list[float] = []
        self.acquired = 0
        self.refreshes: list[Iterable[str]] = []

    def topics(
        self, names: Iterable[str], *, deadline: Deadline | None = None, retry: Retry | None = None
    ) -> dict[str, TopicMetadata]:
        self.refreshes.append(names)
        return {}

    def confirm_missing(
        self, suspects: Mapping[TopicPartition, UUID | None], *, deadline: Deadline | None = None
    ) -> set[TopicPartition]:
        return set(suspects) if self.topic_is_missing else set()

    def refresh_brokers(self, *, deadline: Deadline | None = None) -> None:
        self.refreshes.append(())

    def call_any_broker(self, call: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        return call(cast("Connection", SimpleNamespace(broker="any:1", call=self._find)), deadline)

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        self.acquired += 1
        self.connected.append(node.host)
        self.timeouts.append(round(deadline.remaining()))
        return cast("Connection", SimpleNamespace(broker=str(node)))

    def release(self, connection: Connection) -> None:
        self.acquired -= 1

    def _find(self, api: ApiMessageType, values: Mapping[str, Any], deadline: Deadline) -> Any:
        assert api.name == "FindCoordinator"
        self.lookups.append(values)
        code = self.codes.pop(0) if self.codes else 0
        number = len(self.lookups)
        return SimpleNamespace(error_code=code, node_id=number, host=f"c{number}", port=9092)


def scripted(*outcomes: int | KafkaDirectError) -> Callable[[Connection, Deadline], str]:
    """Return a request with these codes and errors as outcomes one after the other, and then success."""
    remaining = list(outcomes)

    def call(connection: Connection, deadline: Deadline) -> str:
        outcome = remaining.pop(0) if remaining else 0
        if isinstance(outcome, KafkaDirectError):
            raise outcome
        raise_for_error_code(outcome, "testing", connection.broker, A)
        return f"response of {connection.broker}"

    return call


@pytest.mark.parametrize(("kind", "key_type"), [("group", 0), ("transaction", 1)])
def test_coordinator_is_looked_up_once_by_key(kind: CoordinatorType, key_type: int) -> None:
    cluster = CoordinatorsCluster()
    coordinator = CoordinatorClient(cluster, kind, "mine")
    assert [coordinator.call(scripted(), {"t"}) for _ in range(3)] == ["response of c1:9092"] * 3
    assert cluster.lookups == [{"key": "mine", "key_type": key_type}]
    assert cluster.connected == ["c1"] * 3
    assert cluster.acquired == 0
    assert cluster.refreshes == []


@pytest.mark.parametrize(
    "outcome",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        BrokerUnreachableError("broke"),
        BrokerTimeoutError("no response"),
    ],
    ids=str,
)
def test_coordinator_is_looked_up_again_after_errors(outcome: int | KafkaDirectError) -> None:
    cluster = CoordinatorsCluster()
    assert CoordinatorClient(cluster, "group", "g").call(scripted(outcome), {"t"}) == "response of c2:9092"
    assert cluster.connected == ["c1", "c2"]
    assert cluster.acquired == 0


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS], ids=str)
def test_loading_coordinator_is_retried_soon(code: int) -> None:
    cluster, system = CoordinatorsCluster(), FakeTimeSystem()
    cluster.settings = replace(cluster.settings, retry_backoff_ms=50, retry_backoff_max_ms=300)
    coordinator = CoordinatorClient(cluster, "transaction", "id")
    response = coordinator.call(scripted(*[code] * 5), {"t"}, Deadline.after(60, system=system))
    assert response == "response of c1:9092"
    assert cluster.connected == ["c1"] * 6
    assert system.slept == pytest.approx([0.01, 0.02, 0.04, 0.05, 0.05])
    with pytest.raises(BrokerError, match=f"{ErrorCode(code).name} while testing"):
        coordinator.call(scripted(*[code] * 10_000), {"t"}, Deadline.after(1, system=system))


def test_unavailable_coordinator_is_looked_up_again() -> None:
    cluster = CoordinatorsCluster()
    cluster.codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert CoordinatorClient(cluster, "group", "g").call(scripted(), {"t"}) == "response of c3:9092"


def test_fatal_lookup_error_names_the_key() -> None:
    cluster = CoordinatorsCluster()
    cluster.codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(AuthorizationError, match="finding the coordinator of the group 'g'") as caught:
        CoordinatorClient(cluster, "group", "g").call(scripted(), {"t"})
    assert caught.value.broker == "any:1"


def test_fatal_error_is_not_retried() -> None:
    cluster = CoordinatorsCluster()
    with pytest.raises(AuthorizationError) as caught:
        CoordinatorClient(cluster, "group", "g").call(scripted(ErrorCode.TOPIC_AUTHORIZATION_FAILED), {"t"})
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == (*A, "c1:9092")
    assert cluster.connected == ["c1"]
    assert cluster.acquired == 0


def test_retriable_error_raises_at_the_deadline() -> None:
    call = scripted(*[ErrorCode.NOT_COORDINATOR] * 10_000)
    with pytest.raises(BrokerError, match="NOT_COORDINATOR while testing"):
        CoordinatorClient(CoordinatorsCluster(), "group", "g").call(call, {"t"}, Deadline.after(0.1))


def test_broken_connections_raise_at_the_deadline() -> None:
    cluster, system = CoordinatorsCluster(), FakeTimeSystem()
    errors = [BrokerUnreachableError("broke") for _ in range(100)]
    with pytest.raises(BrokerUnreachableError, match="broke"):
        CoordinatorClient(cluster, "group", "g").call(scripted(*errors), {"t"}, Deadline.after(0.1, system=system))
    assert len(cluster.connected) < 60


@pytest.mark.parametrize("outcome", [ErrorCode.NOT_COORDINATOR, BrokerUnreachableError("broke")], ids=str)
def test_pauses_between_tries_follow_the_settings(outcome: int | KafkaDirectError) -> None:
    cluster, system = CoordinatorsCluster(), FakeTimeSystem()
    cluster.settings = replace(cluster.settings, retry_backoff_ms=100, retry_backoff_max_ms=300)
    CoordinatorClient(cluster, "group", "g").call(scripted(*[outcome] * 4), {"t"}, Deadline.after(60, system=system))
    assert system.slept == [0.1, 0.2, 0.3, 0.3]


def test_an_unknown_topic_raises_only_if_several_brokers_confirm_it() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = CoordinatorsCluster(topic_is_missing=True)
    with pytest.raises(TopicNotFoundError):
        CoordinatorClient(missing, "group", "g").call(scripted(unknown), {"t"})
    assert len(missing.connected) == 1
    lagging = scripted(*[unknown] * 9)
    assert CoordinatorClient(CoordinatorsCluster(), "group", "g").call(lagging, {"t"}) == "response of c10:9092"


def test_a_short_timeout_does_not_hide_that_the_topic_of_a_commit_is_missing() -> None:
    tp = TopicPartition("flights", 0)
    with UnitCluster({tp.topic: 1}, brokers=2, connection={"default_api_timeout_ms": 1000}) as cluster:
        group = ConsumerGroup(cluster.client(), "g")
        group.commit({tp: 0})
        cluster.event("delete_topic", topic=tp.topic)
        with pytest.raises(TopicNotFoundError):
            group.commit({tp: 0})


def test_unreached_cluster_is_first_asked_for_topics() -> None:
    cluster = CoordinatorsCluster(reached=False)
    CoordinatorClient(cluster, "transaction", "id").call(scripted(), {"t"})
    assert cluster.refreshes == [{"t"}]


def test_unreached_cluster_is_first_asked_for_brokers() -> None:
    cluster = CoordinatorsCluster(reached=False)
    CoordinatorClient(cluster, "transaction", "id").call(scripted(), ())
    assert cluster.refreshes == [()]


def test_another_thread_may_reset_the_coordinator() -> None:
    """A direct stream plans on one thread and commits on another, both for its group."""

    class ResettingCluster(CoordinatorsCluster):
        def __getattribute__(self, name: str) -> Any:
            if name == "settings" and self.lookups:  # the coordinator was found, but the connection not acquired yet
                coordinator._node = None
            return super().__getattribute__(name)

    cluster = ResettingCluster()
    coordinator = CoordinatorClient(cluster, "group", "g")
    assert coordinator.call(scripted(), {"t"}) == "response of c1:9092"
    assert coordinator.call(scripted(), {"t"}) == "response of c2:9092"


def test_the_first_tries_are_short() -> None:
    cluster = CoordinatorsCluster()
    CoordinatorClient(cluster, "group", "g").call(scripted(*[ErrorCode.NOT_COORDINATOR] * 3), {"t"}, Deadline.after(60))
    assert cluster.timeouts == [1, 2, 4, 8]


def test_retriable_codes_raise_retriable_error() -> None:
    raise_for_error_code(ErrorCode.NONE, "testing", "b:1")
    with pytest.raises(RetriableCoordinatorError, match="NOT_COORDINATOR while testing") as caught:
        raise_for_error_code(ErrorCode.NOT_COORDINATOR, "testing", "b:1", A)
    assert (caught.value.error.broker, caught.value.error.topic) == ("b:1", "t")
    with pytest.raises(AuthorizationError):
        raise_for_error_code(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "testing", "b:1")
