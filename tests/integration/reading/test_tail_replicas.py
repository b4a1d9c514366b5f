"""Three brokers: tails whose leaders move, die, come back, hang, or forget what they had."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.reading.replicas import NODES, move
from tests.integration.reading.tails import Taker

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.workbench import Workbench


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(3, reuse_running=False) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def bench(three: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Workbench:
    return workbench_for(three)


def test_leaders_that_move(bench: Workbench) -> None:
    """To brokers that are not known yet, and back; the old leader keeps no replica."""
    topic = bench.make_topic(replication=1)
    first = bench.leader(topic)
    others = [node for node in NODES if node != first]
    with Taker(bench, {topic: 0}) as taker:
        count = 0
        for node in (*others, first):
            bench.write(topic, [b"value"] * 5)
            count += 5
            taker.until_position(count)
            moving = threading.Thread(target=move, args=(bench, topic, [node]))
            moving.start()
            taker.until(lambda: not moving.is_alive(), "moved")  # noqa: B023
            moving.join()
        bench.write(topic, [b"value"] * 5)
        taker.until_position(count + 5)
        assert taker.offsets == list(range(count + 5))
        assert taker.tail.trouble == {}


def test_each_leader_is_asked_for_its_partitions(bench: Workbench) -> None:
    topic = bench.make_topic(partitions=6, replication=3)
    places = [TopicPartition(topic, partition) for partition in range(6)]
    with Taker(bench, dict.fromkeys(places, 0)) as taker:
        for partition in range(6):
            bench.write(topic, [b"value"] * 3, partition=partition)
        taker.until(lambda: set(taker.tail.positions.values()) == {3})
        for partition in range(6):
            started = time.monotonic()
            bench.write(topic, [b"value"], partition=partition)
            taker.until(lambda: taker.tail.positions[TopicPartition(topic, partition)] == 4)  # noqa: B023
            assert time.monotonic() - started < 20


def test_a_broker_that_is_restarted(three: EmbeddedKafka, bench: Workbench) -> None:
    topic = bench.make_topic(partitions=6, replication=3)
    places = [TopicPartition(topic, partition) for partition in range(6)]
    for partition in range(6):
        bench.write(topic, [b"before"] * 3, partition=partition)
    with Taker(bench, dict.fromkeys(places, 0)) as taker:
        taker.until(lambda: set(taker.tail.positions.values()) == {3})
        for end, node in enumerate(NODES[:2], 4):
            three.stop_broker(node)
            try:
                for partition in range(6):
                    bench.write(topic, [b"while"], partition=partition)
                taker.until(lambda: set(taker.tail.positions.values()) == {end})  # noqa: B023
            finally:
                three.start_broker(node)
        assert all([offset for offset, _ in rows] == list(range(5)) for rows in taker.rows.values())
        taker.until(lambda: taker.tail.trouble == {}, "no trouble")


def test_a_broker_that_hangs_does_not_hold_up_the_others(three: EmbeddedKafka, bench: Workbench) -> None:
    """Its process is stopped, so its connections stay open and nothing answers; a wake is noticed all the same."""
    topic, hanging = two_leaders(bench)
    places = [TopicPartition(topic, partition) for partition in range(2)]
    wake = SYSTEM.signal()
    with Taker(bench, dict.fromkeys(places, 0), request_timeout_ms=5000) as taker:
        for partition in range(2):
            bench.write(topic, [b"before"], partition=partition)
        taker.until(lambda: set(taker.tail.positions.values()) == {1})
        os.kill(three.pids[hanging], signal.SIGSTOP)
        try:
            bench.write(topic, [b"while"], partition=1)
            started = time.monotonic()
            taker.until(lambda: taker.tail.positions[places[1]] == 2)
            assert time.monotonic() - started < 20
            taker.until(lambda: places[0] in taker.tail.trouble, "trouble")
            assert places[1] not in taker.tail.trouble
            threading.Timer(0.3, wake.give).start()
            started = time.monotonic()
            taker.tail.poll(60, [wake.fileno()])
            assert time.monotonic() - started < 20
        finally:
            os.kill(three.pids[hanging], signal.SIGCONT)
        bench.write(topic, [b"after"], partition=0)
        taker.until(lambda: taker.tail.positions[places[0]] == 2)
    wake.close()


def two_leaders(bench: Workbench) -> tuple[str, int]:
    """A topic of two partitions with different leaders, and the first one's."""
    while True:  # the controller may choose the same for both
        topic = bench.make_topic(partitions=2, replication=1)
        leaders = [bench.leader(topic, partition) for partition in range(2)]
        if leaders[0] != leaders[1]:
            return topic, leaders[0]


@pytest.mark.parametrize("longer", [False, True])
def test_a_log_that_is_cut_under_its_reader(three: EmbeddedKafka, bench: Workbench, longer: bool) -> None:
    """An unclean election: a replica that has seen ten records only becomes the leader, and others are written."""
    topic = bench.make_topic(replication=2, unclean_leader_election_enable="true", min_insync_replicas=1)
    bench.write(topic, [b"old"] * 10)
    leading = bench.leader(topic)
    behind = next(node for node in bench.replicas(topic) if node != leading)
    three.stop_broker(behind)
    bench.write(topic, *[[b"old"] * 5] * 4)
    with Taker(bench, {topic: 0}) as taker:
        taker.until_position(30)
        three.kill_broker(leading)
        try:
            three.start_broker(behind)
            bench.wait_until(lambda: bench.leader(topic) == behind, "an unclean election", 120)
            bench.write(topic, *[[b"new"] * 5] * (8 if longer else 2))
            for _ in range(2):  # it is told again until somebody decides
                error = taker.failure(TruncatedError)
                assert (error.topic, error.partition, error.offset, error.cut_at) == (topic, 0, 30, 10)
            assert taker.position == 30
            taker.tail.seek(TopicPartition(topic, 0), error.cut_at)
            end = 50 if longer else 20
            taker.until_position(end)
        finally:
            three.start_broker(leading)
        assert taker.offsets == [*range(30), *range(10, end)]
        assert taker.values == [b"old"] * 30 + [b"new"] * (end - 10)
