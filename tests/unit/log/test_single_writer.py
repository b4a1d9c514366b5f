"""Tables with a transactional id, of which the last one that was started is the only writer, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.log_cluster import TOPIC, LogCluster, tp

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    IllegalLogStateError,
    OptionError,
    ProducerFencedError,
    RecordTooLargeError,
    TruncatedError,
)
from pyspark_kafka_direct.log import RecordMetadata, Serde

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.log import KafkaTable


@pytest.fixture
def table(cluster: LogCluster) -> Iterator[KafkaTable[Any, Any]]:
    with cluster.table_of(transactional_id="writer") as table:
        yield table


def last_offsets(cluster: LogCluster) -> dict[Any, int]:
    """Return the offset of the last record of each partition, which a control record follows."""
    cluster.sleep(1)
    return {tp(number): cluster.log(tp(number)).end - 2 for number in range(2) if cluster.log(tp(number)).end}


def test_a_write_is_one_transaction_with_the_metadata_of_its_records(
    cluster: LogCluster, table: KafkaTable[Any, Any]
) -> None:
    cluster.elect(tp(0), 1)
    keys = [b"k%d" % number for number in range(6)]
    offsets = table.write(dict.fromkeys(keys, b"1"))
    assert offsets == last_offsets(cluster)
    assert offsets.keys() == {tp(0), tp(1)}
    table.wait_for(offsets, 10)
    assert table.snapshot() == dict.fromkeys(keys, b"1")
    table.wait_for(table.write({keys[0]: b"2"}, delete=keys[1:]), 10)
    assert table.snapshot() == {keys[0]: b"2"}
    table.wait_for(table.write({keys[0]: b"2", keys[1]: b"2"}, delete=[keys[1], keys[0]]), 10)
    assert table.snapshot() == {keys[0]: b"2", keys[1]: b"2"}, "a value of a key that is deleted, too, counts"
    table.wait_for(table.delete(keys[1]).result(0), 10)
    before = int(cluster.process.wall_time() * 1000)
    written = table.put(keys[0], b"3").result(0)
    target = tp(written.partition)
    assert written == RecordMetadata(
        *target,
        last_offsets(cluster)[target],
        written.timestamp,
        cluster.topic_id(TOPIC),
        cluster.partition(target).epoch,
    )
    assert before <= written.timestamp < before + 100
    table.wait_for(table.delete(keys[0]).result(0), 10)
    assert table.snapshot() == {}
    assert table.write({}) == {}


def test_the_last_table_that_was_started_is_the_only_writer(cluster: LogCluster, table: KafkaTable[Any, Any]) -> None:
    table.put(b"a", b"1")
    with cluster.table_of(transactional_id="writer") as second:
        assert second.snapshot() == {b"a": b"1"}
        message = r"can only read: another table has claimed transactional_id='writer'.* longer than 30 s"
        for _ in range(2):
            with pytest.raises(ProducerFencedError, match=message):
                table.put(b"a", b"2")
        table.wait_for(second.put(b"a", b"3").result(0), 10)
        assert table.snapshot() == second.snapshot() == {b"a": b"3"}
    with pytest.raises(IllegalLogStateError, match="stopped"):
        second.put(b"a", b"4")
    with pytest.raises(IllegalLogStateError, match="stopped"):
        second.write({b"a": b"4"})
    start = cluster.now
    second.stop(60)
    assert cluster.now - start < 1, "a second stop waits for nothing"


def test_a_start_does_not_wait_for_a_transaction_that_it_aborts(cluster: LogCluster) -> None:
    other = cluster.environment.process("other")

    def write_and_die() -> None:
        table = cluster.table_of(cluster.clients("read_committed", process=other), transactional_id="writer")
        table.start()
        cluster.fault("EndTxn", "crash_before_request")
        table.put(b"a", b"1")

    other.spawn("writer", write_and_die)
    cluster.sleep(5)
    assert other.dead
    start = cluster.now
    with cluster.table_of(transactional_id="writer") as table:
        assert cluster.now - start < 1
        assert table.snapshot() == {}


def test_an_invalid_record_does_not_end_the_claim(cluster: LogCluster, table: KafkaTable[Any, Any]) -> None:
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size \(1048576\)"):
        table.put(b"", bytes((1 << 20) + 1))
    with pytest.raises(RecordTooLargeError):
        table.write({b"k": b"1", bytes(1 << 19): bytes((1 << 19) + 1)})
    for invalid in (lambda: table.put(b"k", "v"), lambda: table.write({b"k": b"1", b"l": "v"})):
        with pytest.raises(TypeError, match="value must be bytes, got str"):
            invalid()
    with pytest.raises(TypeError, match="key must be bytes, got NoneType"):
        table.put(None, b"v")
    table.wait_for(table.put(b"k", b"v").result(0), 10)
    assert table.snapshot() == {b"k": b"v"}


def test_a_failed_write_ends_the_claim(cluster: LogCluster, table: KafkaTable[Any, Any]) -> None:
    cluster.fault("Produce", "error", code=29)
    with pytest.raises(AuthorizationError):
        table.put(b"k", b"v")
    with pytest.raises(IllegalLogStateError, match=r"cannot write\..* claim of transactional_id='writer' has ended"):
        table.put(b"k", b"v")
    table.read_to_end().result(10)
    assert table.snapshot() == {}


def test_a_claim_has_the_timeout_of_other_requests(cluster: LogCluster) -> None:
    cluster.every("InitProducerId", "stall_request")
    table, start = cluster.table_of(transactional_id="writer"), cluster.now
    with pytest.raises(BrokerTimeoutError):
        table.start()
    assert 59 < cluster.now - start < 70
    with pytest.raises(IllegalLogStateError, match="stopped"):
        table.read_to_end()


def test_a_write_that_outlives_the_stop_releases_its_connections(cluster: LogCluster) -> None:
    """The fixture checks that none is left."""
    table = cluster.table_of(transactional_id="writer")
    table.start()
    cluster.fault("Produce", "delay_response", seconds=5)
    written: list[int] = []
    cluster.process.spawn("write", lambda: written.append(table.put(b"k", b"v").result(0).partition))
    cluster.sleep(1)
    start = cluster.now
    table.stop(2)
    assert cluster.now - start < 3
    assert not written
    cluster.sleep(10)
    assert written


def test_a_write_below_the_position_reveals_a_truncation(cluster: LogCluster) -> None:
    """The consumer gets no responses, so it does not detect it."""
    for _ in range(3):
        cluster.put(b"k", b"1")
    with cluster.table_of(transactional_id="writer", partitions=lambda number: number == 0) as table:
        cluster.every("Fetch", "stall_request")
        cluster.truncate(tp(0), 0, leader=2)
        while table.put(b"k%d" % cluster.now, b"2").result(0).partition:
            cluster.sleep(1)
        with pytest.raises(TruncatedError):
            table.wait_for({0: 0}, 60)
        cluster.every("Fetch", None)
        table.wait_for({0: 0}, 60)
        assert b"k" not in table.snapshot()


def test_only_tables_with_a_transactional_id_write_several_records(cluster: LogCluster) -> None:
    with cluster.table_of(key_serde=Serde.string(), value_serde=Serde.json()) as table:
        table.wait_for(table.put("k", [1]).result(10), 10)
        assert table["k"] == [1]
        with pytest.raises(IllegalLogStateError, match=r"write\(\) needs a table with a transactional_id"):
            table.write({"k": [2]})
    with pytest.raises(OptionError, match="transactional_id must be"):
        cluster.table_of(transactional_id=7)


def test_a_table_with_more_partitions_rejects_writes(cluster: LogCluster, table: KafkaTable[Any, Any]) -> None:
    cluster.event("expand_topic", topic=TOPIC)
    with pytest.raises(IllegalLogStateError):
        table.log.read_to_end().result(60)
    end = cluster.log(tp(0)).end
    for write in (lambda: table.put(b"k", b"v"), lambda: table.write({b"k": b"v"}), lambda: table.wait_for({0: 0}, 0)):
        with pytest.raises(IllegalLogStateError, match="has 3 partitions, and the table was made for 2"):
            write()
    assert cluster.log(tp(0)).end == end


def test_a_write_that_is_read_before_its_response_arrives_is_no_truncation(
    cluster: LogCluster, table: KafkaTable[Any, Any]
) -> None:
    cluster.fault("EndTxn", "delay_response", seconds=2)
    offsets = table.write({b"a": b"1", b"b": b"1"})
    assert table.snapshot() == {b"a": b"1", b"b": b"1"}  # the consumer was faster than the response
    start = cluster.now
    table.wait_for(offsets, 1)
    table.read_to_end().result(5)
    assert cluster.now - start < 1


def test_a_start_has_one_timeout_for_the_claim_and_the_read(cluster: LogCluster) -> None:
    cluster.before("InitProducerId", lambda: cluster.every("ListOffsets", "stall_request"))
    cluster.fault("InitProducerId", "delay_response", seconds=8)
    start = cluster.now
    with pytest.raises(BrokerTimeoutError, match="start_timeout"):
        cluster.table_of(transactional_id="writer", start_timeout=10).start()
    assert cluster.now - start == pytest.approx(10, abs=1)
