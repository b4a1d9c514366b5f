"""Exactly-once delivery of continuous queries: crashes at every step, and drivers and tasks that resume late."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.continuous.exactly_once_driver import ExactlyOnceDriver, SimulatedCrashError, committed_counts
from tests.integration.topics import Admin
from tests.integration.transactional_batches import cluster_of, committed

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.continuous import sink_delivery
from pyspark_kafka_direct.continuous.checkpoint_log_format import parse_offset_entry
from pyspark_kafka_direct.continuous.group_offsets import parse_epoch_metadata
from pyspark_kafka_direct.continuous.sink_delivery import ExactlyOnceDelivery
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    CheckpointFencedError,
    OptionError,
    ProducerFencedError,
    TransactionStateError,
)
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

STEPS = ("written", "sent", "offsets", "one ended", "all ended", "offsets/N", "commits/N")


class Query:
    """A query with consecutive drivers; abandoned ones stay open as zombies."""

    def __init__(self, servers: str, root: Path, source: str, output: str) -> None:
        self.servers, self.root, self.source, self.output = servers, root, source, output
        self.drivers: list[ExactlyOnceDriver] = []

    def driver(self, **options: object) -> ExactlyOnceDriver:
        self.drivers.append(ExactlyOnceDriver(self.servers, self.root, self.source, self.output, **options))  # type: ignore[arg-type]
        return self.drivers[-1]

    def start(self, **options: object) -> ExactlyOnceDriver:
        return self.driver(**options).start()

    def committed_counts(self) -> list[int]:
        return committed_counts(self.servers, self.output)

    def group(self) -> ConsumerGroup:
        return ConsumerGroup(cluster_of(self.servers), f"p-{self.output}.cont")

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()


@pytest.fixture
def query(kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Iterator[Query]:
    created = Query(kafka.bootstrap_servers, tmp_path / "checkpoint", make_topic(2), make_topic(2))
    yield created
    created.close()


def crash(driver: ExactlyOnceDriver, step: str) -> None:
    """Run an epoch up to a step, and abandon the driver."""
    driver.write(0, 4)
    driver.write(1, 5)
    if step == "written":
        return
    for sink in driver.sinks:
        sink._rows.flush()
        sink._producer.flush()
    if step == "sent":
        return
    if step == "offsets":
        tp = driver.partitions[0]
        offsets = driver.sinks[0]._with_epoch_metadata(driver.epoch, {tp: driver.positions[tp]}, ())
        driver.sinks[0]._producer.send_offsets_to_transaction(driver.sinks[0]._group, offsets)
        return
    driver.end(0)
    if step == "one ended":
        return
    driver.end(1)
    if step == "all ended":
        return
    driver.files.crash_at = step.removesuffix("N")
    with pytest.raises(SimulatedCrashError):
        driver.commit()


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_neither_loses_nor_repeats(query: Query, step: str) -> None:
    first = query.start()
    first.run_epoch(3)
    crash(first, step)
    second = query.start()
    ended = STEPS.index(step) - STEPS.index("offsets")
    expected = [3 + 4 if ended >= 1 else 3, 3 + 5 if ended >= 2 else 3]
    assert list(second.positions.values()) == expected
    second.run_epoch(2)
    assert query.committed_counts() == [each + 2 for each in expected]
    # The tasks of the first driver resume.
    for task in range(2):
        first.write(task, 1)
        with pytest.raises(ProducerFencedError):
            first.end(task)
    with pytest.raises((CheckpointFencedError, SimulatedCrashError)):
        first.commit()
    with pytest.raises(CheckpointFencedError, match="has taken control of the query"):
        first.start()
    second.run_epoch(2)
    assert query.committed_counts() == [each + 4 for each in expected]


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_in_the_very_first_epoch(query: Query, step: str) -> None:
    crash(query.start(), step)
    second = query.start()
    second.run_epoch(2)
    assert query.committed_counts() == list(second.positions.values())


def test_consecutive_crashes(query: Query) -> None:
    for number in range(3):
        for step in STEPS:
            driver = query.start()
            if number:
                driver.run_epoch(1)
            crash(driver, step)
    last = query.start()
    last.run_epoch(1)
    assert query.committed_counts() == list(last.positions.values())


def test_a_driver_that_was_suspended_between_its_producer_ids_ends(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has fenced only one of its successor's tasks, and the other task may read the same records."""
    query.start().run_epoch(3)
    late, second = query.driver(), query.driver()
    second.partitions.reverse()
    monkeypatch.setattr(sink_delivery, "_INIT_THREADS", 1)  # one after the other
    acquire = late.delivery._init_producer_id

    def acquire_late(task: int) -> object:
        if task == 1:
            second.start()
        return acquire(task)

    monkeypatch.setattr(late.delivery, "_init_producer_id", acquire_late)

    def resume() -> None:
        late.start()
        late.write(1, 4)
        late.end(1)

    with pytest.raises(CheckpointFencedError, match="has taken control of the query"):
        resume()
    second.write(0, 4)
    second.end(0)
    assert query.committed_counts() == [3, 7]
    query.start().run_epoch(1)
    assert query.committed_counts() == [4, 8]


