"""Exactly-once delivery of continuous queries: a crash at every step, and whoever wakes up late."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.continuous.by_hand import DiedError, Driver, published
from tests.integration.deliveries import cluster_of, committed
from tests.integration.topics import Admin

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.continuous._group_offsets import read_note
from pyspark_kafka_direct.continuous._log_format import parse_offsets
from pyspark_kafka_direct.continuous._transactions import TransactionalDelivery
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    CheckpointTakenError,
    DeliveryRefusedError,
    FencedError,
    OptionError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.groups import Group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import MakeTopic

STEPS = ("written", "sent", "offsets", "one ended", "all ended", "offsets/N", "commits/N")


class Query:
    """A query with its drivers, one after the other; those that were abandoned are still there, as zombies."""

    def __init__(self, servers: str, root: Path, source: str, output: str) -> None:
        self.servers, self.root, self.source, self.output = servers, root, source, output
        self.drivers: list[Driver] = []

    def driver(self, **more: object) -> Driver:
        self.drivers.append(Driver(self.servers, self.root, self.source, self.output, **more))  # type: ignore[arg-type]
        return self.drivers[-1]

    def start(self, **more: object) -> Driver:
        return self.driver(**more).start()

    def published(self) -> list[int]:
        return published(self.servers, self.output)

    def group(self) -> Group:
        return Group(cluster_of(self.servers), f"p-{self.output}.cont")

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()


@pytest.fixture
def query(kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> Iterator[Query]:
    made = Query(kafka.bootstrap_servers, tmp_path / "checkpoint", make_topic(2), make_topic(2))
    yield made
    made.close()


def crash(driver: Driver, step: str) -> None:
    """Go through an epoch up to a step, and do nothing more."""
    driver.write(0, 4)
    driver.write(1, 5)
    if step == "written":
        return
    for sink in driver.sinks:
        sink._rows.flush()
        sink._session.flush()
    if step == "sent":
        return
    if step == "offsets":
        tp = driver.partitions[0]
        noted = driver.sinks[0]._noted(driver.epoch, {tp: driver.positions[tp]})
        driver.sinks[0]._session.add_offsets(driver.sinks[0]._group, noted)
        return
    driver.end(0)
    if step == "one ended":
        return
    driver.end(1)
    if step == "all ended":
        return
    driver.files.dies_at = step.removesuffix("N")
    with pytest.raises(DiedError):
        driver.commit()


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_neither_loses_nor_repeats(query: Query, step: str) -> None:
    first = query.start()
    first.run_epoch(3)
    crash(first, step)
    second = query.start()
    ended = STEPS.index(step) - STEPS.index("offsets")
    reached = [3 + 4 if ended >= 1 else 3, 3 + 5 if ended >= 2 else 3]
    assert list(second.positions.values()) == reached
    second.run_epoch(2)
    assert query.published() == [each + 2 for each in reached]
    # The first one's tasks wake up, and go on.
    for task in range(2):
        first.write(task, 1)
        with pytest.raises(FencedError):
            first.end(task)
    with pytest.raises((CheckpointTakenError, DiedError)):
        first.commit()
    with pytest.raises(CheckpointTakenError, match="has taken the query over"):
        first.start()
    second.run_epoch(2)
    assert query.published() == [each + 4 for each in reached]


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_in_the_very_first_epoch(query: Query, step: str) -> None:
    crash(query.start(), step)
    second = query.start()
    second.run_epoch(2)
    assert query.published() == list(second.positions.values())


def test_crash_upon_crash(query: Query) -> None:
    for number in range(3):
        for step in STEPS:
            driver = query.start()
            if number:
                driver.run_epoch(1)
            crash(driver, step)
    last = query.start()
    last.run_epoch(1)
    assert query.published() == list(last.positions.values())


def test_a_driver_that_slept_between_its_producer_ids_ends(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has fenced but one of its successor's tasks, and the other one may read what it is about to read itself."""
    query.start().run_epoch(3)
    late, second = query.driver(), query.driver()
    second.partitions.reverse()
    take_over = late.delivery._take_over

    def sleeps(task: int) -> object:
        if task == 1:
            second.start()
        return take_over(task)

    monkeypatch.setattr(late.delivery, "_take_over", sleeps)

    def go_on() -> None:
        late.start()
        late.write(1, 4)
        late.end(1)

    with pytest.raises(CheckpointTakenError, match="has taken the query over"):
        go_on()
    second.write(0, 4)
    second.end(0)
    assert query.published() == [3, 7]
    query.start().run_epoch(1)
    assert query.published() == [4, 8]


def test_a_restart_of_the_same_driver_goes_on(query: Query) -> None:
    driver = query.start()
    driver.run_epoch()
    old = list(driver.sinks)
    crash(driver, "one ended")
    driver.start()
    assert list(driver.positions.values()) == [7, 3]
    for sink in old:
        with pytest.raises(FencedError):
            sink.end_epoch(99, dict.fromkeys(driver.partitions, 99))
    driver.run_epoch()
    assert query.published() == [10, 6]
    assert sorted(driver.files.names("transactions")) == ["0", "1"]


