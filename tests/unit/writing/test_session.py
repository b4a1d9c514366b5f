"""A transactional session: what it asks of the cluster and when, by both sequences of requests."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from tests.unit.writing.coordinators import Coordinated

from pyspark_kafka_direct.errors import BrokerError, FencedError, OutcomeUnknownError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.records import EncodedBatch
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.groups import CommittedOffset, Group
from pyspark_kafka_direct.writing.producer import Written
from pyspark_kafka_direct.writing.session import TransactionalSession

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS, SIZE = 10, 61
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FENCED = ErrorCode.PRODUCER_FENCED
FIRST, SECOND = ("id", 7, 3), ("id", 7, 4)

both = pytest.mark.parametrize("level", [1, 2])


def batch(partition: int = 0) -> EncodedBatch:
    data = bytearray(SIZE)
    struct.pack_into(">i", data, 57, RECORDS)
    data[16] = 2
    return EncodedBatch(partition, RECORDS, 100, data)


def session_of(cluster: Coordinated) -> TransactionalSession:
    return TransactionalSession(cluster, "id", 5000, ProduceSettings())  # type: ignore[arg-type]


def begun(cluster: Coordinated) -> TransactionalSession:
    """A session that has taken the id over, which is not worth a word any more."""
    session = session_of(cluster)
    session.init()
    assert cluster.taken() == [("InitProducerId", "id", 5000)]
    return session


def group_of(cluster: Coordinated) -> Group:
    return Group(cluster, "g")  # type: ignore[arg-type]


def test_the_epoch_moves_with_each_transaction() -> None:
    cluster = Coordinated()
    session = begun(cluster)
    assert session.producer == ProducerId(7, 3)
    for _ in range(2):
        session.send("t", batch())
    assert session.commit() == {P0: Written(0, 20, 20, 2 * SIZE)}
    assert session.producer == ProducerId(7, 4)
    session.send("t", batch())
    assert session.commit() == {P0: Written(20, 30, 10, SIZE)}
    assert cluster.taken() == [
        ("Produce", FIRST, 0, 0),
        ("Produce", FIRST, 0, 10),
        ("EndTxn", FIRST, "commit"),
        ("Produce", SECOND, 0, 0),
        ("EndTxn", SECOND, "commit"),
    ]


def test_below_the_feature_partitions_are_added_and_sequence_numbers_go_on() -> None:
    cluster = Coordinated(level=1)
    session = begun(cluster)
    for _ in range(2):
        for partition in (0, 0, 1):
            session.send("t", batch(partition))
        session.commit()
    assert session.producer == ProducerId(7, 3)
    asked = cluster.taken()
    assert [each for each in asked if each[0] != "Produce"] == 2 * [
        ("AddPartitionsToTxn", FIRST, [("t", [0])]),
        ("AddPartitionsToTxn", FIRST, [("t", [1])]),
        ("EndTxn", FIRST, "commit"),
    ]
    assert [each[3] for each in asked if each[:3] == ("Produce", FIRST, 0)] == [0, 10, 20, 30]
    assert [each[3] for each in asked if each[:3] == ("Produce", FIRST, 1)] == [0, 10]


def test_after_an_abort_the_next_epoch_writes() -> None:
    cluster = Coordinated()
    session = begun(cluster)
    session.send("t", batch())
    session.flush()
    session.abort()
    session.abort()  # there is nothing any more
    session.send("t", batch())
    session.commit()
    assert cluster.taken() == [
        ("Produce", FIRST, 0, 0),
        ("EndTxn", FIRST, "abort"),
        ("Produce", SECOND, 0, 0),
        ("EndTxn", SECOND, "commit"),
    ]


def test_what_was_not_sent_before_an_abort_is_never_sent() -> None:
    cluster = Coordinated()
    session = begun(cluster)
    session.send("t", batch(), more=True)
    session.abort()
    assert not session.has_waiting
    session.send("t", batch())
    assert session.commit() == {P0: Written(0, 10, 10, SIZE)}
    assert len(cluster.named("Produce")) == 1


def test_after_an_abort_below_the_feature_the_id_is_taken_over_anew() -> None:
    """Nobody knows which sequence numbers have arrived."""
    cluster = Coordinated(level=1)
    session = begun(cluster)
    session.send("t", batch())
    session.abort()
    assert cluster.named("EndTxn") == [("EndTxn", FIRST, "abort")]
    assert session.producer is None
    with pytest.raises(RuntimeError, match="init comes first"):
        session.send("t", batch())
    session.init()
    session.send("t", batch())
    session.commit()
    assert cluster.taken()[-2:] == [("Produce", SECOND, 0, 0), ("EndTxn", SECOND, "commit")]


@both
def test_nothing_sent_is_nothing_to_end(level: int) -> None:
    cluster = Coordinated(level)
    session = begun(cluster)
    assert session.flush() == {}
    assert session.commit() == {}
    session.abort()
    assert cluster.taken() == []
    session.send("t", batch())
    session.commit()
    assert session.commit() == {}
    session.abort()
    assert len(cluster.named("EndTxn")) == 1


def test_a_session_must_be_begun() -> None:
    cluster = Coordinated()
    session = session_of(cluster)
    assert session.producer is None
    with pytest.raises(RuntimeError, match="init comes first"):
        session.send("t", batch())
    with pytest.raises(RuntimeError, match="init comes first"):
        session.add_offsets(group_of(cluster), {})
    session.commit()
    assert cluster.taken() == []


def test_taking_over_anew_forgets_what_was_open() -> None:
    cluster = Coordinated()
    session = begun(cluster)
    session.send("t", batch())
    session.init()
    assert session.commit() == {}
    assert not cluster.named("EndTxn"), "the coordinator has aborted it"
    session.send("t", batch())
    assert session.commit() == {P0: Written(10, 20, 10, SIZE)}
    assert cluster.taken()[-2:] == [("Produce", SECOND, 0, 0), ("EndTxn", SECOND, "commit")]


def test_an_id_that_cannot_be_taken_over_leaves_the_session_as_before_init() -> None:
    cluster = Coordinated()
    session = begun(cluster)
    cluster.codes["InitProducerId"] = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    with pytest.raises(BrokerError):
        session.init()
    assert session.producer is None


STEPS: dict[str, tuple[str, Callable[[TransactionalSession, Group], object]]] = {
    "commit": ("EndTxn", lambda session, _: session.commit()),
    "flush": ("Produce", lambda session, _: session.flush()),
    "work": ("Produce", lambda session, _: session.work(1)),
    "add_offsets": ("TxnOffsetCommit", lambda session, group: session.add_offsets(group, {P0: CommittedOffset(1)})),
    "abort": ("EndTxn", lambda session, _: session.abort()),
}


@pytest.mark.parametrize("name", STEPS)
def test_whoever_is_fenced_does_nothing_more(name: str) -> None:
    where, step = STEPS[name]
    cluster = Coordinated()
    session, group = begun(cluster), group_of(cluster)
    session.send("t", batch())
    cluster.codes[where] = [FENCED]
    if where == "Produce":
        session.flush()
        session.send("t", batch())
        cluster.codes[where] = []
    with pytest.raises(FencedError) as told:
        step(session, group)
    cluster.taken()
    with pytest.raises(FencedError) as again:
        session.init()
    assert again.value is told.value
    with pytest.raises(FencedError):
        session.commit()
    with pytest.raises(FencedError):
        session.send("t", batch())
    with pytest.raises(FencedError):
        session.add_offsets(group, {P0: CommittedOffset(2)})
    session.abort()
    session.close()
    assert cluster.taken() == [], "what is open is its successor's by now"


def test_a_commit_that_nobody_confirms_needs_init() -> None:
    cluster = Coordinated()
    session = begun(cluster)
    session.send("t", batch())
    cluster.codes["EndTxn"] = [ErrorCode.UNKNOWN_SERVER_ERROR]
    with pytest.raises(OutcomeUnknownError):
        session.commit()
    assert session.producer is None
    session.abort()
    assert len(cluster.named("EndTxn")) == 1, "another end might be the end of another transaction"
    with pytest.raises(RuntimeError, match="init comes first"):
        session.send("t", batch())
    session.init()
    session.send("t", batch())
    session.commit()
    assert cluster.taken()[-1] == ("EndTxn", SECOND, "commit")


@both
def test_offsets_are_there_as_soon_as_the_records_are(level: int) -> None:
    cluster = Coordinated(level)
    session, group = begun(cluster), group_of(cluster)
    session.send("t", batch())
    session.add_offsets(group, {P0: CommittedOffset(5, "note")})
    assert not cluster.noted
    session.commit()
    assert cluster.noted == {P0: CommittedOffset(5, "note")}
    asked = [each[:3] for each in cluster.taken() if each[0].startswith(("AddOffsets", "TxnOffset"))]
    added = [("AddOffsetsToTxn", FIRST, "g")] if level < 2 else []
    assert asked == [*added, ("TxnOffsetCommit", FIRST, "g")]


@both
def test_offsets_alone_are_a_transaction(level: int) -> None:
    cluster = Coordinated(level)
    session, group = begun(cluster), group_of(cluster)
    session.add_offsets(group, {P0: CommittedOffset(5)})
    session.abort()
    assert not cluster.noted
    session.init()
    session.add_offsets(group, {P1: CommittedOffset(6)})
    session.commit()
    assert cluster.noted == {P1: CommittedOffset(6, "")}


@both
def test_an_id_that_somebody_else_was_given(level: int) -> None:
    cluster = Coordinated(level)
    session = session_of(cluster)
    session.adopt(ProducerId(40, 2))
    assert session.producer == ProducerId(40, 2)
    session.commit()
    assert cluster.taken() == [("EndTxn", ("id", 40, 2), "commit")], "others may have written with it"
    session.adopt(ProducerId(50, 2), begun=False)
    session.commit()
    session.abort()
    assert cluster.taken() == []
    session.send("t", batch())
    session.commit()
    assert [each[:2] for each in cluster.taken()] == [
        *([("AddPartitionsToTxn", ("id", 50, 2))] if level < 2 else []),
        ("Produce", ("id", 50, 2)),
        ("EndTxn", ("id", 50, 2)),
    ]


def test_an_id_of_somebody_else_takes_nothing_over_from_the_one_before() -> None:
    cluster = Coordinated()
    session = begun(cluster)
    session.send("t", batch(), more=True)
    session.adopt(ProducerId(40, 2), begun=False)
    assert not session.has_waiting
    session.send("t", batch())
    session.commit()
    assert cluster.taken() == [("Produce", ("id", 40, 2), 0, 0), ("EndTxn", ("id", 40, 2), "commit")]


def test_brokers_that_cannot_tell_who_was_fenced_are_refused() -> None:
    cluster = Coordinated()
    cluster.versions = {22: (0, 2), 24: (0, 1)}
    with pytest.raises(UnsupportedBrokerError, match=r"needs Kafka 2\.5"):
        session_of(cluster).init()
    assert cluster.taken() == []


def test_others_can_wait_for_its_answers() -> None:
    cluster = Coordinated()
    session = begun(cluster)
    assert (session.descriptors(), session.has_waiting) == ([], False)
    session.work(0)
    session.send("t", batch(), more=True)
    assert (session.descriptors(), session.has_waiting) == ([], True)
    session.work(0)
    assert (len(session.descriptors()), session.has_waiting) == (1, False)
    session.work(1)
    assert session.descriptors() == []
    assert session.flush() == {P0: Written(0, 10, 10, SIZE)}
    assert session.commit() == {}, "it was told by flush"
    assert [each[0] for each in cluster.taken()] == ["Produce", "EndTxn"]


def test_the_end_of_the_block_gives_the_connections_back() -> None:
    cluster = Coordinated()
    with session_of(cluster) as session:
        session.init()
        session.send("t", batch())
        session.flush()
        before = cluster.given_back
    assert cluster.given_back == before + 1
    assert session.descriptors() == []
    assert not cluster.named("EndTxn"), "the broker ends it when its time is up"
