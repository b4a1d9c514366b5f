"""Reading several partitions on past their ends, from the real broker."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.reading.tails import Taker
from tests.integration.transactions import COMMITTED, transaction, transactional

from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire import fetch
from pyspark_kafka_direct.wire.pool import POOL
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

ISOLATION = {name.replace(".", "_"): value for name, value in COMMITTED.items()}


def fill(bench: Workbench, topic: str, count: int, *, partition: int = 0, text: str = "value") -> None:
    first = bench.end(topic, partition)
    bench.write(topic, [f"{text}-{offset}".encode() for offset in range(first, first + count)], partition=partition)


def test_what_is_there_and_what_comes(bench: Workbench) -> None:
    topic = bench.make_topic(partitions=3)
    places = [TopicPartition(topic, partition) for partition in range(3)]
    fill(bench, topic, 10, partition=0)
    fill(bench, topic, 5, partition=2)
    with Taker(bench, dict.fromkeys(places, 0)) as taker:
        taker.until(lambda: sum(map(len, taker.rows.values())) == 15)
        for partition in (1, 2, 0, 1):
            fill(bench, topic, 2, partition=partition)
            before = sum(map(len, taker.rows.values()))
            taker.until(lambda: sum(map(len, taker.rows.values())) == before + 2)  # noqa: B023
    for place, count in zip(places, (12, 4, 7), strict=True):
        assert taker.rows[place] == [(offset, b"value-%d" % offset) for offset in range(count)]


@pytest.mark.parametrize("version", [fetch.NEWEST_VERSION, 12, 11, 7, 4])
def test_requests_of_every_kind(bench: Workbench, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "NEWEST_VERSION", version)
    monkeypatch.setattr(fetch, "TOPIC_IDS_FROM", min(13, version + 1))
    topics = [bench.make_topic(partitions=2) for _ in range(2)]
    places = [TopicPartition(topic, partition) for partition in range(2) for topic in topics]
    for place in places:
        fill(bench, place.topic, 3, partition=place.partition)
    with Taker(bench, dict.fromkeys(places, 1)) as taker:
        taker.until(lambda: set(taker.tail.positions.values()) == {3})
    assert all([offset for offset, _ in rows] == [1, 2] for rows in taker.rows.values())


def test_a_record_is_handed_out_when_it_comes(bench: Workbench) -> None:
    """Not when a long poll is over, nor a poll of ours."""
    topic = bench.make_topic()
    with Taker(bench, {topic: 0}, fetch_max_wait_ms=20_000) as taker:
        taker.poll(0.5)
        writer = threading.Timer(1.0, fill, (bench, topic, 1))
        writer.start()
        started = time.monotonic()
        assert taker.poll(20) == 1
        assert time.monotonic() - started < 15
        writer.join()


def test_a_wake_ends_the_wait(bench: Workbench) -> None:
    topic = bench.make_topic()
    signal = SYSTEM.signal()
    with Taker(bench, {topic: 0}) as taker:
        taker.poll(0.5)
        threading.Timer(0.5, signal.give).start()
        started = time.monotonic()
        assert taker.tail.poll(60, [signal.fileno()]) == []
        assert 0.4 < time.monotonic() - started < 20
        started = time.monotonic()
        assert taker.tail.poll(60, [signal.fileno()]) == []  # still given
        signal.take()
        taker.poll(0.1)
        assert time.monotonic() - started < 20
    signal.close()


def test_transactions(bench: Workbench, mixed: str) -> None:
    end = bench.end(mixed)
    with Taker(bench, {mixed: 0}, **ISOLATION) as taker:
        taker.until_position(end)
        assert all(value.startswith((b"plain", b"committed")) for value in taker.values)
        assert taker.offsets == [0, 1, 2, 3, 4, 10, 11]
    with Taker(bench, {mixed: 0}) as taker:
        taker.until_position(end)
        assert len(taker.offsets) == 12


def test_a_position_stops_where_a_transaction_is_open(bench: Workbench) -> None:
    topic = bench.make_topic()
    with Taker(bench, {topic: 0}, **ISOLATION) as taker:
        fill(bench, topic, 2)
        producer = transactional(bench, topic)
        for commit in (True, False):
            first = bench.end(topic)
            transaction(producer, topic, [b"new"] * 3)
            bench.write(topic, [b"later"])
            taker.until_position(first)
            taker.poll(1.0)
            assert taker.position == first
            (producer.commit_transaction if commit else producer.abort_transaction)(30)
            taker.until_position(first + 5)
        assert taker.values == [b"value-0", b"value-1", b"new", b"new", b"new", b"later", b"later"]


def test_a_compacted_log_is_read_to_its_end(bench: Workbench, compacted: str) -> None:
    wanted = bench.read(compacted, bench.start(compacted), bench.end(compacted)).offsets
    with Taker(bench, {compacted: 0}, max_partition_fetch_bytes=1) as taker:
        taker.until_position(bench.end(compacted))
        assert taker.offsets == wanted
        assert len(wanted) < taker.position


def test_pause_resume_and_seek(bench: Workbench) -> None:
    topic = bench.make_topic(partitions=2)
    one, two = (TopicPartition(topic, partition) for partition in range(2))
    with Taker(bench, {one: 0, two: 0}) as taker:
        taker.tail.pause([one])
        for partition in range(2):
            fill(bench, topic, 5, partition=partition)
        taker.until(lambda: len(taker.rows[two]) == 5)
        taker.poll(1.0)
        assert taker.rows[one] == []
        taker.tail.resume([one])
        taker.until(lambda: len(taker.rows[one]) == 5)
        taker.tail.seek(two, 3)
        taker.until(lambda: len(taker.rows[two]) == 7)
        assert [offset for offset, _ in taker.rows[two]] == [0, 1, 2, 3, 4, 3, 4]


def test_a_record_larger_than_a_fetch(bench: Workbench) -> None:
    topic = bench.make_topic(partitions=3, max_message_bytes=4 << 20)
    places = [TopicPartition(topic, partition) for partition in range(3)]
    for partition in range(3):
        bench.write(topic, [b"x" * (3 << 20), b"small"], partition=partition, message_max_bytes=8 << 20)
    with Taker(bench, dict.fromkeys(places, 0), fetch_max_bytes=1000, max_partition_fetch_bytes=1000) as taker:
        taker.until(lambda: set(taker.tail.positions.values()) == {2})
    assert [len(value) for _, value in taker.rows[places[0]]] == [3 << 20, 5]


def test_records_that_aged_out(bench: Workbench) -> None:
    topic = bench.make_topic()
    fill(bench, topic, 50)
    with Taker(bench, {topic: 0}) as taker:
        taker.until_position(50)
        fill(bench, topic, 50)
        taker.tail.seek(TopicPartition(topic, 0), 10)
        bench.delete_records(topic, 70)
        error = taker.failure(DataLossError)
        assert not isinstance(error, TruncatedError)
        assert (error.topic, error.partition, error.offset) == (topic, 0, 10)
        assert "now holds [70, 100)" in str(error)
        taker.tail.seek(TopicPartition(topic, 0), bench.start(topic))
        taker.until_position(100)
        assert taker.offsets == [*range(50), *range(70, 100)]


def test_records_that_age_out_behind_the_reader_are_no_loss(bench: Workbench) -> None:
    topic = bench.make_topic()
    with Taker(bench, {topic: 0}) as taker:
        for round_ in range(3):
            fill(bench, topic, 10)
            taker.until_position(10 * round_ + 10)
            bench.delete_records(topic, 10 * round_ + 10)
        taker.poll(1.0)
        assert taker.offsets == list(range(30))


def test_an_offset_that_does_not_exist_yet(bench: Workbench) -> None:
    topic = bench.make_topic()
    fill(bench, topic, 5)
    with Taker(bench, {topic: 9}) as taker:
        error = taker.failure(DataLossError)
        assert not isinstance(error, TruncatedError)
        assert "beyond the end of the log: the log now holds [0, 5)" in str(error)


def test_a_topic_that_is_deleted(bench: Workbench) -> None:
    topic, other = bench.make_topic(), bench.make_topic()
    fill(bench, topic, 5)
    with Taker(bench, {topic: 0, other: 0}) as taker:
        taker.until(lambda: len(taker.rows[TopicPartition(topic, 0)]) == 5)
        bench.delete_topic(topic)
        error = taker.failure(TopicNotFoundError)
        assert not isinstance(error, TopicRecreatedError)
        assert error.topic == topic
        fill(bench, other, 3)
        taker.tail.pause([TopicPartition(topic, 0)])
        taker.until(lambda: len(taker.rows[TopicPartition(other, 0)]) == 3)


@pytest.mark.parametrize(("version", "batches"), [(fetch.NEWEST_VERSION, 1), (fetch.NEWEST_VERSION, 9), (12, 9)])
def test_a_topic_that_is_created_again(
    bench: Workbench, version: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer records than before, and more; also with requests that name no topic ids."""
    monkeypatch.setattr(fetch, "NEWEST_VERSION", version)
    topic = bench.make_topic()
    fill(bench, topic, 5, text="old")
    with Taker(bench, {topic: 0}) as taker:
        taker.until_position(5)
        bench.recreate_topic(topic)
        for _ in range(batches):
            fill(bench, topic, 1, text="new")
        error = taker.failure(TopicRecreatedError)
        assert (error.topic, error.topic_id) == (topic, bench.topic_id(topic))
        assert taker.position == 5
        taker.tail.seek(TopicPartition(topic, 0), 0)
        taker.until_position(batches)
        assert [value[:3] for value in taker.values] == [b"old"] * 5 + [b"new"] * batches


