"""The driver's part of exactly-once delivery: what it asks the cluster, in which order, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.continuous.test_logs import Disk
from tests.unit.writing.coordinators import Coordinated

from pyspark_kafka_direct.continuous import _transactions
from pyspark_kafka_direct.continuous._group_offsets import BEFORE_ALL, Note, Noted, read_note, reset_token
from pyspark_kafka_direct.continuous._log_format import Entry, format_offsets
from pyspark_kafka_direct.continuous._log_state import LogState
from pyspark_kafka_direct.continuous._takeovers import Takeovers
from pyspark_kafka_direct.continuous._transactional_sink import TransactionalSinkFactory
from pyspark_kafka_direct.continuous._transactions import TransactionalDelivery
from pyspark_kafka_direct.errors import CheckpointTakenError, DeliveryRefusedError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.sink import parse_sink_options
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.groups import CommittedOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

A0, A1, GONE = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("gone", 0)
ID = UUID(int=5)
BOTH_TASKS = [("InitProducerId", "p.cont.0", 60_000), ("InitProducerId", "p.cont.1", 60_000)]


class World:
    """A cluster that is written to, perhaps another one that is read, and a checkpoint."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.cluster = Coordinated()
        self.cluster.ids = {"a": ID}
        self.other = Coordinated()
        self.disk = Disk()
        clusters = {"b": self.cluster, "o": self.other}
        patch.setattr(_transactions, "Cluster", lambda settings: clusters[settings.bootstrap_servers[0][0]])

    def options(self, servers: str = "b:1", **more: str) -> Any:
        given = {
            "kafka.bootstrap.servers": servers,
            "topic": "out",
            "delivery": "exactly-once",
            "transactionalIdPrefix": "p",
            "kafka.transaction.timeout.ms": "60000",
        }
        return parse_sink_options(given | more, streaming=True)

    def delivery(self, source: str = "", longest_epoch: float = 10, **more: str) -> TransactionalDelivery:
        connection = self.options(source).connection if source else None
        return TransactionalDelivery(self.options(**more), connection, self.disk, longest_epoch)

    def note(self, tp: TopicPartition, offset: int, epoch: int, query: str = "q") -> None:
        self.cluster.noted[tp] = CommittedOffset(offset, Note(query, epoch, ID).to_json())

    def token(self, query: str) -> str:
        """What a user is told to set ``resetDelivery`` to."""
        found = {tp: Noted(each.offset, read_note(each.metadata)) for tp, each in self.cluster.noted.items()}
        return reset_token(found, query)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def producers(delivery: TransactionalDelivery) -> tuple[ProducerId, ...]:
    sink = delivery.sink()
    assert isinstance(sink, TransactionalSinkFactory)
    return sink.producers


def test_ids_are_taken_over_before_offsets_are_read(world: World) -> None:
    delivery = world.delivery()
    delivery.prepare("q", [A0, A1], 2)
    assert world.cluster.taken() == [
        ("DescribeConfigs", "1"),
        ("OffsetFetch", "p.cont", None, False),
        *BOTH_TASKS,
        ("OffsetFetch", "p.cont", None, True),
        ("OffsetFetch", "p.cont", [("a", 0), ("a", 1)], True),
    ]
    sink = delivery.sink()
    assert isinstance(sink, TransactionalSinkFactory)
    assert (sink.query_id, sink.producers, sink.topic_ids) == ("q", (ProducerId(7, 3), ProducerId(8, 3)), {"a": ID})
    assert delivery.shares_numbers is True


def test_a_run_of_fewer_tasks_takes_all_ids_over_and_uses_its_own(world: World) -> None:
    world.delivery().prepare("q", [A0], 2)
    world.cluster.taken()
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert world.cluster.named("InitProducerId") == BOTH_TASKS
    assert producers(delivery) == (ProducerId(7, 4),)


def test_what_never_changes_is_asked_once(world: World) -> None:
    delivery = world.delivery("b:1")
    for _ in range(2):
        delivery.prepare("q", [A0], 1)
    assert len(world.cluster.named("DescribeConfigs")) == 1


@pytest.mark.parametrize(("longest", "refused"), [(59.99, False), (60, True), (61, True)])
def test_a_transaction_must_be_allowed_to_last_longer_than_an_epoch(
    world: World, longest: float, refused: bool
) -> None:
    if not refused:
        world.delivery(longest_epoch=longest)
        return
    with pytest.raises(OptionError, match=rf"timeout\.ms is 60000, and a transaction may be open for {longest:g} s"):
        world.delivery(longest_epoch=longest)


def test_brokers_must_allow_transactions_to_last_so_long(world: World) -> None:
    world.cluster.configs = {"transaction.max.timeout.ms": "59999"}
    with pytest.raises(OptionError, match="the brokers allow 59999 at most"):
        world.delivery().prepare("q", [A0], 1)
    assert not world.cluster.named("InitProducerId")


def test_one_cluster_is_read_and_written_to(world: World) -> None:
    world.other.cluster_id = "not asked yet"
    world.other.reach = lambda **_: setattr(world.other, "cluster_id", "d")  # type: ignore[method-assign]
    with pytest.raises(OptionError, match="this query reads d and writes to c"):
        world.delivery("o:1").prepare("q", [A0], 1)
    assert not world.cluster.named("InitProducerId")
    world.other.reach = lambda **_: setattr(world.other, "cluster_id", "c")  # type: ignore[method-assign]
    world.delivery("o:1").prepare("q", [A0], 1)