def test_a_restart_of_the_same_driver(query: Query) -> None:
    driver = query.start()
    driver.run_epoch()
    old = list(driver.sinks)
    crash(driver, "one ended")
    driver.start()
    assert list(driver.positions.values()) == [7, 3]
    for sink in old:
        with pytest.raises(ProducerFencedError):
            sink.end_epoch(99, dict.fromkeys(driver.partitions, 99))
    driver.run_epoch()
    assert query.committed_counts() == [10, 6]
    assert sorted(driver.files.list_names("transactions")) == ["0", "1"]


def test_tasks_of_an_earlier_larger_run_are_fenced(query: Query) -> None:
    first = query.start()
    first.run_epoch()
    first.write(1, 5)
    second = query.driver(tasks=1).start()
    assert len(second.sinks) == 1
    with pytest.raises(ProducerFencedError):
        first.end(1)
    second.run_epoch()
    assert query.committed_counts() == [6, 3]


def test_an_epoch_without_output_rows_is_not_read_again(query: Query) -> None:
    first = query.start()
    first.run_epoch(3)
    for task in range(2):
        first.write(task, 10, keep=lambda _: False)
        first.end(task)
    second = query.start()
    assert list(second.positions.values()) == [13, 13]
    assert query.committed_counts() == [3, 3]


