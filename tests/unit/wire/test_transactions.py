"""What a coordinator's answers mean for a transaction, above all for its end: against a made-up coordinator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    BrokerUnreachableError,
    FencedError,
    KafkaDirectError,
    OutcomeUnknownError,
    ProtocolError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.metadata import Node
from pyspark_kafka_direct.wire.transactions import Transactions, check_release

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.messages import Api

_T = TypeVar("_T")

ME = ProducerId(7, 3)
NEXT = ProducerId(7, 4)
NEWEST = {22: (0, 5), 24: (0, 5), 26: (0, 5)}

Outcome = int | KafkaDirectError | ProducerId


class Cluster:
    """One coordinator, which answers EndTxn by a script, and then well; a minute passes quickly."""

    def __init__(self, *outcomes: Outcome, level: int = 2) -> None:
        self.settings = ConnectionSettings((("b", 1),), retry_backoff_ms=100, retry_backoff_max_ms=1000)
        self.nodes: Mapping[int, Node] = {1: Node(1, "b", 1)}
        self.outcomes = list(outcomes)
        self.asked: list[tuple[str, int, Mapping[str, Any]]] = []
        self.added: dict[str, dict[int, int]] = {}
        self.level = level
        self.closed = False
        self._system = Frozen()

    def deadline(self) -> Deadline:
        return Deadline.after(60, system=self._system)

    def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> dict[str, Any]:
        return {}

    def reach(self, *, deadline: Deadline | None = None) -> None: ...

    def ask_any(self, ask: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        return ask(self.connect(self.nodes[1], deadline), deadline)

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        connection = SimpleNamespace(
            broker="b:1", api_versions=NEWEST, call=self._call, features=self._features, close=self._close
        )
        return cast("Connection", connection)

    def give_back(self, connection: Connection) -> None: ...

    def _close(self) -> None:
        self.closed = True

    def _features(self, deadline: Deadline) -> dict[str, int]:
        return {"transaction.version": self.level} if self.level else {}

    def _call(self, api: Api, values: Mapping[str, Any], deadline: Deadline) -> Any:
        self.asked.append((api.name, api.versions.highest, values))
        if api.name == "FindCoordinator":
            return SimpleNamespace(error_code=0, node_id=1, host="b", port=1)
        if api.name == "InitProducerId":
            return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=3)
        if api.name == "AddPartitionsToTxn":
            topics = [
                SimpleNamespace(
                    name=topic,
                    results_by_partition=[
                        SimpleNamespace(partition_index=number, partition_error_code=code)
                        for number, code in codes.items()
                    ],
                )
                for topic, codes in self.added.items()
            ]
            return SimpleNamespace(results_by_topic_v3_and_below=topics)
        outcome = self.outcomes.pop(0) if self.outcomes else NEXT
        if isinstance(outcome, KafkaDirectError):
            raise outcome
        if isinstance(outcome, ProducerId):
            return SimpleNamespace(error_code=0, producer_id=outcome.id, producer_epoch=outcome.epoch)
        return SimpleNamespace(error_code=outcome, producer_id=-1, producer_epoch=-1)

    @property
    def ends(self) -> list[tuple[int, Mapping[str, Any]]]:
        return [(highest, values) for name, highest, values in self.asked if name == "EndTxn"]


def end(cluster: Cluster, *, bumps_epochs: bool = True, commit: bool = True) -> ProducerId:
    return Transactions(cluster, "p.sink").end(ME, commit=commit, bumps_epochs=bumps_epochs)


def lost() -> BrokerUnreachableError:
    return BrokerUnreachableError("The connection broke.", broker="b:1")


def test_the_end_names_the_writer_and_answers_who_writes_next() -> None:
    cluster = Cluster()
    assert end(cluster) == NEXT
    wanted = {"transactional_id": "p.sink", "producer_id": 7, "producer_epoch": 3, "committed": True}
    assert cluster.ends == [(5, wanted)]


def test_another_producer_id_is_adopted() -> None:
    """Epochs have run out."""
    assert end(Cluster(ProducerId(8, 0))) == ProducerId(8, 0)
    assert end(Cluster(ProducerId(0, 0))) == ProducerId(0, 0), "a cluster's first one"


def test_below_the_feature_version_4_is_the_newest_and_the_writer_stays() -> None:
    cluster = Cluster(ProducerId(-1, -1))
    assert end(cluster, bumps_epochs=False, commit=False) == ME
    assert [(highest, values["committed"]) for highest, values in cluster.ends] == [(4, False)]


@pytest.mark.parametrize(
    "outcome",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        lost(),
    ],
    ids=str,
)
def test_what_passes_is_asked_again(outcome: Outcome) -> None:
    cluster = Cluster(outcome, outcome)
    assert end(cluster) == NEXT
    assert len(cluster.ends) == 3
    assert cluster.ends[0] == cluster.ends[2]


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
)
def test_a_writer_that_was_overtaken_is_fenced(code: int) -> None:
    with pytest.raises(FencedError, match=r"committing a transaction of 'p\.sink'"):
        end(Cluster(code))
    with pytest.raises(FencedError):  # after an answer that says that nothing was done
        end(Cluster(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, code))


@pytest.mark.parametrize("unclear", [lost(), ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR], ids=str)
def test_fenced_after_a_try_that_may_have_been_heard_is_said_so(unclear: Outcome) -> None:
    """It may have been committed before; but whoever was fenced is not to go on."""
    with pytest.raises(FencedError, match=r"was not confirmed .*Another writer has taken over"):
        end(Cluster(unclear, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED))


def test_an_end_that_the_broker_refuses_did_not_happen() -> None:
    with pytest.raises(BrokerError, match="INVALID_TXN_STATE") as caught:
        end(Cluster(ErrorCode.INVALID_TXN_STATE))
    assert not isinstance(caught.value, OutcomeUnknownError)


@pytest.mark.parametrize("unclear", [lost(), ErrorCode.COORDINATOR_NOT_AVAILABLE], ids=str)
def test_an_end_refused_after_a_try_that_may_have_been_heard_is_unknown(unclear: Outcome) -> None:
    with pytest.raises(OutcomeUnknownError, match="INVALID_TXN_STATE"):
        end(Cluster(unclear, ErrorCode.INVALID_TXN_STATE))


@pytest.mark.parametrize(
    "outcome",
    [lost(), ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR],
    ids=str,
)
def test_an_end_that_is_never_confirmed_is_unknown(outcome: Outcome) -> None:
    with pytest.raises(OutcomeUnknownError, match=r"^Committing a transaction of 'p\.sink' was not confirmed"):
        end(Cluster(*[outcome] * 10_000))


def test_the_answer_that_leaves_it_unknown_is_told() -> None:
    wanted = r"was not confirmed \(the coordinator answered UNKNOWN_SERVER_ERROR; then: .*UNKNOWN_SERVER_ERROR"
    with pytest.raises(OutcomeUnknownError, match=wanted):
        end(Cluster(ErrorCode.UNKNOWN_SERVER_ERROR))
    with pytest.raises(OutcomeUnknownError, match=r"was not confirmed \(no answer came; then: .*garbage"):
        end(Cluster(ProtocolError("garbage")))


def test_an_answer_that_cannot_be_read_leaves_it_unknown() -> None:
    with pytest.raises(OutcomeUnknownError):
        end(Cluster(ProtocolError("garbage")))


@pytest.mark.parametrize("code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], ids=str)
def test_an_end_that_is_never_begun_did_not_happen(code: int) -> None:
    with pytest.raises(BrokerError, match=ErrorCode(code).name) as caught:
        end(Cluster(*[code] * 10_000))
    assert not isinstance(caught.value, OutcomeUnknownError)


@pytest.mark.parametrize(("level", "bumps"), [(0, False), (1, False), (2, True), (3, True)])
def test_the_feature_is_asked_for_whenever_the_id_is_taken_over(level: int, bumps: bool) -> None:
    cluster = Cluster(level=0)
    transactions = Transactions(cluster, "p.sink")
    assert not transactions.init(1000).bumps_epochs
    cluster.level = level  # an administrator raises it
    started = transactions.init(1000)
    assert started.producer == ME
    assert started.bumps_epochs is bumps
    assert cluster.asked[-1][2] == {"transactional_id": "p.sink", "transaction_timeout_ms": 1000}


def add(cluster: Cluster, *partitions: tuple[str, int]) -> None:
    Transactions(cluster, "p.sink").add(ME, [TopicPartition(*each) for each in partitions])


def test_partitions_are_added_by_topic() -> None:
    cluster = Cluster()
    cluster.added = {"t": {0: 0, 1: 0}, "u": {0: 0}}
    add(cluster, ("t", 0), ("u", 0), ("t", 1))
    wanted = cluster.asked[-1][2]["v3_and_below_topics"]
    assert wanted == [{"name": "t", "partitions": [0, 1]}, {"name": "u", "partitions": [0]}]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.PRODUCER_FENCED, FencedError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicNotFoundError),
    ],
)
def test_the_partition_that_fails_is_named_and_not_the_others(code: int, kind: type[KafkaDirectError]) -> None:
    cluster = Cluster()
    cluster.added = {"t": {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 1: code}}
    with pytest.raises(kind, match="adding a partition") as caught:
        add(cluster, ("t", 0), ("t", 1))
    assert (caught.value.topic, caught.value.partition) == ("t", 1)


def test_an_answer_that_lacks_a_partition_is_an_error() -> None:
    cluster = Cluster()
    cluster.added = {"t": {0: 0}}
    with pytest.raises(ProtocolError, match="lacks a partition"):
        add(cluster, ("t", 0), ("t", 1))
    assert cluster.closed


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({22: (0, 5), 24: (0, 5)}, None),
        ({22: (0, 4), 24: (0, 4)}, None),
        ({22: (0, 4), 24: (0, 3)}, "older than Kafka 3.6"),
        ({22: (0, 3), 24: (0, 1)}, "older than Kafka 3.6"),
    ],
)
def test_old_brokers_are_warned_of(versions: dict[int, tuple[int, int]], told: str | None) -> None:
    found = check_release(cast("Connection", SimpleNamespace(broker="b:1", api_versions=versions)))
    assert (found is None) == (told is None)
    assert told is None or told in str(found)


@pytest.mark.parametrize("versions", [{22: (0, 2), 24: (0, 1)}, {}])
def test_brokers_before_2_5_are_refused(versions: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(UnsupportedBrokerError, match=r"needs Kafka 2\.5"):
        check_release(cast("Connection", SimpleNamespace(broker="b:1", api_versions=versions)))
