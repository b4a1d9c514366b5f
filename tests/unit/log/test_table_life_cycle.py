"""Tables that are not started, stopped or abandoned, and keys that are not hashable, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import IllegalLogStateError
from pyspark_kafka_direct.log import KafkaOffsetStore, KafkaTable, Serde

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.log.log_cluster import LogCluster

READS: dict[str, Callable[[KafkaTable[Any, Any]], object]] = {
    "len": len,
    "list": list,
    "dict": dict,
    "bool": bool,
    "[]": lambda table: table[b"k"],
    "in": lambda table: b"k" in table,
    "get": lambda table: table.get(b"k"),
    "items": lambda table: table.items(),
    "keys": lambda table: list(table.keys()),
    "values": lambda table: table.values(),
    "snapshot": lambda table: table.snapshot(),
    "raw_snapshot": lambda table: table.raw_snapshot(),
    "==": lambda table: table == {},
}


def all_reads_raise(table: KafkaTable[Any, Any], message: str) -> None:
    for name, read in READS.items():
        with pytest.raises(IllegalLogStateError, match=message):
            pytest.fail(f"{name}: {read(table)}")


def test_a_table_can_be_read_from_its_start_to_its_stop(cluster: LogCluster) -> None:
    cluster.put(b"k", b"1")
    table = cluster.table_of()
    assert repr(table) == "KafkaTable('settings', not started)"
    all_reads_raise(table, r"is not started; reading the table needs a running log\. Call start\(\) first")
    with table:
        assert {name: bool(read(table)) for name, read in READS.items()} == {name: name != "==" for name in READS}
        assert repr(table) == "KafkaTable('settings', 1 keys)"
    assert repr(table) == "KafkaTable('settings', stopped)"
    all_reads_raise(table, "is stopped; .* Create another one")


def test_a_table_that_is_starting_can_be_read_by_its_callback_only(cluster: LogCluster) -> None:
    cluster.put(b"k", b"1")
    changes: list[Any] = []
    table: KafkaTable[Any, Any]
    table = cluster.table_of(on_change=lambda key, value: changes.append((key, value, table[key], repr(table))))
    cluster.fault("Fetch", "delay_response", seconds=5)
    cluster.process.spawn("start", table.start)
    cluster.sleep(1)
    all_reads_raise(table, "is not started")
    assert repr(table) == repr(table.log).replace("KafkaBasedLog", "KafkaTable") == "KafkaTable('settings', starting)"
    cluster.sleep(10)
    assert changes == [(b"k", b"1", b"1", "KafkaTable('settings', starting)")]
    assert len(table) == 1
    table.stop()


@pytest.mark.parametrize("idle_seconds", [0, 45, 1000])
def test_a_log_that_waits_for_records_stops_at_once(cluster: LogCluster, idle_seconds: int) -> None:
    cluster.put(b"k", b"1")
    for each in (cluster.log_of(), cluster.table_of()):
        each.start()
        cluster.sleep(idle_seconds)
        began = cluster.now
        each.stop(60)
        assert cluster.now - began < 0.1


def test_a_flush_waits_for_all_records_that_were_sent(cluster: LogCluster) -> None:
    with cluster.log_of() as log, cluster.table_of() as table:
        cluster.every("Produce", "delay_response", seconds=5)
        sent = [log.send_with_receipt(b"k%d" % number, b"v") for number in range(4)]
        log.flush(60)
        assert all(each.done() for each in sent)
        sent = [table.put(b"k%d" % number, b"v") for number in range(4)]
        table.flush(60)
        assert all(each.done() for each in sent)
    for stopped in (log, table):
        with pytest.raises(IllegalLogStateError, match=r"is stopped; flush\(\) needs a running log"):
            stopped.flush()


def test_a_read_fails_if_the_log_stops_before_it_is_pending(
    cluster: LogCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = cluster.log_of()
    log.start()
    monkeypatch.setattr(log._thread, "check_started", lambda _: log.stop(60))  # as another thread may do
    with pytest.raises(IllegalLogStateError, match="The log was stopped"):
        log.read_to_end().result(60)


def test_a_failed_start_leaves_a_stopped_table(cluster: LogCluster) -> None:
    cluster.deny_topic(100)
    table = cluster.table_of()
    with pytest.raises(PermissionError):
        table.start()
    all_reads_raise(table, "is stopped")


def test_the_state_of_logs_and_offset_stores_is_in_their_repr(cluster: LogCluster) -> None:
    log = cluster.log_of()
    assert repr(log) == "KafkaBasedLog('settings', not started)"
    with log:
        assert repr(log) == "KafkaBasedLog('settings', started)"
    assert repr(log) == "KafkaBasedLog('settings', stopped)"
    store = KafkaOffsetStore("offsets", "job", {"bootstrap.servers": "localhost:1"})
    assert repr(store) == "KafkaOffsetStore('offsets', 'job', new)"
    store.close()
    assert repr(store) == "KafkaOffsetStore('offsets', 'job', closed)"


def test_keys_that_are_not_hashable(cluster: LogCluster) -> None:
    """As those of the topic in which Kafka Connect stores the offsets of sources."""
    cluster.put(b'["file-source",{"filename":"a"}]', b'{"position":10}')
    cluster.put(b'["file-source",{"filename":"b"}]', b'{"position":20}', partition=1)
    cluster.put(b'"text"', b"1")
    key = ["file-source", {"filename": "a"}]
    expected = [
        (key, {"position": 10}),
        ("text", 1),
        (["file-source", {"filename": "b"}], {"position": 20}),
    ]
    with cluster.table_of(key_serde=Serde.json(), value_serde=Serde.json()) as table:
        assert table[key] == {"position": 10}
        assert sorted(table.items(), key=repr) == sorted(expected, key=repr)
        assert sorted(table.keys(), key=repr) == sorted((key for key, _ in expected), key=repr)
        assert sorted(table.values(), key=repr) == sorted((value for _, value in expected), key=repr)
        assert (key, {"position": 10}) in table.items()
        snapshot = table.snapshot()
        assert snapshot == table.snapshot()
        assert snapshot != {"text": 1}
        table.wait_for(table.delete(key).result(10), 10)
        assert key not in table
        assert snapshot != table.snapshot()
        assert (snapshot[key], snapshot["text"], len(snapshot), key in snapshot) == ({"position": 10}, 1, 3, True)
        assert list(snapshot.items()) == [(each, snapshot[each]) for each in snapshot]
        assert snapshot.get(["other"]) is None
        with pytest.raises(KeyError, match=r"^\['other'\]$"):
            snapshot[["other"]]
        assert "'position': 10" in repr(snapshot)
    with cluster.table_of(key_serde=Serde.json(), partitions=lambda number: number == 0) as table:
        assert type(table.snapshot()) is dict


def test_keys_that_are_not_hashable_nor_written_as_the_serde_writes_them(cluster: LogCluster) -> None:
    """With spaces, and fields in another order: Kafka Connect does not sort them."""
    cluster.put(b'["file-source", {"line":2,"filename":"a"}]', b"3")
    key = ["file-source", {"filename": "a", "line": 2}]
    with cluster.table_of(key_serde=Serde.json(), value_serde=Serde.json()) as table:
        assert (list(table.items()), list(table.values())) == ([(key, 3)], [3])
        assert table.snapshot()[key] == 3


@pytest.mark.parametrize("transactional_id", [None, "writer"])
def test_a_stop_has_one_timeout(cluster: LogCluster, transactional_id: str | None) -> None:
    """It waits for a callback and for a write, which both take longer."""
    table = cluster.table_of(transactional_id=transactional_id, on_change=lambda *_: cluster.sleep(20))
    table.start()
    cluster.every("Produce", "delay_response", seconds=20)
    cluster.put(b"k", b"1")

    def put() -> None:
        table.put(b"k", b"2")

    cluster.process.spawn("put", put)
    cluster.sleep(1)
    start = cluster.now
    table.stop(4)
    assert 4 <= cluster.now - start < 7
