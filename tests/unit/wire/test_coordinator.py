"""The coordinator of a key is looked for, asked, and looked for again: against made-up brokers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    KafkaDirectError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.coordinator import Coordinator, Kind, TryAgain, check
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.metadata import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.messages import Api

_T = TypeVar("_T")

A = TopicPartition("t", 0)


class Cluster:
    """Each look for the coordinator finds the next broker."""

    def __init__(self, *, reached: bool = True) -> None:
        self.settings = ConnectionSettings(
            (("b", 1),), request_timeout_ms=10_000, retry_backoff_ms=1, retry_backoff_max_ms=2
        )
        self.nodes: Mapping[int, Node] = {1: Node(1, "b1", 9092)} if reached else {}
        self.wanted: list[Mapping[str, Any]] = []
        self.codes: list[int] = []
        self.connected: list[str] = []
        self.patience: list[float] = []
        self.lent = 0
        self.asked_for: list[Collection[str]] = []

    def deadline(self) -> Deadline:
        return Deadline.after(60)

    def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> dict[str, Any]:
        self.asked_for.append(names)
        return {}

    def reach(self, *, deadline: Deadline | None = None) -> None:
        self.asked_for.append(())

    def ask_any(self, ask: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        return ask(cast("Connection", SimpleNamespace(broker="any:1", call=self._find)), deadline)

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        self.lent += 1
        self.connected.append(node.host)
        self.patience.append(round(deadline.remaining()))
        return cast("Connection", SimpleNamespace(broker=str(node)))

    def give_back(self, connection: Connection) -> None:
        self.lent -= 1

    def _find(self, api: Api, values: Mapping[str, Any], deadline: Deadline) -> Any:
        assert api.name == "FindCoordinator"
        self.wanted.append(values)
        code = self.codes.pop(0) if self.codes else 0
        number = len(self.wanted)
        return SimpleNamespace(error_code=code, node_id=number, host=f"c{number}", port=9092)


def answering(*outcomes: int | KafkaDirectError) -> Callable[[Connection, Deadline], str]:
    """A question that ends in these codes and errors one after the other, and then well."""
    left = list(outcomes)

    def ask(connection: Connection, deadline: Deadline) -> str:
        outcome = left.pop(0) if left else 0
        if isinstance(outcome, KafkaDirectError):
            raise outcome
        check(outcome, "asking", connection.broker, A)
        return f"answer of {connection.broker}"

    return ask


@pytest.mark.parametrize(("kind", "key_type"), [("group", 0), ("transaction", 1)])
def test_it_is_looked_for_once_by_its_key(kind: Kind, key_type: int) -> None:
    cluster = Cluster()
    coordinator = Coordinator(cluster, kind, "mine")
    assert [coordinator.ask(answering(), {"t"}) for _ in range(3)] == ["answer of c1:9092"] * 3
    assert cluster.wanted == [{"key": "mine", "key_type": key_type}]
    assert cluster.connected == ["c1"] * 3
    assert cluster.lent == 0
    assert cluster.asked_for == []


@pytest.mark.parametrize(
    "outcome",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        BrokerUnreachableError("broke"),
        BrokerTimeoutError("silent"),
    ],
    ids=str,
)
def test_after_trouble_it_is_looked_for_again(outcome: int | KafkaDirectError) -> None:
    cluster = Cluster()
    assert Coordinator(cluster, "group", "g").ask(answering(outcome), {"t"}) == "answer of c2:9092"
    assert cluster.connected == ["c1", "c2"]
    assert cluster.lent == 0


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS], ids=str)
def test_one_that_needs_a_moment_is_asked_again_soon(code: int) -> None:
    cluster, world = Cluster(), Frozen()
    cluster.settings = replace(cluster.settings, retry_backoff_ms=50, retry_backoff_max_ms=300)
    coordinator = Coordinator(cluster, "transaction", "id")
    asked = coordinator.ask(answering(*[code] * 5), {"t"}, Deadline.after(60, system=world))
    assert asked == "answer of c1:9092"
    assert cluster.connected == ["c1"] * 6
    assert world.slept == pytest.approx([0.01, 0.02, 0.04, 0.05, 0.05])
    with pytest.raises(BrokerError, match=f"{ErrorCode(code).name} while asking"):
        coordinator.ask(answering(*[code] * 10_000), {"t"}, Deadline.after(1, system=world))


def test_one_that_is_not_found_yet_is_looked_for_again() -> None:
    cluster = Cluster()
    cluster.codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert Coordinator(cluster, "group", "g").ask(answering(), {"t"}) == "answer of c3:9092"


def test_a_lasting_refusal_to_name_it_is_an_error_that_names_the_key() -> None:
    cluster = Cluster()
    cluster.codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(AuthorizationError, match="looking for the coordinator of the group 'g'") as caught:
        Coordinator(cluster, "group", "g").ask(answering(), {"t"})
    assert caught.value.broker == "any:1"


def test_a_lasting_error_is_not_asked_twice() -> None:
    cluster = Cluster()
    with pytest.raises(AuthorizationError) as caught:
        Coordinator(cluster, "group", "g").ask(answering(ErrorCode.TOPIC_AUTHORIZATION_FAILED), {"t"})
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == (*A, "c1:9092")
    assert cluster.connected == ["c1"]
    assert cluster.lent == 0


def test_trouble_that_lasts_is_the_error_when_time_is_up() -> None:
    ask = answering(*[ErrorCode.NOT_COORDINATOR] * 10_000)
    with pytest.raises(BrokerError, match="NOT_COORDINATOR while asking"):
        Coordinator(Cluster(), "group", "g").ask(ask, {"t"}, Deadline.after(0.1))


def test_a_connection_that_breaks_again_and_again_is_the_error_when_time_is_up() -> None:
    cluster, world = Cluster(), Frozen()
    broken = [BrokerUnreachableError("broke") for _ in range(100)]
    with pytest.raises(BrokerUnreachableError, match="broke"):
        Coordinator(cluster, "group", "g").ask(answering(*broken), {"t"}, Deadline.after(0.1, system=world))
    assert len(cluster.connected) < 60


@pytest.mark.parametrize("outcome", [ErrorCode.NOT_COORDINATOR, BrokerUnreachableError("broke")], ids=str)
def test_pauses_between_tries_grow_as_the_settings_say(outcome: int | KafkaDirectError) -> None:
    cluster, world = Cluster(), Frozen()
    cluster.settings = replace(cluster.settings, retry_backoff_ms=100, retry_backoff_max_ms=300)
    Coordinator(cluster, "group", "g").ask(answering(*[outcome] * 4), {"t"}, Deadline.after(60, system=world))
    assert world.slept == [0.1, 0.2, 0.3, 0.3]


def test_a_partition_that_is_denied_five_times_in_a_row_is_not_there() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster = Cluster()
    with pytest.raises(TopicNotFoundError):
        Coordinator(cluster, "group", "g").ask(answering(*[unknown] * 5), {"t"})
    assert len(cluster.connected) == 5
    interrupted = answering(*[unknown] * 4, ErrorCode.NOT_COORDINATOR, *[unknown] * 4)
    assert Coordinator(Cluster(), "group", "g").ask(interrupted, {"t"}) == "answer of c10:9092"
    cluster = Cluster()
    with pytest.raises(TopicNotFoundError):
        Coordinator(cluster, "group", "g").ask(answering(ErrorCode.NOT_COORDINATOR, *[unknown] * 5), {"t"})
    assert len(cluster.connected) == 6


def test_a_cluster_that_was_never_reached_is_first_asked_for_the_topics() -> None:
    cluster = Cluster(reached=False)
    Coordinator(cluster, "transaction", "id").ask(answering(), {"t"})
    assert cluster.asked_for == [{"t"}]


def test_where_no_topic_is_asked_about_a_cluster_is_reached_first_all_the_same() -> None:
    cluster = Cluster(reached=False)
    Coordinator(cluster, "transaction", "id").ask(answering(), ())
    assert cluster.asked_for == [()]


def test_another_thread_may_give_it_up_meanwhile() -> None:
    """A direct stream plans on one thread and commits on another, both for its group."""

    class Busy(Cluster):
        def __getattribute__(self, name: str) -> Any:
            if name == "settings" and self.wanted:  # the coordinator is found, and not yet connected with
                coordinator._node = None
            return super().__getattribute__(name)

    cluster = Busy()
    coordinator = Coordinator(cluster, "group", "g")
    assert coordinator.ask(answering(), {"t"}) == "answer of c1:9092"
    assert coordinator.ask(answering(), {"t"}) == "answer of c2:9092"


def test_the_first_tries_are_short() -> None:
    cluster = Cluster()
    Coordinator(cluster, "group", "g").ask(answering(*[ErrorCode.NOT_COORDINATOR] * 3), {"t"}, Deadline.after(60))
    assert cluster.patience == [1, 2, 4, 8]


def test_codes_that_pass_ask_for_another_try() -> None:
    check(ErrorCode.NONE, "asking", "b:1")
    with pytest.raises(TryAgain, match="NOT_COORDINATOR while asking") as caught:
        check(ErrorCode.NOT_COORDINATOR, "asking", "b:1", A)
    assert (caught.value.error.broker, caught.value.error.topic) == ("b:1", "t")
    with pytest.raises(AuthorizationError):
        check(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "asking", "b:1")
