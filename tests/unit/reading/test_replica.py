"""What a task asks of its partition's leader, with a broker that answers by a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.scripted import PARTITION, TOPIC_ID, VERSIONS, Broker

from pyspark_kafka_direct.errors import BrokerUnreachableError, UnsupportedBrokerError
from pyspark_kafka_direct.reading._replica import Replica
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.fetch import API_KEY, NEWEST_VERSION
from pyspark_kafka_direct.wire.messages import LIST_OFFSETS
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
    POOL.clear()


def local_start(broker: Broker, code: int, offset: int = -1) -> int:
    broker.offsets = lambda _: (code, offset)
    return Replica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID).local_start(Deadline.after(60))


def test_the_leader_says_what_is_on_its_own_disk(broker: Broker) -> None:
    assert local_start(broker, 0, 7) == 7
    with pytest.raises(BrokerUnreachableError):
        local_start(broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_a_leader_that_knows_no_tiered_storage_does_not_end_the_read(broker: Broker, code: int) -> None:
    """It is asked only when the log's end may be a hole, and was never asked before."""
    assert local_start(broker, code) == 0


def test_what_is_fetched_differently_shares_connections(broker: Broker) -> None:
    for fetch in (FetchSettings(), FetchSettings(isolation_level="read_committed", client_rack="r", fetch_min_bytes=7)):
        Replica(broker.settings, fetch, PARTITION, TOPIC_ID).log_state(Deadline.after(60))
    assert broker.connections == 1


def test_a_leader_that_shall_serve_us_itself_is_not_told_our_rack(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(Connection, "send", lambda *given, **_: told.append(b"our-rack" in given[4]))
    replica = Replica(broker.settings, FetchSettings(client_rack="our-rack"), PARTITION, TOPIC_ID)
    replica.ask(0, 100, Deadline.after(60))
    replica.return_to_leader()
    replica.ask(0, 100, Deadline.after(60))
    replica.drop()
    assert told == [True, False]


def test_an_open_transaction_is_no_loss(broker: Broker) -> None:
    broker.stable = 40
    replica = Replica(broker.settings, FetchSettings(isolation_level="read_committed"), PARTITION, TOPIC_ID)
    assert replica.log_state(Deadline.after(60)).end == 42


@pytest.mark.parametrize(("newest", "may_lag"), [(4, True), (5, False)])
def test_brokers_before_kafka_2_2_may_not_know_their_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, newest: int, may_lag: bool
) -> None:
    monkeypatch.setitem(VERSIONS, LIST_OFFSETS.key, (1, newest))
    replica = Replica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID)
    replica.ask(0, 100, Deadline.after(60))
    replica.drop()
    assert replica.end_may_lag == may_lag


def test_a_broker_that_is_too_new_keeps_no_connection(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, API_KEY, (NEWEST_VERSION + 1, NEWEST_VERSION + 2))
    for _ in range(3):
        replica = Replica(broker.settings, FetchSettings(), PARTITION, TOPIC_ID)
        with pytest.raises(UnsupportedBrokerError, match="Fetch"):
            replica.ask(0, 100, Deadline.after(60))
        replica.drop()
    assert broker.connections == 1, "what nobody needs is lent again"
