"""Logs whose records expire, whose log is truncated, or whose topic is recreated, on a simulated cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.log_cluster import TOPIC, LogCluster, outcome, tp

from pyspark_kafka_direct.errors import BrokerTimeoutError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.spark.loss_counts import LossCounter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.log import KafkaBasedLog


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    counted: list[Any] = []
    monkeypatch.setattr(LossCounter, "add", lambda _, *loss: counted.append(loss))
    return counted


@pytest.fixture
def log(cluster: LogCluster) -> Iterator[KafkaBasedLog]:
    """A log that has read five records."""
    cluster.append_each(tp(0), 5)
    with cluster.log_of() as log:
        assert cluster.offsets() == [0, 1, 2, 3, 4]
        yield log


def recreate(cluster: LogCluster, partitions: int = 2) -> None:
    cluster.event("recreate_topic", topic=TOPIC, partitions=partitions)


def let_consumer_miss_everything(cluster: LogCluster) -> None:
    """Let the consumer get no responses, so that only the ends and the topic's metadata show a change."""
    cluster.every("Fetch", "stall_request")
    cluster.break_connections()


def with_ends(response: dict[str, Any], end: int) -> dict[str, Any]:
    """Return a response to ListOffsets with an end instead of later ones."""
    for topic in response["topics"]:
        for partition in topic["partitions"]:
            partition["offset"] = min(partition["offset"], end)
    return response


# Expired records.


