"""A table is read again after a reset and after an error, and an error loses no record; on a simulated cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.log_cluster import TOPIC, LogCluster, outcome, tp

from pyspark_kafka_direct.errors import IllegalLogStateError, TopicNotFoundError
from pyspark_kafka_direct.log import record_callbacks
from pyspark_kafka_direct.log.table_state import TableContents

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.log import KafkaTable
    from pyspark_kafka_direct.offsets import TopicPartition

FIVE = {b"k%d" % number: b"v" for number in range(5)}


@pytest.fixture
def table(cluster: LogCluster) -> Iterator[KafkaTable[Any, Any]]:
    """A table of five keys, whose fetches return one record."""
    for key in FIVE:
        cluster.put(key, b"v")
    with cluster.table_of(cluster.clients("read_committed", fetch_max_bytes=1)) as table:
        assert table.snapshot() == FIVE
        yield table


@pytest.fixture
def apply_errors(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Errors that the next changes of tables raise."""
    errors: list[BaseException] = []
    apply = TableContents.apply

    def apply_or_fail(contents: TableContents, *arguments: Any) -> bytes | None:
        if errors:
            raise errors.pop()
        return apply(contents, *arguments)

    monkeypatch.setattr(TableContents, "apply", apply_or_fail)
    return errors


def test_the_earlier_contents_remain_until_everything_was_read_again(
    cluster: LogCluster, table: KafkaTable[Any, Any]
) -> None:
    cluster.every("Fetch", "delay_response", seconds=0.1)
    cluster.truncate(tp(0), 3, leader=2)
    cluster.put(b"other", b"v")
    while table.current_as_of is not None:
        cluster.sleep(0.01)
    read_past: list[float] = []

    def wait() -> None:
        table.wait_for({0: 0})
        read_past.append(cluster.now)

    while table.snapshot() == FIVE:
        cluster.process.spawn("wait", wait)  # the offset is read again soon, and visible at the end
        cluster.sleep(0.01)
        assert not read_past or table.snapshot() != FIVE
    assert table.snapshot() == {b"k0": b"v", b"k1": b"v", b"k2": b"v", b"other": b"v"}
    cluster.sleep(0.1)
    assert read_past, "the wait for offset 0 waits for the whole table"


@pytest.mark.parametrize("is_recreated", [False, True])
def test_a_second_loss_while_a_table_is_read_again(
    cluster: LogCluster, table: KafkaTable[Any, Any], is_recreated: bool
) -> None:
    """The contents that were loaded aside until then have records that the second loss removes."""
    cluster.every("Fetch", "delay_response", seconds=0.1)
    cluster.truncate(tp(0), 4, leader=2)
    cluster.put(b"between", b"v")
    while table.current_as_of is not None:
        cluster.sleep(0.01)
    while table.log.positions.get(tp(0), 0) < 2:
        cluster.sleep(0.01)
    assert table.snapshot() == FIVE, "the table is still being read again"
    if is_recreated:
        cluster.event("recreate_topic", topic=TOPIC, partitions=2)
    else:
        cluster.truncate(tp(0), 1, leader=1)
    cluster.put(b"other", b"v")
    cluster.sleep(60)
    assert table.current_as_of is not None
    assert table.snapshot() == {b"other": b"v", **({} if is_recreated else {b"k0": b"v"})}


def test_a_table_is_complete_again_although_no_read_is_requested(
    cluster: LogCluster, table: KafkaTable[Any, Any]
) -> None:
    cluster.event("recreate_topic", topic=TOPIC, partitions=2)
    cluster.put(b"other", b"v")
    cluster.sleep(60)
    assert table.snapshot() == {b"other": b"v"}
    assert table.current_as_of is not None


def test_an_error_while_rows_are_applied_fails_reads_until_the_table_was_read_again(
    cluster: LogCluster, table: KafkaTable[Any, Any], apply_errors: list[BaseException]
) -> None:
    error = MemoryError()
    apply_errors += [error, error]
    cluster.put(b"other", b"v")
    cluster.requests.clear()
    assert [outcome(table.read_to_end()) for _ in range(3)] == [error, error, None]
    assert table.snapshot() == {**FIVE, b"other": b"v"}
    assert (tp(0), 0) in cluster.fetched(), "it is read from the beginning"


