"""Elections, images and events of the simulated cluster, and what its brokers return to readers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulation.cluster.cluster import ClusterSettings, SimulatedCluster
from tests.simulation.cluster.events import EVENT_KINDS, apply_event
from tests.simulation.cluster.replies import Delayed
from tests.simulation.cluster.stored_batch import encode_batch, parse_batches
from tests.simulation.fake_world import FakeWorld

PARTITION = ("t", 0)


class Fixture:
    def __init__(self, **settings: Any) -> None:
        self.world = FakeWorld()
        self.cluster = SimulatedCluster(self.world, brokers=3, settings=ClusterSettings(**settings))
        self.cluster.create_topic("t", 1)
        self.world.run_for(5)

    @property
    def leader(self) -> int:
        partition = self.cluster.partition(PARTITION)
        assert partition is not None
        return partition.leader

    def event(self, kind: str, **args: Any) -> None:
        apply_event(self.cluster, kind, args)

    def fetch(self, broker: int, offset: int, *, version: int = 12, **fields: Any) -> Any:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
            "partition_max_bytes": 10_000,
        }
        partition |= {name: value for name, value in fields.items() if name in partition}
        request = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10_000, "isolation_level": 0, "rack_id": ""}
        request |= {name: value for name, value in fields.items() if name in request}
        topic = SimpleNamespace(
            topic="t",
            topic_id=fields.get("topic_id"),
            partitions=[SimpleNamespace(fetch_offset=offset, **partition)],
        )
        reply = self.cluster.brokers[broker].handle("Fetch", version, SimpleNamespace(topics=[topic], **request), "c")
        return reply if isinstance(reply, Delayed) else only_partition(reply)

    def offset(self, broker: int, timestamp: int, *, version: int = 9, isolation: int = 0, epoch: int = -1) -> Any:
        partition = SimpleNamespace(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
        request = SimpleNamespace(isolation_level=isolation, topics=[SimpleNamespace(name="t", partitions=[partition])])
        reply: Any = self.cluster.brokers[broker].handle("ListOffsets", version, request, "c")
        found = reply["topics"][0]["partitions"][0]
        return found["error_code"] or (found["offset"], found["leader_epoch"])

    def metadata(self, broker: int) -> Any:
        request = SimpleNamespace(topics=[SimpleNamespace(name="t", topic_id=None)])
        reply: Any = self.cluster.brokers[broker].handle("Metadata", 12, request, "c")
        return reply["topics"][0]


def only_partition(response: Any) -> Any:
    return response["responses"][0]["partitions"][0]


def values(response: Any) -> list[bytes | None]:
    return [value for batch in parse_batches(response["records"]) for value in batch.values]


def test_appends_are_replicated_and_read() -> None:
    fixture = Fixture()
    assert fixture.cluster.append(PARTITION, [b"a", b"b"]) == 0
    assert fixture.cluster.append(PARTITION, [b"c"]) == 2

    response = fixture.fetch(fixture.leader, 1)
    assert (response["high_watermark"], response["error_code"]) == (3, 0)
    assert values(response) == [b"a", b"b", b"c"]
    assert fixture.offset(fixture.leader, -1) == (3, 0)


def test_a_follower_lacks_the_high_watermark_until_it_has_replicated() -> None:
    fixture = Fixture(replication_delay=1.0)
    fixture.cluster.append(PARTITION, [b"a"])
    assert fixture.offset(fixture.leader, -1) == (0, 0)

    fixture.world.run_for(3)
    assert fixture.offset(fixture.leader, -1) == (1, 0)


def test_a_new_leader_rejects_old_epochs_and_the_old_one_names_it() -> None:
    fixture = Fixture()
    old = fixture.leader
    fixture.event("elect_leader", topic="t", partition=0)

    assert fixture.leader != old
    assert fixture.fetch(fixture.leader, 0, current_leader_epoch=0)["error_code"] == 74
    assert fixture.fetch(fixture.leader, 0, current_leader_epoch=2)["error_code"] == 75
    assert fixture.offset(old, -1) == 6
    assert fixture.fetch(old, 0, version=10)["error_code"] == 6  # followers serve versions from 11 on


def test_a_lagging_broker_serves_its_old_image() -> None:
    fixture = Fixture()
    old = fixture.leader
    fixture.event("stick_image", broker=old - 1, seconds=10)
    fixture.event("elect_leader", topic="t", partition=0)

    assert fixture.metadata(old)["partitions"][0]["leader_id"] == old
    assert fixture.offset(old, -1, epoch=0) == (0, 0)
    fixture.world.run_for(11)
    assert fixture.metadata(old)["partitions"][0]["leader_epoch"] == 1


def test_an_isolated_leader_is_replaced_and_truncates_when_it_returns() -> None:
    fixture = Fixture()
    old = fixture.leader
    fixture.cluster.append(PARTITION, [b"a"])
    fixture.event("isolate_broker", broker=old - 1, seconds=10)
    fixture.world.run_for(1)
    assert fixture.leader != old

    fixture.cluster.append_batch(fixture.cluster.brokers[old], PARTITION, encode_batch([b"unacknowledged"]))
    fixture.cluster.append(PARTITION, [b"b"])
    assert values(fixture.fetch(old, 0)) == [b"a"]
    assert values(fixture.fetch(fixture.leader, 0)) == [b"a", b"b"]

    fixture.world.run_for(10)
    assert values(fixture.fetch(old, 0)) == [b"a", b"b"]  # as a follower


def test_a_deposed_leader_counts_as_replicated_only_once_it_follows() -> None:
    fixture = Fixture()
    old = fixture.leader
    fixture.event("stick_image", broker=old - 1, seconds=10)
    fixture.event("elect_leader", topic="t", partition=0)
    fixture.cluster.append_batch(fixture.cluster.brokers[old], PARTITION, encode_batch([b"diverging"]))
    fixture.cluster.append(PARTITION, [b"a"])
    assert values(fixture.fetch(fixture.leader, 0)) == []  # the old leader is still in sync, and lacks it

    fixture.world.run_for(1)  # it is removed from the in-sync replicas
    assert values(fixture.fetch(fixture.leader, 0)) == [b"a"]
    target = fixture.cluster.partition(PARTITION)
    assert target is not None
    assert not fixture.cluster.elect(target, old)
    fixture.world.run_for(10)
    fixture.event("elect_leader", topic="t", partition=0, choice=0)
    assert values(fixture.fetch(fixture.leader, 0)) == [b"a"]


def test_an_unclean_election_loses_records_and_the_leader_reports_the_diverging_epoch() -> None:
    fixture = Fixture()
    fixture.cluster.append(PARTITION, [b"a"])
    fixture.event("stick_follower", topic="t", partition=0, seconds=1)
    fixture.cluster.append(PARTITION, [b"lost"])
    assert fixture.offset(fixture.leader, -1) == (2, 0)
    fixture.event("elect_unclean_leader", topic="t", partition=0)
    fixture.cluster.append(PARTITION, [b"new"])

    response = fixture.fetch(fixture.leader, 2, last_fetched_epoch=0)
    assert response["diverging_epoch"] == {"epoch": 0, "end_offset": 1}
    assert values(fixture.fetch(fixture.leader, 0)) == [b"a", b"new"]
    assert fixture.cluster.oracle.loss_reasons(PARTITION, 0, 2)
    assert not fixture.cluster.oracle.loss_reasons(PARTITION, 0, 1)


def test_a_partition_without_a_leader_gets_one() -> None:
    fixture = Fixture()
    fixture.event("lose_leader", topic="t", partition=0, seconds=5)
    assert fixture.metadata(1)["partitions"][0]["error_code"] == 5
    assert fixture.cluster.append(PARTITION, [b"a"]) is None

    fixture.world.run_for(6)
    assert fixture.cluster.append(PARTITION, [b"a"]) == 0


def test_a_recreated_topic_has_another_id_and_no_records() -> None:
    fixture = Fixture()
    fixture.cluster.append(PARTITION, [b"a"])
    old_id = fixture.cluster.topics["t"].topic_id
    fixture.event("recreate_topic", topic="t")

    assert fixture.cluster.topics["t"].topic_id != old_id
    assert fixture.fetch(fixture.leader, 0, version=13, topic_id=old_id)["error_code"] == 100
    assert fixture.fetch(fixture.leader, 0, version=12)["high_watermark"] == 0
    assert fixture.cluster.oracle.may_be_missing(PARTITION, 0, generation=1) == "the topic was deleted"


def test_offsets_out_of_range() -> None:
    fixture = Fixture()
    fixture.cluster.append(PARTITION, [b"a", b"b", b"c", b"d"])
    fixture.event("delete_records", topic="t", partition=0, fraction=0.5)

    assert fixture.offset(fixture.leader, -2) == (2, 0)
    assert fixture.fetch(fixture.leader, 1)["error_code"] == 1
    assert fixture.fetch(fixture.leader, 5)["error_code"] == 1
    assert fixture.fetch(fixture.leader, 4)["error_code"] == 0


def test_read_committed_has_the_aborted_transactions_and_ends_at_the_stable_offset() -> None:
    fixture = Fixture()
    fixture.cluster.append(PARTITION, [b"aborted"], producer=(5, 0, 0), transactional=True)
    fixture.cluster.append_marker(PARTITION, 5, 0, commit=False)
    fixture.cluster.append(PARTITION, [b"open"], producer=(6, 0, 0), transactional=True)

    response = fixture.fetch(fixture.leader, 0, isolation_level=1)
    assert response["aborted_transactions"] == [{"producer_id": 5, "first_offset": 0}]
    assert response["last_stable_offset"] == 2
    assert len(parse_batches(response["records"])) == 2
    assert fixture.offset(fixture.leader, -1, isolation=1) == (2, 0)
    assert fixture.offset(fixture.leader, -1) == (3, 0)


def test_a_fetch_waits_for_records() -> None:
    fixture = Fixture()
    delayed = fixture.fetch(fixture.leader, 0, max_wait_ms=500)
    assert isinstance(delayed, Delayed)
    assert delayed.poll() is None

    fixture.cluster.append(PARTITION, [b"a"])
    assert values(only_partition(delayed.poll())) == [b"a"]


def test_a_waiting_fetch_ends_with_an_election() -> None:
    fixture = Fixture()
    delayed = fixture.fetch(fixture.leader, 0, max_wait_ms=500, current_leader_epoch=0)
    fixture.event("elect_leader", topic="t", partition=0)

    assert only_partition(delayed.poll())["error_code"] == 74


def test_a_response_ends_with_an_incomplete_batch_but_starts_with_a_whole_one() -> None:
    fixture = Fixture()
    fixture.cluster.append(PARTITION, [b"a" * 100])
    fixture.cluster.append(PARTITION, [b"b" * 100])
    size = len(encode_batch([b"a" * 100]).data)

    assert len(fixture.fetch(fixture.leader, 0, partition_max_bytes=10)["records"]) == size
    assert len(fixture.fetch(fixture.leader, 0, partition_max_bytes=size + 50)["records"]) == size + 50


def test_tiered_storage_is_slow_and_may_return_nothing() -> None:
    fixture = Fixture(remote_read_delay=0.2)
    for value in (b"a", b"b", b"c"):
        fixture.cluster.append(PARTITION, [value])
    fixture.event("tier_log", topic="t", partition=0, fraction=0.7)

    assert fixture.offset(fixture.leader, -4) == (2, 0)
    assert fixture.offset(fixture.leader, -5) == (1, 0)
    delayed = fixture.fetch(fixture.leader, 0, max_wait_ms=500)
    assert delayed.poll() is None
    fixture.world.run_for(0.2)
    assert values(only_partition(delayed.poll()))[0] == b"a"

    fixture.event("lose_tiered_storage", topic="t", partition=0, seconds=5)
    delayed = fixture.fetch(fixture.leader, 0, max_wait_ms=500)
    fixture.world.run_for(0.2)
    assert only_partition(delayed.poll())["records"] == b""


def test_compaction_removes_records_and_keeps_offsets() -> None:
    fixture = Fixture()
    fixture.cluster.append(PARTITION, [b"a", b"b"])
    fixture.cluster.append(PARTITION, [b"c"])
    fixture.event("compact_log", topic="t", partition=0, fraction=1.0)

    response = fixture.fetch(fixture.leader, 0)
    assert [batch.base_offset for batch in parse_batches(response["records"])] == [2]
    assert fixture.cluster.oracle.may_be_missing(PARTITION, 1) == "it was compacted away"
    assert fixture.cluster.oracle.records(PARTITION, 0, 3, 0) == [(2, b"c")]


@pytest.mark.parametrize("topic_ids", [True, False])
def test_offered_versions(topic_ids: bool) -> None:
    fixture = Fixture(topic_ids=topic_ids)
    reply: Any = fixture.cluster.brokers[1].handle("ApiVersions", 3, None, "c")
    newest = {each["api_key"]: each["max_version"] for each in reply["api_keys"]}

    assert (newest[1], newest[3]) == ((17, 13) if topic_ids else (12, 9))


def test_an_unsupported_version_of_api_versions_gets_an_error() -> None:
    fixture = Fixture(newest_versions={"ApiVersions": 0})
    reply: Any = fixture.cluster.brokers[1].handle("ApiVersions", 3, None, "c")

    assert (reply["error_code"], len(reply["api_keys"])) == (35, 1)


@pytest.mark.parametrize("kind", sorted(EVENT_KINDS))
def test_an_event_of_a_missing_topic_has_no_effect(kind: str) -> None:
    fixture = Fixture()
    arguments = {"topic": "missing", "partition": 3, "seconds": 1.0, "fraction": 0.5, "broker": 7, "ms": 5, "count": 1}
    code: Any = EVENT_KINDS[kind].__code__
    names = code.co_varnames[1 : code.co_argcount]
    fixture.event(kind, **{name: arguments[name] for name in names if name in arguments and name != "partitions"})
    fixture.world.run_for(10)

    assert fixture.cluster.append(PARTITION, [b"a"]) == 0