def test_expired_records_are_skipped(cluster: LogCluster, losses: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    with cluster.log_of() as log, caplog.at_level(logging.WARNING):
        cluster.withhold(0, 1)
        cluster.append(tp(0), 10)
        cluster.delete_records(tp(0), 6)
        assert outcome(log.read_to_end()) is None
        assert cluster.offsets() == [6, 7, 8, 9]
        assert "Reading continues at offset 6 instead of 0." in caplog.text
        assert losses == [(DataLossCause.AGED_OUT, {tp(0): 6})]
        assert cluster.errors == cluster.resets == []


def test_a_deposed_leader_does_not_decide_where_reading_continues(cluster: LogCluster, losses: list[Any]) -> None:
    with cluster.log_of() as log:
        cluster.withhold(0, 2)
        cluster.append_each(tp(0), 10)
        cluster.delete_records(tp(0), 6)
        cluster.depose(1)
        cluster.partition(tp(0)).replicas[1].advance_start(9)
        cluster.sleep(5)
        cluster.heal()
        assert outcome(log.read_to_end()) is None
        assert losses == [(DataLossCause.AGED_OUT, {tp(0): 6})]
        assert cluster.offsets() == [6, 7, 8, 9]


def test_the_log_start_is_requested_until_a_broker_responds(cluster: LogCluster, losses: list[Any]) -> None:
    with cluster.log_of() as log:
        cluster.withhold(0, 1)
        cluster.append(tp(0), 10)
        cluster.delete_records(tp(0), 10)
        cluster.fault("ListOffsets", "lose_response", number=1, repeats=9)
        assert outcome(log.read_to_end()) is None
        assert log.positions[tp(0)] == 10
        assert losses == [(DataLossCause.AGED_OUT, {tp(0): 10})]


# Truncated logs.


def test_reading_resumes_at_the_truncation_offset(cluster: LogCluster, log: KafkaBasedLog) -> None:
    """Pending reads fail when the positions are reset, so that a read which a callback requests does not complete."""
    found: list[Any] = []
    cluster.withhold(1, 4)
    cluster.append(tp(1), 1)
    read = log.read_to_end(lambda error: found.append((error, log.positions[tp(0)], list(cluster.resets))))
    cluster.sleep(1)
    cluster.truncate(tp(0), 3)
    cluster.append(tp(0), 1)
    error = outcome(read)
    assert isinstance(error, TruncatedError)
    assert found == [(error, 3, [error])]
    log.read_to_end().result(60)
    assert cluster.offsets() == [3]


def test_no_read_completes_while_the_end_is_below_the_position(cluster: LogCluster, log: KafkaBasedLog) -> None:
    """The log was truncated and the consumer has not detected it yet, so records that were read may be lost."""
    let_consumer_miss_everything(cluster)
    cluster.truncate(tp(0), 2)
    cluster.append(tp(0), 1)
    assert isinstance(outcome(log.read_to_end()), TruncatedError)
    second = log.read_to_end()
    cluster.sleep(5)
    assert not second.done()
    cluster.every("Fetch", None)
    cluster.break_connections()
    assert isinstance(outcome(second), TruncatedError)
    assert [each.truncated_to for each in cluster.resets] == [2]
    log.read_to_end().result(60)
    assert cluster.offsets() == [2]


def test_no_read_completes_if_a_truncated_log_grows_past_the_position(cluster: LogCluster, log: KafkaBasedLog) -> None:
    """The position is that of replaced records."""
    let_consumer_miss_everything(cluster)
    cluster.truncate(tp(0), 2)
    assert isinstance(outcome(log.read_to_end()), TruncatedError)
    read = log.read_to_end()
    cluster.sleep(0.5)
    cluster.append(tp(0), 3)
    cluster.sleep(5)
    assert not read.done()
    cluster.every("Fetch", None)
    cluster.break_connections()
    assert isinstance(outcome(read), TruncatedError)
    log.read_to_end().result(60)
    assert cluster.offsets() == [2, 3, 4]


def test_a_truncated_log_is_read_again_if_the_consumer_does_not_find_that_out(
    cluster: LogCluster, log: KafkaBasedLog
) -> None:
    let_consumer_miss_everything(cluster)
    cluster.truncate(tp(0), 2)
    assert isinstance(outcome(log.read_to_end()), TruncatedError)
    assert isinstance(outcome(log.read_to_end(), 20), TruncatedError)
    assert [each.truncated_to for each in cluster.resets] == [None]
    cluster.every("Fetch", None)
    log.read_to_end().result(60)
    assert cluster.offsets() == [0, 1]


@pytest.mark.parametrize(("versions", "first"), [({"Fetch": 11}, 0), ({}, 2)], ids=["without-epochs", "epochs"])
def test_each_of_two_truncated_partitions_is_read_again(versions: dict[str, int], first: int) -> None:
    """Both grow to their positions before the consumer has a response; without epochs, it cannot find that out."""
    with LogCluster(topic_ids=False, transaction_version=0, newest_versions=versions) as cluster:
        for number in (0, 1):
            cluster.append_each(tp(number), 5)
        with cluster.log_of() as log:
            cluster.delivered.clear()
            let_consumer_miss_everything(cluster)
            for number in (0, 1):
                cluster.truncate(tp(number), 2)
            assert isinstance(outcome(log.read_to_end()), TruncatedError)
            read = log.read_to_end()
            cluster.sleep(0.5)
            for number in (0, 1):
                cluster.append(tp(number), 3)
            cluster.every("Fetch", None)
            cluster.break_connections()
            assert isinstance(outcome(read), TruncatedError)
            while isinstance(error := outcome(log.read_to_end()), TruncatedError):  # of the other partition
                pass
            assert error is None
            assert [cluster.offsets(number) for number in (0, 1)] == [[*range(first, 5)]] * 2
            assert sorted(each.partition for each in cluster.resets) == [0, 1]


def test_an_end_that_is_too_low_after_an_election_shows_no_truncation_before_kafka_2_2() -> None:
    with LogCluster(topic_ids=False, transaction_version=0, newest_versions={"ListOffsets": 4}) as cluster:
        cluster.append_each(tp(0), 5)
        with cluster.log_of() as log:
            cluster.offsets()
            cluster.change("ListOffsets", lambda _, response: with_ends(response, 3))
            assert isinstance(outcome(log.read_to_end()), TruncatedError)
            read = log.read_to_end()
            cluster.sleep(0.5)
            cluster.change("ListOffsets", None)
            began_at = cluster.now
            assert outcome(read) is None
            assert cluster.now < began_at + 5
            cluster.sleep(20)
            assert cluster.offsets() == cluster.resets == []


def test_sends_into_truncated_partitions_do_not_postpone_the_end_of_the_check() -> None:
    """Each of them shows again that records were replaced."""
    with LogCluster(leader_epochs=False, topic_ids=False, transaction_version=0) as cluster:
        for number in (0, 1):
            cluster.append_each(tp(number), 50)
        with cluster.log_of() as log:
            cluster.delivered.clear()
            let_consumer_miss_everything(cluster)
            for number in (0, 1):
                cluster.truncate(tp(number), 2)
            for second in range(20):
                sent = [log.send_with_receipt(b"%d" % key, b"%d" % second) for key in range(4)]
                assert {each.result(60).partition for each in sent} == {0, 1}
                cluster.sleep(1)
            assert {each.partition for each in cluster.resets} == {0, 1}
            cluster.every("Fetch", None)
            cluster.break_connections()
            log.read_to_end().result(60)
            for number in (0, 1):
                assert cluster.offsets(number) == [*range(cluster.log(tp(number)).end)]


def test_after_a_truncation_the_log_is_read_again_if_on_reset_returns_true(cluster: LogCluster) -> None:
    with cluster.log_of(on_reset=lambda _: True) as log:
        cluster.append_each(tp(0), 5)
        cluster.append_each(tp(1), 2)
        log.read_to_end().result(60)
        found: list[Any] = []
        cluster.withhold(1, 4)
        cluster.append(tp(1), 1)
        read = log.read_to_end(lambda error: found.append((error, dict(log.positions))))
        cluster.sleep(1)
        cluster.delivered.clear()
        cluster.truncate(tp(0), 3)
        cluster.append(tp(0), 1)
        assert found == [(outcome(read), {})]
        log.read_to_end().result(60)
        assert sorted(cluster.delivered) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]


