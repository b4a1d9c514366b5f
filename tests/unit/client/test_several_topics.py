"""Metadata, offsets and evidence of several topics and partitions: what holds for the first one holds for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.witness_cluster import pause, stick

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.errors import AuthorizationError, BrokerTimeoutError, ProtocolError, TransientBrokerError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.planning.data_loss import Presence
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.cluster_client import ClusterClient

TOPICS = ("flights", "ships", "trains")
ALL = tuple(TopicPartition(topic, number) for topic in TOPICS for number in range(2))


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    """Three brokers that are called in the order of their ids; the first one leads all partitions."""
    connection = {"default_api_timeout_ms": 20_000}
    with UnitCluster(dict.fromkeys(TOPICS, 2), brokers=3, replication_factor=3, connection=connection) as cluster:
        cluster.pool.rotation = 0.0
        for number, tp in enumerate(ALL):
            cluster.elect(tp, 1)
            cluster.append(tp, 100 + number)
        yield cluster


def depose(cluster: UnitCluster) -> None:
    """Let broker 3 lead all partitions, with 50 more records; the others do not learn of it."""
    stick(cluster, 1, 2)
    for tp in ALL:
        cluster.elect(tp, 3)
    cluster.sleep(1)  # until the former leader is no in-sync replica
    for tp in ALL:
        cluster.append(tp, 50)


def ends(client: ClusterClient) -> list[int]:
    return list(client.offsets(dict.fromkeys(ALL, LATEST)).values())


def deposed(cluster: UnitCluster, client: ClusterClient) -> list[TopicPartition]:
    """Return the partitions of which the client knows a later leader than the one before the last election."""
    return [tp for tp in ALL if client.is_deposed(tp, cluster.topic_id(tp.topic), cluster.partition(tp).epoch - 1)]


# Offsets.


def entry_of(values: dict[str, Any], tp: TopicPartition) -> dict[str, Any]:
    (found,) = (
        each
        for topic in values["topics"]
        for each in topic["partitions"]
        if (topic["name"], each["partition_index"]) == tp
    )
    return found  # type: ignore[no-any-return]


def test_each_partition_of_a_leader_is_in_one_request(cluster: UnitCluster) -> None:
    assert ends(cluster.client()) == [100 + number for number in range(6)]
    assert cluster.sent("ListOffsets") == 1


@pytest.mark.parametrize("tp", ALL, ids=str)
def test_an_end_that_any_partition_lacks_is_requested_again(cluster: UnitCluster, tp: TopicPartition) -> None:
    def without_end(_: int, values: dict[str, Any]) -> dict[str, Any]:
        if cluster.sent("ListOffsets") == 1:
            entry_of(values, tp)["offset"] = -1
        return values

    cluster.change("ListOffsets", without_end)
    assert ends(cluster.client()) == [100 + number for number in range(6)]
    assert cluster.sent("ListOffsets") == 2


@pytest.mark.parametrize("tp", ALL, ids=str)
def test_an_error_of_any_partition_is_raised(cluster: UnitCluster, tp: TopicPartition) -> None:
    def reject(_: int, values: dict[str, Any]) -> dict[str, Any]:
        entry_of(values, tp)["error_code"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return values

    cluster.change("ListOffsets", reject)
    with pytest.raises(AuthorizationError) as caught:
        ends(cluster.client())
    assert (caught.value.topic, caught.value.partition) == tp


@pytest.mark.parametrize("tp", ALL, ids=str)
def test_a_response_must_have_each_partition(cluster: UnitCluster, tp: TopicPartition) -> None:
    def omit(_: int, values: dict[str, Any]) -> dict[str, Any]:
        entry = entry_of(values, tp)
        for topic in values["topics"]:
            topic["partitions"] = [each for each in topic["partitions"] if each is not entry]
        return values

    cluster.change("ListOffsets", omit)
    with pytest.raises(ProtocolError, match="lacks a partition") as caught:
        ends(cluster.client())
    assert (caught.value.topic, caught.value.partition) == tp
    assert cluster.open_connections == 0, "requests and responses may no longer match"


@pytest.mark.parametrize("number", range(3))
def test_each_topic_of_metadata_must_have_a_name(cluster: UnitCluster, number: int) -> None:
    def without_name(_: int, values: dict[str, Any]) -> dict[str, Any]:
        topics = [{**topic, "name": None} if index == number else topic for index, topic in enumerate(values["topics"])]
        return {**values, "topics": topics}

    cluster.change("Metadata", without_name)
    with pytest.raises(ProtocolError, match="a topic without a name"):
        cluster.client().topics(TOPICS)
    assert cluster.open_connections == 0


# Leader epochs.


def test_metadata_is_evidence_of_the_leaders_of_all_partitions(cluster: UnitCluster) -> None:
    client = cluster.client()
    client.topics(TOPICS)
    assert deposed(cluster, client) == list(ALL)


def test_witnesses_confirm_the_leaders_of_all_topics(cluster: UnitCluster) -> None:
    depose(cluster)
    client = cluster.client()
    assert ends(client) == [100 + number for number in range(6)]
    client.raise_epoch_floors(TOPICS)
    assert deposed(cluster, client) == list(ALL)
    assert ends(client) == [150 + number for number in range(6)]


def test_the_bounds_of_all_logs_are_those_of_confirmed_leaders(cluster: UnitCluster) -> None:
    depose(cluster)
    client = cluster.client()
    assert ends(client) == [100 + number for number in range(6)]
    assert client.log_bounds(ALL, client.deadline()) == {tp: (0, 150 + number) for number, tp in enumerate(ALL)}


def test_later_epochs_of_all_partitions_are_confirmed(cluster: UnitCluster) -> None:
    depose(cluster)
    client = cluster.client()
    client.note_later_epochs({tp: cluster.partition(tp).epoch for tp in ALL}, client.deadline())
    assert deposed(cluster, client) == list(ALL)


def test_epochs_are_not_compared_with_those_of_brokers_before_kafka_2_4() -> None:
    """Their metadata has no reliable ones, so each committed offset would lead to requests to all replicas."""
    with UnitCluster(dict.fromkeys(TOPICS, 2), brokers=3, newest_versions={"Metadata": 8}) as cluster:
        client = cluster.client()
        client.topics(TOPICS)
        client.note_later_epochs(dict.fromkeys(ALL, 5), client.deadline())
        assert cluster.sent("Metadata") == 1


@pytest.mark.parametrize("tp", ALL, ids=str)
def test_the_committed_epoch_of_any_partition_reveals_a_deposed_leader(
    cluster: UnitCluster, tp: TopicPartition
) -> None:
    depose(cluster)
    client = cluster.client(first_broker=2)
    client.topics([tp.topic])
    ConsumerGroup(client, "group").commit({tp: 7})
    ConsumerGroup(cluster.client(), "group").commit({each: 5 for each in ALL if each != tp})
    restarted = cluster.client()
    assert ends(restarted) == [100 + number for number in range(6)]
    assert ConsumerGroup(restarted, "group").committed(ALL) == {each: 7 if each == tp else 5 for each in ALL}
    assert tp in deposed(cluster, restarted)


@pytest.mark.parametrize(("timeout_ms", "seconds"), [(20_000, 10), (1_000, 5)])
def test_lost_epochs_of_all_partitions_are_dropped(cluster: UnitCluster, timeout_ms: int, seconds: float) -> None:
    """A timeout that is shorter than the confirmation does not end it."""
    client, started = cluster.client(default_api_timeout_ms=timeout_ms), cluster.now
    for tp in ALL:
        client.raise_epoch_floor(tp, cluster.topic_id(tp.topic), 9)
    assert ends(client) == [100 + number for number in range(6)]
    assert seconds <= cluster.now - started < 2 * seconds


def test_lost_epochs_of_each_partition_are_confirmed_for_long_enough(cluster: UnitCluster) -> None:
    client = cluster.client()
    raised: list[float] = []
    dropped: list[float] = []
    for tp in ALL:
        client.raise_epoch_floor(tp, cluster.topic_id(tp.topic), 9)
        client.topics(TOPICS)
        raised.append(cluster.now)
        cluster.sleep(1)
    while len(dropped) < len(ALL):
        client.topics(TOPICS)
        is_lost = [not client.is_deposed(tp, cluster.topic_id(tp.topic), 8) for tp in ALL]
        assert is_lost == sorted(is_lost, reverse=True)
        dropped += [cluster.now] * (sum(is_lost) - len(dropped))
        cluster.sleep(0.2)
    assert [after - before for before, after in zip(raised, dropped, strict=True)] == pytest.approx(
        [10.2] * 6, abs=0.25
    )


@pytest.mark.parametrize("paused", [1, 2, 3])
def test_lost_epochs_are_not_dropped_while_a_broker_may_have_them(cluster: UnitCluster, paused: int) -> None:
    client = cluster.client()
    for tp in ALL:
        client.raise_epoch_floor(tp, cluster.topic_id(tp.topic), 9)
    client.topics(TOPICS)
    pause(cluster, paused, seconds=1000)
    started, lost = cluster.now, 0
    while lost == 0:
        client.topics(TOPICS)
        lost = sum(not client.is_deposed(tp, cluster.topic_id(tp.topic), 8) for tp in ALL)
        cluster.sleep(1)
        assert cluster.now < started + 80
    assert lost == len(ALL)
    assert cluster.now - started >= 10 + 30, "request.timeout.ms after the first request to it"


@pytest.mark.parametrize("paused", [1, 2, 3])
def test_a_replica_that_does_not_respond_counts_for_the_topics_of_a_request(cluster: UnitCluster, paused: int) -> None:
    """Also over several calls, each of which has less time than that."""
    client = cluster.client()
    client.topics(TOPICS)
    pause(cluster, paused, seconds=1000)

    def is_confirmed(*names: str) -> bool:
        try:
            client.raise_epoch_floors(names, deadline=client.deadline(2))
        except TransientBrokerError:
            return False
        return True

    started = cluster.now
    while not is_confirmed("flights", "ships"):
        assert cluster.now < started + 60
    assert cluster.now - started >= 30
    assert is_confirmed("ships", "flights")
    assert not is_confirmed("trains"), "it was not requested before"


class LaggingCluster(UnitCluster):
    """Brokers 1 to 5 lag behind broker 6, which leads those partitions that have a replica there."""

    def __init__(self) -> None:
        connection = {"default_api_timeout_ms": 20_000}
        super().__init__(dict.fromkeys(TOPICS, 2), brokers=6, replication_factor=3, connection=connection)
        self.pool.rotation = 0.0
        self.known_epochs = {tp: self.partition(tp).epoch for tp in ALL}  # at brokers 1 to 5
        self.moved = {tp for tp in ALL if 6 in self.partition(tp).replicas}
        stick(self, 1, 2, 3, 4, 5)
        for tp in self.moved:
            self.elect(tp, 6)

    def deposed(self, client: ClusterClient) -> set[TopicPartition]:
        """Return the partitions of which the client knows a later leader than brokers 1 to 5."""
        return {tp for tp in ALL if client.is_deposed(tp, self.topic_id(tp.topic), self.known_epochs[tp])}


def test_epochs_are_dropped_only_if_the_replicas_of_each_partition_confirm_it() -> None:
    with LaggingCluster() as cluster:
        assert ALL[0] not in cluster.moved
        client = cluster.client()
        for tp in ALL:
            client.raise_epoch_floor(tp, cluster.topic_id(tp.topic), cluster.known_epochs[tp] + 1)
        client.topics(TOPICS)
        cluster.sleep(10.1)
        assert cluster.deposed(client) == set(ALL)
        client.topics(TOPICS)
        assert cluster.deposed(client) == cluster.moved


@pytest.mark.parametrize("names", [["ships"], ["flights", "ships"], ["flights", "ships", "trains"]], ids=len)
def test_the_replicas_of_all_partitions_of_topics_are_witnesses(names: list[str]) -> None:
    with LaggingCluster() as cluster:
        assert [tp.partition for tp in cluster.moved if tp.topic in ("flights", "ships")] == [1]
        client = cluster.client()
        client.topics(names)
        client.raise_epoch_floors(names)
        assert cluster.deposed(client) == {tp for tp in cluster.moved if tp.topic in names}


def test_the_replicas_of_all_partitions_confirm_the_bounds_of_logs() -> None:
    with LaggingCluster() as cluster:
        client = cluster.client()
        client.topics(TOPICS)
        client.log_bounds(ALL, client.deadline())
        assert cluster.deposed(client) == cluster.moved


def test_lost_epochs_of_all_partitions_are_dropped_at_once(cluster: UnitCluster) -> None:
    client = cluster.client()
    for tp in ALL:
        client.raise_epoch_floor(tp, cluster.topic_id(tp.topic), 9)
    client.topics(TOPICS)
    cluster.sleep(10.1)
    found = client.topics(TOPICS)
    assert [found[tp.topic].partitions[tp.partition].leader for tp in ALL] == [1] * 6
    assert not any(client.is_deposed(tp, cluster.topic_id(tp.topic), 8) for tp in ALL)


# Missing topics and partitions.


@pytest.mark.parametrize("deleted", [TOPICS[:1], TOPICS[1:], TOPICS], ids=len)
def test_missing_partitions_are_confirmed_together(cluster: UnitCluster, deleted: tuple[str, ...]) -> None:
    client, started = cluster.client(), cluster.now
    suspects = {tp: cluster.topic_id(tp.topic) for tp in (*ALL, TopicPartition("trains", 7))}
    for topic in deleted:
        cluster.event("delete_topic", topic=topic)
    missing = {tp for tp in suspects if tp.topic in deleted or tp.partition == 7}
    assert client.confirm_missing(suspects) == missing
    assert 5 <= cluster.now - started < 7


def test_the_presence_of_each_partition_is_known_while_a_broker_does_not_respond(cluster: UnitCluster) -> None:
    client = cluster.client()
    client.refresh_brokers()
    pause(cluster, 3)
    cluster.event("delete_topic", topic="ships")
    check = client.absence_check({tp: cluster.topic_id(tp.topic) if tp.topic != "ships" else None for tp in ALL})
    for _ in range(3):
        assert check.step(client.deadline()) == {
            tp: Presence.UNCONFIRMED if tp.topic == "ships" else Presence.PRESENT for tp in ALL
        }
        cluster.sleep(3)


@pytest.mark.parametrize("recreated", TOPICS)
def test_a_confirmation_lasts_for_the_topic_that_is_recreated_last(cluster: UnitCluster, recreated: str) -> None:
    client = cluster.client()
    check = client.absence_check({tp: cluster.topic_id(tp.topic) for tp in ALL})
    assert check.confirmation_seconds == 5
    for topic in TOPICS:
        cluster.event("delete_topic", topic=topic)
    cluster.sleep(1)
    check.step(client.deadline())
    cluster.sleep(3)
    cluster.event("create_topic", topic=recreated)
    cluster.sleep(1)
    check.step(client.deadline())
    assert check.confirmation_seconds == pytest.approx(9, abs=0.1)


@pytest.mark.parametrize("denied", TOPICS)
def test_a_topic_that_may_not_be_described_is_an_error_beside_missing_ones(cluster: UnitCluster, denied: str) -> None:
    for topic in TOPICS:
        if topic == denied:
            cluster.event("deny_topic", topic=topic, seconds=1000)
        else:
            cluster.event("delete_topic", topic=topic)
    with pytest.raises(AuthorizationError) as caught:
        cluster.client().confirm_missing(dict.fromkeys(ALL))
    assert caught.value.topic == denied


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("broker", [1, 2, 3])
@pytest.mark.parametrize("has_error", [True, False], ids=["error", "other-topic"])
def test_the_report_of_each_replica_about_each_topic_has_to_suffice(
    cluster: UnitCluster, topic: str, broker: int, has_error: bool
) -> None:
    topic_ids = {name: cluster.topic_id(name) for name in TOPICS}
    client = cluster.client()
    client.topics(TOPICS)
    changed: dict[str, Any] = {"topic_id": UUID(int=9)}
    if has_error:
        changed = {"error_code": ErrorCode.LEADER_NOT_AVAILABLE, "partitions": []}

    def change(node: int, values: dict[str, Any]) -> dict[str, Any]:
        topics = [{**each, **changed} if each["name"] == topic else each for each in values["topics"]]
        return {**values, "topics": topics} if node == broker else values

    cluster.change("Metadata", change)
    reports, unresolved = client.replica_witnesses().request_reports(topic_ids, ALL, client.deadline(2))
    assert unresolved is not None
    assert unresolved.topic == topic
    assert has_error or f"Broker {broker} has another topic of this name" in unresolved.message
    brokers = {name: {each.node_id for each in found} for name, found in reports.items()}
    others = {1, 2, 3} - ({broker} if has_error else set())
    assert brokers == {name: others if name == topic else {1, 2, 3} for name in TOPICS}


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_of_which_all_replicas_report_an_error_is_an_error(cluster: UnitCluster, topic: str) -> None:
    topic_ids = {name: cluster.topic_id(name) for name in TOPICS}
    client = cluster.client()
    client.topics(TOPICS)
    cluster.event("deny_topic", topic=topic, seconds=1000, error_code=ErrorCode.LEADER_NOT_AVAILABLE)
    with pytest.raises(TransientBrokerError, match="LEADER_NOT_AVAILABLE while fetching metadata") as caught:
        client.replica_witnesses().request_reports(topic_ids, ALL, client.deadline(2))
    assert caught.value.topic == topic


@pytest.mark.parametrize("topic", TOPICS)
def test_the_error_names_a_topic_about_which_brokers_disagree(cluster: UnitCluster, topic: str) -> None:
    client, suspects = cluster.client(), {tp: cluster.topic_id(tp.topic) for tp in ALL}
    client.topics(TOPICS)
    for stuck, kind in ((1, "recreate_topic"), (2, "delete_topic")):
        cluster.event(kind, topic=topic)
        stick(cluster, stuck)
    with pytest.raises(BrokerTimeoutError, match="brokers do not agree whether the partition exists") as caught:
        client.confirm_missing(suspects)
    assert (caught.value.topic, caught.value.partition) == (topic, 0)
    assert "to confirm or refute a data loss" in caught.value.__notes__[-1]