def test_a_table_with_an_error_is_read_again_after_pauses(
    cluster: LogCluster, table: KafkaTable[Any, Any], apply_errors: list[BaseException]
) -> None:
    apply_errors += [MemoryError()] * 1000
    cluster.put(b"other", b"v")
    cluster.sleep(20)
    assert 10 < 1000 - len(apply_errors) < 30


def test_records_that_cannot_be_converted_are_delivered_later(
    cluster: LogCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = record_callbacks.to_log_records
    failing = [tp(0), tp(1), tp(1)]

    def to_log_records(partition: TopicPartition, rows: pa.RecordBatch) -> Any:
        if partition in failing:
            failing.remove(partition)
            raise MemoryError
        return convert(partition, rows)

    with cluster.log_of() as log:
        monkeypatch.setattr(record_callbacks, "to_log_records", to_log_records)
        cluster.append(tp(0), 3)
        cluster.append(tp(1), 2)
        assert isinstance(outcome(log.read_to_end()), MemoryError)
        cluster.sleep(5)
        assert outcome(log.read_to_end()) is None
        assert sorted(cluster.delivered) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


@pytest.mark.parametrize("failing", range(3))
def test_all_rows_of_a_poll_are_delivered_after_an_error(
    cluster: LogCluster, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """A poll returns several batches of a partition if they are small."""
    convert, converted = record_callbacks.to_log_records, list[Any]()

    def to_log_records(partition: TopicPartition, rows: pa.RecordBatch) -> Any:
        converted.append(partition)
        if len(converted) == failing + 1:
            raise MemoryError
        return convert(partition, rows)

    monkeypatch.setattr(record_callbacks, "to_log_records", to_log_records)
    counts = {0: 33_000, 1: 2}  # more than an Arrow batch has
    with cluster.log_of() as log:
        for number, count in counts.items():
            cluster.append(tp(number), count)
        assert isinstance(outcome(log.read_to_end()), MemoryError | None)
        cluster.sleep(5)
        assert outcome(log.read_to_end()) is None
    assert converted.count(tp(0)) >= 2
    for number, count in counts.items():
        assert cluster.offsets(number) == list(range(count))


@pytest.mark.parametrize("is_truncated", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_a_log_resumes_in_the_same_topic_and_epoch_after_the_topic_was_missing(
    cluster: LogCluster, number: int, is_truncated: bool
) -> None:
    for each in range(2):
        cluster.append_each(tp(each), 5)
    with cluster.log_of() as log:
        cluster.hide_topic(10)
        assert isinstance(outcome(log.read_to_end()), TopicNotFoundError)
        if is_truncated:
            cluster.truncate(tp(number), 3, leader=2)
        cluster.append_each(tp(number), 4)
        cluster.sleep(20)
        log.read_to_end().result(60)
        first = 3 if is_truncated else 5
        assert cluster.offsets(number) == [*range(5), *range(first, first + 4)]
        assert cluster.offsets(1 - number) == [*range(5)]
        assert [each.truncated_to for each in cluster.resets] == [3] * is_truncated


def test_a_topic_whose_records_expire(caplog: pytest.LogCaptureFixture) -> None:
    with LogCluster(cleanup_policy="compact,delete") as cluster:
        with pytest.raises(IllegalLogStateError, match=r"has cleanup\.policy=compact,delete"):
            cluster.table_of().start()
        assert cluster.sent("Fetch") == 0
        with cluster.log_of():
            assert "has cleanup.policy=compact,delete" in caplog.text


def test_a_policy_that_may_not_be_read_does_no_harm(cluster: LogCluster, caplog: pytest.LogCaptureFixture) -> None:
    def deny(_: int, response: dict[str, Any]) -> dict[str, Any]:
        response["results"][0] |= {"error_code": 29, "configs": []}
        return response

    cluster.change("DescribeConfigs", deny)
    with caplog.at_level(logging.DEBUG), cluster.table_of() as table:
        assert len(table) == 0
    assert [record.levelno for record in caplog.records if "cleanup.policy" in record.message] == [logging.DEBUG]
