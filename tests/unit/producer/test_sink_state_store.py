"""When a sink state record that was read may still be used, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.errors import BrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore

if TYPE_CHECKING:
    from collections.abc import Iterator

STATES = TopicPartition("states", 0)


class StoreCluster(UnitCluster):
    """The sink state topic with one record of the key, after those of others."""

    def __init__(self) -> None:
        super().__init__({"states": 1})
        self.write(b"other", b"1")
        self.write(b"key", b"old")
        self.store = SinkStateStore(self.client(), "states")

    def write(self, key: bytes, value: bytes, *, in_transaction: bool = False) -> None:
        producer = (7, 0, 0) if in_transaction else None
        self.cluster.append(STATES, [value], keys=[key], producer=producer, transactional=in_transaction)

    @property
    def end(self) -> int:
        return self.log(STATES).end


@pytest.fixture
def cluster() -> Iterator[StoreCluster]:
    with StoreCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("has_grown", [False, True])
def test_a_record_is_read_again_if_the_log_has_grown(cluster: StoreCluster, has_grown: bool) -> None:
    stored = cluster.store.read("key")
    assert (stored.value, stored.read_until) == (b"old", 2)
    if has_grown:
        cluster.write(b"key", b"new")
    fetches = cluster.sent("Fetch")
    assert cluster.store.read_decided("key", stored).value == (b"new" if has_grown else b"old")
    assert (cluster.sent("Fetch") > fetches) == has_grown


def test_a_record_before_many_others_is_found(cluster: StoreCluster) -> None:
    """The last offsets are read first."""
    cluster.append(STATES, 400)
    fetches = cluster.sent("Fetch")
    assert cluster.store.read("key").value == b"old"
    assert cluster.sent("Fetch") == fetches + 2


def test_the_log_may_be_compacted_while_it_is_read(cluster: StoreCluster) -> None:
    cluster.before("Fetch", lambda: cluster.delete_records(STATES, 1))
    assert cluster.store.read("key").value == b"old"


@pytest.mark.parametrize("others", [0, 400])  # records between the two of the key
def test_a_record_whose_transaction_has_not_ended_is_an_error(cluster: StoreCluster, others: int) -> None:
    """Its writer is fenced, so the transaction should have ended."""
    if others:
        cluster.append(STATES, others)
    cluster.write(b"key", b"new", in_transaction=True)
    stored = cluster.store.read("key")
    assert stored.value == b"old"
    for earlier in (None, stored):
        with pytest.raises(BrokerError, match="a transaction that has no control record") as caught:
            cluster.store.read_decided("key", earlier)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (*STATES, 2 + others)
    cluster.end_transaction(STATES, 7, commit=True)
    assert cluster.store.read_decided("key", stored).value == b"new"


@pytest.mark.parametrize(
    ("key", "in_transaction", "follows"),
    [(b"other", False, True), (b"other", True, True), (b"key", False, False), (b"key", True, False)],
)
def test_no_other_record_of_the_key_may_be_between(
    cluster: StoreCluster, key: bytes, in_transaction: bool, follows: bool
) -> None:
    stored = cluster.store.read("key")
    cluster.write(key, b"between", in_transaction=in_transaction)
    offset = cluster.end
    cluster.write(b"key", b"own")
    if follows:
        cluster.store.check_newest("key", stored, offset)
    else:
        with pytest.raises(BrokerError, match="does not directly follow what was read"):
            cluster.store.check_newest("key", stored, offset)


def test_a_ticket_is_the_offset_of_a_record_that_is_not_read(cluster: StoreCluster) -> None:
    ticket = cluster.store.append_ticket("key")
    assert (ticket.topic_id, ticket.offset) == (cluster.topic_id("states").hex, 2)
    assert cluster.store.read("key").value == b"old"


def test_the_first_record_of_the_topic_may_be_a_ticket() -> None:
    with UnitCluster({"states": 1}) as cluster:
        assert SinkStateStore(cluster.client(), "states").append_ticket("key").offset == 0


def test_a_ticket_without_an_offset_is_an_error(cluster: StoreCluster) -> None:
    """It would be older than all others."""

    def without_offset(_: int, response: dict[str, Any]) -> dict[str, Any]:
        response["responses"][0]["partition_responses"][0]["base_offset"] = -1
        return response

    cluster.change("Produce", without_offset)
    with pytest.raises(BrokerError, match="did not return the offset"):
        cluster.store.append_ticket("key")