def test_an_epoch_without_progress_sends_no_request(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = query.start()
    driver.run_epoch(0)
    found = query.group().committed_with_metadata(driver.partitions)
    assert {tp.partition: each.offset for tp, each in found.items()} == {0: 0, 1: 0}, (
        "the first epoch commits all offsets"
    )
    requests: list[object] = []
    for sink in driver.sinks:
        for name in ("send_offsets_to_transaction", "commit", "send"):
            monkeypatch.setattr(sink._producer, name, lambda *_: requests.append(None))
    driver.run_epoch(0)
    assert requests == []
    for sink in driver.sinks:
        sink._next_full_commit_at = 0.0  # a day has passed
    driver.run_epoch(0)
    assert len(requests) == 4, "offsets and commits of two tasks, so that they do not expire"


def test_metadata_has_query_epoch_and_topic(query: Query) -> None:
    driver = query.start()
    driver.run_epoch(3)
    driver.write(0, 2)
    driver.end(0)
    driver.end(1)
    cluster = cluster_of(query.servers)
    topic_id = cluster.topics([query.source])[query.source].topic_id
    metadata_by_partition = {
        tp.partition: parse_epoch_metadata(each.metadata)
        for tp, each in query.group().committed_with_metadata(driver.partitions).items()
    }
    fields = {
        number: (metadata.query, metadata.epoch, metadata.topic_id)
        for number, metadata in metadata_by_partition.items()
        if metadata is not None
    }
    assert fields == {0: (driver.query_id, 2, topic_id), 1: (driver.query_id, 1, topic_id)}


def test_offsets_of_logged_epochs_do_not_count(query: Query) -> None:
    """A micro-batch query has run in the meantime."""
    driver = query.start()
    driver.run_epoch(3)
    driver.logs.commit(2, dict.fromkeys(driver.partitions, 50), 0)
    second = query.start()
    assert list(second.positions.values()) == [50, 50]
    assert second.epoch == 3


def test_a_copied_checkpoint_is_rejected(query: Query) -> None:
    driver = query.start()
    for _ in range(3):
        driver.run_epoch(3)
    driver.logs.commit(4, dict.fromkeys(driver.partitions, 5), 0)
    with pytest.raises(TransactionStateError, match="two queries have resumed from copies"):
        query.start()


def test_the_prefix_of_another_query_is_rejected_until_it_is_reset(query: Query, tmp_path: Path) -> None:
    first = query.start()
    first.run_epoch(3)
    other = Query(query.servers, tmp_path / "other", query.source, query.output)
    with pytest.raises(
        TransactionStateError, match=r"another transactionalIdPrefix .* set resetTransactionState to (\w+)"
    ) as caught:
        other.start()
    token = caught.value.message.split("set resetTransactionState to ")[1].split(",")[0]
    with pytest.raises(TransactionStateError):
        other.start(options={"resetTransactionState": "0" * 16})
    second = other.start(options={"resetTransactionState": token})
    assert list(second.positions.values()) == [0, 0]
    second.run_epoch(1)
    other.start().run_epoch(1)  # no longer needs the token
    with pytest.raises(TransactionStateError):
        query.start(options={"resetTransactionState": token})
    other.close()


def test_a_rejected_query_does_not_affect_the_owner_of_its_prefix(query: Query, tmp_path: Path) -> None:
    """Its owner is not fenced, and the other query can use another prefix."""
    first = query.start()
    first.run_epoch(3)
    first.wait_for_committed_offsets()  # a check sees the owner of the prefix once a broker has ended its transaction
    other = Query(query.servers, tmp_path / "other", query.source, query.output)
    with pytest.raises(TransactionStateError, match="set another transactionalIdPrefix"):
        other.start()
    first.run_epoch(2)
    assert query.committed_counts() == [5, 5]
    corrected = other.start(prefix=f"other-{query.output}")
    corrected.run_epoch(0)
    other.close()


def test_open_transactions_of_the_query_are_aborted_at_once(query: Query) -> None:
    driver = query.start(options={"kafka.transaction.timeout.ms": "600000"})
    driver.run_epoch(3)
    crash(driver, "offsets")
    started_at = time.monotonic()
    assert list(query.start().positions.values()) == [3, 3]
    assert time.monotonic() - started_at < 120, "it does not wait for the transaction timeout"


def test_offsets_of_a_consumer_group_of_that_name_are_rejected(query: Query) -> None:
    query.group().commit({TopicPartition(query.source, 0): 7})
    with pytest.raises(TransactionStateError, match="which was not committed by a continuous query"):
        query.start()


def test_offsets_of_a_recreated_topic_do_not_count(query: Query) -> None:
    """Brokers delete offsets with their topic, but a task that has not noticed the deletion may commit again."""
    driver = query.start()
    driver.run_epoch(3)
    Admin(query.servers).recreate(query.source, 2)
    for task in range(2):
        driver.write(task, 6)
        driver.end(task)
    assert {each.offset for each in query.group().committed_with_metadata(driver.partitions).values()} == {9}
    second = query.start()
    assert list(second.positions.values()) == [3, 3]
    second.run_epoch(0)
    assert {
        parse_epoch_metadata(each.metadata).topic_id  # type: ignore[union-attr]
        for each in query.group().committed_with_metadata(second.partitions).values()
    } == {cluster_of(query.servers).topics([query.source])[query.source].topic_id}


def test_a_missing_topic_is_confirmed_by_other_brokers(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has just started. Without the topic id, the committed offsets would not count, and records be repeated."""
    driver = query.start()
    driver.run_epoch(3)
    crash(driver, "one ended")
    second = query.driver()
    cluster = second.delivery._cluster
    responses: list[dict[str, Any]] = [{}, {}]
    topics = cluster.topics
    monkeypatch.setattr(cluster, "topics", lambda names: responses.pop() if responses else topics(names))
    monkeypatch.setattr("pyspark_kafka_direct.continuous.sink_delivery._METADATA_RETRY_SECONDS", 0.0)
    second.start()
    assert list(second.positions.values()) == [7, 3]
    second.run_epoch(1)
    assert query.committed_counts() == [8, 4]


def test_a_lower_position_is_committed_with_the_new_topic_id(query: Query) -> None:
    """The query continues in a recreated topic."""
    driver = query.start()
    driver.run_epoch(3)
    Admin(query.servers).recreate(query.source, 2)
    driver.positions = dict.fromkeys(driver.partitions, 1)
    for task in range(2):
        driver.end(task)
    second = query.start()
    assert list(second.positions.values()) == [1, 1]


def test_a_higher_position_in_a_recreated_topic_is_committed_with_the_new_topic_id(query: Query) -> None:
    """The position has not moved back, because all records were read in one epoch. The other partition lags."""
    driver = query.start()
    driver.run_epoch(3)
    Admin(query.servers).recreate(query.source, 2)
    topic_id = cluster_of(query.servers).topics([query.source])[query.source].topic_id
    assert topic_id is not None
    one, other = driver.partitions
    sink = driver.sinks[0]
    sink.end_epoch(driver.epoch, {one: 8, other: 9}, {one: topic_id})
    sink.end_epoch(driver.epoch + 1, {one: 9, other: 9})
    second = query.start()
    assert list(second.positions.values()) == [9, 3]


def test_the_prefix_may_change_only_after_a_recovery(query: Query) -> None:
    query.start().run_epoch(3)
    with pytest.raises(OptionError, match=r"transactionalIdPrefix is 'other', but the previous run of the query used"):
        query.start(prefix="other")
    recovery = query.driver()
    recovery.delivery.prepare(recovery.logs.query_id(""), (), 0)
    recovery.delivery._fencing_log.record_recovery()
    query.start(prefix=f"other-{query.output}").run_epoch(1)
    assert query.committed_counts() == [4, 4]


def test_input_and_output_in_different_clusters_are_rejected(query: Query, stoppable_kafka: EmbeddedKafka) -> None:
    driver = query.driver()
    source = cluster_of(stoppable_kafka.bootstrap_servers).settings
    driver.delivery = ExactlyOnceDelivery(driver.delivery._options, source, driver.logs, 10.0)
    with pytest.raises(OptionError, match="requires that input and output are in one cluster"):
        driver.start()
    assert driver.files.list_names("transactions") == []


def test_the_transaction_timeout_must_exceed_an_epoch(query: Query) -> None:
    with pytest.raises(
        OptionError, match=r"kafka\.transaction\.timeout\.ms is 10000, but a transaction can stay open for up to 10 s"
    ):
        query.driver(options={"kafka.transaction.timeout.ms": "10000"})
    with pytest.raises(OptionError, match=r"the brokers allow at most 900000"):
        query.start(options={"kafka.transaction.timeout.ms": "900001"})


def test_an_expired_transaction_is_a_timeout(query: Query) -> None:
    driver = query.driver(options={"kafka.transaction.timeout.ms": "11000"}).start()
    driver.write(0, 1)
    sink = driver.sinks[0]
    sink._rows.flush()
    sink._producer.flush()
    assert sink._producer._started_at is not None
    sink._producer._started_at -= 11.0
    query.start(options={"kafka.transaction.timeout.ms": "11000"})
    with pytest.raises(BrokerTimeoutError, match=r"was open for 11\.\d s, so it was aborted after its timeout of 11 s"):
        driver.end(0)


def test_closing_aborts_the_open_transaction(query: Query, make_topic: MakeTopic) -> None:
    """read_committed consumers need not wait for the transaction timeout."""
    driver = query.start()
    driver.write(0, 1)
    driver.sinks[0]._rows.flush()
    driver.sinks[0]._producer.flush()
    driver.close()
    cluster, tp = cluster_of(query.servers), TopicPartition(query.output, 0)
    deadline = time.monotonic() + 600
    while cluster.offsets({tp: -1}, isolation_level="read_committed")[tp] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert committed(query.servers, query.output, 2) == []


def test_an_uncommitted_epoch_is_committed_up_to_the_transactions(query: Query) -> None:
    driver = query.start()
    driver.run_epoch(3)
    crash(driver, "offsets/N")
    second = query.start()
    text = second.files.read("offsets/2")
    assert text is not None
    assert parse_offset_entry(text, "").offsets == dict(zip(second.partitions, (7, 8), strict=True))
    assert sorted(second.files.list_names("commits")) == ["0", "1", "2"]