def test_tasks_of_an_earlier_run_that_had_more_of_them_are_fenced(query: Query) -> None:
    first = query.start()
    first.run_epoch()
    first.write(1, 5)
    second = query.driver(tasks=1).start()
    assert len(second.sinks) == 1
    with pytest.raises(FencedError):
        first.end(1)
    second.run_epoch()
    assert query.published() == [6, 3]


def test_an_epoch_whose_rows_were_all_filtered_out_is_not_read_again(query: Query) -> None:
    first = query.start()
    first.run_epoch(3)
    for task in range(2):
        first.write(task, 10, keep=lambda _: False)
        first.end(task)
    second = query.start()
    assert list(second.positions.values()) == [13, 13]
    assert query.published() == [3, 3]


def test_an_epoch_in_which_nothing_moved_asks_nothing(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = query.start()
    driver.run_epoch(0)
    found = query.group().noted(driver.partitions)
    assert {tp.partition: each.offset for tp, each in found.items()} == {0: 0, 1: 0}, "the first one tells them all"
    asked: list[object] = []
    for sink in driver.sinks:
        for name in ("add_offsets", "commit", "send"):
            monkeypatch.setattr(sink._session, name, lambda *_: asked.append(None))
    driver.run_epoch(0)
    assert asked == []
    for sink in driver.sinks:
        sink._refresh_at = 0.0  # a day has passed
    driver.run_epoch(0)
    assert len(asked) == 4, "offsets and commits of two tasks, so that brokers forget neither"


def test_the_note_names_query_epoch_and_topic(query: Query) -> None:
    driver = query.start()
    driver.run_epoch(3)
    driver.write(0, 2)
    driver.end(0)
    driver.end(1)
    cluster = cluster_of(query.servers)
    topic_id = cluster.topics([query.source])[query.source].topic_id
    notes = {tp.partition: read_note(each.metadata) for tp, each in query.group().noted(driver.partitions).items()}
    told = {number: (note.query, note.epoch, note.topic_id) for number, note in notes.items() if note is not None}
    assert told == {0: (driver.query_id, 2, topic_id), 1: (driver.query_id, 1, topic_id)}


def test_epochs_that_the_logs_have_count_no_longer(query: Query) -> None:
    """A micro-batch query has gone on in the meantime."""
    driver = query.start()
    driver.run_epoch(3)
    driver.logs.commit(2, dict.fromkeys(driver.partitions, 50), 0)
    second = query.start()
    assert list(second.positions.values()) == [50, 50]
    assert second.epoch == 3


def test_a_copy_of_the_checkpoint_is_noticed(query: Query) -> None:
    driver = query.start()
    for _ in range(3):
        driver.run_epoch(3)
    driver.logs.commit(4, dict.fromkeys(driver.partitions, 5), 0)
    with pytest.raises(DeliveryRefusedError, match="The checkpoint was copied"):
        query.start()


def test_another_query_under_the_prefix_is_refused_until_it_is_wanted(query: Query, tmp_path: Path) -> None:
    first = query.start()
    first.run_epoch(3)
    other = Query(query.servers, tmp_path / "other", query.source, query.output)
    with pytest.raises(DeliveryRefusedError, match=r"Another query uses this .* set resetDelivery to (\w+)") as caught:
        other.start()
    token = caught.value.message.split("set resetDelivery to ")[1].split(";")[0]
    with pytest.raises(DeliveryRefusedError):
        other.start(options={"resetDelivery": "0" * 16})
    taken = other.start(options={"resetDelivery": token})
    assert list(taken.positions.values()) == [0, 0]
    taken.run_epoch(1)
    other.start().run_epoch(1)  # needs no token any more
    with pytest.raises(DeliveryRefusedError):
        query.start(options={"resetDelivery": token})
    other.close()


def test_who_has_anothers_prefix_by_mistake_does_no_harm(query: Query, tmp_path: Path) -> None:
    """Its owner is not fenced, and the other one may have another prefix without more ado."""
    first = query.start()
    first.run_epoch(3)
    other = Query(query.servers, tmp_path / "other", query.source, query.output)
    with pytest.raises(DeliveryRefusedError, match="Another query uses this"):
        other.start()
    first.run_epoch(2)
    assert query.published() == [5, 5]
    mended = other.start(prefix=f"other-{query.output}")
    mended.run_epoch(0)
    other.close()


def test_what_is_open_of_its_own_is_not_waited_for_before_it_is_aborted(query: Query) -> None:
    driver = query.start()
    driver.run_epoch(3)
    crash(driver, "offsets")
    began = time.monotonic()
    assert list(query.start().positions.values()) == [3, 3]
    assert time.monotonic() - began < 10, "not until the transaction times out"


def test_offsets_of_a_consumer_group_of_that_name_are_refused(query: Query) -> None:
    query.group().commit({TopicPartition(query.source, 0): 7})
    with pytest.raises(DeliveryRefusedError, match="which no continuous query has committed"):
        query.start()


def test_what_is_noted_of_a_topic_that_was_made_anew_does_not_count(query: Query) -> None:
    """Brokers forget offsets with their topic, but a task that has not noticed may commit some after that."""
    driver = query.start()
    driver.run_epoch(3)
    Admin(query.servers).recreate(query.source, 2)
    for task in range(2):
        driver.write(task, 6)
        driver.end(task)
    assert {each.offset for each in query.group().noted(driver.partitions).values()} == {9}
    second = query.start()
    assert list(second.positions.values()) == [3, 3]
    second.run_epoch(0)
    assert {read_note(each.metadata).topic_id for each in query.group().noted(second.partitions).values()} == {  # type: ignore[union-attr]
        cluster_of(query.servers).topics([query.source])[query.source].topic_id
    }


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has just started. Without the topic's id, what was published would count for nothing, and come again."""
    driver = query.start()
    driver.run_epoch(3)
    crash(driver, "one ended")
    second = query.driver()
    cluster = second.delivery._cluster
    answers: list[dict[str, Any]] = [{}, {}]
    topics = cluster.topics
    monkeypatch.setattr(cluster, "topics", lambda names: answers.pop() if answers else topics(names))
    monkeypatch.setattr("pyspark_kafka_direct.continuous._transactions._PAUSE", 0.0)
    second.start()
    assert list(second.positions.values()) == [7, 3]
    second.run_epoch(1)
    assert query.published() == [8, 4]


def test_a_position_that_goes_back_is_noted_with_the_topic_of_now(query: Query) -> None:
    """The query reads on in a topic that was made anew under it."""
    driver = query.start()
    driver.run_epoch(3)
    Admin(query.servers).recreate(query.source, 2)
    driver.positions = dict.fromkeys(driver.partitions, 1)
    for task in range(2):
        driver.end(task)
    second = query.start()
    assert list(second.positions.values()) == [1, 1]


def test_more_of_a_topic_that_was_made_anew_than_of_the_old_one_is_noted_with_the_topic_of_now(query: Query) -> None:
    """All was read in one epoch, so the position has not gone back. At the other partition it is not noticed yet."""
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


def test_another_prefix_is_refused_and_so_is_none_that_was_settled(query: Query) -> None:
    query.start().run_epoch(3)
    with pytest.raises(OptionError, match=r"transactionalIdPrefix is 'other', and the query was delivered under"):
        query.start(prefix="other")
    settling = query.driver()
    settling.delivery.prepare(settling.logs.query_id(""), (), 0)
    settling.delivery.settled()
    query.start(prefix=f"other-{query.output}").run_epoch(1)
    assert query.published() == [4, 4]


def test_source_and_output_on_different_clusters_are_refused(query: Query) -> None:
    with EmbeddedKafka() as elsewhere:
        driver = query.driver()
        source = cluster_of(elsewhere.bootstrap_servers).settings
        driver.delivery = TransactionalDelivery(driver.delivery._options, source, driver.files, 10.0)
        with pytest.raises(OptionError, match="reads and writes one cluster"):
            driver.start()
    assert driver.files.names("transactions") == []


def test_a_transaction_must_be_allowed_as_long_as_an_epoch(query: Query) -> None:
    with pytest.raises(
        OptionError, match=r"kafka\.transaction\.timeout\.ms is 10000, and a transaction may be open for 10 s"
    ):
        query.driver(options={"kafka.transaction.timeout.ms": "10000"})
    with pytest.raises(OptionError, match=r"the brokers allow 900000 at most"):
        query.start(options={"kafka.transaction.timeout.ms": "900001"})


def test_a_transaction_that_was_open_for_too_long_is_no_fence(query: Query) -> None:
    driver = query.driver(options={"kafka.transaction.timeout.ms": "11000"}).start()
    driver.write(0, 1)
    sink = driver.sinks[0]
    sink._rows.flush()
    sink._session.flush()
    assert sink._began is not None
    sink._began -= 11.0
    query.start(options={"kafka.transaction.timeout.ms": "11000"})
    with pytest.raises(BrokerTimeoutError, match=r"was open for 11\.\d s, and brokers end it after 11 s"):
        driver.end(0)


def test_what_was_open_is_aborted_by_closing(query: Query, make_topic: MakeTopic) -> None:
    """So that readers of committed records need not wait until it times out."""
    driver = query.start()
    driver.write(0, 1)
    driver.sinks[0]._rows.flush()
    driver.sinks[0]._session.flush()
    driver.close()
    cluster, tp = cluster_of(query.servers), TopicPartition(query.output, 0)
    deadline = time.monotonic() + 10
    while cluster.offsets({tp: -1}, isolation_level="read_committed")[tp] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert committed(query.servers, query.output, 2) == []


def test_offsets_without_a_commit_are_told_in_the_log_of_the_next_run(query: Query) -> None:
    driver = query.start()
    driver.run_epoch(3)
    crash(driver, "offsets/N")
    second = query.start()
    text = second.files.text("offsets/2")
    assert text is not None
    assert parse_offsets(text, "").offsets == dict(zip(second.partitions, (7, 8), strict=True))
    assert sorted(second.files.names("commits")) == ["0", "1", "2"]