def test_a_position_beyond_the_end_is_a_truncation_at_an_unknown_offset() -> None:
    """Brokers before Kafka 2.1 have no leader epochs, so the log is read from its beginning."""
    with LogCluster(leader_epochs=False, topic_ids=False, transaction_version=0) as cluster:
        cluster.append_each(tp(0), 5)
        with cluster.log_of() as log:
            cluster.offsets()
            cluster.truncate(tp(0), 2)
            assert isinstance(outcome(log.read_to_end()), TruncatedError)
            cluster.sleep(10)
            log.read_to_end().result(60)
            assert [each.truncated_to for each in cluster.resets] == [None]
            assert cluster.offsets() == [0, 1]


def test_a_lower_end_fails_reads_although_the_consumer_has_read_no_lost_record(
    cluster: LogCluster, log: KafkaBasedLog
) -> None:
    """The consumer was at 5 of 9 when the log was truncated to 7: offsets 7 and 8 never arrive."""
    cluster.withhold(0, 3)
    cluster.append_each(tp(0), 4)
    active = log.read_to_end()
    cluster.sleep(1)
    cluster.truncate(tp(0), 7)
    assert isinstance(outcome(active), TruncatedError)
    log.read_to_end().result(60)
    assert cluster.offsets() == [5, 6]
    assert cluster.resets == []


def test_a_longer_log_of_an_older_epoch_is_read_from_its_beginning(cluster: LogCluster) -> None:
    """The new leader lacks the epoch of the records that were read."""
    target = cluster.partition(tp(0))
    cluster.append(tp(0), 20)
    older = list(cluster.log(tp(0)).batches)
    cluster.truncate(tp(0), 0, leader=2)
    cluster.append_each(tp(0), 5)
    with cluster.log_of() as log:
        assert cluster.offsets() == [0, 1, 2, 3, 4]
        for replica in target.replicas.values():
            replica.truncate_to(0)
            replica.epoch_starts[:] = [(0, 0)]
            for batch in older:
                replica.append(batch, 0)
            replica.advance_high_watermark(20)
        cluster.elect(tp(0), 1)
        assert isinstance(outcome(log.read_to_end()), TruncatedError)
        log.read_to_end().result(60)
        assert [each.truncated_to for each in cluster.resets] == [0]
        assert cluster.offsets() == [*range(20)]


def test_a_truncation_offset_at_the_log_start_counts_as_unknown(cluster: LogCluster, log: KafkaBasedLog) -> None:
    """The new leader no longer has the epochs of the records before its log start, so those may have been replaced."""
    cluster.delete_records(tp(0), 2)
    cluster.truncate(tp(0), 2)
    cluster.append(tp(0), 6)
    cluster.sleep(10)
    log.read_to_end().result(60)
    assert [each.truncated_to for each in cluster.resets] == [None]
    assert cluster.offsets() == [*range(2, 8)]


