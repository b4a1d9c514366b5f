"""Waiting for a record of another topic, or of another leader, than was read; on a simulated cluster."""

from __future__ import annotations

import pytest
from tests.unit.log.log_cluster import TOPIC, LogCluster, tp

from pyspark_kafka_direct.errors import BrokerTimeoutError, IllegalLogStateError, TruncatedError
from pyspark_kafka_direct.log import RecordMetadata


@pytest.mark.parametrize("is_later", [False, True])
def test_a_log_is_read_to_its_end_for_a_record_that_it_may_lack(cluster: LogCluster, is_later: bool) -> None:
    """Such as one of a topic that was deleted since: the new topic may have more records."""
    cluster.append(tp(0), 9)
    leader_epoch = cluster.partition(tp(0)).epoch + is_later
    with cluster.log_of() as log:
        if is_later:
            cluster.elect(tp(0), 2)
            cluster.sleep(1)
        requested = cluster.ends_requested()
        log.wait_for(RecordMetadata(TOPIC, 0, 5, 0, cluster.topic_id(TOPIC), leader_epoch), 60)
        assert cluster.ends_requested() - requested == 2 * is_later, "the two partitions have different leaders"
        log.wait_for({0: 5}, 60)
        assert cluster.ends_requested() - requested == 2 * is_later, "an offset has no topic id"


def test_a_wait_for_a_record_does_not_end_at_another_one_that_was_read_at_its_offset(cluster: LogCluster) -> None:
    """The log was truncated, and has grown to its earlier end again before the consumer finds that out."""
    cluster.append_each(tp(0), 5)
    with cluster.log_of() as log:
        cluster.every("Fetch", "stall_request")
        cluster.break_connections()
        cluster.truncate(tp(0), 3)
        cluster.append_each(tp(0), 2)
        sent = RecordMetadata(TOPIC, 0, 3, 0, cluster.topic_id(TOPIC), cluster.partition(tp(0)).epoch)
        with pytest.raises(BrokerTimeoutError, match="Offset 3 was not read within 5 s"):
            log.wait_for(sent, 5)
        cluster.every("Fetch", None)
        cluster.break_connections()
        with pytest.raises(TruncatedError):
            log.wait_for(sent, 60)
        log.wait_for(sent, 60)
    assert cluster.offsets() == [0, 1, 2, 3, 4, 3, 4]


@pytest.mark.parametrize(("offsets", "partition", "position"), [({0: 5, 1: 0}, 0, 2), ({0: 1, 1: 5}, 1, 0)])
def test_a_timeout_names_the_offset(
    cluster: LogCluster, offsets: dict[int, int], partition: int, position: int
) -> None:
    cluster.append(tp(0), 2)
    with cluster.log_of() as log:
        cluster.every("ListOffsets", "delay_response", seconds=9)
        log.read_to_end().result(60)  # the errors of its first requests, which timed out, no longer count
        with pytest.raises(BrokerTimeoutError) as caught:
            log.wait_for(offsets, 1.5)
    message = f"Offset 5 was not read within 1.5 s; the next offset to read is {position}."
    assert (caught.value.message, caught.value.partition, caught.value.offset) == (message, partition, 5)


def test_a_wait_for_partitions_of_which_one_is_not_selected_fails(cluster: LogCluster) -> None:
    with cluster.log_of(partitions=lambda number: number == 0) as log:
        for offsets in ({0: 0, 1: 0}, {1: 0, 0: 0}):
            with pytest.raises(ValueError, match="settings-1 is not read by this log; it reads settings-0"):
                log.wait_for(offsets, 60)


def test_callbacks_of_a_log_and_of_its_records_cannot_wait_for_the_log(cluster: LogCluster) -> None:
    raised: list[str] = []

    def wait_for_end(*_: object) -> None:
        try:
            log.read_to_end().result(5)
        except IllegalLogStateError:
            raised.append("read_to_end")

    def wait_for_offset(_: object) -> None:
        try:
            log.wait_for({0: 99}, 5)
        except IllegalLogStateError:
            raised.append("wait_for")

    with cluster.log_of() as log:
        for callback in (wait_for_end, wait_for_offset):
            log.read_to_end(callback).result(60)
        log.send(b"k", b"v", wait_for_end)
        log.flush(10)
        cluster.sleep(1)
        assert raised == ["read_to_end", "wait_for", "read_to_end"]