def test_many_partitions_get_their_turn(bench: Workbench) -> None:
    """An answer has room for a few of them; what is new in one comes although the others are far behind."""
    topic = bench.make_topic(partitions=100)
    places = [TopicPartition(topic, partition) for partition in range(100)]
    producer = bench.producer()
    for round_ in range(4):
        for place in places:
            for number in range(10):
                producer.produce(topic, b"%d-%d" % (round_, number) + b"." * 1000, partition=place.partition)
        assert producer.flush(60) == 0
    with Taker(bench, dict.fromkeys(places, 0), fetch_max_bytes=60_000, max_partition_fetch_bytes=10_000) as taker:
        first_at_end = None
        while first_at_end is None:
            taker.poll(5)
            positions = taker.tail.positions.values()
            first_at_end = min(positions) if max(positions) == 40 else None
        assert first_at_end >= 20
        taker.until(lambda: set(taker.tail.positions.values()) == {40})
    for rows in taker.rows.values():
        assert [offset for offset, _ in rows] == list(range(40))


def test_connections_are_given_back(bench: Workbench) -> None:
    topic = bench.make_topic()
    fill(bench, topic, 3)
    client_id = f"tail-{time.monotonic_ns()}"

    def idle() -> int:
        return sum(key.settings.client_id == client_id for key, _ in POOL._idle.values())

    with Taker(bench, {topic: 0}, client_id=client_id) as taker:
        taker.until_position(3)
        taker.tail.pause([TopicPartition(topic, 0)])
        taker.poll(1.5)  # the last long poll ends, and nothing is asked any more
        before = idle()
    assert idle() == before + 1
    with Taker(bench, {topic: 0}, client_id=client_id) as taker:
        taker.until_position(3)
    assert idle() == 0  # what awaits an answer is of no use to others, and closed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_the_tail_alone(bench: Workbench) -> None:
    topic = bench.make_topic()
    fill(bench, topic, 3)
    with Taker(bench, {topic: 0}) as taker:
        taker.until_position(3)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                taker.tail.poll(0)
            except RuntimeError:
                taker.tail.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        fill(bench, topic, 3)
        taker.until_position(6)
        assert taker.tail.trouble == {}
        assert taker.offsets == list(range(6))