def test_the_prefix_of_another_query_is_refused_before_it_is_fenced(world: World) -> None:
    world.note(A0, 5, 3, query="theirs")
    with pytest.raises(DeliveryRefusedError, match="offset 5 of a-0, which epoch 3 of query theirs has committed"):
        world.delivery().prepare("q", [A0], 1)
    with pytest.raises(DeliveryRefusedError):
        world.delivery(resetDelivery="1" * 8).prepare("q", [A0], 1)
    assert not world.cluster.named("InitProducerId")
    assert world.disk.there == {}


@pytest.mark.parametrize("level", [1, 2])
def test_the_prefix_of_another_query_can_be_had(world: World, level: int) -> None:
    world.cluster.level = level
    world.note(A0, 5, 3, query="theirs")
    world.note(GONE, 6, 3, query="theirs")
    world.note(A1, 7, 2)
    others = {tp: each for tp, each in world.cluster.noted.items() if tp != A1}
    token = reset_token({tp: Noted(each.offset, Note("theirs", 3, ID)) for tp, each in others.items()}, "q")
    delivery = world.delivery(resetDelivery=token)
    delivery.prepare("q", [A0, A1], 2)
    assert world.cluster.noted == {
        A0: CommittedOffset(5, Note("q", BEFORE_ALL, ID).to_json()),
        A1: CommittedOffset(7, Note("q", 2, ID).to_json()),
        GONE: others[GONE],
    }
    assert world.cluster.named("EndTxn") == [("EndTxn", ("p.cont.0", 7, 3), "commit")]
    assert producers(delivery) == (ProducerId(7, 3 if level < 2 else 4), ProducerId(8, 3))
    assert delivery.reached(LogState()) == {A1: 7}, "what others have read counts for nothing"


def test_the_prefix_cannot_be_had_by_a_run_without_tasks(world: World) -> None:
    world.note(A0, 5, 3, query="theirs")
    with pytest.raises(DeliveryRefusedError, match="query theirs"):
        world.delivery(resetDelivery=world.token("q")).prepare("q", [], 0)
    assert world.cluster.noted[A0].offset == 5


def test_who_comes_meanwhile_is_refused_too(world: World) -> None:
    """Noted in a transaction that was open at the first look."""
    answer = world.cluster.answer

    def late(api: Any, values: Mapping[str, Any]) -> Any:
        if api.name == "InitProducerId":
            world.note(A0, 5, 3, query="theirs")
        return answer(api, values)

    world.cluster.answer = late  # type: ignore[method-assign]
    with pytest.raises(DeliveryRefusedError, match="query theirs"):
        world.delivery().prepare("q", [A0], 1)


def test_where_transactions_got_to_counts_beyond_the_logs(world: World) -> None:
    world.note(A0, 50, 4)
    world.note(A1, 60, 3)
    world.disk.there["offsets/3"] = format_offsets(Entry({A0: 40, A1: 60}))
    delivery = world.delivery()
    delivery.prepare("q", [A0, A1], 1)
    assert delivery.reached(LogState()) == {A0: 50, A1: 60}
    assert delivery.reached(LogState(committed=3)) == {A0: 50}


def test_logs_of_another_past_are_refused(world: World) -> None:
    world.note(A0, 50, 3)
    world.disk.there["offsets/3"] = format_offsets(Entry({A0: 40}))
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    with pytest.raises(DeliveryRefusedError, match="offset 50 of a-0"):
        delivery.reached(LogState(committed=3))


def test_a_broker_that_does_not_know_all_topics_yet_is_not_believed_at_once(world: World) -> None:
    world.note(GONE, 6, 3)
    answers = iter([{}, {"a": ID}, {"a": ID, "gone": ID}])
    cluster, topics = world.cluster, world.cluster.topics

    def look(names: Any, **more: Any) -> dict[str, Any]:
        cluster.ids = next(answers)
        return topics(names, **more)

    cluster.topics = look  # type: ignore[method-assign]
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert delivery.reached(LogState()) == {GONE: 6}
    assert (cluster.others_asked, cluster.world.slept) == (2, [1.0, 1.0])


def test_a_topic_that_three_looks_do_not_find_is_gone(world: World) -> None:
    world.note(GONE, 6, 3)
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    assert delivery.reached(LogState()) == {}
    assert len(world.cluster.world.slept) == 2


def test_topics_that_are_there_are_looked_up_once(world: World) -> None:
    world.delivery().prepare("q", [A0], 1)
    assert world.cluster.asked == ["a"]
    assert world.cluster.world.slept == []


def test_a_driver_whose_successor_came_meanwhile_ends(world: World) -> None:
    delivery = world.delivery()
    answer = world.cluster.answer

    def late(api: Any, values: Mapping[str, Any]) -> Any:
        if api.name == "InitProducerId":
            Takeovers(world.disk, "successor").begin("c", "p", 1)
        return answer(api, values)

    world.cluster.answer = late  # type: ignore[method-assign]
    with pytest.raises(CheckpointTakenError):
        delivery.prepare("q", [A0], 1)


def test_another_prefix_once_the_logs_say_all(world: World) -> None:
    delivery = world.delivery()
    delivery.prepare("q", [A0], 1)
    with pytest.raises(OptionError, match="transactionalIdPrefix"):
        world.delivery(transactionalIdPrefix="r").prepare("q", [A0], 1)
    delivery.settled()
    world.delivery(transactionalIdPrefix="r").prepare("q", [A0], 1)
    assert world.cluster.named("InitProducerId")[-1][1] == "r.cont.0"