# Recreated topics.


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_recreated_topic_is_read_from_its_beginning(cluster: LogCluster, log: KafkaBasedLog, partitions: int) -> None:
    recreate(cluster, partitions)
    cluster.append(tp(partitions - 1), 1)
    assert isinstance(outcome(log.read_to_end()), TopicRecreatedError)
    log.read_to_end().result(60)
    assert cluster.delivered == [(partitions - 1, 0)]
    assert log.positions == {tp(number): int(number == partitions - 1) for number in range(partitions)}
    assert [type(each) for each in cluster.resets] == [TopicRecreatedError]


def test_a_topic_without_id_that_has_fewer_partitions_is_read_from_its_beginning() -> None:
    with LogCluster(topic_ids=False, transaction_version=0) as cluster:
        cluster.append_each(tp(0), 5)
        with cluster.log_of() as log:
            cluster.delivered.clear()
            let_consumer_miss_everything(cluster)
            recreate(cluster, 1)
            cluster.append(tp(0), 9)
            assert isinstance(outcome(log.read_to_end()), TopicRecreatedError)
            cluster.every("Fetch", None)
            cluster.break_connections()
            log.read_to_end().result(60)
            assert cluster.offsets() == [*range(9)]
            assert log.positions == {tp(0): 9}


def test_each_recreation_is_confirmed_by_several_brokers(cluster: LogCluster) -> None:
    reset_at: list[float] = []

    def recreate_again(_: object) -> None:
        reset_at.append(cluster.now)
        if len(reset_at) == 1:
            recreate(cluster)

    with cluster.log_of(on_reset=recreate_again) as log:
        recreate(cluster)
        cluster.sleep(60)
        log.read_to_end().result(60)
        assert len(reset_at) == 2
        assert reset_at[1] - reset_at[0] >= 5


@pytest.mark.parametrize("count", [1, 5])
def test_ends_of_a_recreated_topic_complete_no_read(cluster: LogCluster, log: KafkaBasedLog, count: int) -> None:
    """The consumer has not detected it yet, and the new log may be as long as the old one."""
    let_consumer_miss_everything(cluster)
    recreate(cluster)
    cluster.append(tp(0), count)
    assert isinstance(outcome(log.read_to_end()), TopicRecreatedError)
    cluster.every("Fetch", None)
    log.read_to_end().result(60)
    assert cluster.offsets() == [*range(count)]
    assert len(cluster.resets) == 1


# Records that the log sends.


def test_a_record_written_below_the_position_reveals_a_recreated_topic(cluster: LogCluster, log: KafkaBasedLog) -> None:
    """A read past its offset does not complete, although the position is higher."""
    let_consumer_miss_everything(cluster)
    recreate(cluster)
    assert log.send_with_receipt(b"k", b"v").result(60).offset == 0
    with pytest.raises(TopicRecreatedError):
        log.wait_for({0: 0}, 60)
    cluster.every("Fetch", None)
    log.wait_for({0: 0}, 60)
    assert cluster.delivered == [(0, 0)]


@pytest.mark.parametrize("is_detected", [True, False])
def test_a_record_written_below_the_position_reveals_a_truncation(
    cluster: LogCluster, log: KafkaBasedLog, is_detected: bool
) -> None:
    """If the consumer does not detect it, the truncation counts as one at an unknown offset after ten seconds."""
    let_consumer_miss_everything(cluster)
    cluster.truncate(tp(0), 3)
    while (sent := log.send_with_receipt(b"k", b"v").result(60)).partition:
        pass
    assert sent.offset == 3
    start = cluster.now
    with pytest.raises(BrokerTimeoutError):
        log.wait_for({0: 3}, 5)
    if is_detected:
        cluster.every("Fetch", None)
        cluster.break_connections()
    with pytest.raises(TruncatedError):
        log.wait_for({0: 3}, 60)
    if not is_detected:
        assert 10 <= cluster.now - start < 15
        cluster.every("Fetch", None)
    log.wait_for({0: 3}, 60)
    assert cluster.offsets() == ([3] if is_detected else [0, 1, 2, 3])


def test_records_sent_before_a_truncation_reveal_nothing(cluster: LogCluster, log: KafkaBasedLog) -> None:
    cluster.truncate(tp(0), 3)
    cluster.fault("Produce", "delay_response", seconds=20)
    sent = log.send_with_receipt(b"k", b"v")
    cluster.sleep(10)
    assert len(cluster.resets) == 1
    assert sent.result(20).offset in (0, 3)
    start = cluster.now
    log.read_to_end().result(60)
    assert cluster.now - start < 1
